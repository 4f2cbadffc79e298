"""The life of one group: it starts, rolls and restarts as one, always through zero pods.

A new template is only ever written together with ``replicas: 0``, and ``replicas: n`` only when every pod
is gone, so that no rank meets a peer of another revision or of an earlier start, wherever we are killed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shardwright.reconcile.decision import Apply, Create, Delete, Write
from shardwright.reconcile.drift import drifted_fields
from shardwright.reconcile.incidents import (
    INCIDENT,
    MEMBERS,
    Incident,
    encode_incident,
    find_failure,
    members_value,
    new_incident,
    read_incident,
)
from shardwright.reconcile.members import Failure, Member
from shardwright.rendering.hashing import TEMPLATE_HASH

READY_ONCE: Final = "shardwright.io/ready-once"  # the disruption budget counts groups that have been ready
STOPPED_FOR: Final = "shardwright.io/stopped-for"
ROLLOUT: Final = "Rollout"
FAILURE: Final = "Failure"
START: Final = "Start"
BROKEN_GRACE_SECONDS: Final = 5  # nobody is served by a broken group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """How a group stands. ``situation`` is one word, ``waiting`` says what for in words."""

    name: str
    ready: bool
    situation: str  # Ready | Starting | Stopping | BackingOff
    waiting: str = ""
    restarts: int = 0
    last_failure: Failure | None = None
    restart_at: datetime | None = None
    nodes: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to write for a group now, and how it stands."""

    state: GroupState
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as it is wanted and as it is: the rendered and the live StatefulSet, and its pods in rank order."""

    rendered: Mapping[str, Any]
    live: Mapping[str, Any] | None
    members: Sequence[Member]

    @property
    def name(self) -> str:
        """Return the name of the StatefulSet."""
        return str(self.rendered["metadata"]["name"])

    @property
    def size(self) -> int:
        """Return how many pods it has when it runs."""
        return int(self.rendered["spec"]["replicas"])

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the live annotations."""
        return (self.live or {}).get("metadata", {}).get("annotations") or {}

    @property
    def incident(self) -> Incident | None:
        """Return the last incident."""
        return read_incident(self.annotations)


def next_step(group: Group, now: datetime) -> Step:
    """Return the one step that a group needs now; none when all is as it should be."""
    if group.live is None:
        return _create(group)
    if "deletionTimestamp" in group.live["metadata"]:
        return Step(state=_state(group, "Stopping", "the StatefulSet is being deleted"))
    if group.live["spec"].get("replicas") == 0:
        return _leave_zero(group, now)
    if _must_roll(group):
        return _go_to_zero(group, ROLLOUT, group.incident)
    failure = find_failure(group.members, group.size, group.annotations.get(MEMBERS, "")) if group.size > 1 else None
    if failure:
        return _go_to_zero(group, FAILURE, new_incident(failure, group.members, group.incident, now))
    return _keep(group)


def _create(group: Group) -> Step:
    if group.members:
        return Step(state=_state(group, "Stopping", "pods of an earlier StatefulSet are still there"))
    return Step(state=_state(group, "Starting"), writes=(Create(content=group.rendered),))


def _leave_zero(group: Group, now: datetime) -> Step:
    """Wait until every pod is gone and the back-off is over, then start all of them at once; a new template waits for none."""
    if group.members:
        return Step(state=_state(group, "Stopping", "waiting for all pods to be gone"), writes=_hurried(group))
    incident = group.incident
    if incident and _same_again(group) and now < incident.restart_at():
        return Step(state=_state(group, "BackingOff", f"restarts at {incident.restart_at().isoformat()}"))
    return Step(state=_state(group, "Starting"), writes=_apply(group, _intent(group, incident), (START,)))


def _same_again(group: Group) -> bool:
    """Return whether a group that failed would start as it was: what has been changed since may be the cure."""
    return group.annotations.get(STOPPED_FOR) == FAILURE and template_hash(group.live or {}) == template_hash(group.rendered)


