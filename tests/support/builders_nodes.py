"""Nodes and pods as the API server shows them, and inventories made of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import build_inventory, read_node, read_pod
from shardwright.hardware.scheduling import PodTerms

DUMPS = Path(__file__).parents[1] / "data" / "nodes"
RACK_UUID = "6a130f54-faaa-4b8f-847f-be44ab70f917"
_MEMORY_MIB = {
    "NVIDIA-H100-80GB-HBM3": 81559,
    "NVIDIA-H200": 143771,
    "NVIDIA-B200": 183359,
    "NVIDIA-GB200": 189471,
    "NVIDIA-A100-SXM4-80GB": 81920,
    "NVIDIA-L40S": 46068,
    "NVIDIA-L4": 23034,
    "Tesla-T4": 15360,
}
_NVIDIA_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def a_node(
    name: str,
    product: str = "NVIDIA-H100-80GB-HBM3",
    gpus: int = 8,
    *,
    network_gbps: float | None = 400,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    allocatable: Mapping[str, str] = {},
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    cordoned: bool = False,
) -> dict[str, Any]:
    """Return a node as the GPU operator labels it; ``network_gbps`` None leaves the network
    unknown.
    """
    own = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.strategy": "single",
    }
    if product in _MEMORY_MIB:
        own["nvidia.com/gpu.memory"] = str(_MEMORY_MIB[product])
    return bare_node(
        name,
        labels={**own, **_network(network_gbps), **labels},
        annotations=annotations,
        allocatable={"nvidia.com/gpu": str(gpus), **allocatable},
        taints=taints,
        ready=ready,
        cordoned=cordoned,
    )


def bare_node(
    name: str,
    *,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    allocatable: Mapping[str, str] = {},
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    cordoned: bool = False,
) -> dict[str, Any]:
    """Return a node without any accelerator labels."""
    resources = {"cpu": "192", "memory": "2000Gi", "pods": "110", **allocatable}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                **labels,
            },
            "annotations": dict(annotations),
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": dict(resources),
            "allocatable": dict(resources),
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }
    if cordoned:
        node["spec"]["unschedulable"] = True
        node["spec"]["taints"].append(
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        )
    return node


def h100_nodes(
    count: int, *, prefix: str = "h100", labels: Mapping[str, str] = {}
) -> list[dict[str, Any]]:
    """Return nodes of 8 H100 SXM with 400 Gb/s per GPU: ``h100-00``, ``h100-01``, ..."""
    return [a_node(f"{prefix}-{index:02}", labels=labels) for index in range(count)]


def a_gb200_rack(
    uuid: str = RACK_UUID, trays: int = 18, *, clique: int = 32766, prefix: str = "gb200"
) -> list[dict[str, Any]]:
    """Return the trays of one NVL72 clique: arm64, 4 GPUs each, tainted as GKE and the GPU operator
    taint them.
    """
    arm = {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"}
    labels = {"kubernetes.io/arch": "arm64", "nvidia.com/gpu.clique": f"{uuid}.{clique}"}
    return [
        a_node(
            f"{prefix}-{tray:02}",
            product="NVIDIA-GB200",
            gpus=4,
            labels=labels,
            taints=[arm, _NVIDIA_TAINT],
        )
        for tray in range(trays)
    ]


def an_mi300x_node(
    name: str = "mi300x-0", gpus: int = 8, *, network_gbps: float | None = 400
) -> dict[str, Any]:
    """Return a node as the AMD GPU operator labels it."""
    labels = {
        "amd.com/gpu.device-id": "74a1",
        "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
        "amd.com/gpu.vram": "192G",
        "beta.amd.com/gpu.device-id.74a1": str(gpus),
        **_network(network_gbps),
    }
    return bare_node(name, labels=labels, allocatable={"amd.com/gpu": str(gpus)})


def an_l40s_node(
    name: str = "l40s-0", gpus: int = 8, *, network_gbps: float | None = 50
) -> dict[str, Any]:
    """Return a node of L40S cards, joined by PCIe only."""
    return a_node(name, product="NVIDIA-L40S", gpus=gpus, network_gbps=network_gbps)


def a_gke_node(
    name: str = "gke-a3m-0", accelerator: str = "nvidia-h100-mega-80gb", gpus: int = 8
) -> dict[str, Any]:
    """Return a node of GKE with Google's driver: no label of the GPU operator at all."""
    labels = {
        "cloud.google.com/gke-accelerator": accelerator,
        "cloud.google.com/gce-topology-host": "1d8b2e54f0e1e05a3b6d5d7c4b0e2f11",
        "cloud.google.com/gce-topology-subblock": "0fc09525cbd5abd734342893ca1c083f",
        "cloud.google.com/gce-topology-block": "3e3056e23cf91a5cb4a8621b6a52c100",
        "node.kubernetes.io/instance-type": "a3-megagpu-8g",
        "topology.kubernetes.io/zone": "us-central1-c",
    }
    return bare_node(
        name, labels=labels, allocatable={"nvidia.com/gpu": str(gpus)}, taints=[_NVIDIA_TAINT]
    )


def a_dumped_node(stem: str) -> dict[str, Any]:
    """Return a recorded node; resources that its source did not print come from the annotation that
    infers them.
    """
    node: dict[str, Any] = yaml.safe_load((DUMPS / f"{stem}.yaml").read_text(encoding="utf-8"))
    annotations = node["metadata"].get("annotations", {})
    inferred = json.loads(annotations.get("research.note/allocatable-inferred", "{}"))
    status = node.setdefault("status", {})
    for part in ("capacity", "allocatable"):
        status[part] = {**status.get(part, {}), **inferred}
    return node


def a_pod_holding(
    node: str | None,
    gpus: int,
    *,
    resource: str = "nvidia.com/gpu",
    model: str | None = None,
    namespace: str = "default",
    group: str = "",
    phase: str = "Running",
) -> dict[str, Any]:
    """Return a pod with GPUs on a node (None: not placed yet); with ``model`` it belongs to a
    ShardedModel.
    """
    labels = {"shardwright.io/model": model, "shardwright.io/group": group} if model else {}
    limits = {resource: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"holder-of-{gpus}", "namespace": namespace, "labels": labels},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [
                {"name": "main", "resources": {"limits": limits, "requests": dict(limits)}}
            ],
        },
        "status": {"phase": phase},
    }


def inventory_of(*nodes: object, pods: Iterable[object] = (), **options: Any) -> Inventory:
    """Return the inventory of Node objects; ``options`` go to ``build_inventory``, what pods ask of
    nodes by itself.
    """
    asked = {
        name: options.pop(name)
        for name in ("selector", "tolerations", "rdma", "compute_domains", "lacking", "claims")
        if name in options
    }
    facts = [found for node in nodes if (found := read_node(node)) is not None]
    usage = [held for pod in pods for held in read_pod(pod)]
    return build_inventory(facts, usage, terms=PodTerms(**asked), **options)


def _network(gbps: float | None) -> dict[str, str]:
    return {} if gbps is None else {"shardwright.io/network-gbps-per-gpu": f"{gbps:g}"}
