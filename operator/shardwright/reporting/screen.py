"""The first screen of a plan as a value: the answer, rivals as numbers, and what to do before it is
applied. ``explain`` has everything else.

What is to be done before a plan is applied, the most important first: facts of the plan and of
its question, each in one sentence.

Where do the replicas of a plan stand, in one line?
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Final

from shardwright.costs.host import Storage
from shardwright.hardware.gpus import Link, PriceBasis
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.planning.comparison import Comparison, Standing
from shardwright.planning.phrases import PHRASES, UNKNOWN_PODS, copies, h100s, price
from shardwright.planning.report import Alternative, Enough, Loss, LossKind, NoPlan, Plan, Report
from shardwright.planning.request import Objective, Request
from shardwright.planning.select import UTILISATION
from shardwright.planning.sentences import unproven_sentence, without_sentence
from shardwright.planning.warnings import missed_network
from shardwright.reporting.apart import said_of_pair
from shardwright.reporting.drawings import expert_link
from shardwright.reporting.explanation import (
    Fact,
    cost_facts,
    headline,
    holds,
    pool_of,
    refusal_sentence,
    request_facts,
    speed_facts,
    why_none,
)
from shardwright.reporting.figures import format_band, format_seconds, format_served, short_layout
from shardwright.reporting.lines import ELLIPSIS
from shardwright.reporting.shortfall import behind, missed, serves_rate
from shardwright.reporting.text import best_sentence
from shardwright.units import format_bytes, format_plural

MOST_NAMES: Final = 2  #: of nodes; the rest are counted
LONGEST_NAME: Final = 24  #: columns of a node's name


def where(plan: Plan, pool: Pool | None) -> str:
    """Return the nodes of a plan: all replicas counted by node, a replica over nodes once."""
    counts = Counter(name for group in plan.groups for name in group)
    on = format_plural(len(counts), "node")
    if len(plan.groups) > 1:
        on = f"{len(plan.groups):,} on {on}"
    return f"{on}{_each(plan, counts)}{_joined(plan, pool)}"


def _each(plan: Plan, counts: Counter[str]) -> str:
    names = _some([short_name(name) for name in counts])
    if 1 in (len(plan.groups), len(counts)):
        return f": {names}"
    if plan.nodes_per_replica > 1:
        return f", each over {plan.nodes_per_replica}: {names}"
    if len(set(counts.values())) == 1:
        return f", {counts.total() // len(counts)} each: {names}"
    said = [f"{count} on {short_name(name)}" for name, count in counts.most_common()]
    return f": {_some(said)}"


def _joined(plan: Plan, pool: Pool | None) -> str:
    link = crossed_network(plan, pool)
    if link is None:
        return ""
    return f"; {link.name} between them{' (assumed)' if link.basis == 'assumed' else ''}"


def crossed_network(plan: Plan, pool: Pool | None) -> Link | None:
    """Return the network between nodes, if traffic of a replica crosses it."""
    if pool is None or plan.nodes_per_replica == 1:
        return None
    links = {plan.tensor_link, plan.pipeline_link}
    if plan.layout.attention_data > 1:
        links.add(expert_link(plan, pool))
    return pool.network if pool.network.name in links else None


def _some(said: list[str]) -> str:
    """Return the first of several nodes and a count of the others.

    >>> _some(["a", "b", "c"]), _some(["a", "b", "c", "d"])
    ('a, b, c', 'a, b and 2 more nodes')
    """
    if len(said) <= MOST_NAMES + 1:
        return ", ".join(said)
    return f"{', '.join(said[:MOST_NAMES])} and {len(said) - MOST_NAMES:,} more nodes"


def short_name(name: str) -> str:
    """Return a node's name, its middle left out if it is long: both ends tell nodes apart.

    >>> short_name("ip-10-0-1-10"), short_name("ip-10-0-1-10.us-west-2.compute.internal")
    ('ip-10-0-1-10', 'ip-10-0-1-10\u2026te.internal')
    """
    if len(name) <= LONGEST_NAME:
        return name
    tail = (LONGEST_NAME - 1) // 2
    return f"{name[: LONGEST_NAME - 1 - tail]}{ELLIPSIS}{name[-tail:]}"


SECRET: Final = "hub-token"  # noqa: S105 - a name, no token


class Due(StrEnum):
    """A thing to do before a plan is applied, the most important first."""

    NOT_DEPLOYABLE = "NotDeployable"
    UNPROVEN = "Unproven"
    NOT_CARRIED = "NotCarried"
    GATED = "Gated"
    CACHE_TOO_SMALL = "CacheTooSmall"
    TIGHT = "Tight"
    PODS_UNKNOWN = "PodsUnknown"
    NETWORK_MISSED = "NetworkMissed"
    NETWORK_ASSUMED = "NetworkAssumed"
    DOWNLOADS = "Downloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePoint:
    """One thing to do, in words, with the command that does it (empty: none does)."""

    due: Due
    said: str
    command: str = ""


def points(
    plan: Plan, request: Request | None, inventory: Inventory | None, *, named: bool
) -> tuple[DuePoint, ...]:
    """Return everything to be done first, in the order of :class:`Due`.

    ``named``: the GPUs were named on the command line, so that no node has a label.
    """
    pool = pool_of(plan, inventory)
    return (
        *_not_deployable(plan),
        *_unproven(plan),
        *(_gated(request) if request else ()),
        *(_cache(request) if request else ()),
        *_load(plan, request),
        *_tight(plan),
        *(_pods(inventory) if inventory else ()),
        *(_network(plan, pool, named=named) if pool else ()),
        *(_downloads(request) if request else ()),
    )


def _not_deployable(plan: Plan) -> Iterator[DuePoint]:
    if plan.undeployable:
        why = replace(plan.undeployable, path="", gap="").sentence()
        yield DuePoint(due=Due.NOT_DEPLOYABLE, said=f"cannot be deployed yet: {why}")


def _unproven(plan: Plan) -> Iterator[DuePoint]:
    if not plan.performance.promised:
        yield DuePoint(due=Due.UNPROVEN, said=unproven_sentence())


def _gated(request: Request) -> Iterator[DuePoint]:
    if request.gated:
        namespace, _ = request.owner
        kubectl = f"kubectl -n {namespace}" if namespace else "kubectl"
        yield DuePoint(
            due=Due.GATED,
            said="gated: accept its terms on the hub, and name a token in weights.secretRef:",
            command=f"{kubectl} create secret generic {SECRET} --from-literal=token=hf_...",
        )


def _cache(request: Request) -> Iterator[DuePoint]:
    if request.cache_bytes is not None and request.cache_bytes < request.file_bytes:
        room, weights = format_bytes(request.cache_bytes), format_bytes(request.file_bytes)
        yield DuePoint(
            due=Due.CACHE_TOO_SMALL,
            said=f"weights.cache.storage is {room}, the weights alone are {weights}",
        )


def _load(plan: Plan, request: Request | None) -> Iterator[DuePoint]:
    if plan.carries_load or not plan.groups:
        return
    if plan.enough is not None:
        late = "more arrives than is served at most"
        if serves_rate(plan, request):
            late = f"above {UTILISATION:.0%} of what is served at most"
        yield DuePoint(due=Due.NOT_CARRIED, said=f"{late}: {_would_do(plan.enough)}")
    elif request is not None:
        yield DuePoint(due=Due.NOT_CARRIED, said=behind(plan, request))


def _would_do(enough: Enough) -> str:
    gpus, free = enough.layout.gpus, enough.free
    room = "all free" if gpus <= free else f"{free:,} free"
    return f"{copies(enough.layout)} would do ({gpus:,} GPUs, {room})"


def _tight(plan: Plan) -> Iterator[DuePoint]:
    if plan.tight:
        said = "tight: may not start, room for K/V is within the error of memory"
        yield DuePoint(due=Due.TIGHT, said=said)


def _pods(inventory: Inventory) -> Iterator[DuePoint]:
    if said := UNKNOWN_PODS.get(inventory.known_pods):
        yield DuePoint(due=Due.PODS_UNKNOWN, said=said)


def _network(plan: Plan, pool: Pool, *, named: bool) -> Iterator[DuePoint]:
    link, missed = crossed_network(plan, pool), missed_network(pool.reach)
    if link is None:
        return
    if missed:
        yield DuePoint(due=Due.NETWORK_MISSED, said=f"{missed} (docs/howto/network.md)")
    elif link.basis == "assumed":
        how = "--network" if named else "node label shardwright.io/network-gbps-per-gpu"
        yield DuePoint(
            due=Due.NETWORK_ASSUMED, said=f"{link.name} per GPU is assumed: state yours, {how}"
        )


def _downloads(request: Request) -> Iterator[DuePoint]:
    if request.storage is Storage.HUB and request.file_bytes:
        weights = format_bytes(request.file_bytes)
        yield DuePoint(
            due=Due.DOWNLOADS,
            said=f"each start downloads {weights}: spec.model.weights.cache keeps them",
        )


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
    products = {one.product for one in pinned} | {one.product for one in others}
    kinds = len({outcome.product, *products}) > 1
    return Screen(
        fits=True,
        short=bool(misses),
        headline="; it ".join((headline(outcome), *misses)),
        facts=(
            *asked_facts(request),
            *_facts(outcome, request, inventory),
            *_apart(report),
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


def _apart(report: Report) -> Iterator[Fact]:
    for label, value in islice(said_of_pair(report.pair), 1):
        yield Fact(label=label, value=value)


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
        headline=refusal_sentence(report, outcome),
        facts=(*asked_facts(request), *why_none(outcome), *_apart(report), *_best(comparison)),
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
    yield from speed_facts(plan, request, "Can serve" if plan.groups else "If started")
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
