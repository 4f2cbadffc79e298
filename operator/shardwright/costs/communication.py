"""What moving bytes between ranks costs: start-up of every step plus bytes over bandwidth, on the links really used."""

import math
from dataclasses import dataclass

from shardwright.costs.coefficients import (
    CUSTOM_KERNEL_RANKS,
    CUSTOM_KERNEL_SECONDS,
    NCCL_SECONDS,
    NETWORK_EFFICIENCY,
    RANK_SKEW_SECONDS,
    SCALE_UP_EFFICIENCY,
)
from shardwright.hardware.gpus import Link
from shardwright.layouts.layout import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links that the collectives of one tensor group cross.

    ``inner_ranks`` ranks are joined by ``inner``; ``outer_ranks`` such sets are joined by ``outer``, each
    rank with a network port of its own. ``shared_host`` says that ``inner`` is PCIe: one root complex
    that all ranks share. ``own_kernel`` says that the engine's own all-reduce works there.
    """

    inner_ranks: int = 1
    inner: Link | None = None
    outer_ranks: int = 1
    outer: Link | None = None
    shared_host: bool = False
    own_kernel: bool = False


def tensor_fabric(candidate: Candidate) -> Fabric:
    """Return the links of a candidate's tensor groups, from where its ranks are placed."""
    tensor, pool, placement = candidate.layout.tensor, candidate.pool, candidate.placement
    link = placement.tensor_link
    if link is None:
        return Fabric()
    if tensor <= placement.gpus_per_node or link == pool.gpu.scale_up:
        shared = link == pool.gpu.host
        own = not shared and tensor <= placement.gpus_per_node and tensor in CUSTOM_KERNEL_RANKS
        return Fabric(inner_ranks=tensor, inner=link, shared_host=shared, own_kernel=own)
    in_node = pool.gpu.scale_up if pool.domain_gpus >= placement.gpus_per_node else None
    return Fabric(
        inner_ranks=placement.gpus_per_node,
        inner=in_node or pool.gpu.host,
        outer_ranks=tensor // placement.gpus_per_node,
        outer=link,
        shared_host=in_node is None,
    )


def all_reduce_seconds(size_bytes: float, fabric: Fabric) -> float:
    """Return the time to sum ``size_bytes`` over a tensor group; zero for a group of one.

    Across nodes: reduce-scatter inside, all-reduce of each rank's share outside, all-gather inside.
    """
    if fabric.inner_ranks * fabric.outer_ranks == 1:
        return 0.0
    inside = _inner_seconds(size_bytes, fabric)
    return RANK_SKEW_SECONDS + inside + _outer_seconds(size_bytes / fabric.inner_ranks, fabric)


def send_seconds(size_bytes: float, link: Link | None, *, network: bool) -> float:
    """Return the time to hand ``size_bytes`` from one rank to the next stage's; zero without a link."""
    if link is None:
        return 0.0
    efficiency = NETWORK_EFFICIENCY if network else SCALE_UP_EFFICIENCY
    return NCCL_SECONDS + link.latency_seconds + size_bytes / (link.bytes_per_second * efficiency)


def _inner_seconds(size_bytes: float, fabric: Fabric) -> float:
    ranks, link = fabric.inner_ranks, fabric.inner
    if link is None or ranks == 1:
        return 0.0
    contention = max(1.0, ranks / 2) if fabric.shared_host else 1.0
    wire = size_bytes * contention / (link.bytes_per_second * SCALE_UP_EFFICIENCY)
    if fabric.own_kernel:
        one_shot = link.latency_seconds + (ranks - 1) * wire
        two_shot = 2 * link.latency_seconds + 2 * (ranks - 1) / ranks * wire
        return CUSTOM_KERNEL_SECONDS + min(one_shot, two_shot)
    ring = 2 * (ranks - 1) * link.latency_seconds + 2 * (ranks - 1) / ranks * wire
    tree = 2 * math.ceil(math.log2(ranks)) * link.latency_seconds + 2 * wire
    return NCCL_SECONDS + min(ring, tree)


def _outer_seconds(share_bytes: float, fabric: Fabric) -> float:
    ranks, link = fabric.outer_ranks, fabric.outer
    if link is None or ranks == 1:
        return 0.0
    wire = share_bytes / (link.bytes_per_second * NETWORK_EFFICIENCY)
    steps = 2 * math.ceil(math.log2(ranks))
    return NCCL_SECONDS + steps * link.latency_seconds + 2 * (ranks - 1) / ranks * wire
