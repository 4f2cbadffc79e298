"""How much better is one plan than another that answers the same question on the same inventory?

How much is enough depends on what asked for the new plan: somebody who wants better ones, or a
load that has changed.
"""

from dataclasses import dataclass
from typing import Final

from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import Scale, certainty, most_served, score

GAIN_MIN: Final = 0.10
"""The gain for which a plan replaces one that serves where that is asked for (``spec.replan:
Always``), as a share of the objective. Basis: assumed; a move restarts every group, and predictions
of two layouts may be off against each other by some per cent.
"""

MOVE_GAIN: Final = 0.5
"""The gain for which a changed load takes another layout than the one that runs and carries it, as
a share of the objective. Basis: assumed; every group would restart while the load grows. It is what
Balanced pays at most for speed (``select.BALANCED_SHARE``).
"""


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


def is_worth_a_move(found: Better | None) -> bool:
    """Return whether a changed load takes a better plan in place of the layout that runs."""
    return found is not None and (found.gain is None or found.gain >= MOVE_GAIN)


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
    # No plan of a stated model is known to be better than another one that starts.
    if not speed.promised:
        return float(plan.carries_load)
    if plan.carries_load:
        cost = scale.cost_on(plan.layout, pool)
        return score(speed, cost, request, certainty(speed), domain=scale.domain_cost(pool))
    # The measure by which the plan was chosen (ADR 24).
    served = None if request.workload.requests_per_second is None else speed.requests_per_second
    return certainty(speed) * most_served(speed, served)
