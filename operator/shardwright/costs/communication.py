"""How long does moving bytes between ranks take? Start-up of every step plus bytes over bandwidth.

Contention of groups on one link is not counted, and no message is hidden behind computing.
"""

import math
from dataclasses import dataclass
from typing import Final

from shardwright.hardware.gpus import Link
from shardwright.layouts.layout import Candidate

CUSTOM_KERNEL_SECONDS: Final = 5e-6
"""Start-up of an engine's own all-reduce kernel inside a node, seconds. Basis: measured, 8 KiB on 2
to 8 GPUs (5.3 to 6.3 microseconds in a CUDA graph). Source: ai-dynamo/aiconfigurator@095f58a51,
custom all-reduce tables.
"""

TWO_SHOT_SECONDS: Final = 4e-6
"""What the second step of that kernel adds to the start-up, seconds: ranks meet between the halves.
Basis: measured, 512 KiB to 8 MiB on 8 GPUs in a CUDA graph, beyond the bytes (H100 and H200 2 to 3
microseconds, A100 6, B200 and B300 6 to 8). Source: ai-dynamo/aiconfigurator@095f58a51, custom
all-reduce tables.
"""

NCCL_SECONDS: Final = 10e-6
"""Start-up of an NCCL operation, seconds. Basis: measured, 8 KiB on 2 GPUs (11 microseconds) less
its two steps. Source: ai-dynamo/aiconfigurator@095f58a51, NCCL tables.
"""

CUSTOM_KERNEL_RANKS: Final = frozenset({2, 4, 6, 8})
"""Group sizes inside a node for which vLLM has its own all-reduce, on NVIDIA. Source: vLLM 0.32
``custom_all_reduce.py`` (on AMD only from MI300 on, and for small messages: left out)."""

SCALE_UP_EFFICIENCY: Final = 0.75
"""Share of the link's bandwidth that collectives reach on NVLink and xGMI. Basis: measured, NCCL
and custom all-reduce of 16 to 256 MB on A100 and H100 (0.70 to 0.81). Source:
ai-dynamo/aiconfigurator@095f58a51, comm tables.
"""

HOST_EFFICIENCY: Final = 0.6
"""The same over PCIe, between two ranks. Basis: measured, NCCL all-reduce of 64 to 256 MB on 2 GPUs
(RTX PRO 6000: 0.58, L40S: 0.62). Source: ai-dynamo/aiconfigurator@095f58a51, comm tables.
"""

HOST_CONTENTION: Final = 0.2
"""Exponent of (ranks / 2) by which ranks slow each other on PCIe. Basis: fitted, 83 published runs
over 2, 4 and 8 L40S (medians of predicted over measured 1.30, 1.01 and 0.96; with the 0.31 that
NCCL shows between 2 and 8 RTX PRO 6000, 8 ranks came out at 0.85). The L40S box of the comm tables
has no peer-to-peer path: 8 ranks there reach a thirteenth of 2.
"""

NETWORK_EFFICIENCY: Final = 0.6
"""Share of the network's bandwidth that a collective of 1 to 300 MB reaches. Basis: assumed; the
largest reach 0.8.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links that the collectives of one group of ranks cross.

    ``inner_ranks`` ranks are joined by ``inner``; ``outer_ranks`` such sets are joined by
    ``outer``, each rank with a network port of its own. ``shared_host``: ``inner`` is PCIe, one
    root complex that all ranks share. ``own_kernel``: the engine's own all-reduce works there.
    ``two_shot``: it has one of two steps for large messages.
    """

    inner_ranks: int = 1
    inner: Link | None = None
    outer_ranks: int = 1
    outer: Link | None = None
    shared_host: bool = False
    own_kernel: bool = False
    two_shot: bool = True

    @property
    def ranks(self) -> int:
        """Return the ranks of the group."""
        return self.inner_ranks * self.outer_ranks


