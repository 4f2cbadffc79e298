"""CPU and memory of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")


def read_stat(text: str) -> tuple[int, float]:
    """Return the parent and the CPU seconds of a process and of its ended children, from its `stat`
    (proc(5)).

    The name, in parentheses, may hold anything.
    """
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(int(field) for field in fields[11:15]) / TICKS_PER_SECOND


def with_descendants(root: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and all that came from it, given the parent of each."""
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found


def _stats() -> dict[int, tuple[int, float]]:
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = read_stat((entry / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
    return found


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Return user and system CPU seconds so far, by name, of each process with all that it has
    started.
    """
    stats = _stats()
    parents = {pid: parent for pid, (parent, _) in stats.items()}
    return {
        name: sum(stats[pid][1] for pid in with_descendants(root, parents) if pid in stats)
        for name, root in roots.items()
    }


def peak_mebibytes(root: int) -> dict[int, float]:
    """Return the peak resident memory (VmHWM) of a process and of each that it has started."""
    return {
        pid: _peak(pid)
        for pid in sorted(
            with_descendants(root, {pid: parent for pid, (parent, _) in _stats().items()})
        )
    }


def _peak(pid: int) -> float:
    lines: Iterable[str] = (PROC / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def machine_busy_seconds() -> float:
    """Return how long all cores of the machine together have been busy since its start."""
    words = (PROC / "stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, interrupts, soft, steal = (int(word) for word in words[:8])
    return (user + nice + system + interrupts + soft + steal) / TICKS_PER_SECOND
