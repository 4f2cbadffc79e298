"""One process at a time prepares what all of them share."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console


@contextmanager
def locked(path: Path, console: Console, doing: str) -> Iterator[None]:
    """Hold the lock file; where another process holds it, say what that one is doing and wait."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"Another process is {doing}; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
