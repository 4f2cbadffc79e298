"""A real Kubernetes control plane on loopback, for one test run: etcd, API server, controller
manager, scheduler, and kwok.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness import build, credentials, stages
from tests.harness.api import Api, ApiError, Manifest
from tests.harness.errors import HarnessError
from tests.harness.nodes import Nodes
from tests.harness.pods import Pods
from tests.harness.processes import Processes

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

# Feature sets by name: the gates of the components that know them, and what else the API server
# must serve.
_FEATURES: dict[str, tuple[dict[str, tuple[str, ...]], str]] = {
    "gang-scheduling": (
        {
            "kube-apiserver": ("GenericWorkload", "TopologyAwareWorkloadScheduling"),
            "kube-scheduler": ("GenericWorkload", "TopologyAwareWorkloadScheduling"),
            "kube-controller-manager": ("GenericWorkload",),
        },
        "scheduling.k8s.io/v1beta1=true",
    ),
    # For an API server of 1.36 alone: the scheduler of a newer release knows another version.
    "gang-scheduling-1.36": (
        {"kube-apiserver": ("GenericWorkload", "GangScheduling")},
        "scheduling.k8s.io/v1alpha2=true",
    ),
}
_GATED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

_START_SECONDS = 60.0
_LONGEST_SOCKET_FOLDER = 80  # a Unix socket's path has at most 107 bytes

# Client limits of the controller manager and the scheduler.
_HURRIED: Manifest = {"kube-api-qps": "300", "kube-api-burst": "600"}

# Who did what to which object, and how it was answered; not the bodies. What the components renew
# all the time is left out.
_AUDIT_POLICY: Manifest = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "users": ["kwok"], "resources": [{"group": "coordination.k8s.io"}]},
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*", "/openapi/*"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class FrontProxy:
    """By what other API servers know that a request comes from ours, which has let its user in: a
    certificate that vouches for itself, and its key.
    """

    certificate: Path
    key: Path

    def flags(self) -> dict[str, str]:
        return {
            "proxy-client-cert-file": str(self.certificate),
            "proxy-client-key-file": str(self.key),
            "requestheader-client-ca-file": str(self.certificate),
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        }


class ControlPlane:
    """One running control plane; a context manager. `with ControlPlane.start() as cp:
    cp.kubectl("get", "nodes")`.

    Everything it has (processes, port, files) is gone after `stop`, and after the end of this
    process in whatever way.
    """

    kubeconfig: Path
    url: str
    ca_file: Path
    admin_token: str
    audit_log: Path
    bin: Path
    start_seconds: float
    api: Api
    nodes: Nodes
    pods: Pods

    def __init__(
        self,
        features: Iterable[str] = (),
        feature_gates: Mapping[str, bool] | None = None,
        lease_duration_seconds: int = 40,
        unmanaged_namespaces: Iterable[str] = ("shardwright-system",),
        api_server: Path | None = None,
        *,
        hurried: bool = True,
        front_proxy: FrontProxy | None = None,
    ) -> None:
        """Nothing runs yet; see `start`."""
        self.bin = build.binaries()
        self._api_server = api_server
        self._features = tuple(features)
        unknown = set(self._features) - _FEATURES.keys()
        if unknown:
            raise HarnessError(f"unknown features {sorted(unknown)}; there are {sorted(_FEATURES)}")
        self._feature_gates = dict(feature_gates or {})
        self._lease_duration_seconds = lease_duration_seconds
        self._unmanaged_namespaces = tuple(unmanaged_namespaces)
        self._hurried = hurried
        self._front_proxy = front_proxy

        temporary = tempfile.gettempdir()
        folder = tempfile.mkdtemp(
            prefix="shardwright-cp-",
            dir=temporary if len(temporary) < _LONGEST_SOCKET_FOLDER else "/tmp",
        )
        self._folder = Path(folder)
        self._processes = Processes(self._folder)

    @classmethod
    def start(
        cls,
        *,
        features: Iterable[str] = (),
        feature_gates: Mapping[str, bool] | None = None,
        lease_duration_seconds: int = 40,
        unmanaged_namespaces: Iterable[str] = ("shardwright-system",),
        api_server: Path | None = None,
        hurried: bool = True,
        front_proxy: FrontProxy | None = None,
    ) -> ControlPlane:
        """Start a control plane and return when it works; the programs are built first where they
        are not cached.

        features: sets of feature gates by name (`gang-scheduling`).
        feature_gates: more gates, given to the API server, the controller manager and the scheduler
        alike. lease_duration_seconds: of the nodes' leases. Thousands of nodes renew so many that
        the idle cluster eats a core:
            lengthen it there. Nodes then report their status, and are looked at by the controller
            manager, as seldom.
        unmanaged_namespaces: pods there are bound to nodes, but nobody starts them: they never look
        ready. api_server: of another version, with etcd alone: the other components are those of
        their own API server.
        hurried: the controller manager and the scheduler may send 300 requests a second each, so
        that tests need not wait; else what they allow themselves in most clusters, 20 (the
        garbage collector 40) and 50.
        front_proxy: how the API server shows itself to API servers that join it (APIService).
        """
        control_plane = cls(
            features,
            feature_gates,
            lease_duration_seconds,
            unmanaged_namespaces,
            api_server,
            hurried=hurried,
            front_proxy=front_proxy,
        )
        try:
            control_plane._start()
        except BaseException:
            control_plane.stop()
            raise
        return control_plane

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all processes and remove all files. May be called again."""
        if hasattr(self, "api"):
            self.api.close()
        self._processes.shutdown()

    def stop_component(self, name: str, grace: float = 0.0) -> None:
        """Stop one component, for a test of what happens without it; at once, or with SIGTERM and
        `grace` seconds.
        """
        self._processes.stop(_known(name), grace)

    def start_component(self, name: str) -> None:
        """Start a stopped component again, with the same arguments: the API server on the same
        port.
        """
        self._processes.start(_known(name), self._arguments(name))
        if name in ("etcd", "kube-apiserver"):
            self._wait_until("the API server is ready again", self._is_serving)

    def upgrade(self, features: Iterable[str] = ()) -> None:
        """Put the pinned API server in the place of the older one, on the same data and port, and
        start every component anew with these features.
        """
        stopped = [name for name in COMPONENTS if name in self.running() and name != "etcd"]
        for name in reversed(stopped):
            self.stop_component(name, grace=10)
        self._api_server, self._features = None, tuple(features)
        for name in stopped:
            self.start_component(name)

    def put_back(self, saved: Path) -> None:
        """Put a copy of etcd's data in its place, and start every component anew, as one does after
        a restore.
        """
        for name in reversed(COMPONENTS):
            self.stop_component(name)
        shutil.rmtree(self._folder / "etcd")
        shutil.move(saved, self._folder / "etcd")
        # Before the others, and without waiting: no API server is there yet that could be ready.
        self._processes.start("etcd", self._arguments("etcd"))
        for name in COMPONENTS[1:]:
            self.start_component(name)

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """Take the API server away for a while.

        The scheduler goes with it: where it finds, after a gap, another pod under the name of one
        that it knows, it ends itself (UpdatePod in its cache.go, 1.36), and no kubelet is here to
        start it again.
        """
        gone = ("kube-apiserver", "kube-scheduler")
        for name in reversed(gone):
            self.stop_component(name)
        try:
            yield
        finally:
            for name in gone:
                self.start_component(name)

    def running(self) -> dict[str, int]:
        """Process ids of the running components."""
        return self._processes.running()

    def check(self) -> None:
        """Raise where a component has ended that nobody stopped, with the end of its log."""
        self._processes.check()

    def logs(self, component: str) -> str:
        return self._processes.log(_known(component))

    def audit_events(self, user: str = "") -> Iterator[dict[str, Any]]:
        """The audit log so far: dicts with `verb`, `user.username`, `objectRef`,
        `responseStatus.code`, …

        user: whose requests alone are wanted. The others, most of a log of gigabytes, are then not
        decoded.
        """
        with self.audit_log.open() as lines:
            events = (json.loads(line) for line in lines if user in line and line.endswith("\n"))
            yield from (event for event in events if user in ("", event["user"]["username"]))

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002 - as subprocess.run has it
        """Run kubectl as the administrator and return what it prints; with `check=False` also what
        it says when it fails.
        """
        return self._run("kubectl", args, input, check=check)

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply objects as the administrator, on the server's side."""
        text = "\n---\n".join(map(json.dumps, manifests))
        self.kubectl("apply", "--server-side", "-f", "-", input=text)

    def helm(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002 - as subprocess.run has it
        """Run helm as the administrator, with a home of its own."""
        return self._run("helm", args, input, check=check)

    def environment(self) -> dict[str, str]:
        """Variables under which kubectl, helm and other clients use this cluster, and put nothing
        into the user's home.
        """
        home = str(self._folder / "home")
        variables = {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": f"{home}/kube"}
        return variables | {
            f"HELM_{kind}_HOME": f"{home}/helm/{kind.lower()}"
            for kind in ("CACHE", "CONFIG", "DATA")
        }

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Create a namespace and wait until pods may be created in it."""
        self.api.create(
            "/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}}
        )
        self._wait_until(
            f"namespace {name} has its default service account",
            lambda: self._has_service_account(name),
        )
        return name

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with a fresh token (TokenRequest) of a service account that exists."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        token = self.api.create(path, {"spec": {"expirationSeconds": 24 * 3600}})["status"]["token"]
        file = self._folder / f"{namespace}-{service_account}.kubeconfig"
        user = credentials.User(f"system:serviceaccount:{namespace}:{service_account}", token)
        credentials.write_kubeconfig(file, self.url, self.ca_file, user)
        return file

    # -- starting
    #
    #
    #
    #
    # ---------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        began = time.monotonic()
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.ca_file = self._folder / "certificates" / "apiserver.crt"
        self.kubeconfig = self._folder / "admin.kubeconfig"
        self.audit_log = self._folder / "audit.log"
        known = credentials.users()
        self.admin_token = known["admin"].token
        credentials.write_token_file(self._folder / "tokens.csv", known)
        credentials.write_signing_key(self._folder / "service-account.key")
        (self._folder / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))
        stages.write_config(
            self._folder / "kwok.yaml", self._unmanaged_namespaces, self._lease_duration_seconds
        )

        self._processes.start("etcd", self._arguments("etcd"))
        self._processes.start("kube-apiserver", self._arguments("kube-apiserver"))
        # The API server makes its own certificate, first thing; the others need it, and wait for
        # the server themselves.
        self._wait_until("the API server has its certificate", self._has_certificate)
        for name, user in known.items():
            credentials.write_kubeconfig(
                self._folder / f"{name}.kubeconfig", self.url, self.ca_file, user
            )
        self.api = Api(self.url, self.ca_file, self.admin_token)
        self.nodes = Nodes(self.api, self._lease_duration_seconds)
        self.pods = Pods(self.api)
        self._wait_until("the API server is ready", self._is_serving)
        if self._api_server is None:
            self._start_controllers()
        self.start_seconds = time.monotonic() - began

    def _start_controllers(self) -> None:
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self._processes.start(name, self._arguments(name))
        self._wait_until(
            "the controller manager works", lambda: self._has_service_account("default")
        )

    def _wait_until(self, what: str, reached: Any) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not reached():
            self._processes.check()
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"waited {_START_SECONDS:g} s and still not: {what}. Running: {self.running()}"
                )
            time.sleep(0.05)

    def _has_certificate(self) -> bool:
        return (
            self.ca_file.exists()
            and self.ca_file.read_text().count("-----END CERTIFICATE-----") == 2
        )

    def _is_serving(self) -> bool:
        try:
            return bool(self.api.get("/readyz") == "ok")
        except ApiError:
            return False

    def _has_service_account(self, namespace: str) -> bool:
        try:
            return bool(self.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
        except ApiError:
            return False

    def _arguments(self, name: str) -> list[str]:
        flags: dict[str, str] = {
            "etcd": self._etcd_flags,
            "kube-apiserver": self._api_server_flags,
            "kube-controller-manager": self._controller_manager_flags,
            "kube-scheduler": self._scheduler_flags,
            "kwok": self._kwok_flags,
        }[name]()
        gates = self._gates(name)
        if gates:
            flags["feature-gates"] = gates
        program = (
            self._api_server if name == "kube-apiserver" and self._api_server else self.bin / name
        )
        return [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]

    def _gates(self, name: str) -> str:
        if name not in _GATED:
            return ""
        gates = {
            gate: True for feature in self._features for gate in _FEATURES[feature][0].get(name, ())
        } | self._feature_gates
        return ",".join(f"{gate}={str(on).lower()}" for gate, on in gates.items())

    def _etcd_flags(self) -> dict[str, str]:
        """On Unix sockets in our folder: no ports to fight over, and nobody else on the machine can
        read it.
        """
        # a single member talks to no peer, but must have an address
        never_dialled = "http://127.0.0.1:2380"
        return {
            "data-dir": str(self._folder / "etcd"),
            "listen-client-urls": f"unix://{self._folder}/etcd.sock",
            "advertise-client-urls": "http://127.0.0.1:2379",
            "listen-peer-urls": f"unix://{self._folder}/peer.sock",
            "initial-advertise-peer-urls": never_dialled,
            "initial-cluster": f"default={never_dialled}",
            "unsafe-no-fsync": "true",
            "quota-backend-bytes": str(8 * 1024**3),
            "log-level": "warn",
        }

    def _api_server_flags(self) -> dict[str, str]:
        flags = {
            "etcd-servers": f"unix://{self._folder}/etcd.sock",
            "bind-address": "127.0.0.1",
            "secure-port": str(self._port),
            "cert-dir": str(self.ca_file.parent),
            # a loopback address may not be an endpoint of the kubernetes Service
            "endpoint-reconciler-type": "none",
            "token-auth-file": str(self._folder / "tokens.csv"),
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction,OwnerReferencesPermissionEnforcement",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": str(self._folder / "service-account.key"),
            "service-account-key-file": str(self._folder / "service-account.key"),
            "service-cluster-ip-range": "10.96.0.0/16",
            "allow-privileged": "true",
            "max-requests-inflight": "3000",
            "max-mutating-requests-inflight": "1000",
            "audit-policy-file": str(self._folder / "audit-policy.json"),
            "audit-log-path": str(self.audit_log),
            "audit-log-maxsize": "4096",  # MiB: never rotated away from under a test
        }
        if self._front_proxy:
            flags |= self._front_proxy.flags()
        served = [_FEATURES[feature][1] for feature in self._features]
        return flags | ({"runtime-config": ",".join(served)} if served else {})

    def _controller_manager_flags(self) -> dict[str, str]:
        return {
            "kubeconfig": str(self._folder / "kube-controller-manager.kubeconfig"),
            "secure-port": "0",
            "leader-elect": "false",
            # a write for each node, that tells real kubelets how long to cache secrets
            "controllers": "*,-ttl-controller",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": str(self._folder / "service-account.key"),
            "root-ca-file": str(self.ca_file),
            **(_HURRIED if self._hurried else {}),
            "concurrent-statefulset-syncs": "20",
            "horizontal-pod-autoscaler-sync-period": "2s",
            "node-monitor-period": f"{min(max(self._lease_duration_seconds // 40, 1), 60)}s",
            "node-monitor-grace-period": f"{self._lease_duration_seconds + 10}s",
            # Ten nodes a second, not one in ten seconds, get the taint that evicts their pods:
            # tests look at that.
            "node-eviction-rate": "10",
        }

    def _scheduler_flags(self) -> dict[str, str]:
        return {
            "kubeconfig": str(self._folder / "kube-scheduler.kubeconfig"),
            "secure-port": "0",
            "leader-elect": "false",
            **(_HURRIED if self._hurried else {}),
        }

    def _kwok_flags(self) -> dict[str, str]:
        return {
            "kubeconfig": str(self._folder / "kwok.kubeconfig"),
            "config": str(self._folder / "kwok.yaml"),
        }

    def _run(self, program: str, args: tuple[str, ...], text: str | None, *, check: bool) -> str:
        done = subprocess.run(
            [str(self.bin / program), *args],
            input=text,
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise HarnessError(
                f"`{shlex.join([program, *args])}` failed with exit code {done.returncode}: "
                f"{done.stderr.strip()}"
            )
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr


def _known(name: str) -> str:
    if name not in COMPONENTS:
        raise HarnessError(f"there is no component {name!r}; there are {', '.join(COMPONENTS)}")
    return name


def free_port() -> int:
    """A port on loopback that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
