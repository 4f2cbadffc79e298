"""Node manifests from label dumps of real clusters (tests/data/nodes)."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.harness.api import Manifest
from tests.harness.errors import HarnessError
from tests.harness.stages import DEAD, KUBELET

DUMPS = Path(__file__).parent.parent / "data" / "nodes"
CLIQUE = "nvidia.com/gpu.clique"
NVL72_TRAYS = 18

# What a dump leaves out and a scheduler needs: a node of the size of a common 8-GPU server.
_SIZE = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "7Ti", "pods": "110"}


def names() -> list[str]:
    """The dumps there are."""
    return sorted(file.stem for file in DUMPS.glob("*.yaml"))


def load(name: str) -> Manifest:
    """One dump, as it stands in tests/data/nodes."""
    file = DUMPS / f"{name}.yaml"
    if not file.exists():
        raise HarnessError(
            f"there is no node dump {name!r} in {DUMPS}; there are: {', '.join(names())}"
        )
    node: Manifest = yaml.safe_load(file.read_text())
    return node


def make(
    dump: str | Manifest,
    count: int = 4,
    prefix: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] | None = None,
    cordoned: bool = False,
    ready: bool = True,
    gpus: int | None = None,
    size: Mapping[str, str] | None = None,
    first: int = 0,
) -> list[Manifest]:
    """`count` nodes like the dump, named `<prefix>-<number>` from `first` on (prefix: the dump's
    node name).

    `labels` and `size` (capacity) add to or override the dump's, `taints` replaces the dump's,
    `gpus` overrides how many GPUs the node offers. Without it the dump's own capacity counts, and
    where that is missing its labels: a dump without the GPU resource in its status would get pods
    nowhere.
    """
    template = load(dump) if isinstance(dump, str) else dump
    prefix = prefix or template["metadata"]["name"]
    return [
        _node(
            template,
            f"{prefix}-{number}",
            labels=labels or {},
            taints=taints,
            cordoned=cordoned,
            ready=ready,
            gpus=gpus,
            size=size or {},
        )
        for number in range(first, first + count)
    ]


def make_nvl72(
    racks: int = 1,
    trays: int = NVL72_TRAYS,
    prefix: str = "gb200",
    dump: str = "SYNTH-gb200-4x-nvl72",
    **options: Any,
) -> list[Manifest]:
    """Racks of GB200 NVL72: the trays of one rack share a clique `<cluster UUID>.<clique id>`, no
    two racks do.

    Named `<prefix>-r<rack>-<tray>`. `options` go to `make`.
    """
    nodes: list[Manifest] = []
    labels = dict(options.pop("labels", {}))
    for rack in range(racks):
        clique = f"6a130f54-faaa-4b8f-847f-{0xBE44AB70F917 + rack:012x}.{32766 - rack}"
        nodes += make(
            dump, trays, f"{prefix}-r{rack}", labels={CLIQUE: clique, **labels}, **options
        )
    return nodes


def _node(
    template: Manifest,
    name: str,
    *,
    labels: Mapping[str, str],
    taints: Iterable[Mapping[str, str]] | None,
    cordoned: bool,
    ready: bool,
    gpus: int | None,
    size: Mapping[str, str],
) -> Manifest:
    node = copy.deepcopy(template)
    metadata, spec, status = (
        node["metadata"],
        node.setdefault("spec", {}),
        node.setdefault("status", {}),
    )
    metadata["name"] = name
    metadata["labels"] = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **metadata.get("labels", {}),
        **labels,
        "kubernetes.io/hostname": name,
    }
    if taints is not None:
        spec["taints"] = [dict(taint) for taint in taints]
    if cordoned:
        spec["unschedulable"] = True
    if not ready:
        metadata.setdefault("annotations", {})[KUBELET] = DEAD
    resource, offered = _gpus(template, metadata["labels"])
    if gpus is not None:
        resource, offered = resource or "nvidia.com/gpu", gpus
    gpu_size = {resource: str(offered)} if resource else {}
    capacity = {**_SIZE, **status.get("capacity", {}), **gpu_size, **size}
    # What the dump's node keeps for itself stays so; what a caller overrides is all allocatable.
    status["allocatable"] = {**capacity, **status.get("allocatable", {}), **gpu_size, **size}
    status["capacity"] = capacity
    status["addresses"] = [
        {"type": "InternalIP", "address": _address(name)},
        {"type": "Hostname", "address": name},
    ]
    return node


def _gpus(template: Manifest, labels: Mapping[str, str]) -> tuple[str | None, int]:
    """The GPU resource of the node and how many it offers: from its capacity, else from its
    labels.
    """
    capacity: Mapping[str, str] = template.get("status", {}).get("allocatable", {})
    for resource in ("nvidia.com/gpu", "amd.com/gpu"):
        if resource in capacity:
            return resource, int(capacity[resource])
    inferred = yaml.safe_load(
        template["metadata"].get("annotations", {}).get("research.note/allocatable-inferred", "{}")
    )
    for resource in ("nvidia.com/gpu", "amd.com/gpu"):
        if resource in inferred:
            return resource, int(inferred[resource])
    if "nvidia.com/gpu.count" in labels:
        shared = int(labels.get("nvidia.com/gpu.replicas", "1") or 1)
        return "nvidia.com/gpu", int(labels["nvidia.com/gpu.count"]) * max(shared, 1)
    return None, 0


def _address(name: str) -> str:
    """An address in 10.64.0.0/11 that depends on the name alone; pods have 10.128.0.0/9, services
    10.96.0.0/16.
    """
    value = zlib.crc32(name.encode())
    return f"10.{64 + value % 32}.{(value >> 8) % 256}.{1 + (value >> 16) % 254}"
