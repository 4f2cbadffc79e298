"""What follows from the snapshot of one reconcile before anything is decided: which nodes are at
fault, and which groups lose their places? No rule of a group's life is here: the facts are the same
whatever the user wants.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.provisioning import is_provisioned_later
from shardwright.planning.validity import NodeFault, Unfit, unfit_nodes
from shardwright.reconcile.decide import standing_groups
from shardwright.reconcile.first_seen import (
    Sight,
    Sighting,
    by_own_clock,
    carried_on,
    of_members,
    of_node,
    of_sets,
    of_starts,
    since_by_set,
)
from shardwright.reconcile.group import LifeRules, life_rules, lost_nodes, unsettled_groups
from shardwright.reconcile.members import Awaited, GroupState, Wait
from shardwright.reconcile.observed import KeptOut, Observed
from shardwright.reconcile.refuge import due_at, refused_long, refused_since
from shardwright.reconcile.relocation import (
    Departure,
    Occupancy,
    crowded_out,
    departures,
    hanging_groups,
    homeless_groups,
    late_nodes,
    recheck_at,
)
from shardwright.reconcile.route import of_routers
from shardwright.reconcile.snapshot import Cluster, Outcome, Snapshot
from shardwright.reconcile.writes import DryRunPod
from shardwright.rendering.names import base_name, generation_of, group_names
from shardwright.resolving.subject import Subject

SHOWN_NODES: Final = 3
"""How many nodes in provisioning of a group are named; assumed: the first ones tell their pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """The present state of a model, by our own clock.

    ``unreadable`` is why the plan of record cannot be read. ``unfit`` are planned nodes with a
    fault, ``lost`` nodes that do not give pods back, ``leaving`` the groups to relocate;
    ``recheck_at`` is when another may have to. ``late`` are nodes that an autoscaler should have
    made by now. ``refused`` are the planned groups, by index, that are down and go elsewhere at
    once where there is a free place. ``since`` is when each passing fact was first seen.
    """

    record: PlanRecord | None
    unreadable: Problem | None
    observed: Observed
    rules: LifeRules
    standing: tuple[GroupState, ...]
    unfit: tuple[Unfit, ...]
    lost: frozenset[str]
    leaving: tuple[Departure, ...]
    recheck_at: datetime | None
    late: frozenset[str]
    refused: tuple[int, ...]
    since: Mapping[Sighting, datetime]


def derive(snapshot: Snapshot, observed: Observed, now: datetime) -> Derived:
    """Return the facts that follow from the snapshot."""
    cluster = snapshot.cluster or Cluster()
    subject = snapshot.subject if isinstance(snapshot.subject, Subject) else None
    record = snapshot.record if isinstance(snapshot.record, PlanRecord) else None
    rules = life_rules(subject.intent, snapshot.resource.annotations) if subject else LifeRules()
    unfit = _unfit(snapshot, record, observed)
    silent = cluster.silent_nodes(observed)
    observed = observed.seen_from(silent, cluster.gone)
    since = carried_on(snapshot.since, _sighted(snapshot, observed, unfit, silent), now)
    # From here on all times are ours: with a clock six minutes ahead, a pod that had waited for a
    # second took its group to zero (ADR 8).
    own = _by_own_clock(snapshot, observed, since, now)
    if record:
        own = _by_plan(own, record, snapshot)
    derived = Derived(
        record=record,
        unreadable=snapshot.record if isinstance(snapshot.record, Problem) else None,
        observed=own,
        rules=rules,
        standing=standing_groups(own, snapshot.resource.owner.uid, now, rules),
        unfit=unfit,
        # By our own clock too: a deletionTimestamp is the API server's.
        lost=lost_nodes(own.members, silent, now),
        leaving=(),
        recheck_at=None,
        late=frozenset(),
        refused=(),
        since=since,
    )
    return _with_departures(derived, record, snapshot, now) if record else derived


def _unfit(snapshot: Snapshot, record: PlanRecord | None, observed: Observed) -> tuple[Unfit, ...]:
    if not (record and snapshot.cluster and isinstance(snapshot.subject, Subject)):
        return ()
    found = unfit_nodes(record.plan, snapshot.cluster.nodes, snapshot.subject.terms)
    sought = _sought(record, base_name(snapshot.resource.owner.name), observed)
    # Before its pods ask, no autoscaler knows of the node: its patience must not run out in a
    # queue.
    asked = {node for nodes in sought.values() for node in nodes}
    return tuple(
        item for item in found if item.fault is not NodeFault.TO_COME or item.node in asked
    )


def _sighted(
    snapshot: Snapshot, observed: Observed, unfit: Iterable[Unfit], silent: Collection[str]
) -> Iterator[Sighting]:
    uid = snapshot.resource.owner.uid
    yield from of_members(observed.members)
    yield from map(of_node, unfit)
    yield from of_sets(observed, uid, snapshot.kept_out)
    yield from of_starts(observed, uid, silent)
    yield from of_routers(observed, uid)


