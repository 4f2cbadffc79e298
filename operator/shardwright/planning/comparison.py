"""How does the layout that somebody pins compare with the best one for the same load on the same
GPUs?
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import SearchSpace
from shardwright.planning.choice import NEAR_TIE
from shardwright.planning.gain import pool_of
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import Scale, most_served


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
