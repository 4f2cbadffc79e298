"""What a process holds, and whether it holds more and more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

WARM_UP: Final = 3
"""The first samples of a process that do not count: its caches and pools fill. Basis: assumed."""

LEAST_SAMPLES: Final = 9
"""Samples that count of a process before it is judged: three thirds of three. Basis: assumed."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resident memory, threads, sockets, and all open files of a process."""

    rss_mebibytes: float
    threads: float
    sockets: float
    files: float


SLACK: Final = Footprint(rss_mebibytes=8, threads=4, sockets=4, files=6)
"""How much more the last third of a run may always hold than the first has ever held. Basis:
assumed; a soak of 52 minutes showed 0 to 4 MiB. Connections come and go, with faults by twenty at
once: what is held at one moment says nothing, not even in the median of five.
"""


def footprint(pid: int) -> Footprint:
    """Return what a process holds now, from /proc."""
    proc = Path("/proc") / str(pid)
    stated = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    links = [str(link.readlink()) for link in (proc / "fd").iterdir() if link.is_symlink()]
    return Footprint(
        rss_mebibytes=int(stated["VmRSS"].split()[0]) / 1024,
        threads=int(stated["Threads"]),
        sockets=sum(link.startswith("socket:") for link in links),
        files=len(links),
    )


def leaks(samples: Sequence[Footprint], slack: Footprint = SLACK) -> list[str]:
    """Return what grows over the samples of one process at rest beyond the slack; too few of them
    say nothing.
    """
    counted = samples[WARM_UP:]
    if len(counted) < LEAST_SAMPLES:
        return []
    third = len(counted) // 3
    first = _each(max, counted[:third])
    last = _each(min, counted[-third:])
    grown = zip(fields(Footprint), astuple(first), astuple(last), astuple(slack), strict=True)
    return [
        f"{field.name}: {after:g} after {before:g}, at most {before + more:g}"
        for field, before, after, more in grown
        if after > before + more
    ]


def _each(of: Callable[[Iterable[float]], float], samples: Sequence[Footprint]) -> Footprint:
    return Footprint(*map(of, zip(*map(astuple, samples), strict=True)))
