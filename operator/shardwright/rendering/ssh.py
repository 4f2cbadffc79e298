"""The needs of a group whose leader starts the ranks of its followers over ssh: a key of the
resource's own, and a user.

The key is made when its Secret is created and never read here. It is the users' and the hosts' key
at once: a leader knows its followers by it, and they it.
"""

from typing import Any, Final

from shardwright.engines.engine import ENGINES
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
    """Return whether the leader of a group reaches its followers over ssh."""
    return ENGINES[deployment.engine].over_ssh and plan.nodes_per_replica > 1


def secret_name(deployment: Deployment) -> str:
    """Return the name of the Secret with the key."""
    return made_secret(deployment.base, "ssh", deployment.owner.uid, deployment.groups.secret_seed)


def volumes(plan: Plan, deployment: Deployment, scripts: str) -> list[dict[str, Any]]:
    """Return the key as a volume of the pod, without the name of its Secret, and the entry of its
    user; ``scripts`` is the ConfigMap that has it.
    """
    if not joins(plan, deployment):
        return []
    passwd = {"name": scripts, "items": [{"key": "passwd", "path": "passwd"}]}
    return [
        {"name": VOLUME, "secret": {"defaultMode": _KEY_MODE}},
        {"name": "passwd", "configMap": passwd},
    ]


def mounts(plan: Plan, deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mounts of the key and of its user's entry in the engine's container."""
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
