"""What does a group remember, and where? In annotations on its StatefulSet, and nowhere else:
status is never read back, so killing the operator between any two writes loses nothing. Every apply
repeats all of them, for it drops what it does not repeat.

Why must a group of several pods restart as one, and how is that remembered? In one annotation of
the StatefulSet, written together with ``replicas: 0``: container counts and pod status vanish at
zero, and status is never read back.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from shardwright.reconcile.drift import PENDING_MAX, asked_by
from shardwright.reconcile.members import (
    LONGEST_REASON,
    MESSAGE_LENGTH,
    PODS_REFUSED,
    RANKS_MAX,
    UNSCHEDULABLE,
    Failure,
    Member,
)
from shardwright.reconcile.write_cause import Origin, WriteCause
from shardwright.rendering.bundle import ASKED_HASH, KubernetesObject
from shardwright.rendering.scripts import GROUP_ENDED_EXIT_CODE
from shardwright.resolving.intent import RestartPolicy

INCIDENT: Final = "shardwright.io/incident"
MEMBERS: Final = "shardwright.io/members"

INCIDENT_LENGTH: Final = 16_384
"""Characters that are read of the annotation; a longer one is cut, and so no JSON any more.
Basis: a message of ``MESSAGE_LENGTH`` takes six times as many if every character is escaped.
"""

LONGEST_ID: Final = 64
NAME_LENGTH: Final = 253
COUNT_MAX: Final = 2**31 - 1
EXIT_CODES: Final = 2**31
"""Bounds of what the status shows. Source: ``api/published.py``."""

YEARS: Final = (2000, 2200)
"""Bounds of a time that an operator may have written. Basis: assumed; far from overflow when
added to.
"""

CONTAINER_LOST: Final = frozenset({"Unknown", "ContainerStatusUnknown"})
"""Reasons of a container that nobody saw end: its node was restarted. Source: containerd (exit
code 255), the kubelet (137).
"""

TAKEN_GRACEFULLY: Final = frozenset(
    {"PodDeleted", "EvictionByEvictionAPI", "PreemptionByScheduler"}
)
"""Reasons of a pod that ends but still runs and drains: its leader goes on answering. Source:
condition DisruptionTarget, and ours.
"""

TAKEN: Final = TAKEN_GRACEFULLY | {
    "PodLost",
    "DeletionByTaintManager",
    "DeletionByPodGC",
    "TerminationByKubelet",
}
"""Reasons of a pod that somebody has taken away, which is no failure of its group. Source: the
condition DisruptionTarget of Kubernetes 1.36, which a Job's pod failure policy may leave out, too;
and ours.
"""

UNSCHEDULABLE_SECONDS: Final = 300
"""How long a group holds GPUs while a rank of it finds no place. Basis: assumed."""

NODES_COME_SECONDS: Final = 1200
"""The same while an autoscaler makes nodes for it. Basis: assumed; Karpenter and cluster-autoscaler
give a node up that has not registered within 15 minutes, and its GPU driver takes a few more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One failure of a group that restarts it as a whole.

    ``restarts`` counts them all, ``attempt`` the failures in a row, ``counted`` those of the row
    that are the engine's fault. Of pods that were only taken away the first is an attempt, so that
    there is one, and no other.
    """

    id: str
    restarts: int
    attempt: int
    time: datetime
    failure: Failure
    counted: int = 0

    def restart_at(self, policy: RestartPolicy) -> datetime:
        """Return when the group may start again."""
        return self.time + timedelta(seconds=self._pause(policy))

    def _pause(self, policy: RestartPolicy) -> int:
        if self.spent(policy):
            return policy.max_delay_seconds
        if self.failure.reason in TAKEN:
            return 0
        # These hold unchanged, so the first one pauses already.
        pauses = (
            self.attempt
            if self.failure.reason in {UNSCHEDULABLE, PODS_REFUSED}
            else self.attempt - 1
        )
        return (
            min(
                policy.max_delay_seconds,
                # Bounded, as the count is read from an annotation: 2 ** 2147483647 would take all
                # memory.
                policy.delay_seconds * 2 ** min(pauses - 1, 20),
            )
            if pauses > 0
            else 0
        )

    def spent(self, policy: RestartPolicy) -> bool:
        """Return whether the engine has failed more often in a row than the budget allows."""
        return self.counted > policy.budget

    def forgiven(self) -> "Incident":
        """Return the incident after a change by the user: the row of failures starts anew."""
        return replace(self, attempt=0, counted=0)


def find_failure(members: Sequence[Member], expected: int, known: str) -> Failure | None:
    """Return why these pods are no longer one NCCL world, or None if they are or may become one.

    An action on a pod comes before the end of an engine, and that before a rank that ended because
    of another. ``known`` is the members annotation: the uids of the pods that were ready together,
    or empty.
    """
    found = min((*_ended(members), *_lost(members, expected, known)), key=_how_remote, default=None)
    # A rank whose peer is silent ends first, and says so. The node is the cause.
    return found and (_behind(found, members) or found)


def _behind(failure: Failure, members: Sequence[Member]) -> Failure | None:
    # A silent node is no failure by itself, and an eviction or a deletion counts whether it answers
    # or not. The engine's own words come first: the node may have been silent only for a moment.
    silent = (
        member
        for member in members
        if member.node and not member.node_answers and member.rank != failure.rank
    )
    member = next(silent, None)
    # A pod that somebody takes away goes whatever another node does, so that stays the cause.
    if member is None or not failure.by_engine:
        return None
    why = f"node {member.node} does not answer"
    said = f"rank {failure.rank} ended with exit code {failure.exit_code}" + (
        f": {failure.message}" if failure.message else ""
    )
    return Failure(
        rank=member.rank,
        reason="NodeNotReady",
        message=f"{said[-(MESSAGE_LENGTH - len(why) - 1) :]}\n{why}",
    )


def _how_remote(failure: Failure) -> tuple[bool, bool, bool, int]:
    # Because of another rank: never the root cause.
    follows = failure.exit_code == GROUP_ENDED_EXIT_CODE
    return (
        follows,
        failure.by_engine,
        # An engine that ended with 0 had no reason of its own; one that crashed may have.
        failure.by_engine and not failure.exit_code,
        failure.rank,
    )


def _ended(members: Sequence[Member]) -> Iterator[Failure]:
    for member in members:
        if member.deleting and (member.failure is None or member.failure.by_engine):
            yield Failure(rank=member.rank, reason=member.taken_by or "PodDeleted")
        # The kubelet ended the pod and said why, even if it is deleted afterwards.
        elif member.failure:
            yield member.failure
    # Ranks of two templates may speak different versions of the engine: no such group is left
    # running.
    if len({member.revision for member in members if member.revision}) > 1:
        yield Failure(rank=members[-1].rank, reason="MixedRevisions")


def find_unschedulable(
    members: Sequence[Member], *, nodes_in_provisioning: bool = False
) -> tuple[Failure, datetime] | None:
    """Return which rank finds no place while others of its group hold GPUs, and until when these
    hold them: longer with ``nodes_in_provisioning``.
    """
    # A group without any place holds no GPUs, and may wait for ever.
    if not any(member.node for member in members):
        return None
    waiting = [
        (member.unschedulable_since, member) for member in members if member.unschedulable_since
    ]
    if not waiting:
        return None
    since, member = min(waiting, key=lambda item: item[0])
    failure = Failure(rank=member.rank, reason=UNSCHEDULABLE, message=member.waiting)
    return failure, since + timedelta(
        seconds=NODES_COME_SECONDS if nodes_in_provisioning else UNSCHEDULABLE_SECONDS
    )


def _lost(members: Sequence[Member], expected: int, known: str) -> Iterator[Failure]:
    joined = {member.rank for member in members if member.uid in known.split(",")}
    # Before all were ready together, a missing pod is one that is still being made.
    if known:
        yield from (
            Failure(rank=rank, reason="PodLost") for rank in range(expected) if rank not in joined
        )


def members_value(members: Sequence[Member]) -> str:
    """Return the members annotation for pods that are ready together."""
    return ",".join(member.uid for member in sorted(members, key=lambda m: m.rank))


def new_incident(
    failure: Failure,
    members: Sequence[Member],
    previous: Incident | None,
    now: datetime,
    *,
    stable: bool,
) -> Incident:
    """Return the incident of a failure, counted anew if the group was ``stable`` since."""
    row = previous if previous and not stable else None
    before = row.attempt if row else 0
    if _is_taken(failure, members):
        # A node pool that is upgraded moves a group several times, and nothing is wrong with it.
        attempt = max(1, before)
    else:
        attempt = 1 if row and before == 1 and row.failure.reason in TAKEN else before + 1
    return Incident(
        # By the uids of the pods: the same failure seen by two reconciles, or two operators, is the
        # same incident.
        id=sha256(members_value(members).encode()).hexdigest()[:12],
        restarts=previous.restarts + 1 if previous else 1,
        attempt=attempt,
        counted=(row.counted if row else 0) + engine_to_blame(failure),
        time=now.astimezone(UTC).replace(microsecond=0),
        failure=failure,
    )


def _is_taken(failure: Failure, members: Sequence[Member]) -> bool:
    # Also for a reason that is not Kubernetes' own, and where the kubelet gives another one.
    taken = (member for member in members if member.rank == failure.rank and member.taken_by)
    return not failure.by_engine and (failure.reason in TAKEN or any(taken))


def why_failed(failure: Failure) -> WriteCause:
    """Return the cause of a write that follows from a failure: a pod that somebody takes away is
    none of the engine's.
    """
    if failure.reason in TAKEN:
        return WriteCause(Origin.WORLD, f"rank {failure.rank}: {failure.reason}")
    code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
    return WriteCause(Origin.FAILURE, f"rank {failure.rank}: {failure.reason}{code}")


def engine_to_blame(failure: Failure) -> bool:
    """Return whether the engine is to blame, not another rank or the node."""
    return (
        failure.by_engine
        and failure.exit_code != GROUP_ENDED_EXIT_CODE
        and failure.reason not in CONTAINER_LOST
    )


def better_known(incident: Incident, members: Sequence[Member]) -> Incident:
    """Return an incident with its cause if that shows only later: a rank misses its peer before the
    node counts as silent.
    """
    behind = _behind(incident.failure, members)
    return (
        replace(
            incident,
            failure=behind,
            # The engine was blamed before the node was known, and the restart budget is for
            # engines.
            counted=incident.counted - engine_to_blame(incident.failure),
        )
        if behind
        else incident
    )


def encode_incident(incident: Incident) -> str:
    """Return the incident annotation."""
    return json.dumps({**asdict(incident), "time": incident.time.isoformat()}, sort_keys=True)


def read_incident(annotations: Mapping[str, str]) -> Incident | None:
    """Return the last incident, or None if there was none or it is not of our writing."""
    try:
        record: dict[str, Any] = json.loads(annotations[INCIDENT][:INCIDENT_LENGTH])
        # Whoever may write StatefulSets may write the annotation, and its numbers are calculated
        # with.
        if not _is_record(record, _INCIDENT_FIELDS):
            return None
        failure = Failure(**record.pop("failure"))
        return Incident(
            **{**record, "failure": failure, "time": datetime.fromisoformat(record["time"])}
        )
    # RecursionError: JSON nested a thousand deep, which somebody may have written there.
    except (KeyError, ValueError, TypeError, RecursionError):
        return None


def read_time(text: object) -> datetime | None:
    """Return a time with its zone, of a year in which there can be a group, else None."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found and found.tzinfo and YEARS[0] <= found.year < YEARS[1] else None


