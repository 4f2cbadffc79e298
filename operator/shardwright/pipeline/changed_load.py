"""Does a model whose load changes keep the layout that runs, in another number of groups?"""

from dataclasses import replace
from typing import Final

from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.extra_groups import differences, pinned, pools_of, told_why
from shardwright.planning.gain import GAIN_MIN, Better, better, is_worth_a_move
from shardwright.planning.phrases import copies
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import Request
from shardwright.planning.select import Scale
from shardwright.resolving.subject import Subject

STAYS: Final = "the layout that runs carries the load that has changed, and no group restarts"

_LIMITS: Final = (
    "kv_tokens",
    "max_model_len",
    "max_sequences",
    "max_batched_tokens",
    "memory_utilization",
    "host_cache",
    "draft_tokens",
    "drain_seconds",
    "disk_bytes",
)
"""Fields of a plan that its engines are started with."""


def as_it_runs(
    subject: Subject, plan: Plan, report: Report, inventory: Inventory, *, moves: bool
) -> Report:
    """Return the report with the layout of ``plan`` and the limits that its engines run with, in
    the number of groups that is planned for these; with ``moves`` another layout replaces it
    however little better.

    It is as it was if the load is not served so and would be otherwise, or if another layout is
    worth a restart of all groups.
    """
    made = report.outcome
    if not isinstance(made, Plan):
        return report
    own = pools_of(inventory, plan)
    same = (
        arrangement(made) == arrangement(plan)
        and made.pool in {pool.name for pool in own.pools}
        and not any(differences(made, plan))
    )
    if moves if not same else _with_the_limits_of(plan, made) == made:
        return report
    found = _running_on(subject, plan, own)
    runs = found.outcome if found else None
    if found is None or not isinstance(runs, Plan):
        return report
    if same:
        others_serve = made.carries_load and not runs.carries_load
        runs = replace(runs, reasons=made.reasons)
        return report if others_serve else replace(report, outcome=runs)
    gained = better(made, runs, inventory, Scale.of(subject.request, inventory))
    if is_worth_a_move(gained):
        return report
    said = (_stays(runs, gained), *runs.reasons[1:])
    found = replace(found, outcome=replace(runs, reasons=said))
    return told_why(subject, inventory, found) if runs.missing else found


def _running_on(subject: Subject, plan: Plan, own: Inventory) -> Report | None:
    """Return the plan of the layout and the limits that run, on its ``own`` pools, for the present
    request, or None if that rules them out.
    """
    request, told = pinned(subject.request, plan), subject.traits.options.told
    load = request.workload
    # Engines refuse a longer request than they were started for.
    if load.max_model_len > plan.max_model_len or not _allows(subject, request):
        return None
    load = replace(load, max_model_len=plan.max_model_len, open_model_len=None)
    told = replace(told, sequences=plan.max_sequences, batched_tokens=plan.max_batched_tokens)
    traits = replace(subject.traits, options=replace(subject.traits.options, told=told))
    report = make_plan(subject.model, own, replace(request, workload=load), traits)
    found = report.outcome
    if isinstance(found, NoPlan) or any(differences(found, plan)) or not found.deployable:
        return None
    return replace(report, outcome=_with_the_limits_of(plan, found))


def _allows(subject: Subject, running: Request) -> bool:
    return subject.request.space.pins.items() <= running.space.pins.items()


def _with_the_limits_of(plan: Plan, found: Plan) -> Plan:
    limits = {name: getattr(plan, name) for name in _LIMITS}
    return replace(found, **limits)


def _stays(plan: Plan, gained: Better | None) -> str:
    stays = f"{copies(plan.layout)} on {plan.pool}: {STAYS}"
    if gained is None or gained.gain is None or gained.gain < GAIN_MIN:
        return f"{stays}."
    other = f"{copies(gained.layout)} on {gained.pool}"
    return (
        f"{stays}; {other} would be {gained.gain:.0%} better by {gained.objective}, and "
        "spec.replan: Always restarts all groups for it."
    )


def arrangement(plan: Plan) -> tuple[object, ...]:
    """Return how the ranks of a replica lie on its nodes."""
    return (
        replace(plan.layout, replicas=1),
        # Inside nodes all of a family are alike.
        plan.product if plan.nodes_per_replica == 1 else plan.pool,
        plan.nodes_per_replica,
        plan.gpus_per_node,
        plan.compute_domain,
    )
