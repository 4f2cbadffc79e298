"""A user's volumes in the engine's container, under names that none of ours will ever have."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from shardwright.hardware.untrusted import quantity
from shardwright.rendering.deployment import Deployment, OwnVolume, VolumeKind

PREFIX: Final = "own-"
"""What the names of such volumes begin with in a pod."""


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the user's volumes of the pod."""
    return [
        {"name": f"{PREFIX}{item.name}", **_SOURCES[item.kind](item)}
        for item in deployment.pods.volumes
    ]


def mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mounts of the user's volumes in the engine's container."""
    return [
        {
            "name": f"{PREFIX}{item.name}",
            "mountPath": item.path,
            **({"readOnly": True} if item.read_only else {}),
        }
        for item in deployment.pods.volumes
    ]


def scratch_bytes(deployment: Deployment) -> int:
    """Return the bytes of the empty folders among them, which count as the pod's local disk."""
    return sum(
        quantity(item.source) or 0
        for item in deployment.pods.volumes
        if item.kind is VolumeKind.SCRATCH
    )


def _claim(item: OwnVolume) -> dict[str, Any]:
    return {
        "persistentVolumeClaim": {
            "claimName": item.source,
            **({"readOnly": True} if item.read_only else {}),
        }
    }


_SOURCES: Final[Mapping[VolumeKind, Callable[[OwnVolume], dict[str, Any]]]] = {
    VolumeKind.CONFIG_MAP: lambda item: {"configMap": {"name": item.source}},
    VolumeKind.SECRET: lambda item: {"secret": {"secretName": item.source}},
    VolumeKind.CLAIM: _claim,
    VolumeKind.SCRATCH: lambda item: {"emptyDir": {"sizeLimit": item.source}},
}
