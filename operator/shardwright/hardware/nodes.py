"""Read Nodes and Pods: the whole way from Kubernetes objects to the inventory starts here.

Everything in this package takes objects that anyone may have written and answers with a value.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.domains import read_domain, read_path
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import Gpu, find_gpu, load_gpus
from shardwright.hardware.instances import Instance, find_instance
from shardwright.hardware.inventory import NodeExclusion, Taint
from shardwright.hardware.networks import read_network
from shardwright.hardware.pods import GpuUsage, read_pod
from shardwright.hardware.pools import Reservation, build_inventory
from shardwright.hardware.products import AMD_DEVICE_IDS
from shardwright.hardware.suitability import RESOURCES, gpu_resource, has_accelerator, implausible, shown, unsuitable
from shardwright.hardware.untrusted import RawNode, is_node_name, mapping, mappings, positive_number, quantity, raw_node, text
from shardwright.units import GIB, MIB

__all__ = ["GpuUsage", "NodeFacts", "Reservation", "build_inventory", "read_node", "read_pod"]

MEMORY_BOUNDS: Final = (0.75, 1.25)
"""What a memory label may be, as a share of the catalogue's. Basis: assumed, variants of one product name differ by
up to 20 % (H100 with 96 GB), ECC and drivers by up to 7 %; less means a slice, more a forged label."""

BYTES_NOT_MEBIBYTES: Final = 10**7
"""A ``gpu.memory`` above this is in bytes: old GFD versions wrote so. Source: tests/data/nodes/t4-shared-bytes*."""

_PRODUCT_KEYS: Final = {
    "nvidia.com/gpu": (
        "nvidia.com/gpu.product",
        "cloud.google.com/gke-accelerator",
        "gpu.nvidia.com/model",
        "gpu.nvidia.com/class",
        "karpenter.k8s.aws/instance-gpu-name",
        "karpenter.azure.com/sku-gpu-name",
    ),
    "amd.com/gpu": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
}
_DEVICE_ID_KEYS: Final = ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id")
_VENDORS: Final = {"nvidia.com/gpu": "NVIDIA", "amd.com/gpu": "AMD"}
_PRODUCT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()-]{0,62}", re.ASCII)
_STATE_TAINTS: Final = frozenset(
    {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
_DELETION_TAINTS: Final = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})


def read_node(node: object) -> NodeFacts | NodeExclusion | None:
    """Return what matters of a Node, why its GPUs cannot be planned, or None for a node without GPUs.

    Cordoned, not ready and leaving nodes are facts, not exclusions: their running pods count on them.
    """
    raw = raw_node(node)
    if not has_accelerator(raw):
        return None
    resource = gpu_resource(raw)
    found = unsuitable(raw, resource) or _identify(raw, resource)
    if isinstance(found, Problem):
        return NodeExclusion(node=raw.name if is_node_name(raw.name) else shown(raw.name), problem=found)
    gpu, product = found
    return _facts(raw, resource, gpu, product)


def _facts(raw: RawNode, resource: str, gpu: Gpu, product: str) -> NodeFacts:
    gpus = quantity(raw.allocatable[resource]) or 0
    physical = max(gpus, quantity(raw.capacity.get(resource)) or 0, quantity(raw.labels.get("nvidia.com/gpu.count")) or 0)
    instance = _matching_instance(raw, gpu)
    domain = read_domain(raw, gpu, gpus, physical, instance)
    network, warning = read_network(raw, gpu, gpus, instance)
    taints = mappings(raw.spec.get("taints"))
    unhealthy = f"{gpus} of {physical} GPUs are healthy" if gpus < physical else ""
    return NodeFacts(
        name=raw.name,
        resource=resource,
        gpus=gpus,
        gpu=gpu,
        product=product,
        architecture=_architecture(raw),
        domain=domain,
        network=network,
        path=read_path(raw.labels),
        labels=raw.labels,
        taints=_taints(taints),
        schedulable=not raw.spec.get("unschedulable"),
        ready=_is_ready(raw),
        deleting=raw.deleting or any(text(taint.get("key")) in _DELETION_TAINTS for taint in taints),
        warnings=tuple(filter(None, (unhealthy, domain.warning, warning))),
        gpu_hour_price=positive_number(raw.stated("gpu-hour-price")),
    )


def _identify(raw: RawNode, resource: str) -> tuple[Gpu, str] | Problem:
    """Return the GPU with this node's memory and the product string, or why it is not known."""
    key, product = _product(raw, resource)
    gpu = find_gpu(product, _memory_hint(raw, resource)) if _PRODUCT.fullmatch(product) else None
    if gpu is None:
        return _unknown(key, product)
    if gpu.vendor != _VENDORS[resource]:
        return implausible(f"{shown(product)} on a node with {resource}", f"must be a GPU of {_VENDORS[resource]}")
    memory = _memory_bytes(raw, resource)
    if memory is None:
        return gpu, product
    low, high = MEMORY_BOUNDS
    if not low <= memory / gpu.memory_bytes <= high:
        limit = f"must be near the {gpu.memory_bytes // MIB} MiB of {gpu.id}"
        return implausible(f"{memory // MIB} MiB of GPU memory", limit)
    return _with_memory(gpu.id, memory), product


