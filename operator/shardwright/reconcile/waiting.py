"""In which order do models wait for GPUs, and which nodes are kept for them? docs/decisions/0010
has the rule and its numbers.

Models queue by the priority of their pods, then by age. A later one may be placed while an earlier
one waits, until that one has waited for ``BACKFILL_SECONDS``. From then on it claims nodes: as many
of their GPUs as its plan needs, on the nodes with most free already. The free part of a claim is
for nobody who comes after. A claim is chosen once and stays while it is possible, so that it fills
up instead of wandering.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from shardwright.hardware.scheduling import PodTerms

BACKFILL_SECONDS: Final = 600.0
"""How long later models may be placed before one that waits. Basis: assumed; the simulation in
benchmarks/waiting.py compares it with others.
"""

CLAIM_SECONDS: Final = 1800.0
"""How long a claim stays while none of its GPUs come free. Basis: assumed; GPUs of models that
serve for ever come free never.
"""

Rank = tuple[int, str, tuple[str, str]]
"""The place in the queue, the least first: negative priority, creationTimestamp, namespace and
name.
"""

Claim = Mapping[str, int]
"""GPUs by node."""

T = TypeVar("T")


def rank_of(priority: int, created: str, key: tuple[str, str]) -> Rank:
    """Return the place in the queue of a model created at this time (RFC 3339, UTC)."""
    # Texts in RFC 3339 and UTC sort like times; the name gives one order in every process.
    return -priority, created, key


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A waiting model: its place in the queue, since when by our own clock, and its claim.

    ``asked`` tells its request: another one has no use for the claim. ``terms`` are its pods'
    demands on nodes. ``deploys`` is False if the plan would only be shown: it claims nothing.
    ``lacked`` is the fewest GPUs that its claim has lacked, and since when.
    """

    rank: Rank
    since: datetime
    asked: str
    terms: PodTerms = field(default_factory=PodTerms)
    deploys: bool = True
    claim: Claim = field(default_factory=dict)
    lacked: tuple[int, datetime] | None = None

    @property
    def turns_at(self) -> datetime | None:
        """Return when it will claim nodes, or give its claim up; None if it never will."""
        if self.lacked:
            return self.lacked[1] + timedelta(seconds=CLAIM_SECONDS)
        return self.since + timedelta(seconds=BACKFILL_SECONDS) if self.deploys else None

    def carried_on(self, before: "Waiting | None") -> "Waiting":
        """Return the waiting model with its earlier start, and its claim if it asks the same."""
        if before is None:
            return self
        # A changed spec loses its claim, not its place in the queue.
        here = replace(self, since=before.since)
        if (before.asked, self.deploys) != (self.asked, True):
            return here
        # Chosen once, so that it fills up (ADR 10).
        return replace(here, claim=before.claim, lacked=before.lacked)

    def claiming(self, claim: Claim, rooms: Mapping[str, "Room"], now: datetime) -> "Waiting":
        """Return the waiting model with a claim, without it if no GPU of it has come free for
        ``CLAIM_SECONDS``.
        """
        if not claim:
            return replace(self, claim={}, lacked=None)
        lacking = sum(max(0, gpus - rooms[node].free) for node, gpus in claim.items())
        if claim != self.claim or self.lacked is None or lacking < self.lacked[0]:
            return replace(self, claim=claim, lacked=(lacking, now))
        if now < self.lacked[1] + timedelta(seconds=CLAIM_SECONDS):
            return self
        return self.without_claim(now)

    def without_claim(self, now: datetime) -> "Waiting":
        """Return the waiting model without a claim, as if it had come now."""
        return replace(self, since=now, claim={}, lacked=None)

    def may_claim(self, now: datetime) -> bool:
        """Return whether it has waited for so long that it claims nodes."""
        return self.deploys and now >= self.since + timedelta(seconds=BACKFILL_SECONDS)


def claimed_before(line: Iterable[Waiting], rank: Rank) -> Counter[str]:
    """Return the GPUs by node that are claimed before this place in the queue."""
    claimed: Counter[str] = Counter()
    # Not of the first alone: while it waits for one kind of hardware, those that wait for another
    # would be unprotected (ADR 10).
    for waiting in line:
        if waiting.rank < rank:
            claimed.update(waiting.claim)
    return claimed


def kept_back(claimed: Claim, free: Mapping[str, int]) -> dict[str, int]:
    """Return the number of free GPUs by node that are kept for claims."""
    return {
        node: min(gpus, free[node])
        for node, gpus in claimed.items()
        # GPUs that are not free are held, and a claim takes nothing from a model that runs (ADR
        # 10).
        if free.get(node, 0) > 0
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A node that may be claimed: its GPUs not claimed before, and those free now."""

    node: str
    gpus: int
    free: int


def holds(claim: Claim, rooms: Mapping[str, Room]) -> bool:
    """Return whether a claim is of use: its nodes can become free, and not all are."""
    possible = all(node in rooms and rooms[node].gpus >= gpus for node, gpus in claim.items())
    return (
        bool(claim)
        and possible
        # If all of it is free and the model is still not placed, it waits for something else.
        and any(rooms[node].free < gpus for node, gpus in claim.items())
    )


def choose(rooms: Iterable[Room], fit: Callable[[Sequence[Room]], T | None]) -> T | None:
    """Return what a model gets on the fewest nodes nearest to free; None if all would not do.

    ``fit`` returns what it would get on some nodes if all their GPUs were free, None if they do not
    suffice; more nodes never suffice less.
    """
    nearest = sorted(
        (room for room in rooms if room.gpus > 0),
        # So that a claim is soon full; by name among equals, so that it does not wander.
        key=lambda room: (room.gpus - room.free, room.node),
    )
    if fit(nearest) is None:
        return None
    count = (
        # Each question is a plan, which takes long, and more nodes never suffice less.
        bisect_left(range(1, len(nearest)), True, key=lambda most: fit(nearest[:most]) is not None)
        + 1
    )
    return fit(nearest[:count])
