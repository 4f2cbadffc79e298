"""A Docker daemon of our own: in namespaces of its own, so that whatever it makes is gone when it
ends.

Bridges, firewall rules, mounts and processes are in a network, mount and process namespace. The
machine sees one virtual cable (`CABLE`) to them, and a folder in /run; the images stay in the
cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for
from tests.kind import cache, leftovers
from tests.kind.errors import UnavailableError
from tests.kind.shell import run, step

RUN = Path("/run/shardwright-kind")
CABLE = "sw-kind"
OUTSIDE, INSIDE = (
    "198.18.111.1",
    "198.18.111.2",
)  # of 198.18.0.0/15, which no host on the internet has (RFC 2544)

ENGINE_VARIABLE = "SHARDWRIGHT_ENGINE_IMAGE"
"""An image with vLLM for the CPU: where it is named, this machine's own Docker is used (it pulls
what it has not), and root is not needed.
"""

_OTHERWISE = (
    f"or name an engine image in {ENGINE_VARIABLE} to use the Docker that this machine has, "
    "or give a cluster by --kubeconfig"
)
_PACKAGES = ("docker.io", "iptables", "iproute2", "util-linux", "debootstrap", "gcc", "libc6-dev")
_NEEDED = ("dockerd", "containerd", "runc", "iptables", "ip", "unshare", "debootstrap")
_START_SECONDS = 60
_CGROUPS = Path("/sys/fs/cgroup")


class Docker:
    """The client's end: runs `docker` against our daemon, or against the one that an environment
    names.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        ours = {
            "DOCKER_HOST": f"unix://{RUN}/docker.sock",
            "DOCKER_BUILDKIT": "0",
            "HOME": str(RUN),
        }
        self.environment = {**os.environ, **ours} if environment is None else dict(environment)

    def __call__(self, *words: str | Path, data: bytes | IO[bytes] | None = None) -> str:
        """Run one command and return what it prints."""
        return run(["docker", *words], data=data, environment=self.environment)

    def has(self, image: str) -> bool:
        """Say whether there is an image of this name."""
        with contextlib.suppress(HarnessError):
            return bool(self("image", "inspect", "--format", "{{.Id}}", image))
        return False

    def answers(self) -> bool:
        """Say whether the daemon answers."""
        with contextlib.suppress(HarnessError):
            return bool(self("version", "--format", "{{.Server.Version}}"))
        return False

    def pipe(self, source: Sequence[str], target: Sequence[str]) -> None:
        """Run two commands of Docker, the output of one being the input of the other."""
        with subprocess.Popen(
            ["docker", *source], env=self.environment, stdout=subprocess.PIPE
        ) as sending:
            if sending.stdout is None:
                raise HarnessError("no pipe")
            self(*target, data=sending.stdout)
        if sending.returncode != 0:
            raise HarnessError(
                f"`docker {' '.join(source[:2])}` failed with exit code {sending.returncode}"
            )


def start(runtime: Path) -> Docker:
    """Start the daemon, unless it runs, and return a client."""
    docker = Docker()
    if _pid() is not None and docker.answers():
        return docker
    stop()
    RUN.mkdir(mode=0o700, parents=True)
    _remember()
    with step("starting a Docker daemon in namespaces of its own", 3):
        _launch(runtime)
        wait_for(
            lambda: docker.answers() or _ended(), _START_SECONDS, "the Docker daemon to answer", 0.2
        )
        if _ended():
            raise HarnessError(f"the Docker daemon ended; the end of its log:\n{_log_tail()}")
        _connect()
    return docker


def stop() -> None:
    """End the daemon and with it all that it made; remove what it left on the machine. May be
    called again.
    """
    pid = _pid()
    if pid is not None:
        _end(pid)
    _remove_all_empty(_absent_before())
    shutil.rmtree(RUN, ignore_errors=True)


def stop_and_check() -> None:
    """End the daemon, and see that nothing of it is left on the machine.

    Raises:
        HarnessError: something is, by its name.
    """
    made, others, pid = _absent_before(), frozenset(_before("mounts")), _pid()
    ours = leftovers.Ours(
        processes=() if pid is None else leftovers.descendants(pid, leftovers.running()),
        interface=CABLE,
        folders=(RUN, *made),
        mounted=(RUN, cache.folder() / "docker"),
        others=others,
    )
    stop()
    leftovers.require_none(ours, lambda: _remove_all_empty(made))


def _absent_before() -> list[Path]:
    """What the daemon makes outside its namespaces and what was not there before it was started."""
    return _before("absent")


def _before(what: str) -> list[Path]:
    """What `_remember` wrote down, nothing where no daemon was started."""
    written = RUN / "before.json"
    return (
        [Path(path) for path in json.loads(written.read_text()).get(what, ())]
        if written.exists()
        else []
    )


