"""The token by which the ranks of a group know each other: a token of the resource, which the
kubelet mounts and nobody sends.

It is made when its Secret is created and never read here. The key of one group is derived from it
by ``programs/rendezvous.py``.
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
    """Return whether the groups of a plan have ranks that must meet: one pod has nobody to meet."""
    return plan.nodes_per_replica > 1


def secret_name(deployment: Deployment) -> str:
    """Return the name of the Secret with the token."""
    return made_secret(
        deployment.base, "token", deployment.owner.uid, deployment.groups.secret_seed
    )


def volumes(plan: Plan) -> list[dict[str, Any]]:
    """Return the token as a volume of the pod, without the name of its Secret."""
    if not joins(plan):
        return []
    return [{"name": VOLUME, "secret": {"defaultMode": _MODE}}]


def mounts(plan: Plan) -> list[dict[str, Any]]:
    """Return the mounts of the token in the engine's container."""
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}] if joins(plan) else []
