"""What follows from what one look has read, before anything is decided: who stands where, what is wrong with which node."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.planning.validity import Unfit, unfit_nodes
from shardwright.reconcile.decide import standing_groups
from shardwright.reconcile.decision import DryRunPod
from shardwright.reconcile.generations import lost_nodes, unsettled_groups
from shardwright.reconcile.groups import LifeRules
from shardwright.reconcile.observed import KeptOut, Observed
from shardwright.reconcile.relocation import (
    Departure,
    Surroundings,
    crowded_out,
    departures,
    hanging_groups,
    homeless_groups,
    recheck_at,
)
from shardwright.reconcile.rules import life_rules
from shardwright.reconcile.seen import Cluster, Outcome, Seen
from shardwright.reconcile.sightings import Sight, Sighting, by_own_clock, carried_on, of_members, of_node, of_sets
from shardwright.reconcile.states import GroupState
from shardwright.rendering.names import base_name, generation_of, group_name
from shardwright.resolving.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is of a model, by our own clock.

    ``record`` is the plan of record, ``unreadable`` why the one that there is cannot be read. ``standing`` is how the groups
    stand that exist. ``unfit`` are planned nodes with a fault, ``lost`` nodes that do not give pods back, ``leaving`` the groups
    that go elsewhere; ``recheck_at`` is when a further one may have to. ``since`` is when each passing fact was first seen.
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
    since: Mapping[Sighting, datetime]


def look_around(seen: Seen, observed: Observed, now: datetime) -> Known:
    """Return what follows from what was read."""
    cluster, subject = seen.cluster or Cluster(), seen.subject if isinstance(seen.subject, Subject) else None
    record = seen.record if isinstance(seen.record, PlanRecord) else None
    rules = life_rules(subject.intent, seen.resource.annotations) if subject else LifeRules()
    unfit = unfit_nodes(record.plan, cluster.nodes, subject.terms) if record and subject and seen.cluster else ()
    uid, silent = seen.resource.owner.uid, cluster.silent_nodes(observed)
    sighted = (*of_members(observed.members), *map(of_node, unfit), *of_sets(observed, uid, seen.kept_out))
    since = carried_on(seen.since, sighted, now)
    own = _by_own_clock(seen, observed, since, now).seen_from(silent)
    if record and cluster.free is not None:
        healthy = {name: node.gpus for name, node in cluster.nodes.items() if isinstance(node, NodeFacts)}
        crowded = crowded_out(record.plan, base_name(seen.resource.owner.name), cluster.free, healthy)
        own = replace(own, crowded_out=crowded)
    standing = standing_groups(own, uid, now, rules)
    lost = lost_nodes(own.members, silent, now)
    around = Surroundings(unfit=unfit, since={item.node: since[of_node(item)] for item in unfit}, lost=lost)
    if record:
        around = _with_groups(around, record, own, standing, seen, now)
    return Known(
        record=record,
        unreadable=seen.record if isinstance(seen.record, Problem) else None,
        observed=own,
        rules=rules,
        standing=standing,
        unfit=unfit,
        lost=lost,
        leaving=departures(record.plan, around, now) if record else (),
        recheck_at=recheck_at(record.plan, around, now) if record else None,
        since=since,
    )


def _by_own_clock(seen: Seen, observed: Observed, since: Mapping[Sighting, datetime], now: datetime) -> Observed:
    marks = {uid: Sighting(Sight.KEPT_OUT, uid) for uid in seen.kept_out}
    kept_out = {uid: KeptOut(said=said, since=since[marks[uid]]) for uid, said in seen.kept_out.items() if marks[uid] in since}
    tried = ((item.write, item.message) for item in (seen.outcome or Outcome()).refused)
    now_out = {write.set_uid: KeptOut(said=said, since=now) for write, said in tried if isinstance(write, DryRunPod)}
    short_since = {sighting.of: began for sighting, began in since.items() if sighting.sight is Sight.NO_PODS}
    members = by_own_clock(observed.members, since, now)
    return replace(observed, members=members, kept_out=now_out | kept_out, short_since=short_since)


def _with_groups(
    around: Surroundings, record: PlanRecord, own: Observed, standing: tuple[GroupState, ...], seen: Seen, now: datetime
) -> Surroundings:
    base, groups = base_name(seen.resource.owner.name), record.plan.groups
    gave_up = {generation_of(state.name)[0] for state in standing if state.holds_nothing}
    released = frozenset(index for index in range(len(groups)) if group_name(base, index) in gave_up)
    return replace(
        around,
        free=(seen.cluster or Cluster()).free or {},
        unsettled=unsettled_groups(groups, base, standing),
        hanging=hanging_groups(len(groups), base, own.members, around.lost, now),
        homeless=homeless_groups(len(groups), base, standing, own.members, now) | released,
    )


def nodes_of_interest(observed: Observed, record: PlanRecord | Problem | None) -> frozenset[str]:
    """Return the nodes that a look must know of: those of the plan, and those of the pods."""
    planned = record.plan.groups if isinstance(record, PlanRecord) else ()
    return frozenset(node for group in planned for node in group) | {m.node for m in observed.members if m.node}
