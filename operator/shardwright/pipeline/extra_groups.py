"""Where could more groups of a plan run, with its cut, in its pool, with the pods rendered for it?
Nodes that need other pods do not count, however free they are. And if not all groups that are
wanted have a place: how many do?
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import SearchSpace
from shardwright.layouts.placing import Over
from shardwright.planning import node_storage
from shardwright.planning.phrases import copies
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import Objective, Request
from shardwright.resolving.subject import Subject

_LESS_MEMORY: Final = "less memory on the nodes for K/V"


def pinned(request: Request, plan: Plan) -> Request:
    """Return a request for a plan's layout, K/V beside GPUs and draft tokens alone."""
    layout = plan.layout
    pins = replace(
        request.space,
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        expert=layout.expert,
        attention_data=layout.attention_data,
        context=layout.context,
        partition=layout.partition,
    )
    # All groups have one template, which has the size of the K/V beside the GPUs.
    kept = plan.host_cache.pod_bytes if plan.host_cache else None
    wanted = request.workload.kv_offload
    pinned_offload = None if wanted is None or kept is None else replace(wanted, pod_bytes=kept)
    drafts = (plan.draft_tokens,) if plan.draft_tokens else ()
    return replace(
        request,
        space=pins,
        workload=replace(request.workload, kv_offload=pinned_offload, draft_choices=drafts),
    )


def as_placed(request: Request, plan: Plan) -> Request:
    """Return a request for just the groups of a plan under the whole load, on any nodes."""
    asked = pinned(request, plan)
    # Limits hold for the load of all groups that are wanted, and a part cannot keep them.
    objective = _without_limits(asked.objective) if plan.missing else asked.objective
    replicas = max(1, plan.layout.replicas)
    return replace(
        asked, objective=objective, space=replace(asked.space, replicas=replicas, fill=False)
    )


def _without_limits(objective: Objective) -> Objective:
    return replace(objective, ttft_seconds=None, tpot_seconds=None)


def _more(request: Request, replicas: int, plan: Plan, room: Inventory) -> Request:
    # Limits hold for the load of all replicas, and a part cannot keep them.
    space = replace(
        request.space,
        replicas=replicas,
        fill=False,
        standing=_standing(request.space, plan, room),
        held_nodes=frozenset(node for group in plan.groups for node in group),
        held_gpus=len(plan.groups) * plan.layout.gpus_per_replica,
    )
    return replace(request, objective=_without_limits(request.objective), space=space)


def _standing(space: SearchSpace, plan: Plan, room: Inventory) -> tuple[tuple[str, int], ...]:
    over = Over.of(space)
    if over is None:
        return ()
    return tuple(
        sorted(
            over.count(plan.groups, (node for pool in room.pools for node in pool.nodes)).items()
        )
    )


def what_fits(subject: Subject, inventory: Inventory, refused: Report) -> Report:
    """Return a plan of as many groups as have a place, or ``refused``, the answer for all, if fewer
    than ``least`` have one.

    Its layout is the best for as many groups at their part of the load, so that it is the one that
    all would have: the limits on latency are held to that. It predicts them under the whole load.
    """
    wanted, least = subject.intent.replicas, subject.intent.least(None)
    # A number that is open is of those that have room.
    if wanted is None or least >= wanted:
        return refused
    found: dict[int, Report] = {}

    def fails(count: int) -> bool:
        asked = _part(subject.request, count, wanted)
        found[count] = make_plan(subject.model, inventory, asked, subject.traits)
        return isinstance(found[count].outcome, NoPlan)

    # The least first: of most models that wait none has a place, and each question is a whole plan.
    if fails(least):
        return refused
    counts = range(least + 1, wanted)
    most = least + bisect_left(counts, True, key=fails)
    return _alone(subject, inventory, found[most], wanted - most)


def _part(request: Request, count: int, of: int) -> Request:
    # ``count`` replicas with the load that they would have beside all others.
    load = request.workload.among(of)
    rate = load.requests_per_second
    part = replace(
        load,
        concurrency=ceil(load.concurrency * count / of),
        requests_per_second=None if rate is None else rate * count / of,
    )
    return replace(request, workload=part, space=replace(request.space, replicas=count))