def tensor_fabric(candidate: Candidate) -> Fabric:
    """Return the links of a candidate's tensor groups, from the places of its ranks.

    Formula: none: :func:`group_fabric` of the tensor degree.
    Unit: ranks; links in bytes/s and seconds.
    Error: none of its own; that of the links' figures.
    Source: derived: the ranks of a tensor group are neighbours in rank order.

    >>> fabric = tensor_fabric(on_h100s(Layout(tensor=16), nodes=2))
    >>> fabric.inner_ranks, fabric.inner.name, fabric.outer_ranks, fabric.outer.name
    (8, 'NVLink4 NVSwitch', 2, '400 Gb/s RDMA')
    """
    return group_fabric(candidate, candidate.layout.tensor)


def group_fabric(candidate: Candidate, ranks: int) -> Fabric:
    """Return the links among ``ranks`` neighbouring ranks of one stage.

    Formula: inner ranks = the ranks that fit a node or a scale-up domain, outer ranks = ranks /
        GPUs a node.
    Unit: ranks; links in bytes/s and seconds.
    Error: none of its own; that of the links' figures.
    Source: derived from the placement; ``CUSTOM_KERNEL_RANKS`` from vLLM 0.32.

    >>> fabric = group_fabric(on_h100s(Layout(tensor=8)), 4)
    >>> fabric.ranks, fabric.inner.name, fabric.own_kernel
    (4, 'NVLink4 NVSwitch', True)
    """
    pool = candidate.pool
    placement = candidate.placement
    if ranks == 1:
        return Fabric()
    in_node = pool.gpu.scale_up if pool.domain_gpus >= min(ranks, placement.gpus_per_node) else None
    # To a collective, an NVLink rack is one node; the engine's own kernel ends at the box.
    if ranks <= placement.gpus_per_node or (in_node and placement.one_domain):
        own = (
            pool.gpu.vendor == "NVIDIA"
            and ranks <= placement.gpus_per_node
            and ranks in CUSTOM_KERNEL_RANKS
        )
        return Fabric(
            inner_ranks=ranks,
            inner=in_node or pool.gpu.host,
            shared_host=in_node is None,
            own_kernel=own and in_node is not None,
        )
    return Fabric(
        inner_ranks=placement.gpus_per_node,
        inner=in_node or pool.gpu.host,
        # Groups over several nodes fill each of them.
        outer_ranks=ranks // placement.gpus_per_node,
        outer=pool.network,
        shared_host=in_node is None,
    )


def all_reduce_seconds(size_bytes: float, fabric: Fabric) -> float:
    """Return the time to sum ``size_bytes`` over a group of ranks; zero for a group of one.

    Across nodes: reduce-scatter inside, all-reduce of each rank's share outside, all-gather inside.

    Formula: start-up + 2 (n - 1) / n x bytes / bandwidth + steps x latency, of the ring, or less
        if a tree or a one- or two-shot kernel is faster; then the same for 1 / n of the bytes
        across nodes.
    Unit: seconds.
    Error: inside a node start-up was measured at 5.3 to 6.3 us (taken as 5 and one step of the
        link; in two-shot kernels 4 us and a step more) and bandwidth at 0.70 to 0.81 of the link
        (0.75); across nodes assumed.
    Source: the constants above, from ai-dynamo/aiconfigurator@095f58a51; the terms of ring and tree
        are derived.

    >>> eight = tensor_fabric(on_h100s(Layout(tensor=8)))
    >>> 1e6 * all_reduce_seconds(2**20, eight)  # microseconds of 1 MiB
    16.437...
    >>> 5 + 4 + 2 * 1 + 2 * 7 / 8 * 2**20 / (450e9 * 0.75) * 1e6  # two-shot
    16.437...
    """
    if fabric.ranks == 1:
        return 0.0
    return _inner_seconds(size_bytes, fabric) + _outer_seconds(
        # The ranks of a node have summed and divided it before.
        size_bytes / fabric.inner_ranks,
        fabric,
    )