def _is_record(record: object, fields: Mapping[str, Callable[[object], bool]]) -> bool:
    return isinstance(record, dict) and all(
        name in fields and fields[name](value) for name, value in record.items()
    )


def _text(length: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and len(value) <= length


def _number_within(least: int, most: int) -> Callable[[object], bool]:
    # Not isinstance: true is an int to Python, and none to JSON.
    return lambda value: type(value) is int and least <= value <= most


_FAILURE_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "rank": _number_within(0, RANKS_MAX - 1),
    "reason": _text(LONGEST_REASON),
    "container": _text(NAME_LENGTH),
    "exit_code": lambda value: value is None or _number_within(-EXIT_CODES, EXIT_CODES - 1)(value),
    "message": _text(MESSAGE_LENGTH),
}
_INCIDENT_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "id": _text(LONGEST_ID),
    "restarts": _number_within(0, COUNT_MAX),
    "attempt": _number_within(0, COUNT_MAX),
    "counted": _number_within(0, COUNT_MAX),
    "time": lambda value: read_time(value) is not None,
    "failure": lambda value: _is_record(value, _FAILURE_FIELDS),
}


READY_ONCE: Final = "shardwright.io/ready-once"
STOPPED_FOR: Final = "shardwright.io/stopped-for"
STOPPED_AT: Final = "shardwright.io/stopped-at"
READY_SINCE: Final = "shardwright.io/ready-since"
OUTAGE: Final = "shardwright.io/last-outage-seconds"
RESTARTED_FOR: Final = "shardwright.io/restarted-for"
SIZE: Final = "shardwright.io/size"
PENDING: Final = "shardwright.io/rollout-pending"
RESTARTS_BEFORE: Final = "shardwright.io/restarts-before"