def _by_own_clock(
    snapshot: Snapshot, observed: Observed, since: Mapping[Sighting, datetime], now: datetime
) -> Observed:
    marks = {uid: Sighting(Sight.KEPT_OUT, uid) for uid in snapshot.kept_out}
    kept_out = {
        uid: KeptOut(said=said, since=since[marks[uid]])
        for uid, said in snapshot.kept_out.items()
        if marks[uid] in since
    }
    tried = ((item.write, item.message) for item in (snapshot.outcome or Outcome()).refused)
    now_out = {
        write.set_uid: KeptOut(said=said, since=now)
        for write, said in tried
        if isinstance(write, DryRunPod)
    }
    return replace(
        observed,
        members=by_own_clock(observed.members, since, now),
        # An earlier refusal has its start; the answer of this reconcile has only now.
        kept_out=now_out | kept_out,
        short_since=since_by_set(since, Sight.NO_PODS),
        ready_since=since_by_set(since, Sight.READY),
        starting_since=since_by_set(since, Sight.STARTING),
    )


def _by_plan(own: Observed, record: PlanRecord, snapshot: Snapshot) -> Observed:
    base, cluster = base_name(snapshot.resource.owner.name), snapshot.cluster or Cluster()
    # None: pods are not known yet, so nobody knows how many GPUs others leave.
    if cluster.free is not None:
        healthy = {
            name: node.gpus for name, node in cluster.nodes.items() if isinstance(node, NodeFacts)
        }
        crowded = crowded_out(record.plan, base, cluster.free, healthy)
        own = replace(own, crowded_out=crowded)
    return replace(own, nodes_in_provisioning=_nodes_to_come(record, base, own))


def _with_departures(
    derived: Derived, record: PlanRecord, snapshot: Snapshot, now: datetime
) -> Derived:
    around, own = _occupancy(derived, record, snapshot, now), derived.observed
    late = late_nodes(record.plan, around, now)
    # Late nodes follow from the states of groups, and those from the waits, so the waits are first
    # made without them.
    base = base_name(snapshot.resource.owner.name)
    if late:
        own = replace(own, nodes_in_provisioning=_nodes_to_come(record, base, own, late))
    refused = refused_since(record.plan, base, derived.standing, around.unfit, around.since)
    times = (recheck_at(record.plan, around, now), due_at(refused, now))
    return replace(
        derived,
        observed=own,
        leaving=departures(record.plan, around, now),
        recheck_at=min(filter(None, times), default=None),
        late=late,
        refused=refused_long(refused, now),
    )


def _nodes_to_come(
    record: PlanRecord, base: str, observed: Observed, late: frozenset[str] = frozenset()
) -> dict[str, Wait]:
    """Return the waits of groups for nodes in provisioning, by name without generation."""
    return {
        name: Wait(
            what=Awaited.NODES if late.isdisjoint(nodes) else Awaited.LATE_NODES,
            said=", ".join(nodes[:SHOWN_NODES]),
        )
        for name, nodes in _sought(record, base, observed).items()
    }


def _sought(record: PlanRecord, base: str, observed: Observed) -> dict[str, tuple[str, ...]]:
    """Return the nodes in provisioning by group name; groups gated by a queue ask for none yet."""
    held_back = {generation_of(member.group)[0] for member in observed.members if member.gates}
    groups = dict(
        zip(group_names(base, record.plan.group_numbers), record.plan.groups, strict=True)
    )
    sought = {
        name: tuple(filter(is_provisioned_later, nodes))
        for name, nodes in groups.items()
        if name not in held_back
    }
    return {name: nodes for name, nodes in sought.items() if nodes}


def _occupancy(
    derived: Derived, record: PlanRecord, snapshot: Snapshot, now: datetime
) -> Occupancy:
    base, groups = base_name(snapshot.resource.owner.name), record.plan.groups
    members, standing = derived.observed.members, derived.standing
    roots = group_names(base, record.plan.group_numbers)
    gave_up = {generation_of(state.name)[0] for state in standing if state.holds_nothing}
    released = frozenset(index for index, root in enumerate(roots) if root in gave_up)
    return Occupancy(
        unfit=derived.unfit,
        since={item.node: derived.since[of_node(item)] for item in derived.unfit},
        lost=derived.lost,
        free=(snapshot.cluster or Cluster()).free or {},
        unsettled=unsettled_groups(groups, base, standing, record.plan.numbers),
        hanging=hanging_groups(roots, members, derived.lost, now),
        # A group that gave its GPUs back has no place either, although no pod of it waits.
        homeless=homeless_groups(roots, standing, members, now) | released,
    )


def nodes_of_interest(observed: Observed, record: PlanRecord | Problem | None) -> frozenset[str]:
    """Return the nodes that a reconcile must know: those of the plan and those of the pods."""
    planned = record.plan.groups if isinstance(record, PlanRecord) else ()
    return frozenset(node for group in planned for node in group) | {
        m.node for m in observed.members if m.node
    }
