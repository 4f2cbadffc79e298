"""Kueue beside a control plane: its own manager, as its own manifests configure it, with their
rights and their webhooks.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any, Final

import yaml

from tests.harness import build
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane, free_port
from tests.harness.processes import Companion
from tests.harness.waiting import wait_for

NAMESPACE: Final = "kueue-system"
_ACCOUNT: Final = "kueue-controller-manager"
_SERVICE: Final = "kueue-webhook-service"
_CERTIFICATE: Final = "kueue-webhook-server-cert"
_SETTINGS: Final = "kueue-manager-config"

_LEFT_OUT: Final = frozenset({"APIService", "Deployment"})
"""Kinds of its manifests that are nothing here: its pods, and an API that only shows queues."""


class Kueue(Companion):
    """Kueue's manager, which ends with the `with`; what it has installed stays.

    Its certificates are its own: it makes them, keeps them in a Secret, and gives their authority
    to the webhooks. A kubelet would mount the Secret; here the files are written.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__("kueue")
        self._cp = control_plane
        self._health, self._webhooks = free_port(), free_port()
        self._certificates = self._processes.folder / "certificates"

    def _begin(self) -> None:
        settings = self._install()
        self._start(settings)
        wait_for(self._mount, 60, "Kueue to make its certificates", interval=0.5)
        wait_for(self._is_ready, 60, "Kueue to be ready", interval=0.5)

    def log(self) -> str:
        """What the manager has written so far."""
        return self._processes.log("kueue")

    def _install(self) -> Manifest:
        """Apply its manifests, and return the settings in them."""
        folder = build.kueue_config() / "default"
        manifests = [
            _at(self._webhooks, manifest)
            for manifest in yaml.safe_load_all(self._cp.kubectl("kustomize", str(folder)))
            if manifest["kind"] not in _LEFT_OUT
        ]
        self._cp.apply(manifests)
        (settings,) = (
            manifest["data"]["controller_manager_config.yaml"]
            for manifest in manifests
            if (manifest["kind"], manifest["metadata"]["name"]) == ("ConfigMap", _SETTINGS)
        )
        found: Manifest = yaml.safe_load(settings)
        return found

    def _start(self, settings: Manifest) -> None:
        """Start it with those settings, but where it listens, and alone."""
        changed = {
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": "127.0.0.1",
                "port": self._webhooks,
                "certDir": str(self._certificates),
            },
            "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": False},
        }
        file = self._processes.folder / "settings.json"
        file.write_text(json.dumps(settings | changed))
        account = self._cp.kubeconfig_for(NAMESPACE, _ACCOUNT)
        self._processes.start(
            "kueue",
            [
                "env",
                f"KUBECONFIG={account}",
                str(build.kueue()),
                f"--config={file}",
                "--zap-encoder=console",
                "--zap-log-level=2",
            ],
        )

    def _mount(self) -> bool:
        """Write the files of the Secret, as a kubelet would, when there are any."""
        self._processes.check()
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{_CERTIFICATE}"
        kept = self._cp.api.get(path).get("data") or {}
        self._certificates.mkdir(exist_ok=True)
        for name, content in kept.items():
            (self._certificates / name).write_bytes(base64.b64decode(content))
        return "tls.crt" in kept

    def _is_ready(self) -> bool:
        self._processes.check()
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._health}/readyz", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except OSError:  # it does not listen yet, or is not ready
            return False


def _at(port: int, manifest: Any) -> Manifest:
    """Return a manifest with the Service of the webhooks at a port of this machine: the API server
    finds a manager outside the cluster by it.
    """
    if (manifest["kind"], manifest["metadata"]["name"]) == ("Service", _SERVICE):
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        return {**manifest, "spec": spec}
    for client in _clients(manifest):
        client["service"]["port"] = port
    return dict(manifest)


def _clients(manifest: Any) -> list[Manifest]:
    """Return each place of a manifest that says how a webhook is reached."""
    if manifest["kind"] == "CustomResourceDefinition":
        converted = manifest["spec"].get("conversion", {}).get("webhook")
        return [converted["clientConfig"]] if converted else []
    return [hook["clientConfig"] for hook in manifest.get("webhooks", ())]
