"""Which GPUs are joined by a fast link, and where in the network is a node?

A clique label counts only on racks (NVL72): HGX boards never carry one, and fabrics that are still
coming up show a zero UUID. Sources: NVIDIA/k8s-device-plugin@1b826acc internal/lm/imex.go,
NVIDIA/topograph@e2b62507 docs/reference/node-labels.md, kubernetes/cloud-provider-aws@63ec440c,
docs.coreweave.com node labels.

Which network and NVLink domain has a cloud instance type? Labels never name them.

The rows are data (``instances.csv``, each with confidence and source). Labels win over the table.

How fast is the network of a node? Stated, else by instance type, else assumed.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from shardwright.hardware.gpus import Gpu, Link, find_gpu
from shardwright.hardware.untrusted import RawNode, label_value, positive_number, quantity
from shardwright.units import GIB, GIGA

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
    way: "NetworkWay"
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
        way=NetworkWay.DAEMON if row["rdma"] in _BY_DAEMON else NetworkWay.RESOURCES,
        confidence=row["confidence"],
        source=row["source"],
    )


CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
TOPOLOGY_PATH: Final = "shardwright.io/topology-path"
RACK_GPUS: Final = 16
"""A scale-up link that joins more GPUs than this leaves the node. Basis: no node has more than 16
GPUs.
"""

_CLIQUE: Final = re.compile(
    r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.[0-9]{1,10}", re.ASCII
)
# Sold as bridged sets; others: an option.
_ALWAYS_BRIDGED: Final = frozenset({"H100-NVL-94GB", "H200-NVL-141GB"})
# Two nodes with "unknown" are not in the same rack. OCI writes no-imds-data.
_PLACEHOLDERS: Final = frozenset({"no-imds-data", "unknown", "none"})
_FAMILIES: Final[tuple[tuple[str, ...], ...]] = (
    tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(8)),
    tuple(
        f"network.topology.nvidia.com/{tier}"
        for tier in ("accelerator", "leaf", "block", "spine", "core", "datacenter")
    ),
    tuple(f"cloud.google.com/gce-topology-{tier}" for tier in ("host", "subblock", "block")),
    tuple(
        f"topology.k8s.aws/network-node-layer-{layer}" for layer in range(8, 0, -1)
    ),  # the highest is the closest
    tuple(
        f"oci.oraclecloud.com/rdma.{tier}"
        for tier in ("host_id", "local_block_id", "network_block_id", "hpc_island_id")
    ),
    (
        "node.coreweave.cloud/rack",
        "backend.coreweave.cloud/leafgroup",
        "ib.coreweave.cloud/superpod",
        "backend.coreweave.cloud/fabric",
    ),
    ("kubernetes.azure.com/agentpool",),  # InfiniBand reaches the nodes of one scale set only
)
_ZONES: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_NOT_JOINED: Final = "none"
"""What a user states of GPUs that no link joins, though their product has one."""

# nvidia.com/gpu.machine of virtual machines; nothing at all, or "unknown", says nothing.
_VIRTUAL: Final = re.compile(
    r"Virtual-Machine|Standard-PC|.*-PC-|Google-Compute|KVM|VMware|OpenStack|HVM|.*\dxlarge$",
    re.ASCII,
)


class NetworkWay(StrEnum):
    """How a provider gives pods the fast network between nodes."""

    RESOURCES = "Resources"  #: devices that pods request
    CLAIMS = "Claims"  #: NICs that pods claim from a DRA driver
    DAEMON = "Daemon"  #: a daemon of the provider in every pod


_BY_DAEMON: Final = frozenset({"gpudirect-tcpx", "gpudirect-tcpxo"})
"""Source: GoogleCloudPlatform/container-engine-accelerators gpudirect-tcpx, gpudirect-tcpxo."""

_CLAIMED: Final = "cloud.google.com/gke-networking-dra-driver"
"""Label of nodes whose NICs GKE's DRANET serves. Source: docs.cloud.google.com/kubernetes-engine,
"Allocate network resources by using GKE managed DRANET".
"""


class DomainKind(StrEnum):
    """What the scale-up link joins."""

    CLIQUE = "Clique"  #: several nodes of one rack
    NODE = "Node"  #: all GPUs of the node
    BRIDGE = "Bridge"  #: pairs (or fours) inside the node
    NONE = "None"  #: PCIe only


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A node's scale-up domain, which joins ``gpus`` of its GPUs (1: none).

    ``unopened`` is the clique that a ComputeDomain would open to pods, which the cluster lacks
    (empty: none).
    """

    kind: DomainKind
    name: str
    gpus: int
    warning: str = ""
    unopened: str = ""


