"""How fast is the network of a node? Stated, else by instance type, else assumed."""

from functools import lru_cache
from typing import Final

from shardwright.hardware.gpus import Gpu, Link
from shardwright.hardware.instances import Instance
from shardwright.hardware.untrusted import RawNode, positive_number, quantity
from shardwright.units import GIGA

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

_RDMA_RESOURCES: Final = (
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


def read_network(node: RawNode, gpu: Gpu, gpus: int, instance: Instance | None) -> Link:
    """Return the link between nodes as one GPU sees it; basis ``assumed`` if nothing tells."""
    if stated := positive_number(node.stated("network-gbps-per-gpu")):
        rdma = stated >= NODE_GBPS_WITHOUT_EVIDENCE or _offers_rdma(node)
        return _link(stated, rdma, "stated", "shardwright.io/network-gbps-per-gpu")
    if instance and instance.network_gbps_per_gpu:
        return _link(instance.network_gbps_per_gpu, instance.rdma, "datasheet", instance.source)
    if megabits := positive_number(node.labels.get("karpenter.k8s.aws/instance-network-bandwidth")):
        return _link(megabits / 1000 / gpus, _offers_rdma(node), "datasheet", "karpenter.k8s.aws")
    return _assumed(node, gpu, gpus)


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


def offered_rdma(node: RawNode) -> tuple[tuple[str, int], ...]:
    """Return the RDMA devices that pods may request on a node: resource and how many, sorted by
    name.
    """
    named = (
        (key, quantity(value) or 0)
        for key, value in node.allocatable.items()
        if key.startswith(_RDMA_RESOURCES)
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
