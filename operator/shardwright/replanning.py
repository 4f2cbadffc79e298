"""What becomes of a plan when the number of replicas or the cluster changes: groups come, go or move, the cut stays."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.api.model import Weights
from shardwright.hardware.inventory import Inventory, Node, Pool
from shardwright.pipeline import Subject, plan_serving
from shardwright.planning.plan import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import Request

KEPT: Final = "The replicas keep the cut that they have: a new number of them cuts nothing anew."


def rescale(subject: Subject, plan: Plan, inventory: Inventory) -> Report:
    """Return ``plan`` with the number of replicas that is wanted now: groups are added or dropped, none moves.

    A replica stays as it is, its engine's limits included: groups that run are not started anew for a new
    number. Only the predictions and reasons are those of the new number; where a part of the nodes is away and
    nothing can be predicted, groups are dropped all the same.
    """
    if not plan.groups:
        return plan_serving(subject, inventory)
    own, pinned = _pools_of(inventory, plan), _pinned(subject.request, plan)
    whole = make_plan(subject.model, own, pinned, subject.traits)
    missing = subject.resource.spec.replicas - len(plan.groups)
    if missing <= 0:
        predicted = plan if isinstance(whole.outcome, NoPlan) else whole.outcome
        return _kept(whole, predicted, plan, plan.groups[: subject.resource.spec.replicas])
    if isinstance(whole.outcome, NoPlan):
        return whole
    added = make_plan(subject.model, _without(own, plan), _more(pinned, missing), subject.traits)
    if isinstance(added.outcome, NoPlan):
        return added
    if not _alike(added.outcome, plan):
        return plan_serving(subject, inventory)
    return _kept(whole, whole.outcome, plan, (*plan.groups, *added.outcome.groups))


def rehouse(subject: Subject, plan: Plan, inventory: Inventory, lost: frozenset[str]) -> Report:
    """Return ``plan`` with the groups that held ``lost`` nodes on others of the same kind; the rest stays where it is.

    Where none stays and there is no room of this kind, the model is planned anew.
    """
    kept = replace(plan, groups=tuple(group for group in plan.groups if lost.isdisjoint(group)))
    pinned, own = _pinned(subject.request, plan), _pools_of(inventory, plan)
    moved = make_plan(subject.model, _without(own, kept), _more(pinned, len(plan.groups) - len(kept.groups)), subject.traits)
    if isinstance(moved.outcome, NoPlan) or not _alike(moved.outcome, plan):
        return moved if kept.groups and isinstance(moved.outcome, NoPlan) else plan_serving(subject, inventory)
    others = iter(moved.outcome.groups)
    groups = tuple(group if lost.isdisjoint(group) else next(others) for group in plan.groups)
    return replace(moved, outcome=replace(plan, groups=groups))


def place_beside(subject: Subject, plan: Plan, inventory: Inventory) -> tuple[str, ...] | None:
    """Return nodes for a second of one of the plan's groups in what ``take_stock(beside=…)`` found, None where there are none.

    A claim that only one node has mounted so far may be one that no second node can mount.
    """
    space, per_group = subject.request.space, plan.gpus_per_node * plan.nodes_per_replica
    groups = len(plan.groups) + 1
    if groups * per_group > (space.max_gpus or groups * per_group):
        return None
    if groups * plan.nodes_per_replica > (space.max_nodes or groups * plan.nodes_per_replica):
        return None
    outcome = make_plan(
        subject.model, _pools_of(inventory, plan), _more(_pinned(subject.request, plan), 1), subject.traits
    ).outcome
    if not isinstance(outcome, Plan) or not _alike(outcome, plan):
        return None
    (place,) = outcome.groups
    mounted_on = {node for group in plan.groups for node in group}
    return place if len(mounted_on) > 1 or not _shares_claim(subject) or mounted_on.issuperset(place) else None


def _shares_claim(subject: Subject) -> bool:
    model = subject.resource.spec.model
    weights = model.weights or Weights()
    cache = weights.hugging_face.cache if weights.hugging_face else None
    read = (weights.pvc, *(adapter.pvc for adapter in model.adapters))
    return any(read) or (cache is not None and cache.claim_name is not None)


def _pinned(request: Request, plan: Plan) -> Request:
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
    return replace(request, space=pins)


def _more(pinned: Request, replicas: int) -> Request:
    """Return the request for further replicas alone; limits on latency hold for all of them, not for a part."""
    objective = replace(pinned.objective, ttft_seconds=None, tpot_seconds=None)
    return replace(pinned, objective=objective, space=replace(pinned.space, replicas=replicas))


def _alike(one: Plan, other: Plan) -> bool:
    return (one.nodes_per_replica, one.gpus_per_node) == (other.nodes_per_replica, other.gpus_per_node)


def _kept(report: Report, predicted: Plan, plan: Plan, groups: tuple[tuple[str, ...], ...]) -> Report:
    outcome = replace(
        plan,
        groups=groups,
        layout=replace(plan.layout, replicas=len(groups)),
        performance=predicted.performance,
        carries_load=predicted.carries_load,
        reasons=(KEPT, *predicted.reasons[1:]),
        warnings=predicted.warnings,
    )
    return replace(report, outcome=outcome)


def _pools_of(inventory: Inventory, plan: Plan) -> Inventory:
    """Return the pool of the plan; where none has its name now, those of the same product that hold its nodes."""
    planned = {node for group in plan.groups for node in group}
    named = [pool for pool in inventory.pools if pool.name == plan.pool]
    holding = [
        pool for pool in inventory.pools if pool.product == plan.product and any(node.name in planned for node in pool.nodes)
    ]
    excluded = tuple(item for item in inventory.excluded if item.product == plan.product)
    return replace(inventory, pools=tuple(named or holding), excluded=excluded)


def _without(inventory: Inventory, plan: Plan) -> Inventory:
    held = Counter(node for group in plan.groups for node in group)
    return replace(inventory, pools=tuple(_pool_without(pool, held, plan.gpus_per_node) for pool in inventory.pools))


def _pool_without(pool: Pool, held: Mapping[str, int], gpus: int) -> Pool:
    return replace(pool, nodes=tuple(_node_without(node, held.get(node.name, 0) * gpus) for node in pool.nodes))


def _node_without(node: Node, gpus: int) -> Node:
    return replace(node, free=max(0, node.free - gpus))