def _end(pid: int) -> None:
    """End the first process of the namespaces, by force where it takes too long: the kernel ends
    the rest.
    """
    child = _child(pid)
    for sent in (signal.SIGTERM, signal.SIGKILL):
        os.kill(child, sent)
        with contextlib.suppress(AssertionError):
            wait_for(_ended, _START_SECONDS, "the Docker daemon to end", 0.1)
            return
    raise HarnessError(f"the Docker daemon does not end (process {child})")


def inside(*words: str) -> str:
    """Run a command in the daemon's network namespace, with its view of the files."""
    pid = _pid()
    if pid is None:
        raise HarnessError("the Docker daemon does not run")
    return run(["nsenter", "--net", "--mount", "--target", str(_child(pid)), "--", *words])


def count_as(machines: int) -> None:
    """Let the machine's other processes count our containers as so many, instead of all of them as
    a single one.
    """
    for group, unit in (
        (_CGROUPS / "cpu/docker/cpu.shares", 1024),
        (_CGROUPS / "docker/cpu.weight", 100),
    ):
        if group.exists():
            group.write_text(str(machines * unit))


def require(*, install: bool) -> None:
    """Raise UnavailableError where a daemon cannot run; with `install` missing Debian packages are
    installed.
    """
    if os.geteuid() != 0:
        raise UnavailableError(
            f"kind needs root, for a Docker daemon of its own: run it as root, {_OTHERWISE}"
        )
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if not missing:
        return
    if not install:
        raise UnavailableError(
            f"kind needs {', '.join(missing)}, which this machine has not: allow to install "
            f"{', '.join(_PACKAGES)} "
            f"with CI=true or --install, {_OTHERWISE}"
        )
    if shutil.which("apt-get") is None:
        raise UnavailableError(
            f"kind needs {', '.join(missing)}, and there is no apt-get to install them: "
            f"{_OTHERWISE.removeprefix('or ')}"
        )
    with step(f"installing {', '.join(_PACKAGES)}", 30):
        _install()


def _install() -> None:
    """Install the packages; no service is started by it: the daemon that is wanted is ours."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "--quiet"], environment=quiet)
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        run(
            ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *_PACKAGES],
            environment=quiet,
        )
    finally:
        if ours:
            policy.unlink()


def _remember() -> None:
    """Write down which folders that the daemon will make are not there yet, and what is mounted,
    for the end.
    """
    groups = (
        _CGROUPS,
        *(group for group in _CGROUPS.iterdir() if group.is_dir()),
    )  # of the second version, of the first
    made = [Path("/lib/modules"), *(group / "docker" for group in groups)]
    absent = [str(path) for path in made if not path.exists()]
    mounts = [str(path) for path in leftovers.mounts_now()]
    (RUN / "before.json").write_text(json.dumps({"absent": absent, "mounts": mounts}))


def _remove_all_empty(paths: Iterable[Path]) -> None:
    """Remove folders and the folders in them, as far as nothing is in them; a cgroup's files are no
    content.
    """
    for path in paths:
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _launch(runtime: Path) -> None:
    namespaces = (
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child",
        "--mount-proc",
    )
    data = cache.folder() / "docker"
    with (RUN / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "unshare",
                *namespaces,
                "/bin/bash",
                str(cache.HERE / "daemon.sh"),
                str(RUN),
                str(data),
                str(runtime),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (RUN / "pid").write_text(str(process.pid))


def _connect() -> None:
    """Lay a virtual cable into the namespace; it goes when the namespace goes."""
    pid = _pid()
    if pid is None:
        raise HarnessError(f"the Docker daemon ended; the end of its log:\n{_log_tail()}")
    run(
        [
            "ip",
            "link",
            "add",
            CABLE,
            "type",
            "veth",
            "peer",
            "name",
            "machine",
            "netns",
            str(_child(pid)),
        ]
    )
    run(["ip", "address", "add", f"{OUTSIDE}/30", "dev", CABLE])
    run(["ip", "link", "set", CABLE, "up"])
    inside("ip", "address", "add", f"{INSIDE}/30", "dev", "machine")
    inside("ip", "link", "set", "machine", "up")


def _pid() -> int | None:
    """The process id of our `unshare`; a number that is another's by now counts as none."""
    file = RUN / "pid"
    if not file.exists():
        return None
    command = Path(f"/proc/{file.read_text()}/cmdline")
    with contextlib.suppress(OSError):
        return int(file.read_text()) if str(RUN).encode() in command.read_bytes() else None
    return None


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise HarnessError(f"the Docker daemon ended; the end of its log:\n{_log_tail()}")
    return int(children[0])


def _ended() -> bool:
    pid = _pid()
    if pid is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return _pid() is None


def _log_tail() -> str:
    return "\n".join((RUN / "log").read_text(errors="replace").splitlines()[-20:])
