"""How much better is one plan than another that answers the same question on the same inventory?

How much is enough is for ``plan_upgrade`` to say.

How does the layout that somebody pins compare with the best one for the same load on the same
GPUs?

How much better would a plan be with what the cluster or the image lacks?

The same question is asked once more, on the nodes that it concerns as they would be then.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Final

from shardwright.hardware.capabilities import Capability
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import Layout, SearchSpace
from shardwright.planning.checks import Verdict
from shardwright.planning.choice import NEAR_TIE
from shardwright.planning.phrases import degrees
from shardwright.planning.report import Exclusion, NoPlan, Plan
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import Scale, certainty, most_served, score


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """A plan that is better than the present one.

    ``gain`` is a share of ``objective``; None: it carries the load, and the present one does not.
    ``relisted``: the present plan's GPU had another list price when that plan was made.
    """

    layout: Layout
    pool: str
    objective: OptimizeFor
    gain: float | None
    relisted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """The plan that would be made now."""

    layout: Layout
    pool: str


def better(plan: Plan, stands: Plan, inventory: Inventory, scale: Scale) -> Better | None:
    """Return what a plan gains over the one that ``stands``, None if nothing.

    Both were predicted on this inventory. A sure start and a carried load are not given up for
    speed.
    """
    gain: float | None = None
    # The groups serve now, so a start that may fail, or a queue, is too high a price.
    if plan.tight > stands.tight or stands.carries_load > plan.carries_load:
        return None
    if plan.carries_load == stands.carries_load:
        now, then = (_score(item, inventory, scale) for item in (plan, stands))
        # A time's score is negative.
        gain = (now / then if then > 0 else then / now) - 1
        if gain <= 0:
            return None
    return Better(
        layout=plan.layout,
        pool=plan.pool,
        objective=scale.request.objective.optimize_for,
        gain=gain,
    )


def pool_of(plan: Plan, inventory: Inventory) -> Pool:
    """Return the pool of a plan that was predicted on this inventory."""
    pool = inventory.named(plan.pool)
    if pool is None:
        raise LookupError(plan.pool)
    return pool


def _score(plan: Plan, inventory: Inventory, scale: Scale) -> float:
    """Return the objective, as layouts are compared by it; for a rate that is not carried, the
    served part.
    """
    request, speed, pool = scale.request, plan.performance, pool_of(plan, inventory)
    if plan.carries_load:
        cost = scale.cost_on(plan.layout, pool)
        return score(speed, cost, request, certainty(speed), domain=scale.domain_cost(pool))
    # The measure by which the plan was chosen (ADR 24).
    served = None if request.workload.requests_per_second is None else speed.requests_per_second
    return certainty(speed) * most_served(speed, served)


class Standing(StrEnum):
    """How a pinned layout stands to the best one."""

    BEST = "Best"  #: it is the best one
    AS_GOOD = "AsGood"  #: no figure differs by more than predictions tell apart
    BEHIND = "Behind"
    NOTHING = "Nothing"  #: it has no plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The best plan by an objective beside a pinned one.

    Its cost, what it serves at most and its seconds per answer are multiples of the pinned plan's
    (None: there is none, or requests that wait have no time to compare).
    """

    best: Plan
    objective: OptimizeFor
    standing: Standing
    cost: float | None = None
    served: float | None = None
    seconds: float | None = None


def without_pins(space: SearchSpace) -> SearchSpace:
    """Return a space with every degree planned, and the number of replicas too."""
    return replace(
        space,
        replicas=space.replicas if space.fill else None,
        tensor=None,
        pipeline=None,
        expert=None,
        attention_data=None,
        context=None,
        partition=(),
    )


def compare(
    pinned: Plan | NoPlan, best: Plan, inventory: Inventory, request: Request
) -> Comparison:
    """Return how a plan stands to the best one on the same inventory."""
    of = partial(Comparison, best=best, objective=request.objective.optimize_for)
    if isinstance(pinned, NoPlan):
        return of(standing=Standing.NOTHING)
    if (pinned.layout, pinned.pool) == (best.layout, best.pool):
        return of(standing=Standing.BEST, cost=1.0, served=1.0, seconds=1.0)
    scale = Scale.of(request, inventory)
    then, now = (scale.cost_on(plan.layout, pool_of(plan, inventory)) for plan in (best, pinned))
    cost, served = then / now, _served(best) / _served(pinned)
    waits = not (pinned.carries_load and best.carries_load)
    seconds = None if waits else _seconds(best, request) / _seconds(pinned, request)
    alike = all(abs(ratio - 1) <= NEAR_TIE for ratio in (cost, served, seconds or 1.0))
    same = (pinned.carries_load, pinned.tight) == (best.carries_load, best.tight)
    return of(
        standing=Standing.AS_GOOD if alike and same else Standing.BEHIND,
        cost=cost,
        served=served,
        seconds=seconds,
    )


def _served(plan: Plan) -> float:
    return most_served(plan.performance, plan.capacity)


