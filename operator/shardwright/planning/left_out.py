"""Which of the user's own fields keeps a plan away, or makes it dear? Each is left out once, and
the planner is asked again: no advice is given that does not help.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.hardware.inventory import Pool
from shardwright.hardware.prices import relative_price
from shardwright.planning.report import Benefit, Plan, WithoutFields
from shardwright.planning.request import Request

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
