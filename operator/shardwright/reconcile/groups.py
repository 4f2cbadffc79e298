"""What does one group need next? It starts, rolls and restarts as a whole, always by way of zero
pods; ``members`` has the picture.

A new template is only ever written with ``replicas: 0``, and ``replicas: n`` only when every pod is
gone, so that no rank meets a peer of another revision or start, wherever the operator is killed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from shardwright.reconcile.annotations import (
    HELD_BACK,
    TAKEN_GRACEFULLY,
    GroupAnnotations,
    Incident,
    RestartsBefore,
    better_known,
    changed_annotations,
    find_failure,
    find_unschedulable,
    new_incident,
    why_failed,
)
from shardwright.reconcile.drift import asked_by, drifted_fields, template_hash
from shardwright.reconcile.group import Group, overdue
from shardwright.reconcile.members import (
    AT_ZERO,
    MESSAGE_LENGTH,
    PODS_REFUSED,
    Awaited,
    Failure,
    GroupState,
    Member,
    Situation,
    Wait,
    nodes_of,
)
from shardwright.reconcile.write_cause import WISHED, Origin, WriteCause, fields_named, is_undone
from shardwright.reconcile.writes import Apply, Create, Delete, Patch, Why, Write, asked_first

QUEUE_GATES: Final = "kueue.x-k8s.io/"
QUEUE_TAKES: Final = "WorkloadEvicted"
"""How the reason of TerminationTarget begins on a pod whose whole group gives its quota back:
WorkloadEvictedDueToPreempted. Source: Kueue 0.17 ``pkg/controller/jobframework/interface.go``.
"""

ON_PURPOSE: Final = frozenset({Why.ROLLOUT, Why.REQUESTED})
"""Reasons to stop a group that could have gone on."""

# A patch cannot bring a new template, so none of these writes can start pods of another one.
PATCHED: Final = frozenset({Why.FAILURE, Why.CAUSE, Why.STOP_AGAIN, Why.NOTE})
"""Reasons to write a StatefulSet that serves nobody any more, or whose pods stay as they are."""

ASKED_FOR: Final = WriteCause(Origin.WISH, "metadata.annotations.shardwright.io/restart")
ITS_PODS: Final = WriteCause(Origin.WORLD, "its pods")

BROKEN_GRACE_SECONDS: Final = 5  # a broken group serves nobody
REFUSED_SECONDS: Final = 300
"""How long a group holds GPUs while its pods are refused. Basis: assumed, as for one that the
scheduler finds no place for.
"""

SHOWN_LATE: Final = 3
"""How many pods that should be gone are named; assumed: each node of them is to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """The write that a group needs now, and its state; ``planned``: it ends service on purpose."""

    state: GroupState
    writes: tuple[Write, ...] = ()
    planned: bool = False


def next_step(group: Group, now: datetime) -> GroupStep:
    """Return the one step that a group needs now; no writes when all is as it should be."""
    if group.live is None:
        return _create(group, now)
    if "deletionTimestamp" in group.live["metadata"]:
        return GroupStep(state=_state(group, Situation.STOPPING, Wait(what=Awaited.DELETION)))
    # Before everything that asks about pods: at zero they are on their way out in any case.
    if group.live["spec"].get("replicas") == 0:
        return _leave_zero(group, now)
    # Somebody has scaled it up while we were stopping it: the stop comes first.
    if group.remembered.stopped_for:
        return _stay_at_zero(group)
    # A change goes before a failure, and forgives: failures of the replaced pods say nothing about
    # the new ones.
    change = Why.ROLLOUT if group.must_roll else Why.REQUESTED if group.asked else None
    # In a group gated by a queue nothing has begun that could restart.
    if change and not (change is Why.REQUESTED and _held_back(group)):
        return _go_to_zero(group, change, group.remembered.forgiven(), now)
    # Last of all: a group is stopped for a failure only where nobody wants it to stop anyway.
    failure = _failure(group, now)
    return _fail(group, failure, now) if failure else _keep(group, now)


def _failure(group: Group, now: datetime) -> Failure | None:
    # Kueue ends a group's pods one by one: counted as failures, a preemption would use up the
    # restart budget.
    if _held_back(group) or _is_taken_whole(group, now):
        return None
    return _refused(group, now) or (None if group.in_place else _find_failure(group, now))


def _held_back(group: Group) -> bool:
    return bool(group.members) and all(map(_is_gated, group.members))


def _is_gated(member: Member) -> bool:
    return any(gate.startswith(QUEUE_GATES) for gate in member.gates)


