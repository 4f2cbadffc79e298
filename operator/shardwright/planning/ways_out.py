"""What would make room: more nodes of a pool, or a model that goes? Said, never done, but each
answer is tried.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from shardwright.hardware.inventory import Inventory, Node, Pool
from shardwright.planning.report import Lack, WaysOut

MODELS_TRIED: Final = 3
"""How many models are tried at most. Basis: assumed; each costs a plan, and who passes the count of
nodes mostly makes room.
"""

Fits = Callable[[Inventory], bool]
"""Whether what is asked has room in an inventory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A model that holds or keeps GPUs, by node; ``priority`` is its pods', ``name`` as shown."""

    name: str
    priority: int
    gpus: Mapping[str, int]


def ways_out(
    lack: Lack, inventory: Inventory, fits: Fits, holders: Iterable[Holder] = ()
) -> WaysOut:
    """Return the ways to make room for a replica that lacks nodes.

    Args:
        lack: The gap of the layout that lacks least.
        inventory: The present stock.
        fits: Whether it would have room in another inventory.
        holders: The models that may be named; those with pods of a higher priority are not.
    """
    named = inventory.named(lack.pool)
    if named is None:
        return WaysOut()
    # More nodes are as the largest of a family.
    pool = next(
        pool
        for pool in inventory.pools
        if pool.name == named.name
        or (named.only_inside_nodes, pool.family, pool.gpus_per_node)
        == (True, named.family, named.gpus_per_node)
    )
    nodes = _more_nodes(lack, inventory, pool, fits)
    return WaysOut(
        pool=pool.name if nodes else "",
        more_nodes=nodes,
        moved=_who_moves(lack, inventory, named, fits, holders),
    )


def _more_nodes(lack: Lack, inventory: Inventory, pool: Pool, fits: Fits) -> int:
    def enough(count: int) -> bool:
        grown = replace(pool, nodes=(*pool.nodes, *_copies(pool, count)))
        return fits(
            replace(
                inventory,
                pools=tuple(grown if other is pool else other for other in inventory.pools),
            )
        )

    if enough(lack.missing_nodes):
        return lack.missing_nodes
    counts = range(lack.missing_nodes + 1, lack.nodes + 1)
    if not counts or not enough(counts[-1]):
        return 0
    # Each try is a plan, and more nodes never suffice less, so halving is right.
    return counts[bisect_left(counts[:-1], True, key=enough)]


def _copies(pool: Pool, count: int) -> Iterator[Node]:
    # New nodes of a pool are taken to be like one that is there.
    template = pool.nodes[0]
    per_rack = max(1, pool.domain_gpus // pool.gpus_per_node)
    for number in range(count):
        name = f"{pool.name}+{number}"
        rack = f"{pool.name}+rack-{number // per_rack}"
        domain = (
            rack
            if pool.crosses_nodes
            else name
            if template.domain == template.name
            else template.domain
        )
        yield replace(
            template, name=name, gpus=pool.gpus_per_node, free=pool.gpus_per_node, domain=domain
        )


def _who_moves(
    lack: Lack, inventory: Inventory, pool: Pool, fits: Fits, holders: Iterable[Holder]
) -> str:
    """Return the model whose GPUs would do, by the lowest priority, then the smallest; empty if
    none would.
    """
    near = {node.name: node for node in pool.nodes}
    helpful = [holder for holder in holders if _gains(holder, near, lack) >= lack.missing_nodes]
    helpful.sort(key=lambda holder: (holder.priority, sum(holder.gpus.values()), holder.name))
    return next(
        (holder.name for holder in helpful[:MODELS_TRIED] if fits(_given_back(inventory, holder))),
        "",
    )


def _gains(holder: Holder, near: Mapping[str, Node], lack: Lack) -> int:
    """Return how many nodes of a pool would have room for a pod if a model gave its GPUs back."""
    shared = ((near[name], gpus) for name, gpus in holder.gpus.items() if name in near)
    return sum(
        node.free < lack.gpus_per_node <= min(node.gpus, node.free + gpus) for node, gpus in shared
    )


def _given_back(inventory: Inventory, holder: Holder) -> Inventory:
    return replace(
        inventory, pools=tuple(_pool_with(pool, holder.gpus) for pool in inventory.pools)
    )


def _pool_with(pool: Pool, gpus: Mapping[str, int]) -> Pool:
    return replace(
        pool, nodes=tuple(_node_with(node, gpus.get(node.name, 0)) for node in pool.nodes)
    )


def _node_with(node: Node, gpus: int) -> Node:
    return replace(node, free=min(node.gpus, node.free + gpus)) if gpus else node
