"""Everything that the invariants look at, as a real API server has it now."""

from __future__ import annotations

from typing import Final

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane

READ: Final = {
    "ShardedModel": "shardwright.io/v1alpha1",
    "StatefulSet": "apps/v1",
    "Service": "v1",
    "ConfigMap": "v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Pod": "v1",
    "Node": "v1",
}
"""Kinds by API version, pods before their nodes, which are there for longer."""


def stored(control_plane: ControlPlane, namespace: str) -> list[Manifest]:
    """Return what there is in a namespace, and the nodes; an item of a LIST says neither kind nor
    version itself.
    """
    return [
        {"apiVersion": version, "kind": kind, **item}
        for kind, version in READ.items()
        for item in control_plane.api.get(_path(kind, version, namespace))["items"]
    ]


def _path(kind: str, version: str, namespace: str) -> str:
    prefix = "/apis" if "/" in version else "/api"
    place = "" if kind == "Node" else f"namespaces/{namespace}/"
    return f"{prefix}/{version}/{place}{kind.lower()}s".replace("policys", "policies")
