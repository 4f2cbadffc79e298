"""What a Docker daemon of ours may have left behind is found, and nothing of anybody else's is
taken for it.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.errors import HarnessError
from tests.kind.leftovers import (
    Machine,
    Ours,
    Process,
    descendants,
    left,
    look,
    mount_points,
    require_none,
    running,
)

RUN, DATA = Path("/run/ours"), Path("/cache/docker")
CGROUP = Path("/sys/fs/cgroup/docker")
DAEMON = Process(id=10, parent=1, started_ticks=500, name="unshare")
CONTAINER = Process(id=12, parent=11, started_ticks=502, name="etcd")
OURS = Ours(
    processes=(DAEMON, CONTAINER), interface="sw-kind", folders=(RUN, CGROUP), mounted=(RUN, DATA)
)


def a_machine(
    *,
    processes: tuple[Process, ...] = (),
    interfaces: tuple[str, ...] = (),
    mounts: str = "",
    folders: tuple[Path, ...] = (),
) -> Machine:
    """A machine with a shell, a network card and a root, and with these beside."""
    return Machine(
        processes=(Process(id=1, parent=0, started_ticks=1, name="init"), *processes),
        interfaces=frozenset({"lo", "eth0", *interfaces}),
        mounts=mount_points(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n{mounts}"),
        folders=frozenset(folders),
    )


def test_a_machine_without_any_of_it_has_nothing_left() -> None:
    assert left(OURS, a_machine()) == ()


def test_each_kind_of_leftover_is_named() -> None:
    found = left(
        OURS,
        a_machine(
            processes=(CONTAINER,),
            interfaces=("sw-kind",),
            mounts="2 1 0:9 / /run/ours/sys rw - sysfs sysfs rw\n3 1 0:9 / "
            "/cache/docker/overlay2/a/merged rw - overlay o rw\n",
            folders=(RUN, CGROUP),
        ),
    )

    assert found == (
        "process 12 (etcd)",
        "the network interface sw-kind",
        "the mount /run/ours/sys",
        "the mount /cache/docker/overlay2/a/merged",
        "the folder /run/ours",
        "the folder /sys/fs/cgroup/docker",
    )


def test_what_belongs_to_others_is_not_ours() -> None:
    reused = Process(id=CONTAINER.id, parent=1, started_ticks=900, name="vim")
    others = (
        "2 1 0:9 / /var/lib/docker/overlay2/a/merged rw - overlay o rw\n3 1 0:9 / "
        "/run/ours-too rw - tmpfs t rw\n"
    )

    assert left(OURS, a_machine(processes=(reused,), interfaces=("docker0",), mounts=others)) == ()


def test_what_was_mounted_before_the_daemon_was_started_is_not_its_own() -> None:
    disk = a_machine(mounts="2 1 8:2 / /cache/docker rw - ext4 /dev/sdb1 rw\n")

    assert left(OURS, disk) == ("the mount /cache/docker",)
    assert left(replace(OURS, others=frozenset({DATA})), disk) == ()


def test_a_process_that_another_has_adopted_is_still_ours() -> None:
    adopted = Process(
        id=CONTAINER.id, parent=1, started_ticks=CONTAINER.started_ticks, name=CONTAINER.name
    )

    assert left(OURS, a_machine(processes=(adopted,))) == ("process 12 (etcd)",)


def test_the_processes_of_the_daemon_are_all_that_come_of_it() -> None:
    shell = Process(id=11, parent=DAEMON.id, started_ticks=501, name="bash")
    other = Process(id=13, parent=1, started_ticks=503, name="sshd")

    assert descendants(DAEMON.id, (CONTAINER, other, shell, DAEMON)) == (DAEMON, shell, CONTAINER)


def test_a_real_process_is_left_until_it_ends_and_a_zombie_is_not(tmp_path: Path) -> None:
    cleared = []
    with subprocess.Popen(["sleep", "60"]) as process:
        processes = descendants(process.pid, running())
        ours = Ours(
            processes=processes,
            interface="no-such",
            folders=(tmp_path / "gone",),
            mounted=(tmp_path,),
        )
        assert left(ours, look(ours)) == (f"process {process.pid} (sleep)",)
        with pytest.raises(
            HarnessError, match=rf"0.1 s later it has left: process {process.pid} \(sleep\)$"
        ):
            require_none(ours, lambda: cleared.append(1), seconds=0.1)
        process.kill()
        require_none(ours, lambda: cleared.append(1))
    assert cleared


def test_a_folder_that_can_only_be_removed_later_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    folder.mkdir()
    calls = []

    def clear() -> None:
        calls.append(1)
        if len(calls) == 3:
            folder.rmdir()

    require_none(Ours(interface="no-such", folders=(folder,), mounted=()), clear)

    assert len(calls) == 3


def test_of_very_many_leftovers_the_first_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    folders = tuple(tmp_path / f"{number:02}" for number in range(12))
    for folder in folders:
        folder.mkdir()

    with pytest.raises(HarnessError, match=r"/09 and 2 more$"):
        require_none(
            Ours(interface="no-such", folders=folders, mounted=()), lambda: None, seconds=0
        )