WORD_LENGTH: Final = 1024
"""Characters of a reason to stop, and of what a user asked a restart with. Basis: assumed."""

UID_LENGTH: Final = 37
"""Characters of a uid and a comma."""

NAMES: Final = (
    INCIDENT,
    MEMBERS,
    READY_ONCE,
    READY_SINCE,
    STOPPED_FOR,
    STOPPED_AT,
    OUTAGE,
    RESTARTED_FOR,
    SIZE,
    ASKED_HASH,
    PENDING,
    RESTARTS_BEFORE,
)
"""All annotations of a group's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsBefore:
    """Restarts that do not count against the wanted state: ``count`` restarts of the pod ``uid``
    (empty: none), counted when the wanted state had the hash ``revision``.
    """

    revision: str
    uid: str = ""
    count: int = 0


HELD_BACK: Final = "HeldBack"
"""Why a group is at zero that its queue gates and that is changed. Kueue 0.17 loses sight of a
StatefulSet whose pods go as fast as such pods do: its next generation replaces it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnnotations:
    """The memory of one group.

    ``members`` are the uids of the pods that were ready together, since ``ready_since``.
    ``stopped_at`` is when the present outage began, ``stopped_for`` why the group is at zero,
    ``size`` how many pods it had before. ``asked`` is the hash of the request that its pods were
    made for; ``pending`` are pod fields that a restart changes although the request is the same.
    ``restarts_before`` is kept for groups of one pod, which the kubelet restarts in place.
    """

    incident: Incident | None = None
    members: str = ""
    ready_once: bool = False
    ready_since: datetime | None = None
    stopped_for: str = ""
    stopped_at: datetime | None = None
    outage_seconds: int | None = None
    restarted_for: str = ""
    size: int | None = None
    asked: str = ""
    pending: tuple[str, ...] = ()
    restarts_before: RestartsBefore | None = None

    def with_(self, **changes: Any) -> "GroupAnnotations":
        """Return these annotations with some of them changed."""
        return replace(self, **changes)

    def forgiven(self) -> "GroupAnnotations":
        """Return the annotations after a user's change, with failures in a row counted anew."""
        return replace(self, incident=self.incident.forgiven() if self.incident else None)

    def stable(self, now: datetime, seconds: int) -> bool:
        """Return whether the group has been ready for at least this many seconds."""
        return self.ready_since is not None and (now - self.ready_since).total_seconds() >= seconds

    @property
    def since_failure(self) -> bool:
        """Return whether a failure ended service, with neither service nor a change since."""
        return (
            self.stopped_at is not None and self.incident is not None and self.incident.attempt > 0
        )

    def stopped(self, why: str, size: int, now: datetime) -> "GroupAnnotations":
        """Return the annotations of a group that goes to zero; its first stop begins the outage."""
        # For clients, a stop during a restart is part of the same outage.
        began = self.stopped_at or _whole(now)
        return replace(
            self, members="", ready_since=None, stopped_for=str(why), stopped_at=began, size=size
        )

    def held_back(self, now: datetime) -> "GroupAnnotations":
        """Return the annotations of a group whose pods are all gated by a queue."""
        if not self.members:
            return self
        return replace(
            self,
            # Preempted by a model of higher priority: an earlier failure does not matter here.
            incident=self.incident.forgiven() if self.incident else None,
            members="",
            ready_since=None,
            stopped_at=self.stopped_at or _whole(now),
        )

    def begun_anew(self, *, beside: bool) -> "GroupAnnotations":
        """Return the annotations of a group's next generation, which surges ``beside`` one that
        serves or replaces a stopped one.
        """
        anew = replace(self, members="", ready_since=None, stopped_for="")
        return (
            # A surge means no outage, and past failures were those of other pods.
            replace(anew.forgiven(), stopped_at=None, outage_seconds=0) if beside else anew
        )

    def ready(self, members: Sequence[Member], now: datetime) -> "GroupAnnotations":
        """Return the annotations of a group whose pods are all ready."""
        uids = members_value(members)
        # With the same pods nothing may change, or every reconcile would write a new time.
        if self.members == uids and self.ready_since:
            return self
        return replace(
            self,
            members=uids,
            ready_once=True,
            ready_since=_whole(now),
            stopped_at=None,
            outage_seconds=self._outage_seconds(now),
        )

    def _outage_seconds(self, now: datetime) -> int | None:
        """Return the length of the last outage, or None if clocks disagree."""
        if self.stopped_at is None:
            return self.outage_seconds
        # The clock of the leader that noted the start may have been minutes ahead of ours.
        seconds = round((now - self.stopped_at).total_seconds())
        return seconds if seconds >= 0 else None

    def annotations(self) -> dict[str, str]:
        """Return the annotations to write; an absent fact has none."""
        found = {
            INCIDENT: encode_incident(self.incident) if self.incident else "",
            MEMBERS: self.members,
            READY_ONCE: "true" if self.ready_once else "",
            READY_SINCE: self.ready_since.isoformat() if self.ready_since else "",
            STOPPED_FOR: self.stopped_for,
            STOPPED_AT: self.stopped_at.isoformat() if self.stopped_at else "",
            OUTAGE: "" if self.outage_seconds is None else str(self.outage_seconds),
            RESTARTED_FOR: self.restarted_for,
            SIZE: "" if self.size is None else str(self.size),
            ASKED_HASH: self.asked,
            PENDING: ",".join(self.pending),
            RESTARTS_BEFORE: _restarts_value(self.restarts_before),
        }
        return {name: value for name, value in found.items() if value}