def _is_taken_whole(group: Group, now: datetime) -> bool:
    return any(
        member.deleting and member.taken_by.startswith(QUEUE_TAKES) and not overdue(member, now)
        for member in group.members
    )


def _fail(group: Group, failure: Failure, now: datetime) -> GroupStep:
    stable = group.remembered.stable(now, group.rules.restart.stable_seconds)
    incident = new_incident(failure, group.members, group.remembered.incident, now, stable=stable)
    return _go_to_zero(group, Why.FAILURE, group.remembered.with_(incident=incident), now)


def _find_failure(group: Group, now: datetime) -> Failure | None:
    failure = find_failure(group.members, group.size, group.remembered.members)
    # A failed rank says more than one without a place, which may only wait for the former's GPUs.
    if failure:
        return failure
    unplaced = find_unschedulable(
        group.members, nodes_in_provisioning=group.nodes_in_provisioning is not None
    )
    return unplaced[0] if unplaced and now >= unplaced[1] else None


def _refused(group: Group, now: datetime) -> Failure | None:
    # A group that never came to run gives its GPUs back.
    kept_out = group.kept_out
    if (
        kept_out is None
        # Existing pods may serve; a refusal is about those still to be made.
        or group.complete
        or now < kept_out.since + timedelta(seconds=REFUSED_SECONDS)
    ):
        return None
    missing = min({*range(group.size)} - {member.rank for member in group.members}, default=0)
    return Failure(rank=missing, reason=PODS_REFUSED, message=kept_out.said[-MESSAGE_LENGTH:])


def _create(group: Group, now: datetime) -> GroupStep:
    # A new StatefulSet adopts pods of its name: ranks of an earlier start would meet new ones.
    if group.members:
        return GroupStep(state=_state(group, Situation.STOPPING, Wait(what=Awaited.EARLIER_PODS)))
    anew = group.remembered.begun_anew(beside=group.former_serves)
    if group.served_by and not group.former_serves:
        anew = anew.with_(stopped_at=anew.stopped_at or now.replace(microsecond=0))
    intent = _intent(group, _started(group, anew))
    return GroupStep(state=_state(group, Situation.STARTING), writes=(Create(content=intent),))


def _leave_zero(group: Group, now: datetime) -> GroupStep:
    # Also a pod that hangs on a dead node: its rank could come back and meet the new group.
    if group.members:
        return _end(group, now)
    remembered, incident = group.remembered, group.remembered.incident
    if _changed_since(group) or not incident:
        # The failures were those of other pods, so the backoff begins anew.
        remembered = remembered.forgiven()
    elif state := _kept_at_zero(group, incident, now):
        return GroupStep(state=state)
    # A dry run of one pod asks first, so that the group does not start in vain again.
    refused = (
        remembered.incident
        and remembered.incident.attempt
        and remembered.incident.failure.reason == PODS_REFUSED
    )
    (start,) = _write(
        group,
        _started(group, remembered.with_(stopped_for="")),
        Why.START,
        WriteCause(Origin.WAIT, "no pod of the former start is left, and no pause runs"),
        replicas=group.size,
    )
    return GroupStep(
        state=_state(group, Situation.STARTING),
        writes=asked_first(group.rendered, start) if refused else (start,),
    )


def _kept_at_zero(group: Group, incident: Incident, now: datetime) -> GroupState | None:
    policy = group.rules.restart
    if incident.spent(policy) and policy.stop_when_spent:
        wait = Wait(what=Awaited.CHANGE, said=str(incident.counted))
        return _state(group, Situation.STOPPED, wait)
    # Before the backoff: a start would only make pods that cannot be scheduled.
    if group.crowded_out:
        return _state(group, Situation.BACKING_OFF, Wait(what=Awaited.ROOM))
    until = incident.restart_at(policy)
    # A clock that ran ahead holds nothing down.
    if incident.time <= now < until:
        pause = Wait(what=Awaited.PAUSE, said=until.isoformat())
        return _state(group, Situation.BACKING_OFF, pause, look_at=until)
    if group.kept_out:
        wait = Wait(what=Awaited.PODS_CREATED, said=f"all {group.size}")
        return _state(group, Situation.BACKING_OFF, wait)
    return None


