"""The gain of a plan over another one that answers the same question on the same inventory.

Neither plan is predicted here, and how much is enough is for ``improving`` to say.
"""

from dataclasses import dataclass

from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import Scale, score, waiting_score


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """A plan that is better than the one that stands.

    ``gain`` is the share of ``objective`` by which it is; None: it carries the load, and the one
    that stands does not. ``relisted``: the GPU of the one that stands had another list price when
    that was made.
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
    """Return the gain of a plan over the one that ``stands``, None if there is no gain.

    Both were predicted on this inventory. A sure start, and a carried load, is not given up for
    speed.
    """
    gain: float | None = None
    # A start that may fail, or a queue, is no price for speed: the groups serve now.
    if plan.tight > stands.tight or stands.carries_load > plan.carries_load:
        return None
    if plan.carries_load == stands.carries_load:
        now, then = (_score(item, inventory, scale) for item in (plan, stands))
        # Negative is the score of a time.
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
    (pool,) = (pool for pool in inventory.pools if pool.name == plan.pool)
    return pool


def _score(plan: Plan, inventory: Inventory, scale: Scale) -> float:
    """Return the objective of a plan, as layouts are compared by it; of a rate that is not carried
    it is the served part.
    """
    request, speed, cost = (
        scale.request,
        plan.performance,
        scale.cost_on(plan.layout, pool_of(plan, inventory)),
    )
    if plan.carries_load:
        return score(speed, cost, request)
    # As select ranks them, so that the gain is in the measure by which the plan was chosen (ADR
    # 24).
    served = None if request.workload.requests_per_second is None else speed.requests_per_second
    return waiting_score(speed, cost, request, served)
