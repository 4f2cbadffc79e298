"""Play the kubelet for the operator's Deployment: what the API server holds is what runs.

Command, arguments and environment are read back from the API server after the chart was installed.
What a kubelet would do to them is done here: `$(VAR)` and field references are resolved, projected
volumes become folders, and because the processes share one machine, mount paths and the container's
port are replaced by the folder's path and a free port.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from tests.harness import leases, wheel
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane, free_port
from tests.harness.processes import Processes
from tests.harness.waiting import wait_for

NAMED: Final = ("--values", str(wheel.ROOT / "tests" / "harness" / "values.yaml"))
"""What helm is told of the operator's image: the chart refuses to be installed without one, and
here nobody pulls it.
"""

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_RENEW_TOKEN_SECONDS = 300.0
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Replica:
    """One operator process: its pod's name, and the ports of its probes and of its metrics."""

    pod: str
    health_port: int
    metrics_port: int

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of one of its HTTP endpoints; (0, error) when it does not
        answer.
        """
        try:
            port = self.metrics_port if path == "/metrics" else self.health_port
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


class Container(Protocol):
    """What a program of an image runs in."""

    def command(self, argv: list[str], environment: Mapping[str, str], folder: Path) -> list[str]:
        """Return the command that runs the program with this environment and no other; it sees the
        folder of its volumes.
        """


class _Wheel:
    """No container: the wheel of this checkout in a clean environment."""

    def command(self, argv: list[str], environment: Mapping[str, str], folder: Path) -> list[str]:
        del folder
        clean = [f"{key}={value}" for key, value in {**environment, **_machine()}.items()]
        return ["/usr/bin/env", "-i", *clean, str(wheel.environment() / "bin" / argv[0]), *argv[1:]]


class DeployedOperator:
    """The operator as its Deployment says, from the wheel, with its own service account's renewable
    token.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        deployment: str,
        container: Container | None = None,
    ) -> None:
        """Nothing runs yet; see `start`. The Deployment must exist.

        container: what the processes run in; without one they run from the wheel of this checkout.
        """
        self._cp = control_plane
        self._namespace = namespace
        self._deployment: Manifest = control_plane.api.get(
            f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"
        )
        self._container = container or _Wheel()
        self._folder = Path(tempfile.mkdtemp(prefix="shardwright-operator-"))
        self._processes = Processes(self._folder)
        self._stopping = threading.Event()
        self.replicas: tuple[Replica, ...] = ()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start as many processes as the Deployment wants, one per pod that its ReplicaSet made;
        wait until all are ready.
        """
        wanted = int(self._deployment["spec"]["replicas"])
        pods = wait_for(
            lambda: self._pods(wanted), 30, f"{wanted} pods of the operator's Deployment"
        )
        self.replicas = tuple(self._start(pod) for pod in pods)
        threading.Thread(target=self._renew_tokens, name="renew-tokens", daemon=True).start()
        wait_for(self._settled, _READY_SECONDS, "every operator process to answer /readyz")
        self.check()

    def stop(self) -> None:
        """Kill the processes and remove their files. May be called again."""
        self._stopping.set()
        self._processes.shutdown()
        leases.give_up(self._cp.api, *(replica.pod for replica in self.replicas))

    def kill(self, replica: Replica) -> None:
        """SIGKILL, as an out-of-memory kill would."""
        self._processes.stop(replica.pod)

    def restart(self, replica: Replica) -> None:
        """Start a killed process again, as the kubelet would."""
        self._processes.start(replica.pod, self._argv[replica.pod])

    def leader(self) -> Replica:
        """Return the replica whose metrics say that it leads."""
        (leading, *_) = wait_for(
            lambda: [replica for replica in self.replicas if _leads(replica)],
            30,
            "an operator that leads",
        )
        return leading

    def log(self, replica: Replica) -> str:
        """Return all that a replica has written."""
        return self._processes.log(replica.pod)

    def logs(self) -> str:
        """Return what all replicas have written, one after the other."""
        return "\n".join(f"--- {replica.pod}\n{self.log(replica)}" for replica in self.replicas)

    def check(self) -> None:
        """Raise where a process has ended by itself."""
        self._processes.check()

    # -- what a kubelet does
    # ----------------------------------------------------------------------------------------------

    _argv: dict[str, list[str]]

    def _pods(self, wanted: int) -> list[Manifest]:
        labels = self._deployment["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        pods = self._cp.pods.list(self._namespace, selector)
        return (
            sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
            if len(pods) == wanted
            else []
        )

    def _start(self, pod: Manifest) -> Replica:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        home = self._folder / name
        moved = self._mount(pod, container, home)
        ports = {
            entry["name"]: (entry["containerPort"], free_port()) for entry in container["ports"]
        }
        flags = {"--health-port": ports["health"], "--port": ports["http"]}
        environment = self._environment(pod, container)
        words = [*container["command"], *container.get("args", [])]
        found = {
            f"{flag}={listening}": f"{flag}={free}" for flag, (listening, free) in flags.items()
        }
        argv = [found.get(word, _moved(_expanded(word, environment), moved)) for word in words]
        self._argv = {
            **getattr(self, "_argv", {}),
            name: self._container.command(argv, environment, self._folder),
        }
        self._processes.start(name, self._argv[name])
        return Replica(pod=name, health_port=ports["health"][1], metrics_port=ports["http"][1])

    def _environment(self, pod: Manifest, container: Manifest) -> dict[str, str]:
        server = urlsplit(self._cp.url)
        found = {
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        for entry in container.get("env", []):
            found[entry["name"]] = (
                _expanded(entry["value"], found)
                if "value" in entry
                else _field(pod, entry["valueFrom"])
            )
        return found

    def _mount(self, pod: Manifest, container: Manifest, home: Path) -> dict[str, str]:
        """Write the pod's volumes into folders; return mount path to folder."""
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        moved = {}
        for mount in container.get("volumeMounts", []):
            folder = home / mount["name"]
            folder.mkdir(parents=True)
            self._fill(pod, volumes[mount["name"]], folder)
            moved[mount["mountPath"]] = str(folder)
        return moved

    def _fill(self, pod: Manifest, volume: Manifest, folder: Path) -> None:
        if "configMap" in volume:
            self._write_config_map(volume["configMap"], folder)
        if "secret" in volume:
            self._write_secret(volume["secret"], folder)
        for source in volume.get("projected", {}).get("sources", []):
            if "serviceAccountToken" in source:
                self._write_token(pod, source["serviceAccountToken"], folder)
            elif "configMap" in source:
                self._write_config_map(source["configMap"], folder)
            else:
                for item in source["downwardAPI"]["items"]:
                    (folder / item["path"]).write_text(_field(pod, item))

    def _write_config_map(self, source: Manifest, folder: Path) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{source['name']}"
        data = wait_for(lambda: self._cp.api.get(path)["data"], 30, f"ConfigMap {source['name']}")
        for item in source.get("items") or [{"key": key, "path": key} for key in data]:
            (folder / item["path"]).write_text(data[item["key"]])

    def _write_secret(self, source: Manifest, folder: Path) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{source['secretName']}"
        keys = [item["key"] for item in source["items"]]

        def filled() -> Manifest:
            data: Manifest = self._cp.api.get(path).get("data", {})
            return data if set(keys) <= set(data) else {}

        data = wait_for(filled, 30, f"Secret {source['secretName']} to have {', '.join(keys)}")
        for item in source["items"]:
            (folder / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))

    def _write_token(self, pod: Manifest, source: Manifest, folder: Path) -> None:
        account = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        bound = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        wanted = {
            "spec": {"expirationSeconds": source["expirationSeconds"], "boundObjectRef": bound}
        }
        token = self._cp.api.create(path, wanted)["status"]["token"]
        fresh = folder / f".{source['path']}"
        fresh.write_text(token)
        fresh.replace(folder / source["path"])

    def renew_tokens(self) -> None:
        """Write a fresh token for each process, as the kubelet does before the old one ends."""
        for pod in self._pods(len(self.replicas)):
            for volume in pod["spec"]["volumes"]:
                for source in volume.get("projected", {}).get("sources", []):
                    if "serviceAccountToken" in source:
                        folder = self._folder / pod["metadata"]["name"] / volume["name"]
                        self._write_token(pod, source["serviceAccountToken"], folder)

    def _renew_tokens(self) -> None:
        while not self._stopping.wait(_RENEW_TOKEN_SECONDS):
            self.renew_tokens()

    def _settled(self) -> bool:
        """All are ready, or one has ended: then waiting is over too."""
        if len(self._processes.running()) < len(self.replicas):
            return True
        seen = [replica.get("/readyz") for replica in self.replicas]
        assert all(status == HTTPStatus.OK for status, _ in seen), f"/readyz: {seen}"
        return True


def leads(metrics: str) -> bool:
    """Return whether an operator with these metrics leads."""
    return re.search(r"^shardwright_leader{.*} 1", metrics, re.MULTILINE) is not None


def _leads(replica: Replica) -> bool:
    return leads(replica.get("/metrics")[1])


def _machine() -> Mapping[str, str]:
    """What every process on a machine has; nothing of the test run's own environment."""
    return {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def _field(pod: Manifest, source: Manifest) -> str:
    value: Any = pod
    for step in source["fieldRef"]["fieldPath"].split("."):
        value = value[step]
    return value if isinstance(value, str) else json.dumps(value)


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: environment.get(found[1], found[0]), text)


def _moved(text: str, folders: Mapping[str, str]) -> str:
    """Replace mount paths in one pass: a folder's own path may hold another mount path (/tmp)."""
    if not folders:
        return text
    paths = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
    return re.sub(paths, lambda found: folders[found[0]], text)
