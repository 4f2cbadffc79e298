"""The scheduler of scheduler-plugins with Coscheduling beside a control plane, and the controller of
its PodGroups, as their own chart installs them.
"""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from tests.harness import build
from tests.harness.controlplane import ControlPlane, free_port
from tests.harness.processes import Companion
from tests.harness.waiting import wait_for

NAMESPACE: Final = "scheduler-plugins"
SCHEDULER: Final = "scheduler-plugins-scheduler"
_CONTROLLER: Final = "scheduler-plugins-controller"
_CHART: Final = "as-a-second-scheduler"


class Coscheduling(Companion):
    """Both programs, which end with the `with`; what they have installed stays."""

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__("coscheduling")
        self._cp = control_plane
        self._probes = free_port()

    def _begin(self) -> None:
        self._start(self._install())
        wait_for(self._works, 60, "the second scheduler to work", interval=0.5)

    def log(self) -> str:
        """What the scheduler has written so far."""
        return self._processes.log("scheduler")

    def _install(self) -> dict[str, Any]:
        """Apply definitions and rights, and return the scheduler's settings."""
        self._cp.create_namespace(NAMESPACE)
        definitions = build.scheduler_plugins_definitions() / "crd" / "bases"
        self._cp.kubectl("apply", "--server-side", "-f", str(definitions))
        rendered = self._cp.helm(
            "template",
            "plugins",
            str(build.scheduler_plugins_charts() / _CHART),
            f"--namespace={NAMESPACE}",
            "--set=plugins.enabled={Coscheduling}",
        )
        manifests = [
            manifest
            for manifest in yaml.safe_load_all(rendered)
            if manifest and manifest["kind"] != "Deployment"
        ]
        self._cp.apply(manifests)
        (settings,) = (
            manifest["data"]["scheduler-config.yaml"]
            for manifest in manifests
            if manifest["kind"] == "ConfigMap"
        )
        found: dict[str, Any] = yaml.safe_load(settings)
        return found

    def _start(self, settings: dict[str, Any]) -> None:
        account = {
            name: str(self._cp.kubeconfig_for(NAMESPACE, name)) for name in (SCHEDULER, _CONTROLLER)
        }
        file = self._processes.folder / "settings.json"
        client = {"clientConnection": {"kubeconfig": account[SCHEDULER]}}
        file.write_text(json.dumps(settings | client))
        self._processes.start(
            "scheduler",
            [
                str(build.scheduler_plugins("scheduler")),
                f"--config={file}",
                "--secure-port=0",
                "--v=3",
            ],
        )
        self._processes.start(
            "controller",
            [
                "env",
                f"KUBECONFIG={account[_CONTROLLER]}",
                str(build.scheduler_plugins("controller")),
                "--metricsAddr=0",
                f"--probeAddr=127.0.0.1:{self._probes}",
            ],
        )

    def _works(self) -> bool:
        """Whether a pod that asks for it is looked at: a scheduler has no other sign of life on a
        port that is shut.
        """
        self._processes.check()
        return "Caches are synced" in self.log() or "Starting Kubernetes Scheduler" in self.log()
