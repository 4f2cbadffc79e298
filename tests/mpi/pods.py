"""Two pods as far as ssh and Open MPI can see: namespaces of their own, a wire between them, an
ordinary user.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardwright.cluster.writer import key_pair
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.ssh import PRIVATE_KEY, PUBLIC_KEY, USER_ID
from tests.mpi import environment
from tests.support.ranks import Rank, ranks_of

ADDRESSES = ("10.77.0.1", "10.77.0.2")
LEADER = "llama-405b-0-0.llama-405b-0-peers.models.svc.cluster.local"

_ENTER = (
    'mount --bind "$1" /etc/passwd; mount --bind "$2" /etc/hosts; hostname "$3"; shift 3; '
    f'exec setpriv --reuid {USER_ID} --regid {USER_ID} --clear-groups --no-new-privs -- "$@"'
)


@contextmanager
def two_pods(plan: Plan, deployment: Deployment, root: Path) -> Iterator[list[Rank]]:
    """Yield the two ranks of a plan's group, each in its pod; none is started."""
    _open(root)
    keys = make_key(root / "keys")
    (root / "hosts").write_text(f"{LEADER} {ADDRESSES[0]}\n")
    names = [f"shardwright-{os.getpid()}-{index}" for index in range(2)]
    with (
        _wire(names),
        ranks_of(plan, deployment, root, key_dir=str(keys), leader_gone_seconds=10) as ranks,
    ):
        for rank, name in zip(ranks, names, strict=True):
            _move_in(rank, name)
        yield ranks


def make_key(folder: Path) -> Path:
    """Make a key as the operator does, and leave it where and how the kubelet would."""
    folder.mkdir()
    private, public = key_pair()
    for name, text in ((PRIVATE_KEY, private), (PUBLIC_KEY, public)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o440)
        os.chown(folder / name, 0, USER_ID)
    return folder


def _move_in(rank: Rank, namespace: str) -> None:
    """Give a rank an address, a name and a user of its own; its first process is the pod's."""
    rank.environment |= {
        "SHARDWRIGHT_ADDRESS": ADDRESSES[rank.rank],
        "PATH": f"{rank.root / 'bin'}:{environment.path()}",
    }
    name = f"pod-{rank.rank}"
    (rank.root / "etc-hosts").write_text(f"127.0.0.1 localhost\n{ADDRESSES[rank.rank]} {name}\n")
    subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", str(rank.root)], check=True)
    files = [str(rank.root / "scripts" / "passwd"), str(rank.root / "etc-hosts")]
    isolated = [
        "unshare",
        "--mount",
        "--uts",
        "--ipc",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    rank.prefix = [
        "ip",
        "netns",
        "exec",
        namespace,
        *isolated,
        "/bin/bash",
        "-c",
        _ENTER,
        "pod",
        *files,
        name,
    ]


def _open(root: Path) -> None:
    """Let the pods' user reach its folders: pytest keeps them to itself."""
    for folder in (root, *root.parents):
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)


@contextmanager
def _wire(names: list[str]) -> Iterator[None]:
    one, other = names
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            one,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            other,
        )
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