def all_to_all_seconds(size_bytes: float, fabric: Fabric) -> float:
    """Return the time in which every rank sends ``size_bytes`` in all, equal parts to everyone.

    Formula: start-up + latency + bytes x share of the ranks inside / bandwidth inside, and the same
        outside.
    Unit: seconds.
    Error: assumed: no published time of an all-to-all was compared.
    Source: derived: every rank sends (n - 1) / n of its bytes; start-up and bandwidth as for an
        all-reduce.

    >>> eight = tensor_fabric(on_h100s(Layout(tensor=8)))
    >>> 1e6 * all_to_all_seconds(2**20, eight)  # microseconds of 1 MiB
    13.718...
    >>> 10 + 1 + 7 / 8 * 2**20 / (450e9 * 0.75) * 1e6
    13.718...
    """
    if fabric.ranks == 1:
        return 0.0
    seconds = NCCL_SECONDS
    outside = (fabric.ranks - fabric.inner_ranks) / fabric.ranks
    if fabric.inner is not None and fabric.inner_ranks > 1:
        inside = (fabric.inner_ranks - 1) / fabric.ranks
        seconds += fabric.inner.latency_seconds
        seconds += size_bytes * inside / (fabric.inner.bytes_per_second * _reached(fabric))
    if fabric.outer is not None and fabric.outer_ranks > 1:
        seconds += fabric.outer.latency_seconds + size_bytes * outside / (
            fabric.outer.bytes_per_second * NETWORK_EFFICIENCY
        )
    return seconds


def send_seconds(size_bytes: float, link: Link | None, *, network: bool) -> float:
    """Return the time to hand ``size_bytes`` to the next stage's rank; zero without a link.

    Formula: start-up + latency + bytes / (bandwidth x share reached).
    Unit: seconds.
    Error: assumed: the start-up is that of NCCL's all-reduce, the share that of collectives.
    Source: derived from ``NCCL_SECONDS``, ``SCALE_UP_EFFICIENCY`` and ``NETWORK_EFFICIENCY``.

    >>> 1e6 * send_seconds(2**20, h100.scale_up, network=False)  # microseconds of 1 MiB
    14.106...
    >>> 10 + 1 + 2**20 / (450e9 * 0.75) * 1e6
    14.106...
    """
    if link is None:
        return 0.0
    efficiency = NETWORK_EFFICIENCY if network else SCALE_UP_EFFICIENCY
    return NCCL_SECONDS + link.latency_seconds + size_bytes / (link.bytes_per_second * efficiency)


def _inner_seconds(size_bytes: float, fabric: Fabric) -> float:
    ranks = fabric.inner_ranks
    link = fabric.inner
    if link is None or ranks == 1:
        return 0.0
    wire = size_bytes / (link.bytes_per_second * _reached(fabric))
    ring = 2 * (ranks - 1) * link.latency_seconds + 2 * (ranks - 1) / ranks * wire
    tree = 2 * math.ceil(math.log2(ranks)) * link.latency_seconds + 2 * wire
    # NCCL chooses by size: a ring moves fewer bytes, a tree takes fewer steps.
    nccl = NCCL_SECONDS + min(ring, tree)
    if not fabric.own_kernel:
        return nccl
    # One-shot moves more bytes in one step: engines take the faster by size.
    one_shot = CUSTOM_KERNEL_SECONDS + link.latency_seconds + (ranks - 1) * wire
    if not fabric.two_shot:
        return min(one_shot, nccl)
    halves = 2 * link.latency_seconds + 2 * (ranks - 1) / ranks * wire
    return min(one_shot, CUSTOM_KERNEL_SECONDS + TWO_SHOT_SECONDS + halves)


def _reached(fabric: Fabric) -> float:
    # A switch gives each rank its full link; on PCIe all ranks share one root complex.
    if not fabric.shared_host:
        return SCALE_UP_EFFICIENCY
    return HOST_EFFICIENCY / math.pow(max(1.0, fabric.inner_ranks / 2), HOST_CONTENTION)


def _outer_seconds(share_bytes: float, fabric: Fabric) -> float:
    ranks = fabric.outer_ranks
    link = fabric.outer
    if link is None or ranks == 1:
        return 0.0
    wire = share_bytes / (link.bytes_per_second * NETWORK_EFFICIENCY)
    steps = 2 * math.ceil(math.log2(ranks))
    return NCCL_SECONDS + steps * link.latency_seconds + 2 * (ranks - 1) / ranks * wire
