"""The fleet of the examples as ``kubectl get nodes,pods -A -o yaml`` prints it, made from the dumps
in tests/data/nodes.

Written by ``python -m tests.support.example_fleet > examples/fleet/nodes.yaml``. What the dumps do
not say (their sources printed labels only) and what makes one node of a kind differ from the next
stands here.
"""

import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DUMPS = Path(__file__).parents[1] / "data" / "nodes"
HEADER = """\
# A few dozen GPU nodes as `kubectl get nodes,pods -A -o yaml` prints them, for trying things on a laptop.
# Generated from the node dumps in tests/data/nodes by `python -m tests.support.example_fleet`; do not edit.
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Nodes of one dump: their names, what each adds to the labels, and what the dump leaves
    out.
    """

    dump: str
    names: tuple[str, ...]
    labels: dict[str, str] = field(default_factory=dict)
    allocatable: dict[str, str] = field(default_factory=dict)


def _h100(*, rack: int, hosts: range) -> Kind:
    leaf = {"topology.k8s.aws/network-node-layer-3": f"nn-0a1b2c3d4e5f6000{rack + 2}"}
    names = tuple(f"ip-10-0-{rack}-{host}.us-west-2.compute.internal" for host in hosts)
    return Kind(dump="SYNTH-h100-8x-eks-p5", names=names, labels=leaf)


KINDS = (
    _h100(rack=1, hosts=range(10, 14)),
    _h100(rack=2, hosts=range(10, 14)),
    Kind(dump="SYNTH-gb200-4x-nvl72", names=tuple(f"gb200-r0-t{tray:02}" for tray in range(18))),
    Kind(
        dump="mi300x-8x-azure-nd96isr-vf",
        names=("aks-mi300x-0", "aks-mi300x-1"),
        labels={"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
        allocatable={"cpu": "95", "memory": "1800Gi", "amd.com/gpu": "8", "pods": "110"},
    ),
    Kind(
        dump="l40s-opennebula-vm",
        names=("l40s-0", "l40s-1", "l40s-2"),
        labels={
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "g6e.12xlarge",
            "nvidia.com/gpu.count": "4",
            "nvidia.com/gpu.machine": "g6e.12xlarge",
        },
        allocatable={"cpu": "47", "memory": "360Gi", "nvidia.com/gpu": "4", "pods": "110"},
    ),
    Kind(dump="SYNTH-h100-8x-gke-a3mega", names=("gke-a3m-0",)),
)
CORDONED = "ip-10-0-2-11.us-west-2.compute.internal"
NOT_READY = "ip-10-0-2-12.us-west-2.compute.internal"
HALF_HELD = "ip-10-0-2-13.us-west-2.compute.internal"


def fleet() -> dict[str, Any]:
    """Return the whole fleet as one List."""
    items = [_node(kind, name) for kind in KINDS for name in kind.names]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": [*items, *_pods()],
    }


def fleet_yaml() -> str:
    """Return the checked-in file."""
    return HEADER + yaml.safe_dump(fleet(), width=1000)


@cache
def _dump(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DUMPS / f"{name}.yaml").read_text())
    return found


def _node(kind: Kind, name: str) -> dict[str, Any]:
    node = deepcopy(_dump(kind.dump))
    metadata = {
        "name": name,
        "labels": node["metadata"]["labels"] | kind.labels | {"kubernetes.io/hostname": name},
    }
    resources = node.get("status", {}).get("allocatable", kind.allocatable)
    capacity = node.get("status", {}).get("capacity", resources)
    spec = node.get("spec", {}) | ({"unschedulable": True} if name == CORDONED else {})
    taints = [*spec.get("taints", ()), *_condition_taints(name)]
    status = {"allocatable": resources, "capacity": capacity, "conditions": [_ready(name)]}
    spec |= {"taints": taints} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _condition_taints(name: str) -> Iterator[dict[str, str]]:
    """Yield the taints that the node controllers add."""
    if name == CORDONED:
        yield {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if name == NOT_READY:
        yield {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
        yield {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def _ready(name: str) -> dict[str, str]:
    status, reason, message = ("True", "KubeletReady", "kubelet is posting ready status")
    if name == NOT_READY:
        status, reason, message = (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def _pods() -> Iterator[dict[str, Any]]:
    """Yield a pod of somebody else that holds half of a node, and one that is finished and holds
    nothing.
    """
    yield _pod("trainer-0", node=HALF_HELD, gpus=4, phase="Running")
    yield _pod("benchmark-x7k2p", node="gke-a3m-0", gpus=8, phase="Succeeded")


def _pod(name: str, *, node: str, gpus: int, phase: str) -> dict[str, Any]:
    held = {"nvidia.com/gpu": str(gpus)}
    resources = {"limits": held, "requests": held}
    spec = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "example.org/trainer:1", "resources": resources}],
    }
    metadata = {"name": name, "namespace": "research"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


if __name__ == "__main__":
    sys.stdout.write(fleet_yaml())
