"""Groups that keep the pods that they have although others are wanted: below the partition, and where a rollout has stopped.

Such a group lives on as it is: it restarts with its own template, whatever ends it. Which groups those are follows in every look
from what there is, so nothing is remembered: a rollout goes on as soon as the group serves that has stopped it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from shardwright.reconcile.decision import Why
from shardwright.reconcile.group import Group, as_it_stands
from shardwright.reconcile.incidents import engine_to_blame
from shardwright.reconcile.members import Failure
from shardwright.reconcile.rollout import planned_nodes
from shardwright.reconcile.states import Awaited, Wait
from shardwright.reconcile.templates import template_hash


def held_back(groups: Sequence[Group], now: datetime) -> list[Group]:
    """Return the groups, in order of their indices; those that keep the pods that they have, as they stand."""
    against = next((group.name for group in groups if _speaks_against(group, now)), None)
    return [_held(group, _hold(index, group, against)) for index, group in enumerate(groups)]


def _hold(index: int, group: Group, against: str | None) -> Wait | None:
    if not (_would_change(group) and _can_stay(group)):
        return None
    if index < group.rules.partition:
        return Wait(what=Awaited.PARTITION)
    return Wait(what=Awaited.STOPPED_ROLLOUT, said=against) if against else None


def _held(group: Group, hold: Wait | None) -> Group:
    if hold is None or group.live is None:
        return group
    stands = replace(group, rendered=as_it_stands(group.live, group.size), as_it_is=True, hold=hold)
    return replace(stands, nodes_to_come=None, crowded_out=False) if _is_planned_elsewhere(group) else stands


def _speaks_against(group: Group, now: datetime) -> bool:
    """Return whether a group that has what is wanted does not come up, and not for want of a place or of a node.

    What a lost node, an eviction or the scheduler does to it says nothing of the template.
    """
    if group.live is None or _would_change(group) or any(member.unschedulable_since for member in group.members):
        return False
    return group.late(now) or any(map(engine_to_blame, _failures(group)))


def _failures(group: Group) -> Iterator[Failure]:
    """Yield why a group does not serve, or is about to end: one of several pods never goes on after a failure."""
    wanted = template_hash(group.rendered)
    if group.size > 1 or not group.complete:  # a single pod is restarted in place, and remembers the failure while it serves
        yield from (member.failure for member in group.members if member.failure and member.template_hash == wanted)
    incident = group.memory.incident
    if group.size > 1 and incident and group.memory.since_failure and not group.complete:
        yield incident.failure


def _would_change(group: Group) -> bool:
    """Return whether a group that there is would get other pods now or, where a failure has taken it to zero, when it starts.

    One that is at zero for the sake of the change has left its former pods behind.
    """
    if group.live is None or "deletionTimestamp" in group.live["metadata"]:
        return False
    if group.live["spec"].get("replicas"):
        return group.must_roll
    if group.memory.size is None or group.memory.stopped_for in {"", Why.ROLLOUT}:
        return False
    same = group.asks_the_same and group.rules.keeps_templates
    return not same and template_hash(group.live) != template_hash(group.rendered)


def _can_stay(group: Group) -> bool:
    """Return whether a group can live on where it is: not where it has lost its place and is planned elsewhere by now."""
    if group.complete or not _is_planned_elsewhere(group):
        return True
    incident = group.memory.incident
    taken = incident is not None and group.memory.since_failure and not incident.failure.by_engine
    return not (taken or any(member.unschedulable_since for member in group.members))


def _is_planned_elsewhere(group: Group) -> bool:
    return planned_nodes(group.live or group.rendered) != planned_nodes(group.rendered)