def read_domain(
    node: RawNode, gpu: Gpu, gpus: int, physical: int, instance: Instance | None
) -> Domain:
    """Return which of the node's GPUs are joined, by labels, then instance type, then the product's
    form.

    ``gpus`` are the usable ones, ``physical`` all that the node has.
    """
    # One GPU of a board has none beside it; one of a tray has a rack.
    if gpu.scale_up is None or (gpus == 1 and gpu.scale_up_gpus <= RACK_GPUS):
        return Domain(kind=DomainKind.NONE, name="", gpus=1)
    if gpu.scale_up_gpus > RACK_GPUS:
        return _rack(node, gpus)
    stated = node.vouched("nvlink-domain")
    if stated == _NOT_JOINED:
        return Domain(kind=DomainKind.NONE, name="", gpus=1)
    size = instance.nvlink_domain_gpus if instance else gpu.scale_up_gpus
    if "bridge" in gpu.scale_up.name:
        joined = size > 1 and (instance is not None or gpu.id in _ALWAYS_BRIDGED or bool(stated))
        return _bounded(node, size if joined else 1, gpus, DomainKind.BRIDGE)
    found = _bounded(node, size, gpus, DomainKind.NODE)
    # The product alone decides, as by every other way in; only a virtual machine may hide links.
    if instance is None and physical < gpu.scale_up_gpus and not stated and _is_virtual(node):
        return replace(found, warning=_partial_board(gpu, physical))
    return found


