"""Why must a group of several pods restart as one, and how is that remembered? In one annotation of
the StatefulSet, written together with ``replicas: 0``: container counts and pod status vanish at
zero, and status is never read back.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from shardwright.reconcile.members import (
    LONGEST_REASON,
    MESSAGE_LENGTH,
    PODS_REFUSED,
    RANKS_MAX,
    UNSCHEDULABLE,
    Failure,
    Member,
)
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

UNSCHEDULABLE_SECONDS: Final = 300
"""How long a group holds GPUs while a rank of it finds no place. Basis: assumed."""

NODES_COME_SECONDS: Final = 1200
"""The same while an autoscaler makes nodes for it. Basis: assumed; Karpenter and cluster-autoscaler
give a node up that has not registered within 15 minutes, and its GPU driver takes a few more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One failure of a group that restarts it as a whole.

    ``restarts`` counts them all, ``attempt`` those in a row, ``counted`` those of the row that are
    the engine's fault.
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
    return Incident(
        # By the uids of the pods: the same failure seen by two reconciles, or two operators, is the
        # same incident.
        id=sha256(members_value(members).encode()).hexdigest()[:12],
        restarts=previous.restarts + 1 if previous else 1,
        attempt=row.attempt + 1 if row else 1,
        counted=(row.counted if row else 0) + engine_to_blame(failure),
        time=now.astimezone(UTC).replace(microsecond=0),
        failure=failure,
    )


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


def _number(least: int, most: int) -> Callable[[object], bool]:
    # Not isinstance: true is an int to Python, and none to JSON.
    return lambda value: type(value) is int and least <= value <= most


_FAILURE_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "rank": _number(0, RANKS_MAX - 1),
    "reason": _text(LONGEST_REASON),
    "container": _text(NAME_LENGTH),
    "exit_code": lambda value: value is None or _number(-EXIT_CODES, EXIT_CODES - 1)(value),
    "message": _text(MESSAGE_LENGTH),
}
_INCIDENT_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "id": _text(LONGEST_ID),
    "restarts": _number(0, COUNT_MAX),
    "attempt": _number(0, COUNT_MAX),
    "counted": _number(0, COUNT_MAX),
    "time": lambda value: read_time(value) is not None,
    "failure": lambda value: _is_record(value, _FAILURE_FIELDS),
}
