"""Reads files as kubectl does; every problem names its file.

Text must be UTF-8, and a folder must hold manifests.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from shardwright.cli.output import print_note, with_bar
from shardwright.errors import InputError, Problem
from shardwright.units import MEGA, MIB

STDIN: Final = "-"
SUFFIXES: Final = (".json", ".yaml", ".yml")  #: what is read in a folder, as kubectl does

LONG: Final = 2 * MEGA
"""Unit: characters of YAML from which progress is shown. Basis: measured; 10**6 take 0.3
s of CPU.
"""

MOST_BYTES: Final = 512 * MIB
"""A text that is read. Basis: chosen; 10,000 nodes with their labels take about 200 MB."""

Object = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A Kubernetes object and the file it comes from."""

    file: str
    content: Object

    @property
    def kind(self) -> str:
        """Return the kind, empty if there is none."""
        return str(self.content.get("kind", ""))


def read_sources(files: Iterable[str]) -> tuple[Given, ...]:
    """Return all objects of files and folders in the order given; ``-`` is stdin.

    Raises:
        InputError: a file cannot be read or holds something other than Kubernetes objects.
    """
    with _collector_paused():
        return tuple(source for file in files for path in _expand(file) for source in _read(path))


def read_text(file: str) -> str:
    """Return the text of a file; ``-`` is stdin.

    Raises:
        InputError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        raw = _bytes_of(file)
        if len(raw) > MOST_BYTES:
            what = f"it must have at most {MOST_BYTES // MIB} MiB, and has more"
            raise _unreadable(file, what, "give a smaller file")
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise _unopened(file, error) from None
    except UnicodeDecodeError as error:
        raise _unreadable(file, f"byte {error.start} is not UTF-8", "save it as UTF-8") from None


def _bytes_of(file: str) -> bytes:
    """Return what a file holds, as far as one byte more than may be read."""
    if file == STDIN:
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    # A pipe may be named, as a shell's <(...) does; a disk without end is read no further.
    with Path(file).open("rb") as opened:
        return opened.read(MOST_BYTES + 1)


def missing_files(files: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each file or folder that is missing; none is opened."""
    for file in dict.fromkeys(files):
        try:
            if file != STDIN:
                os.stat(file)  # noqa: PTH116 - Path raises where a name is too long
        except OSError as error:
            yield from _unopened(file, error).problems


def name_the_file(file: str, read: Callable[[], T]) -> T:
    """Return the result of ``read``; its problems get the file in front of their path."""
    try:
        return read()
    except InputError as error:
        raise InputError(in_file(file, problem) for problem in error.problems) from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the cycle collector from walking over millions of fresh objects, none of which is
    garbage.

    Measured: a YAML list of 1,000 nodes and 10,000 pods is read in 3 s instead of 8 s.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _expand(file: str) -> Iterator[str]:
    folder = Path(file)
    if file == STDIN or not os.path.isdir(file):  # noqa: PTH112  # Path raises where a name is too long
        yield file
        return
    # A pipe or device in a folder would be waited for without end, and nobody has named it.
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in SUFFIXES and (path.is_file() or not path.exists())
    ]
    if not found:
        what = f"no file in it ends in {', '.join(sorted(SUFFIXES))}"
        raise _unreadable(file, what, "name a folder of manifests, or the files")
    yield from map(str, found)


def _read(file: str) -> Iterator[Given]:
    from shardwright.api.manifest import read_manifests  # noqa: PLC0415 - help and version need no YAML

    text = read_text(file)
    with _shown_how_far(file, text) as tell:
        contents = name_the_file(file, lambda: read_manifests(text, tell))
    for content in contents:
        yield Given(file=file, content=content)


@contextmanager
def _shown_how_far(file: str, text: str) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the characters read so far; for long YAML a bar on the terminal
    shows them, and then a note how to read it faster.
    """
    if len(text) < LONG or text.lstrip()[:1] == "{":
        yield lambda _read: None
        return
    name = _shown(file)
    with with_bar(len(text) // MEGA) as show:
        yield lambda read: show(read // MEGA, f"MB of {name}")
    if sys.stderr.isatty():
        print_note(f"{name}: what 'kubectl -o json' prints is read several times faster")


def in_file(file: str, problem: Problem) -> Problem:
    """Return a problem with its file in front of its path."""
    shown = _shown(file)
    return replace(problem, path=f"{shown}: {problem.path}" if problem.path else shown)


def _shown(file: str) -> str:
    return "stdin" if file == STDIN else file


def _unopened(file: str, error: OSError) -> InputError:
    what = error.strerror or str(error)
    return _unreadable(file, what, "give a file that exists and that you may read")


def _unreadable(file: str, what: str, remedy: str) -> InputError:
    return InputError([in_file(file, Problem(code="FileUnreadable", what=what, remedy=remedy))])
