"""The life of one group: it starts, rolls and restarts as one, always through zero pods.

A new template is only ever written together with ``replicas: 0``, and ``replicas: n`` only when every pod
is gone, so that no rank meets a peer of another revision or of an earlier start, wherever we are killed.
What is remembered stands in annotations of the StatefulSet (``memory``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final

from shardwright.reconcile.decision import Apply, Create, Delete, Write
from shardwright.reconcile.drift import drifted_fields
from shardwright.reconcile.incidents import (
    TAKEN_GRACEFULLY,
    UNSCHEDULABLE,
    Incident,
    better_known,
    find_failure,
    find_unschedulable,
    new_incident,
)
from shardwright.reconcile.members import Failure, Member
from shardwright.reconcile.memory import Memory, read_memory
from shardwright.rendering.hashing import TEMPLATE_HASH
from shardwright.resolving.intent import RestartPolicy

ROLLOUT: Final = "Rollout"
FAILURE: Final = "Failure"
REQUESTED: Final = "Requested"
START: Final = "Start"
QUEUE_GATES: Final = "kueue.x-k8s.io/"
SCALED_UP: Final = "spec.replicas"
CAUSE: Final = "Cause"
PROBE_FAILS: Final = "runs, but its readiness probe fails"
BROKEN_GRACE_SECONDS: Final = 5  # nobody is served by a broken group


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRules:
    """What the user says of the life of the groups; ``restart_asked`` is the value of the restart annotation, or empty."""

    restart: RestartPolicy = field(default_factory=RestartPolicy)
    max_unavailable: int = 1
    max_surge: int = 0
    restart_asked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """How a group stands. ``situation`` is one word, ``waiting`` says what for in words, ``look_at`` when to look again.

    ``last_failure`` is remembered; ``failing``: it is why the group does not serve, and no change has come since.
    ``budget_spent``: the engine has failed too often in a row. ``outage_seconds`` is how long the last planned or
    unplanned restart took from its stop until all ranks were ready.
    """

    name: str
    ready: bool
    situation: str  # Ready | Starting | Unready | WaitingForQuota | Stopping | BackingOff | Stopped | Outdated
    waiting: str = ""
    restarts: int = 0
    last_failure: Failure | None = None
    failing: bool = False
    look_at: datetime | None = None
    nodes: tuple[str | None, ...] = ()
    budget_spent: bool = False
    outage_seconds: int | None = None

    def settled(self, pods: int) -> bool:
        """Return whether all its pods are bound to nodes and nothing takes it through zero: it needs no place."""
        bound = len(self.nodes) == pods and None not in self.nodes
        return bound and self.situation not in {"Stopping", "BackingOff", "Stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to write for a group now, and how it stands. ``planned``: it ends a service that could go on for now."""

    state: GroupState
    writes: tuple[Write, ...] = ()
    planned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as it is wanted and as it is: the rendered and the live StatefulSet, and its pods in rank order.

    ``former`` is the live StatefulSet of the generation before, where this one is made anew beside it, with its pods.
    """

    rendered: Mapping[str, Any]
    live: Mapping[str, Any] | None
    members: Sequence[Member]
    rules: LifeRules = field(default_factory=LifeRules)
    former: Mapping[str, Any] | None = None
    former_members: Sequence[Member] = ()

    @property
    def name(self) -> str:
        """Return the name of the StatefulSet."""
        return str(self.rendered["metadata"]["name"])

    @property
    def size(self) -> int:
        """Return how many pods it has when it runs."""
        return int(self.rendered["spec"]["replicas"])

    @property
    def memory(self) -> Memory:
        """Return what is remembered of it, also from before it was made anew."""
        return read_memory(self.live or self.former or {})

    @property
    def complete(self) -> bool:
        """Return whether all its pods are ready together, of whatever revision and in whatever number they were made."""
        standing = (self.live or {}).get("spec", {}).get("replicas") or self.size
        return _all_ready(self.members, standing)

    @property
    def served_by(self) -> str | None:
        """Return the former generation that serves in place of this one, None where there is none.

        Where it fails meanwhile it is left to the kubelet and the launcher, which bring its ranks together again.
        """
        return str(self.former["metadata"]["name"]) if self.former and self.former["spec"].get("replicas") else None

    @property
    def former_serves(self) -> bool:
        """Return whether all pods of the former generation are ready."""
        return self.former is not None and _all_ready(self.former_members, self.former["spec"].get("replicas", 0))

    @property
    def asked(self) -> bool:
        """Return whether somebody asks for a restart that it has not had."""
        return self.rules.restart_asked not in ("", self.memory.restarted_for)


def _all_ready(members: Sequence[Member], count: int) -> bool:
    return len(members) == count and all(member.ready and not member.deleting for member in members)


def next_step(group: Group, now: datetime) -> Step:
    """Return the one step that a group needs now; none when all is as it should be."""
    if group.live is None:
        return _create(group)
    if "deletionTimestamp" in group.live["metadata"]:
        return Step(state=_state(group, "Stopping", "the StatefulSet is being deleted"))
    if group.live["spec"].get("replicas") == 0:
        return _leave_zero(group, now)
    if group.memory.stopped_for:
        return _stay_at_zero(group)
    change = ROLLOUT if _must_roll(group) else REQUESTED if group.asked else ""
    if change:
        return _go_to_zero(group, change, group.memory.forgiven(), now)
    failure = _find_failure(group, now) if group.size > 1 else None
    return _fail(group, failure, now) if failure else _keep(group, now)


def _fail(group: Group, failure: Failure, now: datetime) -> Step:
    stable = group.memory.stable(now, group.rules.restart.stable_seconds)
    incident = new_incident(failure, group.members, group.memory.incident, now, stable=stable)
    return _go_to_zero(group, FAILURE, group.memory.with_(incident=incident), now)


def _find_failure(group: Group, now: datetime) -> Failure | None:
    failure = find_failure(group.members, group.size, group.memory.members)
    if failure:
        return failure
    unplaced = find_unschedulable(group.members)
    return unplaced[0] if unplaced and now >= unplaced[1] else None


def _create(group: Group) -> Step:
    if group.members:
        return Step(state=_state(group, "Stopping", "pods of an earlier StatefulSet are still there"))
    memory = group.memory.begun_anew(beside=group.served_by is not None).with_(restarted_for=group.rules.restart_asked)
    intent = _intent(group, memory)
    return Step(state=_state(group, "Starting"), writes=(Create(content=intent),))


def _leave_zero(group: Group, now: datetime) -> Step:
    """Wait until every pod is gone and the back-off is over, then start all of them at once; a change waits for none."""
    memory, policy = group.memory, group.rules.restart
    if group.members:
        return _end(group, now)
    incident = memory.incident
    if _changed_since(group) or not incident:
        memory = memory.forgiven()
    elif incident.spent(policy) and policy.stop_when_spent:
        return Step(state=_state(group, "Stopped", f"its engine has failed {incident.counted} times in a row"))
    elif incident.time <= now < (until := incident.restart_at(policy)):  # a clock that ran ahead holds nothing down
        return Step(state=_state(group, "BackingOff", f"restarts at {until.isoformat()}", look_at=until))
    memory = memory.with_(stopped_for="", restarted_for=group.rules.restart_asked)
    return Step(state=_state(group, "Starting"), writes=_apply(group, _intent(group, memory), (START,)))


def _end(group: Group, now: datetime) -> Step:
    """Wait for the last pods; whose node is found dead meanwhile was the cause."""
    memory = group.memory
    changed = template_hash(group.live or {}) != template_hash(group.rendered)  # is noticed when it starts, as long as it shows
    if memory.stopped_for == FAILURE and memory.incident and not changed:
        memory = memory.with_(incident=better_known(memory.incident, group.members))
    known = memory != group.memory
    writes = _apply(group, _at_zero(_intent(group, memory)), (CAUSE,)) if known else ()
    return Step(state=_state(group, "Stopping", _ending(group, now), memory=memory), writes=(*writes, *_hurried(group)))


def _ending(group: Group, now: datetime) -> str:
    late = [f"rank {m.rank} on node {m.node}" for m in group.members if m.gone_by and now > m.gone_by]
    return "; ".join(("waiting for all pods to be gone", *(f"{rank} should be gone by now" for rank in late[:3])))


def _stay_at_zero(group: Group) -> Step:
    """Carry a stop through that somebody has scaled away: what began it is no second failure."""
    state = _state(group, "Stopping", "was scaled up while it stopped")
    return Step(state=state, writes=_apply(group, _at_zero(_intent(group, group.memory)), (SCALED_UP,)))


def _changed_since(group: Group) -> bool:
    """Return whether a group that failed would not start as it was, or shall all the same."""
    same = group.memory.stopped_for == FAILURE and template_hash(group.live or {}) == template_hash(group.rendered)
    return group.asked or not same


def _hurried(group: Group) -> tuple[Write, ...]:
    """Return what cuts the grace of pods short that serve nobody: not where a pod was only taken, and requests may go on."""
    memory = group.memory
    if memory.stopped_for != FAILURE or (memory.incident and memory.incident.failure.reason in TAKEN_GRACEFULLY):
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


def _go_to_zero(group: Group, why: str, memory: Memory, now: datetime) -> Step:
    asked = group.rules.restart_asked if why == REQUESTED else memory.restarted_for
    stopped = memory.stopped(why, now).with_(restarted_for=asked)
    state = _state(group, "Stopping", "stops as a whole before it starts again", memory=stopped)
    writes = _apply(group, _at_zero(_intent(group, stopped)), (why,))
    return Step(state=state, writes=writes, planned=why != FAILURE and group.complete)


def _keep(group: Group, now: datetime) -> Step:
    """Repair drift that disturbs no pod, and note the pods that are ready together."""
    memory = group.memory.ready(group.members, now) if group.complete else group.memory
    intent = _intent(group, memory)
    drift = drifted_fields(intent, group.live)
    unplaced = find_unschedulable(group.members) if group.size > 1 else None
    state = _state(
        group,
        "Ready" if group.complete else "WaitingForQuota" if _queued(group) else "Unready" if _unready(group) else "Starting",
        "" if group.complete else _what_for(group),
        memory=memory,
        look_at=unplaced[1] if unplaced else None,
    )
    return Step(state=state, writes=_apply(group, intent, drift) if drift else ())


def _queued(group: Group) -> bool:
    """Return whether a queue holds pods of the group back; they wait for it without limit, and hold nothing."""
    return any(gate.startswith(QUEUE_GATES) for member in group.members for gate in member.gates)


def _what_for(group: Group) -> str:
    missing = group.size - len(group.members)
    meanwhile = "serves meanwhile" if group.former_serves else "is not ready either"
    serves = [f"{group.served_by} {meanwhile}"] if group.served_by else []
    if missing > 0:
        return "; ".join((*serves, f"{missing} of {group.size} pods not created yet"))
    waits: dict[str, list[str]] = {}  # what for -> the ranks; who waits for something else than the other ranks comes first
    for member in sorted(group.members, key=lambda m: (UNSCHEDULABLE not in m.waiting, not m.waiting)):
        if not member.ready:
            waits.setdefault(member.waiting or _why_not_ready(member, group), []).append(str(member.rank))
    said = (f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}: {why}" for why, ranks in waits.items())
    return "; ".join((*serves, *islice(said, 3)))


def _why_not_ready(member: Member, group: Group) -> str:
    """Return why a member whose containers wait for nothing is not ready: a follower has started when all ranks have met."""
    if member in _unready(group):
        return PROBE_FAILS
    met = all(other.started or other.ready for other in group.members if other.rank > 0)
    if met or member.started or not member.runs or group.memory.ready_since is not None:
        return "starting"
    return "runs, and has not met all ranks of its group"


def _unready(group: Group) -> list[Member]:
    """Return the members of a group that has been ready whose engines run and are not ready any more."""
    served = group.memory.ready_since is not None
    return [m for m in group.members if served and m.started and not m.ready]


def _intent(group: Group, memory: Memory) -> dict[str, Any]:
    """Return the rendered StatefulSet with what must be remembered: an apply drops what it does not repeat."""
    metadata = group.rendered["metadata"]
    annotations = {**metadata.get("annotations", {}), **memory.annotations()}
    return {**group.rendered, "metadata": {**metadata, "annotations": annotations}}


def _at_zero(intent: Mapping[str, Any]) -> dict[str, Any]:
    return {**intent, "spec": {**intent["spec"], "replicas": 0}}


def _apply(group: Group, intent: Mapping[str, Any], because: tuple[str, ...]) -> tuple[Write, ...]:
    uid = (group.live or {})["metadata"]["uid"]
    return (Apply(content=intent, uid=uid, because=because),)


def outdated(group: Group) -> GroupState:
    """Return how a group stands that serves as it was until it is its turn."""
    return _state(group, "Outdated", "serves as it was until it is its turn")


def _state(
    group: Group, situation: str, waiting: str = "", *, memory: Memory | None = None, look_at: datetime | None = None
) -> GroupState:
    memory = memory or group.memory
    incident: Incident | None = memory.incident
    alone = group.size == 1  # a single pod restarts in place, and the kubelet counts
    failures = [member.failure for member in group.members if member.failure]
    return GroupState(
        name=group.name,
        ready=situation == "Ready",
        situation=situation,
        waiting=waiting,
        restarts=sum(m.restarts for m in group.members) if alone else incident.restarts if incident else 0,
        last_failure=next(iter(failures), None) if alone else incident.failure if incident else None,
        failing=situation != "Ready" and (bool(failures) if alone else _since_failure(memory)),
        look_at=look_at,
        nodes=_nodes(group.members),
        budget_spent=bool(incident and incident.spent(group.rules.restart)),
        outage_seconds=memory.outage_seconds,
    )


def _since_failure(memory: Memory) -> bool:
    """Return whether a failure ended the service that has not come back since, and nobody has changed anything."""
    return memory.stopped_at is not None and memory.incident is not None and memory.incident.attempt > 0


def _nodes(members: Sequence[Member]) -> tuple[str | None, ...]:
    """Return the node of each rank up to the last that has a pod, None where it has none or is not bound."""
    by_rank = {member.rank: member.node for member in members}
    return tuple(by_rank.get(rank) for rank in range(max(by_rank, default=-1) + 1))


def template_hash(stateful_set: Mapping[str, Any]) -> str:
    """Return the template hash that a StatefulSet gives its pods."""
    template = stateful_set.get("spec", {}).get("template", {})
    return str((template.get("metadata", {}).get("labels") or {}).get(TEMPLATE_HASH, ""))
