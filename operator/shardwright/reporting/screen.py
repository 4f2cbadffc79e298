"""The first screen of a plan as a value: the answer, rivals as numbers, and what to do before it is
applied. ``explain`` has everything else.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from shardwright.hardware.inventory import Inventory
from shardwright.hardware.prices import PriceBasis
from shardwright.planning.comparison import Comparison, Standing
from shardwright.planning.phrases import PHRASES, h100s, price
from shardwright.planning.report import Alternative, Loss, LossKind, NoPlan, Plan, Report
from shardwright.planning.request import Objective, Request
from shardwright.planning.sentences import without_sentence
from shardwright.reporting.comparison import best_sentence
from shardwright.reporting.due import DuePoint, points
from shardwright.reporting.explanation import (
    Fact,
    cost_facts,
    headline,
    holds,
    latency,
    pool_of,
    refusal_sentence,
    request_facts,
    serves,
    why_none,
)
from shardwright.reporting.figures import format_band, format_seconds, format_served, short_layout
from shardwright.reporting.shortfall import missed
from shardwright.reporting.where import where
from shardwright.units import format_plural

RIVALS: Final = 5
"""Runners-up on the first screen, at most."""

POINTS: Final = 3
"""Things to do before a plan is applied, at most."""

_DOUBTS: Final[Mapping[LossKind, str]] = MappingProxyType(
    {
        LossKind.NOT_DEPLOYABLE: "not deployable yet",
        LossKind.TIGHT: "tight, may not start",
        LossKind.FALLS_BEHIND: "falls behind",
        LossKind.NO_HEADROOM: "little headroom",
        LossKind.QUEUES: "queues: {amount:,.0f} at once",
    }
)
_WORSE: Final[Mapping[LossKind, str]] = MappingProxyType(
    {
        LossKind.THROUGHPUT_PER_GPU: "{less:.0%} less per GPU",
        LossKind.THROUGHPUT_FOR_PRICE: "{less:.0%} less for its price",
        LossKind.TPOT: "{more:.0%} more per token",
        LossKind.TTFT: "{more:.0%} later first token",
    }
)
_SERVED: Final = frozenset({LossKind.THROUGHPUT_PER_GPU, LossKind.THROUGHPUT_FOR_PRICE})
_NOTICEABLE: Final = 0.005  #: of a figure, below which it rounds to no percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A runner-up as numbers; ``serves`` is the most that it serves, ``sure`` half its band."""

    layout: str
    gpus: str
    serves: str
    sure: str
    first_token: str
    per_token: str
    cost: str
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLayouts:
    """A reason for having no plan, with the layout that missed by the least and its gap."""

    count: str
    rule: str
    nearest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the first screen says, in reading order; ``refusals`` where nothing fits."""

    fits: bool
    short: bool  # it misses something that was asked for
    headline: str
    facts: tuple[Fact, ...]
    rivals: tuple[Rival, ...]
    ruled_out: str
    refusals: tuple[RefusedLayouts, ...]
    points: tuple[DuePoint, ...]


def screen_of(
    report: Report,
    *,
    request: Request | None = None,
    inventory: Inventory | None = None,
    named: bool = False,
    comparison: Comparison | None = None,
) -> Screen:
    """Return the first screen of a report; ``named``: its GPUs were named on the command line.

    Of a pinned layout the ``comparison`` leads the runners-up.
    """
    outcome = report.outcome
    if isinstance(outcome, NoPlan):
        return _refused(outcome, report, request, comparison)
    misses = missed(outcome, request)
    others = report.alternatives[:RIVALS]
    pinned = _beside(outcome, comparison)
    kinds = len({outcome.product, *(one.product for one in (*pinned, *others))}) > 1
    return Screen(
        fits=True,
        short=bool(misses),
        headline="; it ".join((headline(outcome), *misses)),
        facts=(
            *asked_facts(request),
            *_facts(outcome, request, inventory),
            *(_best(comparison) if comparison else _costly(report)),
        ),
        rivals=(
            *(replace(_rival(one, kinds=kinds), why_not=_NAMES[one is outcome]) for one in pinned),
            *(_rival(one, kinds=kinds) for one in others),
        ),
        ruled_out=ruled_out(report),
        refusals=(),
        points=points(outcome, request, inventory, named=named)[:POINTS],
    )


_NAMES: Final = {True: "pinned", False: "the best"}


def _beside(plan: Plan, comparison: Comparison | None) -> tuple[Plan, ...]:
    """Return the best plan and the pinned one, none if the pinned one is the best."""
    if comparison is None or comparison.standing is Standing.BEST:
        return ()
    return comparison.best, plan


def _best(comparison: Comparison | None) -> Iterator[Fact]:
    if comparison is not None:
        yield Fact(label="Best", value=best_sentence(comparison))


def _costly(report: Report) -> Iterator[Fact]:
    """Yield the field of the user's own that costs the most."""
    for found in report.costly[:1]:
        yield Fact(label="Costly", value=without_sentence(found))


