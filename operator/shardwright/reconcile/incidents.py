"""Why a group of several pods must restart as one, and what is remembered of it.

The memory is one annotation on the StatefulSet, written together with ``replicas: 0``: container counts and
pod status vanish at zero, and status is never read back.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from shardwright.reconcile.members import Failure, Member

INCIDENT: Final = "shardwright.io/incident"
MEMBERS: Final = "shardwright.io/members"

FIRST_DELAY_SECONDS: Final = 30
LONGEST_DELAY_SECONDS: Final = 600
FORGET_AFTER_SECONDS: Final = 1200
"""Restart at once after a first failure, then wait 30 s doubling to 600 s; two longest delays without a
failure start over. Basis: assumed; source: LeaderWorkerSet and RBG start at 30 s and stop at 600 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One failure of a group that takes it through zero; ``restarts`` counts them all, ``attempt`` those in a row."""

    id: str
    restarts: int
    attempt: int
    time: datetime
    failure: Failure

    def restart_at(self) -> datetime:
        """Return when the group may start again."""
        if self.attempt <= 1:
            return self.time
        delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** min(self.attempt - 2, 10))
        return self.time + timedelta(seconds=delay)


def find_failure(members: Sequence[Member], expected: int, known: str) -> Failure | None:
    """Return why these pods are no NCCL world any more, or None while they are, or are still becoming, one.

    ``known`` is the members annotation: the uids of the pods that were ready together, or empty before that.
    """
    failures = sorted((m.failure for m in members if m.failure), key=lambda f: (not f.exit_code, f.rank))
    if failures:
        return failures[0]
    deleting = next((member for member in members if member.deleting), None)
    if deleting:
        return Failure(rank=deleting.rank, reason="PodDeleted")
    if len({member.revision for member in members if member.revision}) > 1:
        return Failure(rank=members[-1].rank, reason="MixedRevisions")
    return _find_lost(members, expected, known)


def _find_lost(members: Sequence[Member], expected: int, known: str) -> Failure | None:
    if not known:
        return None
    joined = {member.rank for member in members if member.uid in known.split(",")}
    lost = next((rank for rank in range(expected) if rank not in joined), None)
    return None if lost is None else Failure(rank=lost, reason="PodLost")


def members_value(members: Sequence[Member]) -> str:
    """Return the members annotation for pods that are ready together."""
    return ",".join(member.uid for member in sorted(members, key=lambda m: m.rank))


def new_incident(failure: Failure, members: Sequence[Member], previous: Incident | None, now: datetime) -> Incident:
    """Return the incident that a failure makes, counted on from the previous one."""
    in_a_row = previous is not None and now - previous.restart_at() < timedelta(seconds=FORGET_AFTER_SECONDS)
    return Incident(
        id=sha256(members_value(members).encode()).hexdigest()[:12],
        restarts=previous.restarts + 1 if previous else 1,
        attempt=previous.attempt + 1 if previous and in_a_row else 1,
        time=now.astimezone(UTC).replace(microsecond=0),
        failure=failure,
    )


def encode_incident(incident: Incident) -> str:
    """Return the incident annotation."""
    return json.dumps({**asdict(incident), "time": incident.time.isoformat()}, sort_keys=True)


def read_incident(annotations: Mapping[str, str]) -> Incident | None:
    """Return the last incident, or None where there was none (or somebody has damaged the annotation)."""
    try:
        record: dict[str, Any] = json.loads(annotations[INCIDENT])
        failure = Failure(**record.pop("failure"))
        return Incident(**{**record, "failure": failure, "time": datetime.fromisoformat(record["time"])})
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
