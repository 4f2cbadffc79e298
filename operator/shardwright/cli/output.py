"""Write results to stdout and problems to stderr; nothing else in this package prints."""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, TypeVar

from shardwright.reporting.lines import ASCII, Line, clipped
from shardwright.sinks import in_lines, in_terminal

T = TypeVar("T")

NARROWEST: Final = 60
WIDEST: Final = 140
IN_A_FILE_COLUMNS: Final = 200
"""Columns of lists in a file: one line per row, for searching."""
PIPE_WIDTH: Final = 110  #: columns without a terminal and COLUMNS
_DIGITS: Final = 6  #: COLUMNS has fewer


def width_of_output(unbounded: int = PIPE_WIDTH) -> int:
    """Return the columns: COLUMNS, else the terminal's, behind a pager too; ``unbounded`` for a
    file.
    """
    stated = os.environ.get("COLUMNS", "")
    found = (
        int(stated)
        if stated.isascii() and stated.isdigit() and len(stated) < _DIGITS
        else _columns_of_terminal()
    )
    return min(max(found, NARROWEST), WIDEST) if found else unbounded


def _columns_of_terminal() -> int:
    """Return the columns of the terminal behind stdout, behind stderr for a pipe; 0 for a file."""
    streams = (sys.__stdout__, sys.__stderr__)
    with suppress(OSError, ValueError, AttributeError):
        if not stat.S_ISREG(os.fstat(sys.__stdout__.fileno()).st_mode):  # type: ignore[union-attr]
            for stream in streams:
                with suppress(OSError, ValueError, AttributeError):
                    return os.get_terminal_size(stream.fileno()).columns  # type: ignore[union-attr]
    return 0


def in_colours() -> bool:
    """Return whether to use colours: NO_COLOR forbids them, FORCE_COLOR allows them in a pipe."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    )


def print_lines(lines: Iterable[Line], *, width: int | None = None) -> None:
    """Print styled lines, clipped to the output's width, with colours if they are wanted."""
    room = width or width_of_output()
    fitting = (clipped(line, room) for line in lines)
    if in_colours():
        from shardwright.cli.terminal import print_styled  # noqa: PLC0415 - rich is loaded only for a terminal

        print_styled(fitting)
        return
    for line in fitting:
        print_text(in_terminal(line.plain()))


def clear_terminal() -> None:
    """Clear the terminal, and move to its first line."""
    sys.stdout.write("\x1b[H\x1b[2J")


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print lines, with substitutes for signs that the stream lacks; all output passes here."""
    target = stream or sys.stdout
    text = in_lines(text)
    try:
        text.encode(target.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(ASCII).encode("ascii", "replace").decode()
    print(text, file=target)


def print_json(value: Any) -> None:
    """Print a value as indented JSON, keys in their order."""
    print_text(_unharmed(lambda unicode: json.dumps(value, indent=2, ensure_ascii=not unicode)))


def print_yaml(documents: Sequence[Mapping[str, Any]]) -> None:
    """Print a YAML document per value, keys in their order."""
    import yaml  # noqa: PLC0415 - not needed for text

    class Dumper(yaml.SafeDumper):
        """Writes multi-line text as lines, so that scripts can be read."""

    Dumper.add_representer(str, _text)
    for index, document in enumerate(documents):
        separator = "---\n" if index else ""
        plain = _plain(document)
        text = _unharmed(
            lambda unicode, plain=plain: yaml.dump(
                plain, Dumper=Dumper, sort_keys=False, allow_unicode=unicode, width=110
            )  # type: ignore[misc]
        )
        print_text(separator + text.removesuffix("\n"))


def _text(dumper: Any, value: str) -> Any:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
    )


def print_error(message: str, code: str = "") -> None:
    """Print a message to stderr, after the code under which docs/reasons.md explains it."""
    print_text(
        in_terminal(f"error[{code}]: {message}" if code else f"error: {message}"), sys.stderr
    )


def _unharmed(write: Callable[[bool], str]) -> str:
    """Return a document that printing cannot change: with escapes if a sign would have to."""
    text = write(_speaks_unicode())
    return text if in_lines(text) == text else write(False)


def print_note(message: str) -> None:
    """Print to stderr a note on a result."""
    print_text(f"note: {message}", sys.stderr)


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"


def _plain(value: Any) -> Any:
    """Return mappings as dicts and sequences as lists: the types that the safe dumper knows."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def with_progress(items: Iterable[T], noun: str) -> Iterator[T]:
    """Yield the items, counted on a terminal by a line on stderr."""
    if not sys.stderr.isatty():
        yield from items
        return
    from shardwright.cli.terminal import track  # noqa: PLC0415 - rich is loaded only for a terminal

    yield from track(items, noun)


@contextmanager
def with_bar(total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a function to call with the number done and the present name, for a bar on stderr."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from shardwright.cli.terminal import bar  # noqa: PLC0415 - only for a terminal

    with bar(total) as show:
        yield show


def _show_nothing(_done: int, _what: str) -> None:
    pass