def _refused(
    outcome: NoPlan, report: Report, request: Request | None, comparison: Comparison | None
) -> Screen:
    return Screen(
        fits=False,
        short=False,
        headline=refusal_sentence(outcome),
        facts=(*asked_facts(request), *why_none(outcome), *_best(comparison)),
        rivals=tuple(_rival(one, kinds=True) for one in report.alternatives[:RIVALS]),
        ruled_out=ruled_out(report),
        refusals=tuple(_refusals(report)),
        points=(),
    )


def _refusals(report: Report) -> Iterator[RefusedLayouts]:
    layouts = [item for item in report.excluded if item.code in PHRASES]
    for item in layouts:
        if near := item.nearest:
            said = ", ".join(filter(None, (short_layout(near.layout), near.gap)))
            yield RefusedLayouts(count=f"{item.count:,}", rule=item.code, nearest=said)
    if undivided := sum(item.count for item in layouts if item.nearest is None):
        yield RefusedLayouts(count=f"{undivided:,}", rule="do not divide the model", nearest="-")


def asked_facts(request: Request | None) -> Iterator[Fact]:
    """Yield the load, and the objective if it is not the default."""
    for fact in request_facts(request):
        if fact.label != "Objective" or (request and request.objective != Objective()):
            yield fact


def _facts(plan: Plan, request: Request | None, inventory: Inventory | None) -> Iterator[Fact]:
    pool = pool_of(plan, inventory)
    if not plan.groups:
        yield Fact(label="Can serve", value="nothing: replicas is 0")
    yield Fact(label="Can serve" if plan.groups else "If started", value=serves(plan, request))
    yield Fact(label="Latency", value=latency(plan, request))
    yield Fact(label="K/V cache", value=holds(plan))
    yield from cost_facts(plan)
    if plan.groups:
        yield Fact(label="Where", value=where(plan, pool))


def _rival(one: Alternative | Plan, *, kinds: bool) -> Rival:
    speed = one.performance
    gpus, product = one.layout.gpus, one.product or one.pool
    losses = one.losses if isinstance(one, Alternative) else ()
    return Rival(
        layout=short_layout(one.layout),
        gpus=f"{gpus:,} {product}" if kinds else f"{gpus:,}",
        serves=format_served(speed, one.capacity),
        sure=format_band(speed),
        first_token=_first_token(one, losses),
        per_token=format_seconds(speed.tpot_seconds),
        cost=_cost(one),
        why_not=why_not(losses),
    )


def _first_token(one: Alternative | Plan, losses: Sequence[Loss]) -> str:
    # Behind a queue that grows without end there is none.
    endless = any(loss.kind is LossKind.FALLS_BEHIND for loss in losses)
    return "-" if endless else format_seconds(one.performance.ttft_seconds)


def _cost(one: Alternative | Plan) -> str:
    if one.million_tokens_price is not None:
        return price(one.million_tokens_price)
    each = one.gpu_price
    if each is None or each.basis is PriceBasis.STATED:
        return ""
    return h100s(one.layout.gpus * each.per_hour)


def why_not(losses: Sequence[Loss]) -> str:
    """Return the gravest loss in a few words: a doubt, else the figure that is worst.

    >>> why_not([Loss(kind=LossKind.TPOT, amount=1.5), Loss(kind=LossKind.TTFT, amount=1.2)])
    '50% more per token'
    >>> why_not([Loss(kind=LossKind.QUEUES, amount=32)]), why_not([])
    ('queues: 32 at once', 'no clear gain')
    """
    for loss in losses:
        if loss.kind in _DOUBTS:
            return _DOUBTS[loss.kind].format(amount=loss.amount)
    worst = max((loss for loss in losses if loss.kind in _WORSE), key=_worse, default=None)
    if worst is None or _worse(worst) < _NOTICEABLE:
        return "no clear gain"
    return _WORSE[worst.kind].format(less=1 - worst.amount, more=worst.amount - 1)


def _worse(loss: Loss) -> float:
    ratio = math.log(max(loss.amount, 1e-9))
    return -ratio if loss.kind in _SERVED else ratio


def ruled_out(report: Report) -> str:
    """Return how many layouts and nodes are out, with the nearest miss; empty if none is."""
    layouts = [item for item in report.excluded if item.code in PHRASES]
    nodes = [item for item in report.excluded if item.code not in PHRASES]
    said = []
    if layouts:
        count = sum(item.count for item in layouts)
        said.append(f"{count:,} of {format_plural(report.considered, 'layout')}{_near(report)}")
    if nodes:
        said.append(format_plural(sum(item.count for item in nodes), "node"))
    return f"ruled out: {', '.join(said)}" if said else ""


def _near(report: Report) -> str:
    near = next(
        (item.nearest for item in report.excluded if item.nearest and item.nearest.gap), None
    )
    # Where nothing fits each reason has its own.
    if near is None or isinstance(report.outcome, NoPlan):
        return ""
    return f" (nearest {short_layout(near.layout)}, {near.gap})"
