"""Questions that cost too much, or end who works on them: for a real worker process."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pid:
    """In which process is this answered?"""

    def answer(self) -> int:
        return os.getpid()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spin:
    """Takes CPU time without end, ``begun`` is made first."""

    begun: Path | None = None

    def answer(self) -> int:
        if self.begun:
            self.begun.touch()
        while True:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """Takes memory without end."""

    def answer(self) -> int:
        kept = [bytearray(1 << 20)]
        while True:
            kept.append(bytearray(1 << 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dive:
    """Recurses without end."""

    def answer(self) -> int:
        return self.answer() + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """Ends its process, ``lives`` times."""

    by: int = signal.SIGSEGV
    lives: int = 1 << 30
    folder: Path

    def answer(self) -> int:
        deaths = len(list(self.folder.iterdir()))
        if deaths < self.lives:
            (self.folder / f"{deaths}").touch()
            os.kill(os.getpid(), self.by)
        return deaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """A fault of ours."""

    def answer(self) -> int:
        raise KeyError("a fault")


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Prints where it should not."""

    def answer(self) -> int:
        print("to standard output", flush=True)  # noqa: T201
        sys.stderr.write("to standard error\n")
        sys.stderr.flush()
        return 1