def changed_annotations(before: GroupAnnotations, after: GroupAnnotations) -> dict[str, str | None]:
    """Return the merge patch from one memory to the other; None deletes an annotation."""
    was, wanted = before.annotations(), after.annotations()
    return {
        # A key that is only left out would stay.
        name: wanted.get(name)
        for name in NAMES
        if was.get(name) != wanted.get(name)
    }


def read_annotations(stateful_set: KubernetesObject) -> GroupAnnotations:
    """Return the memory of a StatefulSet; damaged values are ignored."""
    found: Mapping[str, str] = stateful_set.get("metadata", {}).get("annotations") or {}
    return GroupAnnotations(
        incident=read_incident(found),
        members=_uids(found.get(MEMBERS, "")),
        ready_once=READY_ONCE in found,
        ready_since=read_time(found.get(READY_SINCE, "")),
        stopped_for=_word(found.get(STOPPED_FOR, "")),
        stopped_at=read_time(found.get(STOPPED_AT, "")),
        outage_seconds=_number(found.get(OUTAGE, "")),
        restarted_for=_word(found.get(RESTARTED_FOR, "")),
        size=_number(found.get(SIZE, "")),
        asked=asked_by(stateful_set),
        # Whoever may write StatefulSets may write these annotations, so each value is bounded.
        pending=tuple(filter(None, found.get(PENDING, "").split(",")))[:PENDING_MAX],
        restarts_before=_restarts_before(found.get(RESTARTS_BEFORE, "")),
    )


def _restarts_value(before: RestartsBefore | None) -> str:
    if before is None:
        return ""
    return f"{before.revision} {before.uid} {before.count}" if before.uid else before.revision


def _restarts_before(text: str) -> RestartsBefore | None:
    words = _word(text).split()
    count = _number(words[2]) if len(words) == 3 else 0 if len(words) == 1 else None  # noqa: PLR2004  # as it is written
    return (
        None
        if count is None
        else RestartsBefore(revision=words[0], uid="".join(words[1:2]), count=count)
    )


def _whole(now: datetime) -> datetime:
    # Whole seconds, so that the text reads back as the same value; otherwise each reconcile would
    # find a difference.
    return now.astimezone(UTC).replace(microsecond=0)


def _word(text: str) -> str:
    return text if len(text) <= WORD_LENGTH else ""


def _uids(text: str) -> str:
    return text if len(text) <= RANKS_MAX * UID_LENGTH else ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else None  # noqa: PLR2004 - six digits, as it says
