"""Since when has a fact held, by this process's own clock? Times written by others come from clocks
that may be minutes off, so a fresh fact could look long overdue. Hence a wait begins when it is
first seen, and anew after a restart of the operator.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from shardwright.planning.validity import Unfit
from shardwright.reconcile.annotations import READY_SINCE
from shardwright.reconcile.group import all_ready
from shardwright.reconcile.members import Member
from shardwright.reconcile.observed import Observed
from shardwright.rendering.bundle import KubernetesObject


class Sight(StrEnum):
    """A kind of fact that is expected to pass."""

    UNSCHEDULABLE = "Unschedulable"  #: a pod, by uid
    DELETING = "Deleting"  #: a pod, by uid
    UNFIT = "Unfit"  #: a node with a fault, by both
    NO_PODS = "NoPods"  #: a StatefulSet that has fewer pods than it should, by uid
    KEPT_OUT = "KeptOut"  #: a StatefulSet whose pods the API server refuses, by uid
    READY = "Ready"  #: a StatefulSet all of whose pods are ready, by uid
    #: a StatefulSet that has not come up, and whose pods all have nodes that answer, by uid
    STARTING = "Starting"
    ROUTER_UP = "RouterUp"  #: a pod of a router is ready, by the uid of its Deployment
    ROUTER_DOWN = "RouterDown"  #: none is


@dataclass(frozen=True, slots=True)
class Sighting:
    """One fact that may pass, and its object."""

    sight: Sight
    of: str


def of_members(members: Iterable[Member]) -> frozenset[Sighting]:
    """Return the passing states of these pods."""
    return frozenset(
        sighting
        for member in members
        for sighting, holds in (
            (Sighting(Sight.UNSCHEDULABLE, member.uid), member.unschedulable_since is not None),
            (Sighting(Sight.DELETING, member.uid), member.deleting),
        )
        if holds
    )


def of_node(item: Unfit) -> Sighting:
    """Return the sighting of a planned node's fault."""
    return Sighting(Sight.UNFIT, f"{item.node} {item.fault}")


def of_sets(observed: Observed, owner_uid: str, kept_out: Iterable[str]) -> frozenset[Sighting]:
    """Return the passing states of an owner's StatefulSets; ``kept_out`` are the uids of those
    whose pods were refused.

    One at zero, or with all its pods, is not kept out: should it be again, its time starts anew.
    """
    lives = observed.sets_of(owner_uid).values()
    wanted = {live["metadata"]["uid"]: live["spec"].get("replicas") or 0 for live in lives}
    there = Counter(member.set_uid for member in observed.members)
    short = {uid for uid, pods in wanted.items() if there[uid] < pods}
    refused = (Sighting(Sight.KEPT_OUT, uid) for uid in kept_out if uid in short)
    return frozenset((*(Sighting(Sight.NO_PODS, uid) for uid in short), *refused))


def of_starts(
    observed: Observed, owner_uid: str, silent_nodes: Collection[str]
) -> frozenset[Sighting]:
    """Return which StatefulSets of an owner are starting or ready; one with a pod on no node, or on
    a silent one, is not starting.
    """
    found = set()
    for name, live in observed.sets_of(owner_uid).items():
        size = live["spec"].get("replicas")
        members = observed.members_of(name) if size else ()
        if size and all_ready(members, size):
            found.add(Sighting(Sight.READY, live["metadata"]["uid"]))
        elif (
            size
            and len(members) == size
            and not _has_come_up(live)
            # Waiting for a place, a queue or a dead node is no failure of a template, so the
            # start's deadline does not run then (ADR 19).
            and all(_stands(m, silent_nodes) for m in members)
        ):
            found.add(Sighting(Sight.STARTING, live["metadata"]["uid"]))
    return frozenset(found)


def _has_come_up(live: KubernetesObject) -> bool:
    # By the annotation, so that a start is also over for the process after this one.
    return READY_SINCE in (live["metadata"].get("annotations") or {})


def _stands(member: Member, silent_nodes: Collection[str]) -> bool:
    on_a_node = member.node is not None and member.node not in silent_nodes
    return on_a_node and not (member.deleting or member.node_gone)


def since_by_set(since: Mapping[Sighting, datetime], sight: Sight) -> dict[str, datetime]:
    """Return since when each StatefulSet has been in this state, by uid."""
    return {sighting.of: began for sighting, began in since.items() if sighting.sight is sight}


def by_own_clock(
    members: Iterable[Member], since: Mapping[Sighting, datetime], now: datetime
) -> tuple[Member, ...]:
    """Return the pods with waits that begin when this process first saw them."""
    return tuple(_by_own_clock(member, since, now) for member in members)


def _by_own_clock(member: Member, since: Mapping[Sighting, datetime], now: datetime) -> Member:
    if member.unschedulable_since is None and not member.deleting:
        return member
    unschedulable = (
        since.get(Sighting(Sight.UNSCHEDULABLE, member.uid), now)
        if member.unschedulable_since
        else None
    )
    # The grace is a length, so it holds by any clock; the deletionTimestamp is a moment by another.
    ends = since.get(Sighting(Sight.DELETING, member.uid), now) + timedelta(
        seconds=member.grace_seconds
    )
    return replace(
        member, unschedulable_since=unschedulable, gone_by=ends if member.deleting else None
    )


def carried_on(
    since: Mapping[Sighting, datetime], sighted: Iterable[Sighting], now: datetime
) -> dict[Sighting, datetime]:
    """Return since when each of these facts has been seen; new ones since now."""
    return {sighting: since.get(sighting, now) for sighting in sighted}
