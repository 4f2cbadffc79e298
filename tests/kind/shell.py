"""Running programs, and telling the person in front of it what runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.harness.errors import HarnessError

_TAIL = 20


def run(
    argv: Sequence[str | Path],
    *,
    data: bytes | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    accepted: tuple[int, ...] = (0,),
) -> str:
    """Run a program and return its standard output; raise with the end of what it said where it
    fails.

    data: what it reads on standard input, bytes or an open file.
    accepted: exit codes that are no failure.
    """
    words = [str(word) for word in argv]
    given: dict[str, Any] = (
        {"input": data} if isinstance(data, bytes) else {"stdin": data or subprocess.DEVNULL}
    )
    try:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            words, env=environment, cwd=folder, capture_output=True, check=False, **given
        )
    except FileNotFoundError:
        raise HarnessError(
            f"`{' '.join(words[:6])}` cannot be run: there is no {words[0]}"
        ) from None
    if done.returncode not in accepted:
        said = (done.stdout + done.stderr).decode(errors="replace").splitlines()[-_TAIL:]
        raise HarnessError(
            f"`{' '.join(words[:6])}` failed with exit code {done.returncode}:\n" + "\n".join(said)
        )
    return done.stdout.decode(errors="replace")


@contextmanager
def step(text: str, cold_seconds: int = 0) -> Iterator[None]:
    """Say what begins, about how long it takes, and when it was done."""
    expected = f" (about {cold_seconds} s)" if cold_seconds else ""
    say(f"{text}{expected}")
    began = time.monotonic()
    yield
    say(f"  done in {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    """Write a line for a person, at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
