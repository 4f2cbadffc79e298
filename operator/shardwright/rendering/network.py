"""What pods of a group over several nodes need for the network: devices, interfaces, rights.

The network policy is in ``network_policy``. A pod that is a whole group needs none of it.
"""

from collections.abc import Mapping
from typing import Any, Final

from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment

NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation by which Multus attaches further networks; source: Kubernetes Network Plumbing Working
Group, version 1.3.
"""

ROOT: Final = 0

CHANNEL: Final = "compute-domain-channel"
"""Name of a pod's claim on the IMEX channel of its ComputeDomain."""


def annotations(plan: Plan, deployment: Deployment) -> dict[str, str]:
    """Return the annotations that attach further networks."""
    if plan.nodes_per_replica == 1 or not deployment.pods.network.attachments:
        return {}
    return {NETWORKS: ",".join(deployment.pods.network.attachments)}


def devices(plan: Plan) -> dict[str, str]:
    """Return a pod's RDMA devices for its limits and requests."""
    return {name: str(count) for name, count in plan.rdma}


def locks_memory(plan: Plan, deployment: Deployment) -> bool:
    """Return whether pods must be able to lock memory beyond the runtime's limit."""
    return bool(plan.rdma) and deployment.pods.network.lock_memory


def with_locked_memory(pod_security: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's security context for IPC_LOCK, which Linux leaves to root alone."""
    return {**pod_security, "runAsNonRoot": False, "runAsUser": ROOT}