def _started(group: Group, remembered: GroupAnnotations) -> GroupAnnotations:
    rules = group.rules
    before = (
        # The new pod begins at zero restarts: those of its predecessor must not be subtracted.
        RestartsBefore(revision=rules.revision)
        if group.in_place and rules.revision and not group.as_it_is
        else None
    )
    # One that cannot become the rendered one starts as it was.
    made_for = group.live if group.is_made_anew and group.live else group.rendered
    asked = asked_by(made_for)
    return remembered.with_(
        restarted_for=rules.restart_asked, asked=asked, pending=(), restarts_before=before
    )


def _end(group: Group, now: datetime) -> GroupStep:
    # If the node of a last pod is found dead meanwhile, that was the cause.
    remembered = group.remembered
    changed = _changed(group)  # is noticed when it starts, as long as it shows
    if remembered.stopped_for == Why.FAILURE and remembered.incident and not changed:
        remembered = remembered.with_(incident=better_known(remembered.incident, group.members))
    known = remembered != group.remembered
    cause = why_failed(remembered.incident.failure) if remembered.incident else WISHED
    writes = _write(group, remembered, Why.CAUSE, cause, replicas=0) if known else ()
    state = _state(
        group,
        Situation.STOPPING,
        Wait(what=Awaited.PODS_GONE),
        *_late(group, now),
        remembered=remembered,
    )
    return GroupStep(state=state, writes=(*writes, *_hurried(group)))


def _late(group: Group, now: datetime) -> Iterator[Wait]:
    late = [m for m in group.members if m.gone_by and now > m.gone_by]
    yield from (
        Wait(what=Awaited.LATE_POD, ranks=(m.rank,), said=str(m.node)) for m in late[:SHOWN_LATE]
    )


def _stay_at_zero(group: Group) -> GroupStep:
    # Somebody scaled it up: the cause of the stop is no second failure.
    state = _state(group, Situation.STOPPING, Wait(what=Awaited.STOP_AGAIN))
    cause = WriteCause(Origin.UNDONE, "spec.replicas")
    return GroupStep(
        state=state, writes=_write(group, group.remembered, Why.STOP_AGAIN, cause, replicas=0)
    )


def _changed_since(group: Group) -> bool:
    return group.asked or group.remembered.stopped_for != Why.FAILURE or _changed(group)


def _changed(group: Group) -> bool:
    # By more than another release's rendering.
    return not group.asks_the_same and template_hash(group.live or {}) != template_hash(
        group.rendered
    )


def _hurried(group: Group) -> tuple[Write, ...]:
    # Cut the grace of pods that serve nobody. One that was only taken keeps it: requests may go on.
    remembered, incident = group.remembered, group.remembered.incident
    if remembered.stopped_for != Why.FAILURE or (
        incident and incident.failure.reason in TAKEN_GRACEFULLY
    ):
        return ()
    cause = why_failed(incident.failure) if incident else WISHED
    namespace = group.rendered["metadata"]["namespace"]
    return tuple(
        Delete(
            kind="Pod",
            namespace=namespace,
            name=m.name,
            uid=m.uid,
            grace_seconds=BROKEN_GRACE_SECONDS,
            cause=cause,
        )
        # Also for pods that are ending: a second deletion with a shorter grace cuts it short.
        for m in group.members
        # deletionGracePeriodSeconds is set while a pod ends; an already short one needs no request.
        if m.grace_seconds > BROKEN_GRACE_SECONDS
    )


def _go_to_zero(group: Group, why: Why, remembered: GroupAnnotations, now: datetime) -> GroupStep:
    asked = group.rules.restart_asked if why is Why.REQUESTED else remembered.restarted_for
    stopped = remembered.stopped(why, group.size, now).with_(restarted_for=asked)
    if why is Why.ROLLOUT and not group.is_made_anew:
        # Written with the template: whoever starts the group, its pods are of this request.
        stopped = stopped.with_(asked=asked_by(group.rendered), pending=())
    # Kueue 0.17 loses sight of a StatefulSet whose pods never ran and go at once, so its next
    # generation takes over from here.
    if _held_back(group):
        stopped = stopped.with_(stopped_for=HELD_BACK)
    state = _state(group, Situation.STOPPING, Wait(what=Awaited.STOP), remembered=stopped)
    return GroupStep(
        state=state,
        writes=_write(group, stopped, why, _why_stopped(why, stopped), replicas=0),
        planned=why in ON_PURPOSE and group.complete,
    )


def _why_stopped(why: Why, stopped: GroupAnnotations) -> WriteCause:
    if why is Why.FAILURE and stopped.incident:
        return why_failed(stopped.incident.failure)
    # What is wanted otherwise is looked for only of a group whose turn has come.
    return ASKED_FOR if why is Why.REQUESTED else WISHED


