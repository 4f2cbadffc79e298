"""Which groups may restart on purpose now, so that no more are down at once than allowed?

Which groups keep their pods although others are wanted? Those below the partition, and those
held by a stopped rollout.

Such a group restarts with its own template. Nothing is remembered: which groups they are follows
from the present objects, so a rollout goes on as soon as the group serves that has stopped it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from shardwright.reconcile.annotations import UNSCHEDULABLE_SECONDS, engine_to_blame
from shardwright.reconcile.drift import template_hash
from shardwright.reconcile.group import Group, as_it_stands
from shardwright.reconcile.groups import GroupStep, outdated
from shardwright.reconcile.members import AT_ZERO, UNSCHEDULABLE, Awaited, Failure, GroupState, Wait
from shardwright.reconcile.writes import Why
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import number_of


def turns_left(most: int, beside: int, elsewhere: int) -> int:
    """Return how many groups of a model may be down on purpose, of ``most`` over all models.

    ``beside`` are down in other models of its namespace, ``elsewhere`` in other namespaces. The
    last turn is for a namespace that has none, so that one whose models change all the time holds
    up no other for longer than a restart.
    """
    free = most - beside - elsewhere
    # Without it one namespace whose models change all the time held all turns, and nobody else
    # rolled or moved.
    return max(0, free - 1, min(free, 1 - beside))


def turn_is_gone(left: int | None, counted_on: int, *, goes_down: bool) -> bool:
    """Return whether others have taken a turn that a reconcile relied on before it could take it.

    ``left`` is how many there are (None: any number), ``counted_on`` how many there were when it
    read; one that takes none misses none.
    """
    return left is not None and goes_down and left < counted_on


def one_after_another(
    groups: Sequence[Group],
    steps: Sequence[GroupStep],
    now: datetime,
    max_unavailable: int,
    most_moving: int | None = None,
) -> tuple[GroupStep, ...]:
    """Return the steps without those that would end the service of one group too many.

    ``most_moving`` is how many groups may be down on purpose, whatever ``max_unavailable`` allows
    (None: any number). A group that does not serve may restart at any time; a restarted one is up
    when it has been ready for long enough. If every group that is down waits for nodes that serving
    groups are to leave, all would wait for ever: then one of those restarts beyond the limits, and
    another only if all would wait for ever again.
    """
    turns = max_unavailable - sum(
        not _is_up(group, step, now) for group, step in zip(groups, steps, strict=True)
    )
    if most_moving is not None:
        turns = min(
            turns,
            # Of this model alone: those of others are left out of most_moving already.
            most_moving - sum(step.state.moving and not step.planned for step in steps),
        )
    turns = max(turns, int(max_unavailable > 0 and _is_a_cycle(groups, steps)))
    return tuple(_restrained(groups, steps, now, turns, _in_the_way(groups, steps)))


def _is_up(group: Group, step: GroupStep, now: datetime) -> bool:
    return step.planned or (group.available(now) and step.state.situation not in AT_ZERO)


def _restrained(
    groups: Sequence[Group],
    steps: Sequence[GroupStep],
    now: datetime,
    turns: int,
    first: frozenset[str],
) -> Iterator[GroupStep]:
    # Those in the way of others have the first turns.
    planned = [group.name for group, step in zip(groups, steps, strict=True) if step.planned]
    # The sort is stable: groups that are in nobody's way keep their order.
    chosen = sorted(planned, key=lambda name: name not in first)[: max(0, turns)]
    for group, step in zip(groups, steps, strict=True):
        yield (
            GroupStep(state=outdated(group, now))
            if step.planned and group.name not in chosen
            else step
        )


def _is_a_cycle(groups: Sequence[Group], steps: Sequence[GroupStep]) -> bool:
    down = [(group, step) for group, step in zip(groups, steps, strict=True) if not group.complete]
    held = _held_in_the_way(groups, steps)
    # All of them: while one can start by itself, its nodes come free without a further outage.
    return bool(down) and all(
        step.state.unplaced and not _nodes(group).isdisjoint(held) for group, step in down
    )


def _in_the_way(groups: Sequence[Group], steps: Sequence[GroupStep]) -> frozenset[str]:
    wanted = frozenset(
        node
        for group, step in zip(groups, steps, strict=True)
        if step.state.unplaced
        for node in _nodes(group)
    )
    return frozenset(group.name for group in groups if not wanted.isdisjoint(_to_be_left(group)))


def _held_in_the_way(groups: Sequence[Group], steps: Sequence[GroupStep]) -> frozenset[str]:
    leaving = (group for group, step in zip(groups, steps, strict=True) if step.planned)
    return frozenset(node for group in leaving for node in _to_be_left(group))


def _to_be_left(group: Group) -> frozenset[str]:
    # A pod without a node counts as on the node "", for which no group waits.
    return frozenset(member.node or "" for member in group.members) - _nodes(group)


def _nodes(group: Group) -> frozenset[str]:
    return planned_nodes(group.rendered)


def planned_nodes(stateful_set: KubernetesObject) -> frozenset[str]:
    """Return the nodes that the pods of a rendered group are bound to by name."""
    affinity = stateful_set["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", ()
    )
    fields = (field for term in terms for field in term.get("matchFields", ()))
    return frozenset(node for field in fields for node in field["values"])


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
    # The kubelet counts what it restarts in place.
    if group.in_place:
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
        or any(member.unschedulable_since or member.node_gone for member in group.members)
    ):
        return False
    return group.late(now) or any(map(engine_to_blame, _failures(group)))


def _failures(group: Group) -> Iterator[Failure]:
    wanted = template_hash(group.rendered)
    if (
        not group.in_place or not group.complete
    ):  # a single pod is restarted in place, and remembers the failure for ever
        # If it is taken away, the incident says why.
        alive = (member for member in group.members if not member.deleting)
        told = (
            member
            for member in alive
            if not (group.in_place and member.restarts and not group.restarts_since)
        )
        yield from (
            member.failure for member in told if member.failure and member.template_hash == wanted
        )
    incident = group.remembered.incident
    if not group.in_place and incident and group.remembered.since_failure and not group.complete:
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
