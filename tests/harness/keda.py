"""KEDA beside a control plane: its own operator and metrics server, with the rights of its own
manifests.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from tests.harness import build
from tests.harness.controlplane import ControlPlane, free_port
from tests.harness.processes import Companion
from tests.harness.waiting import wait_for

NAMESPACE = "keda"
SERVICE = "keda-metrics-apiserver"
METRICS = f"{SERVICE}.{NAMESPACE}.svc"
"""The name for which the API server checks the certificate of KEDA's metrics server."""

_API = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"
_MANIFESTS = (
    "crd/bases",
    "service_account/service_account.yaml",
    "rbac/role.yaml",
    "rbac/role_binding.yaml",
    "metrics-server/role.yaml",
    "metrics-server/role_binding.yaml",
)


class Keda(Companion):
    """KEDA's programs, which end with the `with`; what it has installed stays.

    `certificates` is a folder with ca.crt, tls.crt and tls.key for METRICS and 127.0.0.1: both
    programs show them to each other, and the metrics server to the API server.
    """

    def __init__(self, control_plane: ControlPlane, certificates: Path) -> None:
        super().__init__("keda")
        self._cp = control_plane
        self._certificates = certificates
        self._ports = {name: free_port() for name in ("grpc", "https", "http", "metrics", "health")}

    def _begin(self) -> None:
        self._install()
        self._start()
        wait_for(self._is_served, 60, "KEDA to serve metrics", interval=0.5)

    def _install(self) -> None:
        self._cp.create_namespace(NAMESPACE)
        config = build.keda_config()
        for path in _MANIFESTS:
            self._cp.kubectl("apply", "--server-side", "-f", str(config / path))
        registered = yaml.safe_load((config / "metrics-server" / "api_service.yaml").read_text())
        authority = base64.b64encode((self._certificates / "ca.crt").read_bytes())
        registered["spec"]["caBundle"] = authority.decode()
        registered["spec"]["service"]["port"] = self._ports["https"]
        for manifest in (_service(self._ports["https"]), registered):
            self._cp.kubectl("apply", "-f", "-", input=json.dumps(manifest))

    def _start(self) -> None:
        """Both find the control plane, as KEDA's service account, and their namespace in their
        environment.
        """
        account = str(self._cp.kubeconfig_for(NAMESPACE, "keda-operator"))
        variables = {
            "KUBECONFIG": account,
            "POD_NAMESPACE": NAMESPACE,
            "WATCH_NAMESPACE": "",
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
        }
        here = ["env", *(f"{name}={value}" for name, value in variables.items())]
        certificates, at = self._certificates, self._ports
        grpc = f"127.0.0.1:{at['grpc']}"
        self._processes.start(
            "operator",
            [
                *here,
                str(build.keda_operator()),
                f"--metrics-bind-address=127.0.0.1:{at['metrics']}",
                f"--health-probe-bind-address=127.0.0.1:{at['health']}",
                f"--metrics-service-bind-address={grpc}",
                f"--cert-dir={certificates}",
                "--zap-encoder=console",
            ],
        )
        self._processes.start(
            "adapter",
            [
                *here,
                str(build.keda_adapter()),
                f"--port={at['http']}",
                "--bind-address=127.0.0.1",
                f"--secure-port={at['https']}",
                f"--metrics-service-address={grpc}",
                f"--cert-dir={certificates}",
                f"--tls-cert-file={certificates / 'tls.crt'}",
                f"--tls-private-key-file={certificates / 'tls.key'}",
                f"--client-ca-file={certificates / 'ca.crt'}",
                *(
                    f"--{what}-kubeconfig={account}"
                    for what in ("authentication", "authorization", "lister")
                ),
            ],
        )

    def _is_served(self) -> bool:
        self._processes.check()
        conditions = self._cp.api.get(_API).get("status", {}).get("conditions", ())
        return any(item["type"] == "Available" and item["status"] == "True" for item in conditions)


def _service(port: int) -> dict[str, Any]:
    """The Service by which the API server finds a metrics server outside the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }
