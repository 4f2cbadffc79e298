"""The notes of one look for the next one at the same model; lost with the process, and never needed
to be right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from shardwright.api.record import PlanRecord
from shardwright.controller.queue import Key
from shardwright.errors import Problem
from shardwright.reconcile import status_rate_limit
from shardwright.reconcile.first_seen import Sighting
from shardwright.reconcile.publish import Published
from shardwright.reconcile.repair_backoff import Repair, contested, remembered
from shardwright.reconcile.status_rate_limit import Gist, Said
from shardwright.reconcile.writes import ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Since when passing facts have been so, the objections to pods, the repairs, and which status
    was written.

    ``record`` is the plan of record that was in place, with the uid of its resource, and
    ``distrusted`` why one was not believed. ``unseen`` are objects in its places that no cache
    shows as its own. ``refusals`` is how many looks in a row wrote something that was not taken.
    ``mark`` tells the state that was looked at: as long as it is the same, nothing is to be done
    before ``again_at``.
    """

    since: Mapping[Sighting, datetime] = field(default_factory=dict)
    kept_out: Mapping[str, str] = field(default_factory=dict)
    repairs: Mapping[ObjectKey, tuple[Repair, ...]] = field(default_factory=dict)
    said: tuple[Said, ...] = ()
    record: tuple[str, PlanRecord] | None = None
    distrusted: tuple[Problem, datetime] | None = None
    unseen: frozenset[ObjectKey] = frozenset()
    refusals: int = 0
    mark: object = None
    again_at: datetime | None = None

    def record_of(self, uid: str) -> PlanRecord | None:
        """Return the plan of record that was in place for the resource with this uid, None if none
        was seen.
        """
        return self.record[1] if self.record and self.record[0] == uid else None

    def at_rest(self, mark: object, now: datetime) -> bool:
        """Return whether nothing has changed, and it is not yet time to look all the same."""
        return self.mark == mark and (self.again_at is None or now < self.again_at)

    def contested(self, now: datetime) -> dict[ObjectKey, tuple[str, ...]]:
        """Return the objects that are not to be repaired yet."""
        return contested(self.repairs, now)


class Observations:
    """The notes of all models."""

    def __init__(self) -> None:
        self._observations: dict[Key, Observation] = {}

    def of(self, key: Key) -> Observation:
        """Return the notes about a model."""
        return self._observations.get(key, Observation())

    def take_over(self, key: Key, uid: str, published: Published, now: datetime) -> None:
        """Note the results of a reconcile of the resource with this uid."""
        before = self.of(key)
        # A reconcile that could not read the objects has not seen that there is no record.
        record = before.record if published.found.hidden else None
        self._observations[key] = Observation(
            since=published.since,
            kept_out=published.kept_out,
            repairs=remembered(before.repairs, published.repaired, now),
            said=before.said,
            record=(uid, published.record) if published.record else record,
            distrusted=published.distrusted,
            unseen=published.unseen,
            refusals=before.refusals,
        )

    def refused(self, key: Key) -> int:
        """Note one more look in a row of which a write was not taken, and return how many they
        are.
        """
        before = self.of(key)
        self._observations[key] = replace(before, refusals=before.refusals + 1)
        return before.refusals + 1

    def taken(self, key: Key) -> None:
        """Note that all that a reconcile wrote was taken."""
        self._observations[key] = replace(self.of(key), refusals=0)

    def rest(self, key: Key, mark: object, again_at: datetime | None) -> None:
        """Note the state that was looked at, and when there is something to do although it stays as
        it is.
        """
        # The mark from before the reconcile: changes while it ran are still to be looked at.
        self._observations[key] = replace(self.of(key), mark=mark, again_at=again_at)

    def wrote_status(self, key: Key, gist: Gist, now: datetime) -> None:
        """Note that a status has been written."""
        before = self.of(key)
        self._observations[key] = replace(
            before, said=status_rate_limit.remembered(before.said, gist, now)
        )

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self._observations.pop(key, None)
