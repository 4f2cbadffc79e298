"""The memory of a group: annotations on its StatefulSet, which are the only place that keeps it.

Every write repeats all of it: an apply drops everything that it does not repeat. Status is never
read back, so killing the operator between any two writes loses nothing.
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

# the disruption budget counts groups that have been ready
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
"""All annotations that hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsBefore:
    """Restarts that speak against nothing that is wanted now: ``count`` of the pod ``uid``, of
    before it was (empty: none were).

    ``revision`` is the hash of the wanted state when they were counted.
    """

    revision: str
    uid: str = ""
    count: int = 0


HELD_BACK: Final = "HeldBack"
"""Why a group is at zero that is changed and that its queue held back. Kueue 0.17 loses sight of a
StatefulSet whose pods go as fast as such pods do: its next generation takes its place.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnnotations:
    """The memory of one group.

    ``members`` are the uids of the pods that were ready together, ``ready_since`` when they became
    so; ``stopped_at`` is when the group that is not ready again yet was stopped, and
    ``stopped_for`` why it is at zero; ``size`` is how many pods it had before that. ``asked`` is
    the hash of the request that its pods were made for, ``pending`` are fields of theirs that a
    restart changes although the same is asked for. ``restarts_before`` are those of a group of one
    pod, which its kubelet starts again in place.
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
        """Return these annotations, with some of them changed."""
        return replace(self, **changes)

    def forgiven(self) -> "GroupAnnotations":
        """Return the annotations after a change by the user: failures in a row are counted anew."""
        return replace(self, incident=self.incident.forgiven() if self.incident else None)

    def stable(self, now: datetime, seconds: int) -> bool:
        """Return whether the group had been ready for some seconds before this moment."""
        return self.ready_since is not None and (now - self.ready_since).total_seconds() >= seconds

    @property
    def since_failure(self) -> bool:
        """Return whether a failure ended the service that has not come back since, and nobody has
        changed anything.
        """
        return (
            self.stopped_at is not None and self.incident is not None and self.incident.attempt > 0
        )

    def stopped(self, why: str, size: int, now: datetime) -> "GroupAnnotations":
        """Return the annotations of a group that goes to zero. An outage begins with the first
        stop.
        """
        # A stop in the midst of a restart is the same outage for whoever waits for answers.
        began = self.stopped_at or _whole(now)
        return replace(
            self, members="", ready_since=None, stopped_for=str(why), stopped_at=began, size=size
        )

    def held_back(self, now: datetime) -> "GroupAnnotations":
        """Return the annotations of a group with all pods held back by a queue: it has no others
        any more.
        """
        if not self.members:
            return self
        return replace(
            self,
            # It gives way to a dearer one; an earlier failure says nothing of that.
            incident=self.incident.forgiven() if self.incident else None,
            members="",
            ready_since=None,
            stopped_at=self.stopped_at or _whole(now),
        )

    def begun_anew(self, *, beside: bool) -> "GroupAnnotations":
        """Return the annotations for a group's next generation. It starts ``beside`` a generation
        that serves, or in place of a stopped one.
        """
        anew = replace(self, members="", ready_since=None, stopped_for="")
        return (
            # Beside one that serves there is no outage, and its past failures were those of other
            # pods.
            replace(anew.forgiven(), stopped_at=None, outage_seconds=0) if beside else anew
        )

    def ready(self, members: Sequence[Member], now: datetime) -> "GroupAnnotations":
        """Return the annotations of a group with all pods ready."""
        uids = members_value(members)
        # The same pods: the memory must stay as it is, or every reconcile would write a new time.
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
        """Return how long the last outage was, None if nobody can tell."""
        if self.stopped_at is None:
            return self.outage_seconds
        # It began by the clock of the leader of then, which may have been minutes ahead of ours.
        seconds = round((now - self.stopped_at).total_seconds())
        return seconds if seconds >= 0 else None

    def annotations(self) -> dict[str, str]:
        """Return the annotations that hold it; nothing for an absent fact."""
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
    """Return the annotations that turn one into the other, None for those that go."""
    was, wanted = before.annotations(), after.annotations()
    return {
        # None deletes an annotation in a merge patch; a key that is only left out would stay.
        name: wanted.get(name)
        for name in NAMES
        if was.get(name) != wanted.get(name)
    }


def read_annotations(stateful_set: KubernetesObject) -> GroupAnnotations:
    """Read the memory of a StatefulSet. A part that somebody has damaged is forgotten."""
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
        # Whoever may write StatefulSets may write these annotations, so each value is bounded as it
        # is read.
        pending=tuple(filter(None, found.get(PENDING, "").split(",")))[:PENDING_MAX],
        restarts_before=_restarts_before(found.get(RESTARTS_BEFORE, "")),
    )


def ready_pods(
    stateful_sets: Iterable[KubernetesObject], groups: int, size: int, ready: Collection[str] = ()
) -> int:
    """Return the pods of the groups that have been ready at some time, at most ``groups`` of them,
    each counted once.

    ``ready`` are the names of those that are ready now, which is noted in the same reconcile. A
    group that is at zero comes back with ``size`` pods; one that stands has as many as it was made
    with.
    """
    pods: dict[str, int] = {}
    for live in stateful_sets:
        if live["metadata"]["name"] in ready or read_annotations(live).ready_once:
            root, _ = generation_of(live["metadata"]["name"])
            # Two generations of a group are one group to the budget: counted twice, it would allow
            # no eviction at all.
            pods[root] = max(live["spec"].get("replicas") or size, pods.get(root, 0))
    # Groups that are on their way out still have pods; the largest ones count, so that the budget
    # is rather too strict than too loose.
    return sum(sorted(pods.values(), reverse=True)[:groups])


def _restarts_value(before: RestartsBefore | None) -> str:
    if before is None:
        return ""
    return f"{before.revision} {before.uid} {before.count}" if before.uid else before.revision


def _restarts_before(text: str) -> RestartsBefore | None:
    """Read an annotation about restarts, None if it holds a text that we never write."""
    words = _word(text).split()
    count = _number(words[2]) if len(words) == 3 else 0 if len(words) == 1 else None  # noqa: PLR2004  # as it is written
    return (
        None
        if count is None
        # A slice, not an index: the short form has no second word.
        else RestartsBefore(revision=words[0], uid="".join(words[1:2]), count=count)
    )


def _whole(now: datetime) -> datetime:
    # Whole seconds: the text must read back as the same value, or each reconcile would find a
    # difference.
    return now.astimezone(UTC).replace(microsecond=0)


def _word(text: str) -> str:
    """Return a word that is no longer than ours are, else nothing."""
    return text if len(text) <= WORD_LENGTH else ""


def _uids(text: str) -> str:
    """Return uids with commas between them, no more than a group has ranks, else nothing."""
    return text if len(text) <= RANKS_MAX * UID_LENGTH else ""


def _number(text: str) -> int | None:
    """Return a number of at most six digits, else None: somebody may have written anything."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else None  # noqa: PLR2004 - six digits, as it says
