"""When does a plan that serves give way to a better one? Seldom, and for enough of a gain; never
because a price list has changed.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.hardware.gpus import GpuPrice
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.pipeline.assembly import plan_serving
from shardwright.pipeline.extra_groups import as_placed, pools_of
from shardwright.pipeline.replanning import Ground, Replanned, plan_anew
from shardwright.planning.gain import GAIN_MIN, Prospect, better, pool_of
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan, Report
from shardwright.planning.select import Scale
from shardwright.resolving.subject import Subject

PAUSE: Final = timedelta(hours=1)
"""How long a plan that has replaced another one stays before the next one may come. Basis:
assumed, several times as long as a large model takes to load.
"""


def is_due(record: PlanRecord, now: datetime) -> bool:
    """Return whether the plan of record may give way to a better one now."""
    return record.improved_at is None or now - record.improved_at >= PAUSE


def improve(
    subject: Subject,
    record: PlanRecord,
    ground: Ground,
    planned: Callable[[Subject, Inventory], Report] = plan_serving,
    *,
    take: bool,
) -> Replanned:
    """Return the record with a better plan if one is worth a restart; else as it is, with the
    better plan to show.

    Both plans are predicted on the same inventory. If the current one can no longer be predicted,
    no plan counts as better. ``record`` must serve; ``planned`` makes the new plan; ``take``: the
    better plan may replace the current one.
    """
    stands = Replanned(record=record, report=record.report())
    # The gain is judged here, so any other layout may come.
    made = plan_anew(subject, record, replace(ground, moves=True), planned)
    # A plan with fewer groups than are asked for is no better one.
    if made.record is None or made.waits_for or not made.record.plan.deployable:
        return stands
    stands = replace(
        stands, anew=Prospect(layout=made.record.plan.layout, pool=made.record.plan.pool)
    )
    # It could differ in its nodes only, and no group moves to a better place (``replanning``).
    if _is_alike(made.record.plan, record.plan):
        return stands
    inventory = ground.inventory
    # The record's prediction may be of another release or of other neighbours (ADR 24).
    predicted = _predicted(subject, record.plan, inventory)
    if predicted is None:
        return stands
    scale = Scale.of(subject.request, inventory)
    found = better(made.record.plan, predicted, inventory, scale)
    if found and (found.gain is None or found.gain >= GAIN_MIN):
        relisted = _is_relisted(record.plan.gpu_price, scale, pool_of(predicted, inventory))
        found = replace(found, relisted=relisted)
        # A release with other lists moves no group: nothing has changed for it (ADR 31).
        if take and not relisted:
            return made
    return replace(stands, better=found)


def _is_relisted(counted: GpuPrice | None, scale: Scale, pool: Pool) -> bool:
    # Its GPU had another list price when the plan was made.
    price = scale.price(pool) if scale.relative else None
    return counted is not None and price is not None and counted.per_hour != price.per_hour


def _is_alike(one: Plan, other: Plan) -> bool:
    return (one.layout, one.pool) == (other.layout, other.pool)


def _predicted(subject: Subject, plan: Plan, inventory: Inventory) -> Plan | None:
    found = make_plan(
        subject.model, pools_of(inventory, plan), as_placed(subject.request, plan), subject.traits
    ).outcome
    return (
        found
        if isinstance(found, Plan)
        # The prediction of another layout says nothing of the current plan.
        and replace(found.layout, partition=plan.layout.partition) == plan.layout
        else None
    )
