"""The token by which a group's ranks know each other: the kubelet mounts it and nobody sends it.

It is made with its Secret and never read here; ``programs/rendezvous.py`` derives a group's key
from it.
"""

from typing import Any, Final

from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.names import made_secret

SECRET_TYPE: Final = "shardwright.io/group-token"  # noqa: S105 - a type

VOLUME: Final = "group"
FOLDER: Final = "/etc/shardwright-group"
FILE: Final = "token"

_MODE: Final = 0o440
"""The kubelet's owner is root: the pod reads it by its group."""


def joins(plan: Plan) -> bool:
    """Return whether a plan's groups have ranks that must meet: one pod meets nobody."""
    return plan.nodes_per_replica > 1


def secret_name(deployment: Deployment) -> str:
    """Return the name of the token's Secret."""
    return made_secret(
        deployment.base, "token", deployment.owner.uid, deployment.groups.secret_seed
    )


def volumes(plan: Plan) -> list[dict[str, Any]]:
    """Return the token as a volume of the pod, without its Secret's name."""
    if not joins(plan):
        return []
    return [{"name": VOLUME, "secret": {"defaultMode": _MODE}}]


def mounts(plan: Plan) -> list[dict[str, Any]]:
    """Return the token's mounts in the engine's container."""
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}] if joins(plan) else []
