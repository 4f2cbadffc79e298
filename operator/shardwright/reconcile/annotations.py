"""What does a group remember, and where? In annotations on its StatefulSet, and nowhere else:
status is never read back, so killing the operator between any two writes loses nothing. Every apply
repeats all of them, for it drops what it does not repeat.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.reconcile.incidents import (
    INCIDENT,
    MEMBERS,
    Incident,
    encode_incident,
    members_value,
    read_incident,
    read_time,
)
from shardwright.reconcile.members import RANKS_MAX, Member
from shardwright.reconcile.templates import PENDING_MAX, asked_by
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.hashing import ASKED_HASH
from shardwright.rendering.names import generation_of

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


def ready_pods(
    stateful_sets: Iterable[KubernetesObject], groups: int, size: int, ready: Collection[str] = ()
) -> int:
    """Return how many pods the disruption budget counts: those of the ``groups`` largest groups
    that have ever been ready.

    ``ready`` names the groups that became ready in this reconcile. A group at zero counts with
    ``size`` pods, any other with its own replicas.
    """
    pods: dict[str, int] = {}
    for live in stateful_sets:
        if live["metadata"]["name"] in ready or read_annotations(live).ready_once:
            root, _ = generation_of(live["metadata"]["name"])
            # Two generations count as one group: counted twice, the budget would allow no eviction.
            pods[root] = max(live["spec"].get("replicas") or size, pods.get(root, 0))
    # Groups on their way out still have pods; the largest count, so that the budget errs on the
    # strict side.
    return sum(sorted(pods.values(), reverse=True)[:groups])


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