def _product(raw: RawNode, resource: str) -> tuple[str, str]:
    """Return the key and the value that names the GPU best; empty when nothing names it."""
    if stated := raw.stated("gpu-model"):
        return "shardwright.io/gpu-model", stated
    for key in _PRODUCT_KEYS[resource]:
        if value := raw.labels.get(key):
            return key, value
    for key in _DEVICE_ID_KEYS if resource == RESOURCES[1] else ():
        if value := raw.labels.get(key):
            return key, AMD_DEVICE_IDS.get(value.lower(), value)
    instance = find_instance(raw)
    return ("node.kubernetes.io/instance-type", instance.gpu_id) if instance else ("", "")


def _unknown(key: str, product: str) -> Problem:
    return Problem(
        code="GpuUnknown",
        what=f"{key} {shown(product)}" if key else "GPU name (no label holds one)",
        limit="must name a GPU of the catalogue",
        remedy="set the node label shardwright.io/gpu-model to a catalogue id such as H100-SXM-80GB",
    )


def _memory_hint(raw: RawNode, resource: str) -> int | None:
    """Return bytes that tell products of one name apart; sizes of clouds are nominal, good for no more than that."""
    if memory := _memory_bytes(raw, resource):
        return memory
    mebibytes = quantity(raw.labels.get("karpenter.k8s.aws/instance-gpu-memory"))
    gigabytes = quantity(raw.labels.get("gpu.nvidia.com/vram"))
    return mebibytes * MIB if mebibytes else gigabytes * GIB if gigabytes else None


def _memory_bytes(raw: RawNode, resource: str) -> int | None:
    """Return the memory of one GPU as the node's labels state it, None where they do not."""
    if stated := quantity(raw.stated("gpu-memory-mib")):
        return stated * MIB
    if resource == RESOURCES[1]:
        vram = raw.labels.get("amd.com/gpu.vram") or raw.labels.get("beta.amd.com/gpu.vram") or ""
        return (quantity(vram.removesuffix("G")) or 0) * GIB or None
    label = quantity(raw.labels.get("nvidia.com/gpu.memory")) or 0
    return (label if label > BYTES_NOT_MEBIBYTES else label * MIB) or None


@lru_cache(maxsize=256)
def _with_memory(gpu_id: str, memory_bytes: int) -> Gpu:
    return replace(load_gpus()[gpu_id], memory_bytes=memory_bytes)


def _matching_instance(raw: RawNode, gpu: Gpu) -> Instance | None:
    """Return the row of the instance type, unless the labels show another GPU than it lists."""
    instance = find_instance(raw)
    return instance if instance and instance.gpu_id == gpu.id else None


def _architecture(raw: RawNode) -> str:
    reported = text(mapping(raw.status.get("nodeInfo")).get("architecture"))
    architecture = raw.labels.get("kubernetes.io/arch") or raw.labels.get("beta.kubernetes.io/arch") or reported
    return "arm64" if architecture == "arm64" else "amd64"


def _is_ready(raw: RawNode) -> bool:
    """Return whether nothing says that the node is not ready (a dump without conditions says nothing)."""
    states = {text(c.get("type")): text(c.get("status")) for c in mappings(raw.status.get("conditions"))}
    keys = {text(taint.get("key")) for taint in mappings(raw.spec.get("taints"))}
    return states.get("Ready", "True") == "True" and not keys & {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def _taints(taints: tuple[object, ...]) -> tuple[Taint, ...]:
    found = (mapping(taint) for taint in taints)
    named = (Taint(key=text(t.get("key")), value=text(t.get("value")), effect=text(t.get("effect"))) for t in found)
    kept = {taint for taint in named if taint.key and taint.key not in _STATE_TAINTS}
    return tuple(sorted(kept, key=lambda taint: (taint.key, taint.effect, taint.value)))
