"""Runs rendered launch, probe and drain scripts as the kubelet would, with a stub engine and stub
DNS.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.place import pod_template
from shardwright.rendering.pod import script_settings
from shardwright.rendering.scripts import ScriptPaths, ScriptSettings, scripts
from tests.harness.waiting import wait_for

STUBS = Path(__file__).parent / "stubs"
TOKEN = "7" * 64
"""What the kubelet mounts into all ranks of a group."""

_COUNTER = count()
SHELL_NAMES = {"_", "SHLVL", "PWD", "OLDPWD", "LC_CTYPE"}


@dataclass(kw_only=True)
class Rank:
    """One rank in folders of its own: what a container is, as far as the scripts can see."""

    rank: int
    root: Path
    settings: ScriptSettings
    arguments: list[str]
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    sessions: list[int] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        """Return everything that was logged."""
        return (self.root / "log").read_text()

    @property
    def last_words(self) -> str:
        """Return the termination message."""
        file = self.root / "termination-log"
        return file.read_text() if file.exists() else ""

    def start(self) -> None:
        """Start the launch script, as the container's first process."""
        for old in (self.root / "state").glob("started-*"):
            old.unlink()
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, "/bin/bash", str(self.root / "scripts/launch.sh"), *self.arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.sessions.append(self.process.pid)

    def engine(self) -> Mapping[str, Any]:
        """Return how the engine was started, once it is."""
        (file,) = wait_for(
            lambda: list((self.root / "state").glob("started-*")),
            what=f"the engine of rank {self.rank}",
        )
        found: Mapping[str, Any] = json.loads(file.read_text())
        return found

    def started(self) -> bool:
        """Return whether the engine was started."""
        return any((self.root / "state").glob("started-*"))

    def tell(self, name: str, text: str) -> None:
        """Tell the stub engine its health, metrics or exit code."""
        (self.root / "state" / name).write_text(text)

    def terminate(self) -> None:
        """Send what the kubelet sends to the first process."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Return the exit code of the launch script."""
        assert self.process is not None
        return self.process.wait(timeout=20)

    def vanish(self) -> None:
        """End every process of the container at once, as a node that dies does."""
        for session in self.sessions:
            _kill_session(session)
        if self.process is not None:
            self.process.wait(timeout=20)

    def pid_of(self, script: str) -> int:
        """Return the process that runs one of the scripts, started by the launch script."""
        (found,) = self.pids_with(str(self.root / "scripts" / script))
        return found

    def pids_with(self, word: str) -> list[int]:
        """Return the processes of the container's last start that have this word in their
        command.
        """
        found = []
        for pid in _running(self.sessions[-1]):
            with suppress(OSError):  # it has just ended
                found += (
                    [pid]
                    if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    else []
                )
        return found

    def run(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run another of the scripts in the container."""
        command = ["/bin/bash", str(self.root / "scripts" / script), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30, check=False
        )

    def begin(self, script: str) -> "subprocess.Popen[bytes]":
        """Start another of the scripts in the container."""
        command = ["/bin/bash", str(self.root / "scripts" / script)]
        process = subprocess.Popen(command, env=self.environment, start_new_session=True)
        self.sessions.append(process.pid)
        return process


@contextmanager
def ranks_of(
    plan: Plan, deployment: Deployment, root: Path, **settings: Any
) -> Iterator[list[Rank]]:
    """Yield the ranks of a plan's first group, none started yet; all of it is gone afterwards."""
    quick = {
        "leader_gone_seconds": 1,
        "poll_seconds": 0.05,
        "endpoint_seconds": 0,
        "drain_seconds": 10,
    }
    ports = {"http_port": free_port(), "rendezvous_port": free_port()}
    chosen = _changed(script_settings(plan, deployment), {**quick, **ports, **settings})
    ranks = [
        _rank(plan, deployment, chosen, root / f"rank-{index}", index)
        for index in range(plan.nodes_per_replica)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.vanish()


def _changed(settings: ScriptSettings, changes: Mapping[str, Any]) -> ScriptSettings:
    """Return settings with these fields, each in the part that has it; a part by its name has
    several fields of it.
    """
    parts = {
        part.name: getattr(settings, part.name)
        for part in fields(settings)
        if is_dataclass(getattr(settings, part.name))
    }
    for name, value in changes.items():
        holders = [part for part in parts if hasattr(parts[part], name)]
        for part in [name] if name in parts else holders:
            change = value if name in parts else {name: value}
            parts[part] = replace(parts[part], **change)
    own = {field.name for field in fields(settings)} - parts.keys()
    return replace(
        settings, **parts, **{name: value for name, value in changes.items() if name in own}
    )


def start(*ranks: Rank) -> None:
    """Start ranks, as the kubelets of their nodes do."""
    for rank in ranks:
        rank.start()


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel gives to outgoing
    connections.
    """
    while True:
        port = 20_000 + (os.getpid() * 37 + next(_COUNTER)) % 12_000
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("", port))
            return port


def _rank(
    plan: Plan, deployment: Deployment, settings: ScriptSettings, root: Path, index: int
) -> Rank:
    for folder in ("bin", "run", "shm", "state", "scripts"):
        (root / folder).mkdir(parents=True)
    (root / "log").touch()
    (root / "token").write_text(TOKEN)
    (root / "bin/python3").symlink_to(sys.executable)
    own = replace(
        settings,
        paths=ScriptPaths(
            run_dir=str(root / "run"),
            shm_dir=str(root / "shm"),
            scripts_dir=str(root / "scripts"),
            token_file=str(root / "token"),
            termination_log=str(root / "termination-log"),
        ),
        ray=replace(settings.ray, folder=str(root / "ray")),
        variables=tuple(
            (name, value)
            for name, value in settings.variables
            if name not in {"HOME", "PYTHONPATH"}
        ),
    )
    for name, text in scripts(own).items():
        (root / "scripts" / name).write_text(text)
    template = pod_template(plan, deployment, 0)
    container = template["spec"]["containers"][0]
    environment = _environment(container, template["metadata"]["labels"], index)
    stubs = {
        "PATH": f"{root / 'bin'}:{STUBS}:/usr/bin:/bin",
        "HOME": str(root / "home"),
        "PYTHONPATH": str(STUBS),
        "PYTHONDONTWRITEBYTECODE": "1",
        "STUB_STATE": str(root / "state"),
        "STUB_HOSTS": str(root.parent / "hosts"),
    }
    arguments = [expanded(word) for word in container["args"]]
    return Rank(
        rank=index, root=root, settings=own, arguments=arguments, environment=environment | stubs
    )


def _environment(
    container: Mapping[str, Any], labels: Mapping[str, str], index: int
) -> dict[str, str]:
    fields = {
        "status.podIP": "127.0.0.1",
        "metadata.name": f"{labels['shardwright.io/group']}-{index}",
        "metadata.labels['shardwright.io/template-hash']": labels["shardwright.io/template-hash"],
    }
    values = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            values[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
        else:
            values[variable["name"]] = (
                expanded(variable["value"]) if "value" in variable else "a-secret"
            )
    return values


def expanded(text: str) -> str:
    """Return what the kubelet makes of an argument: ``$$`` is one dollar, a reference would be
    visible.
    """
    return re.sub(
        r"\$\$|\$\(([A-Za-z_][\w.-]*)\)",
        lambda match: "$" if match[0] == "$$" else f"<EXPANDED {match[1]}>",
        text,
    )


def _kill_session(session: int) -> None:
    """Kill every process of a session and wait until none runs."""

    def gone() -> bool:
        pids = _running(session)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_for(gone, what=f"the end of session {session}", interval=0.01)


def _running(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of, *_ = stat.read_text().rpartition(")")[2].split()
            if int(of) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found
