"""Since when is something so? Counted from when this process first saw it, by a clock that never
jumps.

Times that others write (of nodes, pods, conditions) come from clocks that may be minutes off:
compared with our own clock, a fresh fact looks long overdue. So a wait begins when it is first
seen, and after a restart it begins anew.
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
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.rendering.bundle import KubernetesObject


class Sight(StrEnum):
    """A kind of fact that is to pass."""

    UNSCHEDULABLE = "Unschedulable"  #: a pod, by uid
    DELETING = "Deleting"  #: a pod, by uid
    UNFIT = "Unfit"  #: a node with a fault, by both
    NO_PODS = "NoPods"  #: a StatefulSet that has fewer pods than it should, by uid
    KEPT_OUT = "KeptOut"  #: a StatefulSet whose pods the API server refuses, by uid
    READY = "Ready"  #: a StatefulSet all of whose pods are ready, by uid
    #: a StatefulSet that has not come up, and whose pods all have nodes that answer, by uid
    STARTING = "Starting"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One fact that may pass, and its object."""

    sight: Sight
    of: str


def of_members(members: Iterable[Member]) -> frozenset[Sighting]:
    """Return a sighting for everything about these pods that may pass."""
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
    """Return the sighting of a planned node's fault. The fault may pass."""
    return Sighting(Sight.UNFIT, f"{item.node} {item.fault}")


def of_sets(observed: Observed, owner_uid: str, kept_out: Iterable[str]) -> frozenset[Sighting]:
    """Return a sighting for everything about an owner's StatefulSets that may pass. ``kept_out``
    are those whose pods were refused, by uid.

    One that has all its pods by now, or that is at zero, is not kept out: facts of then begin anew.
    """
    lives = [
        live
        for (kind, _), live in observed.objects.items()
        if kind == STATEFUL_SET and controller_uid(live) == owner_uid
    ]
    wanted = {live["metadata"]["uid"]: live["spec"].get("replicas") or 0 for live in lives}
    there = Counter(member.set_uid for member in observed.members)
    short = {uid for uid, pods in wanted.items() if there[uid] < pods}
    refused = (Sighting(Sight.KEPT_OUT, uid) for uid in kept_out if uid in short)
    return frozenset((*(Sighting(Sight.NO_PODS, uid) for uid in short), *refused))


def of_starts(
    observed: Observed, owner_uid: str, silent_nodes: Collection[str]
) -> frozenset[Sighting]:
    """Return which StatefulSets of an owner start, and which are ready; one with a pod on no node
    that answers does not start.
    """
    found = set()
    for (kind, name), live in observed.objects.items():
        size = (
            live["spec"].get("replicas")
            if kind == STATEFUL_SET and controller_uid(live) == owner_uid
            else 0
        )
        members = observed.members_of(name) if size else ()
        if size and all_ready(members, size):
            found.add(Sighting(Sight.READY, live["metadata"]["uid"]))
        elif (
            size
            and len(members) == size
            and not _has_come_up(live)
            # Waiting for a place, a queue or a dead node is no failure of a template, so the
            # deadline of a start does not run then (ADR 19).
            and all(_stands(m, silent_nodes) for m in members)
        ):
            found.add(Sighting(Sight.STARTING, live["metadata"]["uid"]))
    return frozenset(found)


def _has_come_up(live: KubernetesObject) -> bool:
    # By the annotation: a start is over once the group was ready, also for the process after this
    # one.
    return READY_SINCE in (live["metadata"].get("annotations") or {})


def _stands(member: Member, silent_nodes: Collection[str]) -> bool:
    return member.node is not None and not member.deleting and member.node not in silent_nodes


def since_by_set(since: Mapping[Sighting, datetime], sight: Sight) -> dict[str, datetime]:
    """Return since when each StatefulSet has been seen so, by uid."""
    return {sighting.of: began for sighting, began in since.items() if sighting.sight is sight}


def by_own_clock(
    members: Iterable[Member], since: Mapping[Sighting, datetime], now: datetime
) -> tuple[Member, ...]:
    """Return the pods with the times at which their waits began as this process has seen them."""
    return tuple(_by_own_clock(member, since, now) for member in members)


def _by_own_clock(member: Member, since: Mapping[Sighting, datetime], now: datetime) -> Member:
    if member.unschedulable_since is None and not member.deleting:
        return member
    unschedulable = (
        since.get(Sighting(Sight.UNSCHEDULABLE, member.uid), now)
        if member.unschedulable_since
        else None
    )
    # The grace is a length, so it holds by any clock; the deletionTimestamp is a moment by another
    # one.
    ends = since.get(Sighting(Sight.DELETING, member.uid), now) + timedelta(
        seconds=member.grace_seconds
    )
    return replace(
        member, unschedulable_since=unschedulable, gone_by=ends if member.deleting else None
    )


def carried_on(
    since: Mapping[Sighting, datetime], sighted: Iterable[Sighting], now: datetime
) -> dict[Sighting, datetime]:
    """Return since when each of these facts has been seen: a new fact since now, a passed one not
    any more.
    """
    return {sighting: since.get(sighting, now) for sighting in sighted}
