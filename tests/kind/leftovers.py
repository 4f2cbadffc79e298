"""What our Docker daemon has left on the machine when it has ended: nothing, or it is named.

Only what is certainly ours counts: processes that were the daemon's before it was ended, names and
folders that are nobody else's, and folders that were not there before it was started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

GONE_SECONDS = 30
"""How long the kernel may take to clear namespaces and cgroups whose processes have ended; assumed,
and far more than seen.
"""

_SHOWN = 10
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process; ids are used again, an id and its start (clock ticks since boot) together are
    not.
    """

    id: int
    parent: int
    started_ticks: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Ours:
    """What goes with the daemon: its processes, its network interface, its folders, and mounts in
    and below `mounted`.

    others: mount points that were there before.
    """

    processes: tuple[Process, ...] = ()
    interface: str
    folders: tuple[Path, ...]
    mounted: tuple[Path, ...]
    others: frozenset[Path] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What there is: running processes, network interfaces, mount points, and those of the folders
    that exist.
    """

    processes: tuple[Process, ...]
    interfaces: frozenset[str]
    mounts: tuple[Path, ...]
    folders: frozenset[Path]


def left(ours: Ours, machine: Machine) -> tuple[str, ...]:
    """Return what of ours is there, in words."""
    alive = {(process.id, process.started_ticks) for process in machine.processes}
    mounts = (
        mount
        for mount in machine.mounts
        if mount not in ours.others and any(mount.is_relative_to(folder) for folder in ours.mounted)
    )
    return (
        *(
            f"process {each.id} ({each.name})"
            for each in ours.processes
            if (each.id, each.started_ticks) in alive
        ),
        *(
            [f"the network interface {ours.interface}"]
            if ours.interface in machine.interfaces
            else []
        ),
        *(f"the mount {mount}" for mount in mounts),
        *(f"the folder {folder}" for folder in ours.folders if folder in machine.folders),
    )


def descendants(root: int, processes: Iterable[Process]) -> tuple[Process, ...]:
    """Return a process and all that come of it, parents first."""
    known = tuple(processes)
    found = [process for process in known if process.id == root]
    for process in found:  # grows while it is read
        found += [each for each in known if each.parent == process.id]
    return tuple(found)


def read_process(stat: str) -> Process | None:
    """Read a process from what /proc says of it; None for one that has ended and waits for its
    parent.

    >>> read_process("41 (a (b) c) S 1 41 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0")
    Process(id=41, parent=1, started_ticks=777, name='a (b) c')
    """
    number, _, rest = stat.partition(" (")
    name, _, fields = rest.rpartition(") ")
    state, parent, *more = fields.split()
    if state in ("Z", "X"):
        return None
    return Process(id=int(number), parent=int(parent), started_ticks=int(more[17]), name=name)


def mount_points(mountinfo: str) -> tuple[Path, ...]:
    """Return where things are mounted, from what /proc says of them.

    >>> mount_points(r"36 35 0:1 / /a\\040b rw - tmpfs tmpfs rw")
    (PosixPath('/a b'),)
    """
    written = (line.split()[4] for line in mountinfo.splitlines())
    return tuple(Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), path)) for path in written)


def mounts_now() -> tuple[Path, ...]:
    """Return where things are mounted now."""
    return mount_points(Path("/proc/self/mountinfo").read_text())


def running() -> tuple[Process, ...]:
    """Return the processes that run now."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found.append(read_process(stat.read_text(errors="replace")))
        except OSError:
            continue  # it has ended meanwhile
    return tuple(process for process in found if process is not None)


def look(ours: Ours) -> Machine:
    """Look at the machine."""
    return Machine(
        processes=running(),
        interfaces=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        mounts=mounts_now(),
        folders=frozenset(folder for folder in ours.folders if folder.exists()),
    )


def require_none(ours: Ours, clear: Callable[[], None], seconds: float = GONE_SECONDS) -> None:
    """Return when nothing of ours is left; `clear` is called before every look.

    Raises:
        HarnessError: something still is after so many seconds.
    """

    def found() -> tuple[str, ...]:
        clear()
        return left(ours, look(ours))

    with suppress(AssertionError):
        wait_for(lambda: not found(), seconds, "nothing to be left", 0.2)
        return
    if still := found():
        raise HarnessError(_said(still, seconds))


def _said(still: tuple[str, ...], seconds: float) -> str:
    more = f" and {len(still) - _SHOWN} more" if len(still) > _SHOWN else ""
    return (
        f"the Docker daemon has ended, and {seconds:g} s later it has left: "
        f"{', '.join(still[:_SHOWN])}{more}"
    )
