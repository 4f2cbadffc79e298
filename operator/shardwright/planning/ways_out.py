"""What would make room: more nodes of a pool, or a model that goes? Said, never done, but each
answer is tried.

Which of the user's own fields keeps a plan away, or makes it dear? Each is left out once, and
the planner is asked again: no advice is given that does not help.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.hardware.gpus import relative_price
from shardwright.hardware.inventory import Inventory, Node, Pool
from shardwright.planning.report import Benefit, Lack, Plan, WaysOut, WithoutFields
from shardwright.planning.request import Request

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


FIELDS_TRIED: Final = 8
"""How many fields are left out at most, one by one. Basis: assumed, more than anybody sets; each
costs a plan.
"""

SHOWN: Final = 3
"""How many ways are said at most: those that carry the load first, then those that cost least.
Basis: chosen.
"""

COSTLY: Final = 1 / 3
"""Share of price, output or time from which a field is said to cost something. Basis: chosen, about
three times the median error of throughput.
"""

FieldPaths = tuple[str, ...]
"""FieldPaths that are left out, by their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A plan and its pool."""

    plan: Plan
    pool: Pool


AskWithout = Callable[[FieldPaths], Offer | None]
"""The planner's answer without some fields; None: nothing fits, or the stock is not known."""

_Found = tuple[FieldPaths, Offer]
_Helps = Callable[[Offer], bool]


def fitting(fields: Sequence[str], ask: AskWithout) -> tuple[WithoutFields, ...]:
    """Return what fits without one of these fields; if none helps alone, without the fewest that
    help together.
    """
    found = [*_alone(fields, ask, _any)] or [*_together(fields, ask, _any)]
    each = _prices([offer.pool for _, offer in found])
    dear = dict(zip((fields for fields, _ in found), each, strict=True))

    def order(item: _Found) -> tuple[bool, float, FieldPaths]:
        fields, offer = item
        return not offer.plan.carries_load, dear[fields] * offer.plan.layout.gpus, fields

    return tuple(_without(item, Benefit.FITS) for item in sorted(found, key=order)[:SHOWN])


def costly(
    fields: Sequence[str], pins: Sequence[str], ask: AskWithout, now: Offer, request: Request
) -> tuple[WithoutFields, ...]:
    """Return what a plan would gain without one of these fields, by a third or more; ``pins`` are
    left out together if none of them gains anything alone.
    """

    def helps(offer: Offer) -> bool:
        return _gain(now, offer, request) is not None

    found = [*_alone(fields, ask, helps)]
    if not any(field in pins for tried, _ in found for field in tried):
        found += _together(pins, ask, helps)
    gained = [said for item in found if (said := _gained(item, now, request))]
    gained.sort(key=lambda said: (said.price, -said.output, said.seconds, said.fields))
    return tuple(gained[:SHOWN])


def _any(_offer: Offer) -> bool:
    return True


def _alone(fields: Sequence[str], ask: AskWithout, helps: _Helps) -> Iterator[_Found]:
    for field in fields[:FIELDS_TRIED]:
        offer = ask((field,))
        if offer is not None and helps(offer):
            yield (field,), offer


def _together(fields: Sequence[str], ask: AskWithout, helps: _Helps) -> Iterator[_Found]:
    """Yield the fewest fields that help together: of all, each is put back that is not needed."""
    offer = ask(tuple(fields)) if len(fields) > 1 else None
    if offer is None or not helps(offer):
        return
    needed = tuple(fields)
    for field in fields:
        fewer = tuple(other for other in needed if other != field)
        other = ask(fewer) if fewer else None
        if other is not None and helps(other):
            needed, offer = fewer, other
    yield needed, offer


def _prices(pools: Sequence[Pool]) -> list[float]:
    """Return the price of a GPU of each pool, all in one currency: the owner's, or H100s."""
    stated = [pool.gpu_hour_price for pool in pools if pool.gpu_hour_price is not None]
    if len(stated) == len(pools):
        return stated
    return [relative_price(pool.gpu).per_hour for pool in pools]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A plan's price, output and time of an answer, as multiples of another one's."""

    price: float = 1.0
    output: float = 1.0
    seconds: float = 1.0


def _without(found: _Found, gain: Benefit, change: _Change = _Change()) -> WithoutFields:
    fields, offer = found
    plan = offer.plan
    return WithoutFields(
        fields=fields,
        gain=gain,
        layout=plan.layout,
        pool=plan.pool,
        product=plan.product,
        price=change.price,
        output=change.output,
        seconds=change.seconds,
        carries_load=plan.carries_load,
    )


def _change(now: Offer, then: Offer, request: Request) -> _Change:
    here, there = _prices([now.pool, then.pool])
    before, after = now.plan.performance, then.plan.performance
    return _Change(
        price=there * then.plan.layout.gpus / (here * now.plan.layout.gpus),
        output=after.output_tokens_per_second / before.output_tokens_per_second,
        seconds=_seconds(then.plan, request) / _seconds(now.plan, request),
    )


def _seconds(plan: Plan, request: Request) -> float:
    speed = plan.performance
    return speed.ttft_seconds + request.workload.output_tokens * speed.tpot_seconds


def _gain(now: Offer, then: Offer, request: Request) -> Benefit | None:
    """Return what a plan gains over the present one, None if less than it takes to be said."""
    here, there, change = now.plan, then.plan, _change(now, then, request)
    # Of requests that wait fewer are served, so less for less is no gain.
    serves = here.carries_load or change.output >= 1
    no_dearer = change.price <= 1
    gains = (
        (Benefit.DEPLOYABLE, there.deployable > here.deployable),
        (Benefit.CARRIES_LOAD, there.carries_load > here.carries_load),
        (Benefit.CHEAPER, serves and change.price <= 1 - COSTLY),
        (Benefit.THROUGHPUT, no_dearer and change.output >= 1 + COSTLY),
        (Benefit.SOONER, no_dearer and here.carries_load and change.seconds <= 1 - COSTLY),
    )
    gives_up = (
        there.tight > here.tight
        or here.carries_load > there.carries_load
        or here.deployable > there.deployable
    )
    return None if gives_up else next((gain for gain, holds in gains if holds), None)


def _gained(found: _Found, now: Offer, request: Request) -> WithoutFields | None:
    _, offer = found
    gain = _gain(now, offer, request)
    return _without(found, gain, _change(now, offer, request)) if gain else None
