"""Write results to stdout and problems to stderr; nothing else in this package prints.

Documents for programs: each names its kind, and a list is always a list.

Lists that leave out their least important columns on a narrow terminal, and say so.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TextIO, TypeVar

from shardwright.api.group_version import API_VERSION
from shardwright.errors import Problem
from shardwright.reporting.lines import (
    ASCII,
    GAP,
    Line,
    Role,
    clipped,
    fits,
    line,
    paragraph,
    table,
    table_width,
)
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
    for one in fitting:
        print_text(in_terminal(one.plain()))


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


def print_problems(problems: Sequence[Problem], form: str) -> None:
    """Print faults as a ProblemList, if json or yaml was asked for."""
    print_list("ProblemList", [problem.document() for problem in problems], form)


def print_list(kind: str, items: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print items as one list of a kind, as json or yaml."""
    print_document(kind, {"items": list(items)}, form)


def print_document(kind: str, content: Mapping[str, Any], form: str) -> None:
    """Print one document of a kind, as json or yaml."""
    document = {"apiVersion": API_VERSION, "kind": kind, **content}
    if form == "yaml":
        print_yaml([document])
    else:
        print_json(document)


Rows = Sequence[Sequence[str]]

_LEFT_OUT: Final = "no room for {}: -o wide has all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Cells under a header; the last column may be wrapped."""

    header: Sequence[str]
    rows: Rows

    def without(self, *names: str) -> "Sheet":
        """Return the sheet without some of its columns.

        >>> Sheet(header=("ID", "GIB"), rows=[("a", "80")]).without("GIB")
        Sheet(header=('ID',), rows=[('a',)])
        """
        kept = [at for at, name in enumerate(self.header) if name not in names]
        return Sheet(
            header=tuple(self.header[at] for at in kept),
            rows=[tuple(row[at] for at in kept) for row in self.rows],
        )

    def filled(self) -> "Sheet":
        """Return the sheet without columns that are empty in every row.

        >>> Sheet(header=("ID", "DATE"), rows=[("a", "")]).filled()
        Sheet(header=('ID',), rows=[('a',)])
        """
        columns = zip(self.header, *self.rows, strict=True)
        return self.without(*(name for name, *cells in columns if not any(cells)))

    def cut_to(self, width: int) -> "Sheet":
        """Return the sheet with its last column cut to the width, with an ellipsis.

        >>> Sheet(header=("ID", "KIND"), rows=[("a", "llamas")]).cut_to(7).rows
        [('a', 'lla\u2026')]
        """
        *names, last = self.header
        front = table_width(names, [row[:-1] for row in self.rows], indent="")
        room = max(width - front - len(GAP), len(last))
        rows = [(*row, clipped(line(cell), room).plain()) for *row, cell in self.rows]
        return Sheet(header=self.header, rows=rows)


def widest_that_fits(sheets: Sequence[Sheet], *, width: int, indent: str = "") -> list[Line]:
    """Return the first sheet that fits as a table, else the last, and name the missing columns."""
    fitting = (
        sheet for sheet in sheets if fits(sheet.header, sheet.rows, width=width, indent=indent)
    )
    chosen = next(fitting, sheets[-1])
    lost = [name for name in sheets[0].header if name not in chosen.header]
    lines = table(chosen.header, chosen.rows, width=width, indent=indent)
    if lost:
        said = f"{indent}{_LEFT_OUT.format(' and '.join(lost))}"
        lines += paragraph(said, width=width, role=Role.FAINT)
    return lines