def in_chosen_number(subject: Subject, inventory: Inventory, report: Report) -> Report:
    """Return the report with as many groups as an autoscaler has chosen, where one is asked for,
    and with why some have no place. The layout is planned for the load.
    """
    plan, intent = report.outcome, subject.intent
    if isinstance(plan, NoPlan):
        return report
    count = plan.wanted if intent.bounds is None else intent.chosen(plan.wanted)
    if count != plan.wanted:
        groups = plan.groups[:count]
        plan = replace(plan, groups=groups, numbers=(), missing=count - len(groups))
        report = predicted(subject, plan, pools_of(inventory, plan), plan.reasons[0])
    return told_why(subject, inventory, report) if plan.missing else report


def told_why(subject: Subject, inventory: Inventory, report: Report) -> Report:
    """Return the report of a plan that lacks groups with why they have no place, or that alone if
    fewer than ``least`` have one.
    """
    plan = report.outcome
    if isinstance(plan, NoPlan):
        return report
    own = pools_of(inventory, plan)
    more, why = places(subject, plan, own, plan.missing)
    if why and len(plan.groups) + len(more) < subject.intent.least(plan):
        return replace(report, outcome=why, alternatives=())
    if more:
        return _filled(subject, plan, own, more, why)
    return replace(report, lacks=why)


def _alone(subject: Subject, inventory: Inventory, report: Report, missing: int) -> Report:
    if isinstance(report.outcome, NoPlan):
        return report
    plan = replace(report.outcome, missing=missing)
    own = pools_of(inventory, plan)
    return _filled(subject, plan, own, *places(subject, plan, own, missing))


def _filled(
    subject: Subject,
    plan: Plan,
    own: Inventory,
    more: tuple[tuple[str, ...], ...],
    why: NoPlan | None,
) -> Report:
    groups, missing = (*plan.groups, *more), plan.missing - len(more)
    plan = replace(plan, groups=groups, missing=missing)
    return replace(predicted(subject, plan, own, plan.reasons[0]), lacks=why)


def predicted(subject: Subject, plan: Plan, own: Inventory, why: str) -> Report:
    """Return the report of a plan as it stands, with predictions of now where any can be made.

    ``own`` are its pools, in which the GPUs of its groups count as free. ``why`` is its first
    reason.
    """
    plan = replace(plan, layout=replace(plan.layout, replicas=len(plan.groups)))
    report = make_plan(subject.model, own, as_placed(subject.request, plan), subject.traits)
    # Missing nodes of its own may prevent a prediction, and change nothing of the plan.
    now = plan if isinstance(report.outcome, NoPlan) else report.outcome
    outcome = replace(
        plan,
        performance=now.performance,
        carries_load=now.carries_load,
        million_tokens_price=now.million_tokens_price,
        capacity=now.capacity,
        reasons=(why, *now.reasons[1:]),
        warnings=now.warnings,
    )
    return replace(report, outcome=outcome)


def places(
    subject: Subject, plan: Plan, own: Inventory, count: int
) -> tuple[tuple[tuple[str, ...], ...], NoPlan | None]:
    """Return the nodes of up to ``count`` further groups of a plan, and why not of all.

    ``own`` are its pools, in which the GPUs of its groups count as free.
    """
    found: tuple[tuple[str, ...], ...] = ()
    # Until a round finds no further place: that round says why.
    while len(found) < count:
        stand = replace(plan, groups=(*plan.groups, *found))
        outcome = most_extra(subject, stand, without(own, stand), count - len(found)).outcome
        if isinstance(outcome, NoPlan):
            return found, outcome
        found += outcome.groups
    return found, None


def most_extra(subject: Subject, plan: Plan, room: Inventory, most: int) -> Report:
    """Return places for as many as possible of ``most`` further groups, or why for none."""
    whole = extra_groups(subject, plan, room, most)
    if not isinstance(whole.outcome, NoPlan):
        return whole
    # By halving: fewer groups have a place wherever more have, and each question is a whole plan.
    fewer = bisect_left(
        range(1, most),
        True,
        key=lambda count: isinstance(extra_groups(subject, plan, room, count).outcome, NoPlan),
    )
    return extra_groups(subject, plan, room, fewer) if fewer else whole