def read_path(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (key, value) of the network topology above a node, closest first, the zone last.

    The first family of keys that the node carries is taken; families are not mixed.

    >>> read_path(
    ...     {
    ...         "topology.k8s.aws/network-node-layer-1": "far",
    ...         "topology.k8s.aws/network-node-layer-3": "near",
    ...     }
    ... )
    (('topology.k8s.aws/network-node-layer-3', 'near'), ('topology.k8s.aws/network-node-layer-1', 'far'))
    """  # noqa: E501 - a value in one piece
    families, zones = _topology_keys(tuple(labels))
    near = next(filter(None, (_known(labels, family) for family in families)), ())
    return near + _known(labels, zones)[:1] if zones else near


@lru_cache(maxsize=256)
def _topology_keys(keys: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    there = frozenset(keys)
    *families, zones = (
        tuple(key for key in family if key in there) for family in (*_FAMILIES, _ZONES)
    )
    return tuple(filter(None, families)), zones


def stated_path(node: RawNode) -> tuple[tuple[str, str], ...]:
    """Return the user's path for a node: levels, closest first, between slashes."""
    stated = node.stated("topology-path")
    levels = stated.split("/") if stated else ()
    return tuple((TOPOLOGY_PATH, level) for level in map(label_value, levels) if level)


def _rack(node: RawNode, gpus: int) -> Domain:
    stated = label_value(node.vouched("nvlink-domain"))
    # The whole value: NVLink does not cross two cliques of one UUID in a split rack.
    match = _CLIQUE.fullmatch(node.labels.get(CLIQUE_LABEL, ""))
    # A zero UUID is no domain: boards of H100 and fabrics that are still coming up show it.
    clique = match[0] if match and set(match[1]) - set("0-") else None
    # A node writes its clique label itself, so a prefix that the administrator vouches for goes
    # first.
    if node.label_prefix and not stated:
        warning = (
            f"no {node.label_prefix}nvlink-domain label: the NVLink domain is taken to be the tray"
        )
        return Domain(kind=DomainKind.NODE, name=node.name, gpus=gpus, warning=warning)
    # Without the label no ComputeDomain joins pods of several trays, whatever joins their GPUs.
    if clique:
        return Domain(kind=DomainKind.CLIQUE, name=stated or clique, gpus=gpus)
    warning = f"no {CLIQUE_LABEL} label: the NVLink domain is taken to be the tray"
    return Domain(kind=DomainKind.NODE, name=node.name, gpus=gpus, warning=warning)


def _bounded(node: RawNode, size: int, gpus: int, kind: DomainKind) -> Domain:
    joined = min(size, gpus)
    if joined <= 1:
        return Domain(kind=DomainKind.NONE, name="", gpus=1)
    return Domain(kind=kind, name=node.name, gpus=joined)


def _is_virtual(node: RawNode) -> bool:
    return bool(_VIRTUAL.match(node.labels.get("nvidia.com/gpu.machine", "")))


def _partial_board(gpu: Gpu, physical: int) -> str:
    return (
        f"{physical} of a board of {gpu.scale_up_gpus} {gpu.id} in a virtual machine: planned as "
        f"joined by NVLink; set the node label shardwright.io/nvlink-domain to {_NOT_JOINED} if "
        "they are not"
    )


def _known(labels: Mapping[str, str], keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = ((key, label_value(labels.get(key))) for key in keys if key in labels)
    return tuple((key, value) for key, value in found if value and value not in _PLACEHOLDERS)


RDMA_LATENCY_SECONDS: Final = 12e-6
"""One step between nodes over RDMA, seconds. Basis: measured, send/recv of 10 to 18 KiB between two
H100 nodes (18.5 microseconds) minus the same inside one (6.5). Source: microsoft/vidur@7d47513
data/profiling/network/h100_dgx.
"""

TCP_LATENCY_SECONDS: Final = 30e-6
"""One step between nodes over TCP, seconds. Basis: assumed, kernel network stack on both sides of
NCCL sockets.
"""

NODE_GBPS_WITHOUT_EVIDENCE: Final = 100.0
"""Network of a whole node when nothing is known, Gb/s. Basis: assumed, the slowest 8-GPU nodes of
instances.csv.
"""

GPU_GBPS_WITH_RDMA: Final = {"NVLink4": 400.0, "NVLink5": 400.0, "Infinity": 400.0, "NVLink3": 50.0}
"""Network per GPU when the node offers an RDMA resource, Gb/s, by scale-up link. Basis: assumed,
the lowest RDMA rate of instances.csv in that class (A100: p4d 50; H100 and later: 400). RDMA beside
PCIe cards counts as no evidence.
"""

GKE_NETWORKS: Final = "networking.gke.io.networks/"
"""Resources of GKE's multi-networking, by the name of the Network. Source: NVIDIA/aicr
recipes/components/gke-gb200-rdma; docs.nvidia.com/aicr.
"""

_RDMA_RESOURCES: Final = (
    f"{GKE_NETWORKS}rdma",
    "rdma/",
    "vpc.amazonaws.com/efa",
    "nvidia.com/hostdev",
    "nvidia.com/mlnxnics",
    "nvidia.com/sriov_rdma",
    "nvidia.com/rdma-vf",
    "intel.com/mlnx_sriov_rdma",
    "amd.com/nic",
    "amd.com/vnic",
)


_KARPENTER: Final = "karpenter.k8s.aws/instance-network-bandwidth"
"""The rate of a whole instance, Mb/s."""

_ADDRESS: Final = ".IP"
"""Ends the resource of addresses that GKE offers beside that of each network."""

CONTRADICTION: Final = 1.1
"""How far two sources of one rate may differ. Basis: assumed, rounding."""


def read_network(node: RawNode, gpu: Gpu, gpus: int, instance: Instance | None) -> Link:
    """Return the link between nodes as one GPU sees it; basis ``assumed`` if nothing tells."""
    if stated := positive_number(node.stated("network-gbps-per-gpu")):
        rdma = stated >= NODE_GBPS_WITHOUT_EVIDENCE or _offers_rdma(node)
        return _link(stated, rdma, "stated", "shardwright.io/network-gbps-per-gpu")
    labelled = _karpenters(node, gpus)
    if instance and (listed := instance.network_gbps_per_gpu):
        # Of two words on one rate the slower counts.
        slower = min(listed, labelled or listed)
        return _link(slower, instance.rdma, "datasheet", instance.source)
    if labelled:
        return _link(labelled, _offers_rdma(node), "datasheet", "karpenter.k8s.aws")
    return _assumed(node, gpu, gpus)


def rate_contradiction(node: RawNode, gpus: int, instance: Instance | None) -> str:
    """Return that two sources name different rates of a node's network, empty if none does."""
    listed, labelled = instance and instance.network_gbps_per_gpu, _karpenters(node, gpus)
    if node.stated("network-gbps-per-gpu") or not (instance and listed and labelled):
        return ""
    slower, faster = sorted((listed, labelled))
    if faster <= slower * CONTRADICTION:
        return ""
    return (
        f"{instance.name} has {listed:g} Gb/s per GPU, the label {_KARPENTER} says {labelled:g}: "
        "the slower counts; shardwright.io/network-gbps-per-gpu states it"
    )


def _karpenters(node: RawNode, gpus: int) -> float | None:
    megabits = positive_number(node.labels.get(_KARPENTER))
    return megabits and megabits / 1000 / gpus


def _assumed(node: RawNode, gpu: Gpu, gpus: int) -> Link:
    link = gpu.scale_up.name if gpu.scale_up and gpu.scale_up_gpus > 2 else ""  # noqa: PLR2004 - more than a pair
    gbps = next((rate for name, rate in GPU_GBPS_WITH_RDMA.items() if link.startswith(name)), None)
    if gbps and _offers_rdma(node):
        return _link(gbps, True, "assumed", "GPU_GBPS_WITH_RDMA")
    return _link(NODE_GBPS_WITHOUT_EVIDENCE / gpus, False, "assumed", "NODE_GBPS_WITHOUT_EVIDENCE")


@lru_cache(maxsize=1024)
def _link(gbps: float, rdma: bool, basis: str, source: str) -> Link:  # noqa: FBT001 - a fact, not a mode
    return Link(
        name=f"{gbps:g} Gb/s {'RDMA' if rdma else 'Ethernet'}",
        bytes_per_second=gbps * GIGA / 8,
        latency_seconds=RDMA_LATENCY_SECONDS if rdma else TCP_LATENCY_SECONDS,
        basis=basis,
        source=source,
    )


def network_way(node: RawNode, instance: Instance | None) -> NetworkWay:
    """Return how a node's network is given to pods."""
    if node.labels.get(_CLAIMED) == "true":
        return NetworkWay.CLAIMS
    return instance.way if instance else NetworkWay.RESOURCES


def offered_rdma(
    node: RawNode, stated: frozenset[str] = frozenset()
) -> tuple[tuple[str, int], ...]:
    """Return the RDMA devices that pods may request on a node: resource and how many, sorted by
    name; ``stated`` are further names of such resources.
    """
    named = (
        (key, quantity(value) or 0)
        for key, value in node.allocatable.items()
        if (key.startswith(_RDMA_RESOURCES) and not key.endswith(_ADDRESS)) or key in stated
    )
    return tuple(sorted((key, count) for key, count in named if count))


def is_rdma(network: Link) -> bool:
    """Return whether pods reach a link between nodes only with RDMA devices."""
    # Names are for people, and stated links have them, too, so the latency tells.
    return network.latency_seconds == RDMA_LATENCY_SECONDS


def over_tcp(network: Link, gpus: int) -> Link:
    """Return what pods without an RDMA network's devices have of it per GPU: their node's own
    interface.
    """
    gbps = min(network.bytes_per_second * 8 / GIGA, NODE_GBPS_WITHOUT_EVIDENCE / gpus)
    return _link(gbps, False, "assumed", "NODE_GBPS_WITHOUT_EVIDENCE")


def _offers_rdma(node: RawNode) -> bool:
    return bool(offered_rdma(node))