def _keep(group: Group, now: datetime) -> GroupStep:
    remembered = group.remembered
    # By these uids a pod that is replaced later is noticed.
    if group.complete:
        remembered = remembered.ready(group.members, now)
    elif _held_back(group):
        asked = group.rules.restart_asked
        remembered = remembered.held_back(now).with_(restarted_for=asked)
    state = _standing(group, remembered, now)
    if group.outdated and len(group.members) < group.size == (group.live or {})["spec"].get(
        "replicas"
    ):
        # The StatefulSet makes missing pods of the template that it has: nothing differs yet.
        drift: tuple[str, ...] = ()
    else:
        remembered = remembered.with_(
            pending=group.pending,
            asked=_found_asked(group),
            restarts_before=group.restarts_before(now),
        )
        # With the memory as it is: a new memory alone is no drift, and is written as a patch.
        drift = drifted_fields(_intent(group, group.remembered), group.live)
    if drift:
        undone = is_undone(group.rendered, group.live or {}, drift)
        cause = WriteCause(Origin.UNDONE, fields_named(drift)) if undone else WISHED
        (write,) = _write(group, remembered, Why.DRIFT, cause)
        repair = replace(write, fields=drift) if isinstance(write, Apply) else write
        return GroupStep(state=state, writes=(repair,))
    noted = remembered != group.remembered
    return GroupStep(
        state=state, writes=_write(group, remembered, Why.NOTE, ITS_PODS) if noted else ()
    )


def _found_asked(group: Group) -> str:
    return (
        group.remembered.asked
        # A group without pods keeps its mark: nobody can tell for which request its next pods will
        # be made.
        if group.outdated or not group.members
        else asked_by(group.rendered)
    )


def _standing(group: Group, remembered: GroupAnnotations, now: datetime) -> GroupState:
    if group.complete:
        stopped = (group.hold,) if group.hold and group.hold.what is Awaited.STOPPED_ROLLOUT else ()
        ready = _state(
            group,
            Situation.READY,
            *stopped,
            remembered=remembered,
            look_at=_comes_of_age(group, now),
        )
        return replace(ready, available=group.available(now))
    situation = Situation.STARTING
    if _queued(group):
        situation = Situation.WAITING_FOR_QUOTA
    elif _unready(group):
        situation = Situation.UNREADY
    seeks = group.nodes_in_provisioning is not None
    unplaced = (
        find_unschedulable(group.members, nodes_in_provisioning=seeks) if group.size > 1 else None
    )
    look_at = unplaced[1] if unplaced else None
    return _state(
        group,
        situation,
        *_overdue(group, now),
        *_waits(group),
        remembered=remembered,
        look_at=look_at,
    )


def _comes_of_age(group: Group, now: datetime) -> datetime | None:
    # Available or stable.
    times = (None if group.available(now) else group.available_at(now), group.forgets_restarts_at())
    return min((at for at in times if at and at > now), default=None)


def _overdue(group: Group, now: datetime) -> Iterator[Wait]:
    if group.late(now):
        yield Wait(what=Awaited.OVERDUE, said=str(group.rules.progress_deadline_seconds))


def _queued(group: Group) -> bool:
    return any(map(_is_gated, group.members))


def _waits(group: Group) -> Iterator[Wait]:
    """Yield why a group waits; reasons of only some ranks come first."""
    if group.served_by:
        yield Wait(
            what=Awaited.FORMER if group.former_serves else Awaited.FORMER_TOO, said=group.served_by
        )
    if group.nodes_in_provisioning:
        yield group.nodes_in_provisioning
    if group.crowded_out and not any(member.node for member in group.members):
        yield Wait(what=Awaited.ROOM)
    missing = group.size - len(group.members)
    if missing > 0:
        yield Wait(what=Awaited.PODS_CREATED, said=f"{missing} of {group.size}")
        # While some ranks do not exist, it says nothing that the others wait for each other.
        return
    ranks: dict[tuple[Awaited, str], list[int]] = {}
    for member in sorted(
        group.members, key=lambda m: (m.unschedulable_since is None, not m.waiting)
    ):
        if not member.ready:
            ranks.setdefault(_awaited(member, group), []).append(member.rank)
    yield from (
        Wait(what=what, ranks=tuple(whose), said=said) for (what, said), whose in ranks.items()
    )


def _awaited(member: Member, group: Group) -> tuple[Awaited, str]:
    if member.node_gone:
        return Awaited.NODE_GONE, str(member.node)
    if member.waiting:
        return Awaited.POD, member.waiting
    return _why_not_ready(member, group), ""