def _seconds(plan: Plan, request: Request) -> float:
    speed = plan.performance
    return speed.ttft_seconds + request.workload.output_tokens * speed.tpot_seconds


GAIN_SHOWN_MIN: Final = 0.03
"""Share of the objective below which a gain is not worth a word. Basis: assumed, a third of the
median error of throughput.
"""


_BY: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.COMPUTE_DOMAINS: "NVIDIA's DRA driver (ComputeDomains join nodes by NVLink)",
        Capability.EFA: "an image with NCCL's plugin for EFA (spec.pod.network.plugins says so)",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedPlan:
    """A plan that a missing capability rules out, ``used_by`` as many layouts.

    ``gain`` is its gain over the plan without, as a share of the objective. None: that does not
    carry the load, or there is none.
    """

    capability: Capability
    plan: Plan
    used_by: int
    gain: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The outcome of a question on an inventory."""

    outcome: Plan | NoPlan
    inventory: Inventory


def with_capability(inventory: Inventory) -> Iterator[tuple[Capability, Inventory]]:
    """Yield each capability whose lack changes pools of an inventory, with these pools as they
    would be with it.
    """
    for capability, change in ((Capability.COMPUTE_DOMAINS, _opened), (Capability.EFA, _reached)):
        pools = tuple(found for pool in inventory.pools if (found := change(pool)) is not None)
        if pools:
            yield capability, replace(inventory, pools=pools)


def _opened(pool: Pool) -> Pool | None:
    sizes: Counter[str] = Counter()
    for node in pool.nodes:
        sizes[node.unopened] += node.gpus
    del sizes[""]
    largest = max(sizes.values(), default=0)
    if largest <= pool.gpus_per_node:
        return None
    nodes = tuple(replace(node, domain=node.unopened or node.domain) for node in pool.nodes)
    return replace(pool, nodes=nodes, domain_gpus=largest, joins_pods=True)


def _reached(pool: Pool) -> Pool | None:
    reach = pool.reach
    if reach.plugin is None or reach.missed is None:
        return None
    there = replace(reach, missed=None, plugin=None, devices=reach.unused, unused=())
    return replace(pool, network=reach.missed, reach=there)


def needed_by(plan: Plan) -> frozenset[Capability]:
    """Return what the cluster must serve for the pods of a plan."""
    needs = {
        Capability.COMPUTE_DOMAINS: plan.compute_domain,
        Capability.DEVICE_CLAIMS: plan.claimed is not None,
    }
    return frozenset(capability for capability, needed in needs.items() if needed)


def brought_by(
    capability: Capability,
    there: Answered,
    here: Answered,
    verdicts: Sequence[Verdict],
    scale: Scale,
) -> MissedPlan | None:
    """Return what a capability would bring, None if nothing that is worth a word.

    Args:
        capability: The one that lacks.
        there: The answer with it, on the pools as they would be.
        here: The answer without it, on all pools as they are.
        verdicts: The layouts that were tried with it.
        scale: The measure of the plans.
    """
    found, stands = there.outcome, here.outcome
    if isinstance(found, NoPlan) or not _uses(capability, found):
        return None
    used_by = sum(_needs(capability, verdict) for verdict in verdicts if not verdict.violations)
    if isinstance(stands, NoPlan):
        return MissedPlan(capability=capability, plan=found, used_by=used_by, gain=None)
    changed = there.inventory.pools
    names = {pool.name for pool in changed}
    others = (pool for pool in here.inventory.pools if pool.name not in names)
    both = replace(here.inventory, pools=(*changed, *others))
    gain = better(found, stands, both, scale)
    if gain is None or (gain.gain is not None and gain.gain < GAIN_SHOWN_MIN):
        return None
    return MissedPlan(capability=capability, plan=found, used_by=used_by, gain=gain.gain)


def _uses(capability: Capability, plan: Plan) -> bool:
    return bool(plan.rdma) if capability is Capability.EFA else capability in needed_by(plan)


def _needs(capability: Capability, verdict: Verdict) -> bool:
    candidate = verdict.candidate
    if capability is Capability.COMPUTE_DOMAINS:
        return candidate.needs_compute_domain
    return bool(candidate.rdma_devices)


def exclusion(found: MissedPlan) -> Exclusion:
    """Return the layouts that a missing capability rules out, counted, the best one as the nearest
    miss.
    """
    said = sentence(found)
    counted = partial(Exclusion, count=found.used_by, example=said, nearest_miss=said)
    if found.capability is Capability.EFA:
        return counted(code="NetworkPluginMissing")
    return counted(code="ComputeDomainUnavailable")


def sentence(found: MissedPlan) -> str:
    """Return what a capability would bring, in one line."""
    brings = "the load is carried" if found.gain is None else f"{found.gain:.0%} better"
    return (
        f"{brings} with {_BY[found.capability]}: {degrees(found.plan.layout)} on {found.plan.pool}"
    )
