"""What a group needs whose leader starts its followers' ranks over ssh: a key and a user.

The key is made with its Secret and never read here. It is the users' and the hosts' key at once:
leader and followers know each other by it.
"""

from typing import Any, Final

from shardwright.engines.registry import ENGINES
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.names import made_secret

SECRET_TYPE: Final = "shardwright.io/ssh-key"  # noqa: S105 - a type

USER_ID: Final = 10001
"""User and group of the engine's process: any number but 0 satisfies Pod Security *restricted*."""

VOLUME: Final = "ssh"
KEY_DIR: Final = "/etc/shardwright-ssh"
PRIVATE_KEY: Final = "id_ed25519"
PUBLIC_KEY: Final = "id_ed25519.pub"

FILES: Final = ("passwd", "remote.sh", "ssh_config", "sshd_config")
"""What is mounted beside the scripts: ssh and sshd want an entry for their user, and their
settings.
"""

_KEY_MODE: Final = 0o440
"""The kubelet's owner is root: the pod reads the key by its group and keeps a copy of its own."""


def joins(plan: Plan, deployment: Deployment) -> bool:
    """Return whether a group's leader reaches its followers over ssh."""
    return ENGINES[deployment.engine].over_ssh and plan.nodes_per_replica > 1


def secret_name(deployment: Deployment) -> str:
    """Return the name of the key's Secret."""
    return made_secret(deployment.base, "ssh", deployment.owner.uid, deployment.groups.secret_seed)


def volumes(plan: Plan, deployment: Deployment, scripts: str) -> list[dict[str, Any]]:
    """Return volumes for the key, without its Secret's name, and its user in ``scripts``."""
    if not joins(plan, deployment):
        return []
    passwd = {"name": scripts, "items": [{"key": "passwd", "path": "passwd"}]}
    return [
        {"name": VOLUME, "secret": {"defaultMode": _KEY_MODE}},
        {"name": "passwd", "configMap": passwd},
    ]


def mounts(plan: Plan, deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mounts of the key and its user's entry in the engine's container."""
    if not joins(plan, deployment):
        return []
    return [
        {"name": VOLUME, "mountPath": KEY_DIR, "readOnly": True},
        {
            "name": "passwd",
            # sshd refuses a user without an entry, and an image has none for a number that we have
            # chosen.
            "mountPath": "/etc/passwd",
            "subPath": "passwd",
            "readOnly": True,
        },
    ]