def extra_groups(subject: Subject, plan: Plan, room: Inventory, count: int) -> Report:
    """Return places for further groups, spread beside the plan's own, or why there are none."""
    roomy = with_room(subject, plan, room)
    if room.pools and not roomy.pools:
        wanted = replace(plan, layout=replace(plan.layout, replicas=count))
        outcome = _unlike(wanted, _LESS_MEMORY)
        return Report(outcome=outcome, alternatives=(), excluded=(), considered=0)
    report = make_plan(
        subject.model,
        roomy,
        _more(pinned(subject.request, plan), count, plan, room),
        subject.traits,
    )
    if isinstance(report.outcome, NoPlan):
        return report
    unlike = "; ".join(differences(report.outcome, plan))
    return replace(report, outcome=_unlike(report.outcome, unlike)) if unlike else report


def with_room(subject: Subject, plan: Plan, room: Inventory) -> Inventory:
    """Return the nodes with the memory that the pods of a plan request for K/V."""
    wanted = subject.request.workload.kv_offload
    if wanted is None or plan.host_cache is None:
        return room
    shape = node_storage.PodShape.of(
        plan.layout, plan.nodes_per_replica, wanted, over_ray=subject.traits.options.over_ray
    )
    return node_storage.with_room(room, plan.host_cache.pod_bytes, shape, subject.model)


def differences(found: Plan, plan: Plan) -> Iterator[str]:
    """Yield why pods rendered for a plan do not run on the nodes of another."""
    if (found.nodes_per_replica, found.gpus_per_node) != (
        plan.nodes_per_replica,
        plan.gpus_per_node,
    ):
        yield (
            f"{found.nodes_per_replica} x {found.gpus_per_node} GPUs, not {plan.nodes_per_replica}"
            f" x {plan.gpus_per_node}"
        )
    if (found.resource, found.architecture) != (plan.resource, plan.architecture):
        yield (
            f"{found.resource} on {found.architecture}, not {plan.resource} on {plan.architecture}"
        )
    if found.claimed != plan.claimed:
        yield "GPUs that pods request in another way"
    if plan.host_cache and (
        found.host_cache is None or found.host_cache.pod_bytes < plan.host_cache.pod_bytes
    ):
        yield _LESS_MEMORY
    if found.disk_bytes < plan.disk_bytes:
        yield "less local disk on the nodes for what pods download"
    if found.compute_domain != plan.compute_domain:
        yield (
            f"{'' if found.compute_domain else 'no '}nodes "
            "that share an NVLink domain, unlike the plan"
        )
    offered, wanted = dict(found.rdma), dict(plan.rdma)
    if offered.keys() != wanted.keys() or any(
        offered[name] < count for name, count in wanted.items()
    ):
        yield f"{_devices(offered)}, not {_devices(wanted)}"


def _devices(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no RDMA devices"


def _unlike(found: Plan, unlike: str) -> NoPlan:
    problem = Problem(
        code="InsufficientCapacity",
        what=f"{copies(found.layout)} on {found.pool}",
        limit="must run in the same pods as the groups that there are",
        gap=f"what is free has {unlike}",
        remedy="free or add nodes as those of the plan; spec.replan: Always plans all groups anew",
    )
    return NoPlan(problem=problem, heals_by_itself=True)


def pools_of(inventory: Inventory, plan: Plan) -> Inventory:
    """Return the plan's pool or, if it was renamed, those of its product with its nodes; of a plan
    inside nodes with their family.
    """
    planned = {node for group in plan.groups for node in group}
    named = inventory.named(plan.pool)
    holding = [
        pool
        # A label may have renamed the pool. Of the same product only, as pods request GPUs of this
        # kind.
        for pool in inventory.pools
        if pool.product == plan.product and any(node.name in planned for node in pool.nodes)
    ]
    excluded = tuple(item for item in inventory.excluded if item.product == plan.product)
    pools = [named] if named else holding
    if plan.nodes_per_replica == 1:
        families = {pool.family for pool in pools}
        pools = [pool for pool in inventory.joined if pool.family in families] or pools
    return replace(inventory, pools=tuple(pools), excluded=excluded)


def without(inventory: Inventory, plan: Plan) -> Inventory:
    """Return the inventory that is left beside the groups of a plan."""
    held = Counter(node for group in plan.groups for node in group)
    return inventory.without({node: count * plan.gpus_per_node for node, count in held.items()})