def _why_not_ready(member: Member, group: Group) -> Awaited:
    # A follower has started when all ranks have met.
    if member in _unready(group):
        return Awaited.PROBE
    met = all(other.started or other.ready for other in group.members if other.rank > 0)
    if met or member.started or not member.runs or group.remembered.ready_since is not None:
        return Awaited.START
    return Awaited.PEERS


def _unready(group: Group) -> list[Member]:
    served = group.remembered.ready_since is not None
    return [m for m in group.members if served and m.started and not m.ready]


def _intent(group: Group, remembered: GroupAnnotations) -> dict[str, Any]:
    # An apply drops everything that it does not repeat.
    metadata = group.rendered["metadata"]
    annotations = {**metadata.get("annotations", {}), **remembered.annotations()}
    return {**group.rendered, "metadata": {**metadata, "annotations": annotations}}


def _write(
    group: Group,
    remembered: GroupAnnotations,
    why: Why,
    cause: WriteCause,
    *,
    replicas: int | None = None,
) -> tuple[Apply | Patch]:
    """Return the write of a StatefulSet's memory and number of pods (None: unchanged).

    A patch is one request, an apply up to three, so a broken group is emptied by a patch; the start
    applies the rendered set. A group that serves goes to zero with its next template in the same
    write, so that a refusal takes none down; one to be replaced by its next generation takes no
    template.
    """
    metadata = (group.live or {})["metadata"]
    if group.as_it_is or why in PATCHED or group.is_made_anew:
        changed = changed_annotations(group.remembered, remembered)
        where = {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        }
        return (Patch(**where, annotations=changed, why=why, replicas=replicas, cause=cause),)
    intent = _intent(group, remembered)
    content = (
        intent if replicas is None else {**intent, "spec": {**intent["spec"], "replicas": replicas}}
    )
    # Template and replicas: 0 in one request: an operator killed between two would leave a new
    # template under running pods.
    return (Apply(content=content, uid=metadata["uid"], why=why, cause=cause),)


def outdated(group: Group, now: datetime) -> GroupState:
    """Return the state of a group that serves as it was until its turn comes."""
    return _state(
        group,
        Situation.OUTDATED,
        group.hold or Wait(what=Awaited.TURN),
        look_at=_comes_of_age(group, now),
    )


def _state(
    group: Group,
    situation: Situation,
    *waits: Wait,
    remembered: GroupAnnotations | None = None,
    look_at: datetime | None = None,
) -> GroupState:
    remembered = remembered or group.remembered
    incident: Incident | None = remembered.incident
    restarts, failure = _past(group, incident)
    return GroupState(
        name=group.name,
        # One that this very reconcile stops serves no more.
        serves=(group.complete and situation not in AT_ZERO) or group.former_serves,
        # Nobody can tell of one that is kept as it stands.
        updated=situation is Situation.READY and not group.as_it_is,
        situation=situation,
        waits=waits,
        unplaced=frozenset(member.rank for member in group.members if member.unschedulable_since),
        restarts=restarts,
        last_failure=failure,
        failing=situation is not Situation.READY
        and (failure is not None if group.in_place else remembered.since_failure),
        look_at=look_at,
        nodes=nodes_of(group.members),
        budget_spent=bool(incident and incident.spent(group.rules.restart)),
        outage_seconds=remembered.outage_seconds,
        # A group whose former generation serves is down for nobody, so it takes no turn from
        # others.
        moving=situation is not Situation.READY
        and not group.former_serves
        and _on_the_move(remembered, situation),
        pending=group.pending,
        unguarded=group.unguarded,
        rerendered=bool(group.pending) and group.of_another_release,
        hold=group.hold,
    )


def _past(group: Group, incident: Incident | None) -> tuple[int, Failure | None]:
    # The kubelet counts what it restarts in place.
    if group.in_place:
        # A former end is not why a pod whose node is gone does not serve.
        failures = (m.failure for m in group.members if m.failure and not m.node_gone)
        refused = incident.failure if incident and not group.complete else None
        return sum(member.restarts for member in group.members), next(failures, refused)
    return (incident.restarts, incident.failure) if incident else (0, None)


def _on_the_move(remembered: GroupAnnotations, situation: Situation) -> bool:
    # Down because we stopped it on purpose, and not ready again yet.
    if situation in AT_ZERO:
        return remembered.stopped_for in ON_PURPOSE
    return remembered.stopped_at is not None and not remembered.since_failure
