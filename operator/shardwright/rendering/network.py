"""What pods of a group over several nodes need for the network: devices, interfaces, rights.

The network policy is in ``network_policy``. A pod that is a whole group needs none of it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from shardwright.hardware.topology import GKE_NETWORKS
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment

NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation by which Multus attaches further networks; source: Kubernetes Network Plumbing Working
Group, version 1.3.
"""

GKE: Final = "networking.gke.io/"
"""Prefix of the annotations of GKE's multi-networking. Source: NVIDIA/aicr
recipes/components/gke-gb200-rdma; ai-dynamo/dynamo recipes.
"""

ROOT: Final = 0

CHANNEL: Final = "compute-domain-channel"
"""Name of a pod's claim on the IMEX channel of its ComputeDomain."""


def annotations(plan: Plan, deployment: Deployment) -> dict[str, str]:
    """Return the annotations that attach further networks."""
    if plan.nodes_per_replica == 1:
        return {}
    attachments = ",".join(deployment.pods.network.attachments)
    return {**({NETWORKS: attachments} if attachments else {}), **_gke_networks(plan)}


def _gke_networks(plan: Plan) -> dict[str, str]:
    """The pod network stays the default; each further one is an interface named after it."""
    networks = [
        name.removeprefix(GKE_NETWORKS) for name, _ in plan.rdma if name.startswith(GKE_NETWORKS)
    ]
    if not networks:
        return {}
    interfaces = [
        {"interfaceName": f"eth{index}", "network": network}
        for index, network in enumerate(("default", *networks))
    ]
    return {
        f"{GKE}default-interface": "eth0",
        f"{GKE}interfaces": json.dumps(interfaces, separators=(",", ":")),
    }


def environment(plan: Plan) -> dict[str, str]:
    """Return what tells NCCL not to take TCP where a plugin is to be used: without it NCCL would,
    and say no word of it.
    """
    gke = any(name.startswith(GKE_NETWORKS) for name, _ in plan.rdma)
    return {"NCCL_NET": "gIB"} if gke else {}


def devices(plan: Plan) -> dict[str, str]:
    """Return a pod's RDMA devices for its limits and requests."""
    return {name: str(count) for name, count in plan.rdma}


def locks_memory(plan: Plan, deployment: Deployment) -> bool:
    """Return whether pods must be able to lock memory beyond the runtime's limit."""
    return bool(plan.rdma) and deployment.pods.network.lock_memory


def with_locked_memory(pod_security: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's security context for IPC_LOCK, which Linux leaves to root alone."""
    return {**pod_security, "runAsNonRoot": False, "runAsUser": ROOT}
