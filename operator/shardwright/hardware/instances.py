"""Which network and NVLink domain has a cloud instance type? Labels never name them.

The rows are data (``instances.csv``, each with confidence and source). Labels win over the table.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from shardwright.hardware.gpus import find_gpu
from shardwright.hardware.untrusted import RawNode
from shardwright.units import GIB

_MACHINES: Final = (("DGXA100", "DGX-A100"), ("DGXH100", "DGX-H100"), ("DGXB200", "HGX-B200"))
"""Prefix of ``nvidia.com/gpu.machine`` (DMI product name) to the row of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance type; ``network_gbps_per_gpu`` is None if the provider does not say."""

    name: str
    gpu_id: str
    gpus: int
    nvlink_domain_gpus: int
    bridged: bool
    network_gbps_per_gpu: float | None
    rdma: bool
    confidence: str
    source: str


@cache
def load_instances() -> Mapping[str, Instance]:
    """Return the table by instance type.

    >>> load_instances()["p5.48xlarge"].network_gbps_per_gpu
    400.0
    """
    text = (
        resources.files("shardwright.hardware")
        .joinpath("instances.csv")
        .read_text(encoding="utf-8")
    )
    return MappingProxyType(
        {row["instance_type"]: _instance(row) for row in csv.DictReader(text.splitlines())}
    )


def find_instance(node: RawNode) -> Instance | None:
    """Return a node's instance type by its labels (on AWS the machine label is the instance
    type).
    """
    table = load_instances()
    keys = (
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "nvidia.com/gpu.machine",
    )
    found = next((table[node.labels[key]] for key in keys if node.labels.get(key) in table), None)
    machine = node.labels.get("nvidia.com/gpu.machine", "")
    return found or next(
        (table[name] for prefix, name in _MACHINES if machine.startswith(prefix)), None
    )


def _instance(row: Mapping[str, str]) -> Instance:
    gpu = find_gpu(row["gpu_model"], int(row["gpu_mem_gib"]) * GIB)
    if gpu is None:
        msg = f"instances.csv: {row['instance_type']} has the unknown GPU {row['gpu_model']}"
        raise LookupError(msg)
    return Instance(
        name=row["instance_type"],
        gpu_id=gpu.id,
        gpus=int(row["gpu_count"]),
        nvlink_domain_gpus=int(row["nvlink_domain_gpus"]),
        bridged="bridge" in row["intra_node_kind"],
        network_gbps_per_gpu=float(row["per_gpu_net_gbps"]) if row["per_gpu_net_gbps"] else None,
        rdma=row["rdma"] not in {"none", "efa(no GPUDirect)"},
        confidence=row["confidence"],
        source=row["source"],
    )