def _hurried(group: Group) -> tuple[Write, ...]:
    if group.annotations.get(STOPPED_FOR) != FAILURE:
        return ()
    namespace = group.rendered["metadata"]["namespace"]
    return tuple(
        Delete(kind="Pod", namespace=namespace, name=m.name, uid=m.uid, grace_seconds=BROKEN_GRACE_SECONDS)
        for m in group.members
        if m.grace_seconds > BROKEN_GRACE_SECONDS
    )


def _must_roll(group: Group) -> bool:
    """Return whether pods are of another revision, or would be: pods are never compared with updateRevision."""
    wanted = template_hash(group.rendered)
    if group.members:
        return any(member.template_hash != wanted for member in group.members)
    return template_hash(group.live or {}) != wanted


def _go_to_zero(group: Group, why: str, incident: Incident | None) -> Step:
    intent = _intent(group, incident, {STOPPED_FOR: why})
    intent = {**intent, "spec": {**intent["spec"], "replicas": 0}}
    state = _state(group, "Stopping", "stops as a whole before it starts again", incident)
    return Step(state=state, writes=_apply(group, intent, (why,)))


def _keep(group: Group) -> Step:
    """Repair drift that disturbs no pod, and note the pods that are ready together."""
    ready = len(group.members) == group.size and all(m.ready and not m.deleting for m in group.members)
    known = members_value(group.members) if ready else group.annotations.get(MEMBERS, "")
    intent = _intent(group, group.incident, _notes(known, ready=ready))
    drift = drifted_fields(intent, group.live)
    waiting = "" if ready else _what_for(group)
    state = _state(group, "Ready" if ready else "Starting", waiting)
    return Step(state=state, writes=_apply(group, intent, drift) if drift else ())


def _notes(known: str, *, ready: bool) -> dict[str, str]:
    return {**({MEMBERS: known} if known else {}), **({READY_ONCE: "true"} if ready else {})}


def _what_for(group: Group) -> str:
    missing = group.size - len(group.members)
    if missing > 0:
        return f"{missing} of {group.size} pods not created yet"
    waits = [f"rank {m.rank}: {m.waiting or 'starting'}" for m in group.members if not m.ready]
    return "; ".join(waits[:3])


def _intent(group: Group, incident: Incident | None, notes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the rendered StatefulSet with what must be remembered: an apply drops what it does not repeat."""
    metadata = group.rendered["metadata"]
    memory = {INCIDENT: encode_incident(incident)} if incident else {}
    memory |= {READY_ONCE: "true"} if READY_ONCE in group.annotations else {}
    annotations = {**metadata.get("annotations", {}), **memory, **(notes or {})}
    return {**group.rendered, "metadata": {**metadata, "annotations": annotations}}


def _apply(group: Group, intent: Mapping[str, Any], because: tuple[str, ...]) -> tuple[Write, ...]:
    uid = (group.live or {})["metadata"]["uid"]
    return (Apply(content=intent, uid=uid, because=because),)


def _state(group: Group, situation: str, waiting: str = "", incident: Incident | None = None) -> GroupState:
    incident = incident or group.incident
    alone = group.size == 1  # a single pod restarts in place, and the kubelet counts
    failures = [member.failure for member in group.members if member.failure]
    return GroupState(
        name=group.name,
        ready=situation == "Ready",
        situation=situation,
        waiting=waiting,
        restarts=sum(m.restarts for m in group.members) if alone else incident.restarts if incident else 0,
        last_failure=next(iter(failures), None) if alone else incident.failure if incident else None,
        restart_at=incident.restart_at() if incident and situation == "BackingOff" else None,
        nodes=_nodes(group.members),
    )


def _nodes(members: Sequence[Member]) -> tuple[str | None, ...]:
    """Return the node of each rank up to the last that has a pod, None where it has none or is not bound."""
    by_rank = {member.rank: member.node for member in members}
    return tuple(by_rank.get(rank) for rank in range(max(by_rank, default=-1) + 1))


def template_hash(stateful_set: Mapping[str, Any]) -> str:
    """Return the template hash that a StatefulSet gives its pods."""
    template = stateful_set.get("spec", {}).get("template", {})
    return str((template.get("metadata", {}).get("labels") or {}).get(TEMPLATE_HASH, ""))
