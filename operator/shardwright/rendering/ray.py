"""What a group joined by Ray needs: a cluster of its own, with a head beside the leader's engine.

``spec.engine.executor`` says whether Ray is used; no user's own cluster is ever joined.
"""

from typing import Final

from shardwright.engines.registry import ENGINES
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment

PORT: Final = 6379
"""TCP port of the head's control store; Ray's own default."""

JOIN_SECONDS: Final = 300
"""Seconds for the cluster to have all ranks, which have met by then; assumed from 10 s measured on
two shared cores.
"""

ANSWER_SECONDS: Final = 30
"""Seconds for the cluster's answer; measured 2 to 8 s on two shared cores."""

FOLDER: Final = "/tmp/ray"  # noqa: S108 - where Ray keeps sockets and logs; a volume of the pod
"""Ray's own default: a path that is short enough for its sockets."""


def joins(plan: Plan, deployment: Deployment) -> bool:
    """Return whether a group's pods are joined by Ray: one pod has nothing to join."""
    return deployment.serving.over_ray and plan.nodes_per_replica > 1


def peer_port(plan: Plan, deployment: Deployment) -> tuple[str, int]:
    """Return name and number of the port for ranks on other nodes."""
    return ("ray", PORT) if joins(plan, deployment) else ENGINES[deployment.engine].peer_port
