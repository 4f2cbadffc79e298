"""Which groups keep their pods although others are wanted? Those below the partition, and those
held by a stopped rollout.

Such a group restarts with its own template. Nothing is remembered: which groups they are follows
from the present objects, so a rollout goes on as soon as the group serves that has stopped it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from shardwright.reconcile.group import Group, as_it_stands
from shardwright.reconcile.incidents import UNSCHEDULABLE_SECONDS, engine_to_blame
from shardwright.reconcile.members import UNSCHEDULABLE, Failure
from shardwright.reconcile.rollout import planned_nodes
from shardwright.reconcile.states import Awaited, GroupState, Wait
from shardwright.reconcile.templates import template_hash
from shardwright.reconcile.writes import Why
from shardwright.rendering.names import number_of

_GONE: Final = "a group that is gone"

_WITHOUT_A_PLACE: Final = frozenset(
    {UNSCHEDULABLE, "NodeNotReady", "DeletionByTaintManager", "DeletionByPodGC"}
)
"""Failures after which a group cannot go on where it was. Source: ours, and the reasons of the
condition DisruptionTarget for a node that is silent or gone.
"""


FAILED_STARTS: Final = 3
"""How often in a row the engine of a group must fail before a change is given up. Basis:
assumed; it starts again at once, then after 30 s and 60 s, and what passes by itself (a name
that is not resolved yet, a GPU that is reset) is over by then.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A group that will not come up with the wanted state: its deadline is over (``late``), or its
    engine fails again and again.
    """

    group: str
    late: bool
    failure: Failure | None = None


def rejected(groups: Sequence[Group], now: datetime) -> Rejection | None:
    """Return the first group that will not come up with the wanted state, or None."""
    for group in groups:
        late, incident = group.late(now), group.remembered.incident
        spent = incident is not None and incident.spent(group.rules.restart)
        # It takes more failures than a hold does: a change that is given up is not tried again by
        # itself (ADR 25).
        if _speaks_against(group, now) and (
            late or spent or _starts_failed(group) >= FAILED_STARTS
        ):
            failure = next(_failures(group), incident.failure if incident else None)
            return Rejection(group=group.name, late=late, failure=failure)
    return None


def _starts_failed(group: Group) -> int:
    # The kubelet restarts a single pod in place, so its count is used.
    if group.size == 1:
        return group.restarts_since
    return group.remembered.incident.counted if group.remembered.incident else 0


def held_back(groups: Sequence[Group], now: datetime) -> list[Group]:
    """Return the groups; those that keep their pods as they stand."""
    # One failure is enough: a hold costs only time. It is not remembered, as tenants could write
    # there and somebody would have to take it back (ADR 19).
    against = next(
        (group.name for group in groups if _speaks_against(group, now)),
        _GONE if _is_rejected(groups) else None,
    )
    return [_held(group, _hold(group, against, now)) for group in groups]


def _hold(group: Group, against: str | None, now: datetime) -> Wait | None:
    if not (_would_change(group) and _can_stay(group, now)):
        return None
    if number_of(group.name) < group.rules.partition:
        return Wait(what=Awaited.PARTITION)
    return Wait(what=Awaited.STOPPED_ROLLOUT, said=against) if against else None


def _held(group: Group, hold: Wait | None) -> Group:
    if hold is None or group.live is None:
        return group
    stands = replace(
        # The mechanism that keeps groups alive while a spec is invalid (ADR 19), so a held group
        # restarts with its own template.
        group,
        rendered=as_it_stands(group.live, group.size),
        as_it_is=True,
        hold=hold,
    )
    return (
        # Both are facts of its newly planned nodes, not of those where it stands.
        replace(stands, nodes_in_provisioning=None, crowded_out=False)
        if _is_planned_elsewhere(group)
        else stands
    )


def _is_rejected(groups: Sequence[Group]) -> bool:
    # The plan of record says so: the group itself is gone, and nothing else remembers its request.
    rejected = any(group.rules.rejected for group in groups)
    return rejected and not any(
        group.live and group.complete and not _would_change(group) for group in groups
    )


def is_against(state: GroupState) -> bool:
    """Return whether a group with the wanted pods does not come up, judged by its state."""
    failure = state.last_failure
    return state.late or (state.failing and failure is not None and engine_to_blame(failure))


def _speaks_against(group: Group, now: datetime) -> bool:
    # A lost node, an eviction or the scheduler is no evidence against the template.
    # A group that still has its former pods is no evidence about the wanted ones.
    if (
        group.live is None
        or _would_change(group)
        or any(member.unschedulable_since for member in group.members)
    ):
        return False
    return group.late(now) or any(map(engine_to_blame, _failures(group)))


def _failures(group: Group) -> Iterator[Failure]:
    wanted = template_hash(group.rendered)
    if (
        group.size > 1 or not group.complete
    ):  # a single pod is restarted in place, and remembers the failure for ever
        # If it is taken away, the incident says why.
        alive = (member for member in group.members if not member.deleting)
        told = (
            member
            for member in alive
            if not (group.size == 1 and member.restarts and not group.restarts_since)
        )
        yield from (
            member.failure for member in told if member.failure and member.template_hash == wanted
        )
    incident = group.remembered.incident
    if group.size > 1 and incident and group.remembered.since_failure and not group.complete:
        yield incident.failure


def _would_change(group: Group) -> bool:
    # A group at zero for the sake of the change has left its former pods behind.
    if group.live is None or "deletionTimestamp" in group.live["metadata"]:
        return False
    if group.live["spec"].get("replicas"):
        return group.must_roll
    if group.remembered.size is None or group.remembered.stopped_for in {"", Why.ROLLOUT}:
        return False
    # A group that a failure took to zero starts with the present template: without this each node
    # fault would spread a bad image (ADR 19).
    return not group.template_waits and template_hash(group.live) != template_hash(group.rendered)


def _can_stay(group: Group, now: datetime) -> bool:
    # Kept as it was, a group whose node is gone would wait for that node for ever.
    if group.complete or not _is_planned_elsewhere(group):
        return True
    incident = group.remembered.incident
    no_place = (
        incident is not None
        and group.remembered.since_failure
        and incident.failure.reason in _WITHOUT_A_PLACE
    )
    late = timedelta(seconds=UNSCHEDULABLE_SECONDS)
    return not (
        no_place
        or any(m.unschedulable_since and now - m.unschedulable_since >= late for m in group.members)
    )


def _is_planned_elsewhere(group: Group) -> bool:
    return planned_nodes(group.live or group.rendered) != planned_nodes(group.rendered)
