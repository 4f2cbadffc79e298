"""Queues of Kueue for one test, and what Kueue says of the groups in them."""

from __future__ import annotations

from typing import Any, Final

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane

API: Final = "/apis/kueue.x-k8s.io/v1beta2"
PLENTY: Final = "1000Ti"
"""Of everything that a test is not about."""


class Quotas:
    """LocalQueues of a namespace, each with a ClusterQueue of its name, over nodes of one kind."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._cp = control_plane
        self._namespace = namespace
        self._made: list[str] = []

    def queue(self, name: str, gpus: int, **spec: Any) -> None:
        """Create a queue with a quota of GPUs; `spec` is of its ClusterQueue."""
        whole = f"{self._namespace}-{name}"
        self._create("resourceflavors", "ResourceFlavor", whole, {})
        quotas = {
            "cpu": PLENTY,
            "memory": PLENTY,
            "ephemeral-storage": PLENTY,
            "nvidia.com/gpu": gpus,
        }
        resources = [
            {"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()
        ]
        group = {
            "coveredResources": list(quotas),
            "flavors": [{"name": whole, "resources": resources}],
        }
        self._create(
            "clusterqueues",
            "ClusterQueue",
            whole,
            {"namespaceSelector": {}, "resourceGroups": [group], **spec},
        )
        local = f"namespaces/{self._namespace}/localqueues"
        self._create(local, "LocalQueue", name, {"clusterQueue": whole})

    def gpus_used(self, name: str) -> int:
        """Return how many GPUs of a queue's quota are given."""
        path = f"{API}/namespaces/{self._namespace}/localqueues/{name}"
        used = self._cp.api.get(path).get("status", {}).get("flavorsUsage") or ()
        return sum(
            int(resource["total"])
            for flavor in used
            for resource in flavor["resources"]
            if resource["name"] == "nvidia.com/gpu"
        )

    def workloads(self) -> list[Manifest]:
        """Return what Kueue has made of the groups of the namespace."""
        path = f"{API}/namespaces/{self._namespace}/workloads"
        return list(self._cp.api.get(path)["items"])

    def priority(self, name: str, value: int) -> str:
        """Create a class of pods, and return its name, which no other test has."""
        whole = f"{self._namespace}-{name}"
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        self._cp.api.create(path, {"metadata": {"name": whole}, "value": value})
        self._made.append(f"{path}/{whole}")
        return whole

    def remove(self) -> None:
        for path in reversed(self._made):
            self._cp.api.delete(path, missing_ok=True)

    def _create(self, plural: str, kind: str, name: str, spec: Manifest) -> None:
        manifest = {
            "apiVersion": API.removeprefix("/apis/"),
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self._cp.api.create(f"{API}/{plural}", manifest)
        self._made.append(f"{API}/{plural}/{name}")
