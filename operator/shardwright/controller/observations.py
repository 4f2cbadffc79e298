"""What one reconcile notes for a model's next: lost with the process, never needed to be right."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from shardwright.api.record import PlanRecord
from shardwright.controller import rate_limits
from shardwright.controller.queue import Key
from shardwright.controller.rate_limits import Gist, Said
from shardwright.errors import Problem
from shardwright.reconcile import undone
from shardwright.reconcile.first_seen import Sighting
from shardwright.reconcile.publish import Published
from shardwright.reconcile.snapshot import Outcome
from shardwright.reconcile.undone import Repair
from shardwright.reconcile.write_cause import Contest
from shardwright.reconcile.writes import ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was observed, since when, with objections to pods, repairs and the statuses written.

    ``record`` is the plan of record that was in place, with its resource's uid; ``distrusted`` is
    why one was not believed. ``unseen`` are objects in its places that no cache shows as its own.
    ``refusals`` counts reconciles in a row with a refused write. While ``mark`` stays the same,
    nothing is to be done before ``again_at``.
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
        """Return the plan of record in place for this resource uid, None if none was seen."""
        return self.record[1] if self.record and self.record[0] == uid else None

    def at_rest(self, mark: object, now: datetime) -> bool:
        """Return whether nothing has changed, and no reconcile is due."""
        return self.mark == mark and (self.again_at is None or now < self.again_at)

    def contested(self, now: datetime) -> dict[ObjectKey, Contest]:
        """Return the objects that somebody keeps undoing."""
        return undone.contested(self.repairs, now)


class Observations:
    """The observations of all models."""

    def __init__(self) -> None:
        self._observations: dict[Key, Observation] = {}

    def of(self, key: Key) -> Observation:
        """Return the observation of a model."""
        return self._observations.get(key, Observation())

    def take_over(
        self, key: Key, uid: str, published: Published, done: Outcome, now: datetime
    ) -> None:
        """Store the results of a reconcile of the resource with this uid, and of its writes."""
        before = self.of(key)
        # A reconcile that could not read the objects has not seen that there is no record.
        record = before.record if published.found.hidden else None
        self._observations[key] = Observation(
            since=published.since,
            kept_out=published.kept_out,
            repairs=undone.remembered(before.repairs, done, now),
            said=before.said,
            record=(uid, published.record) if published.record else record,
            distrusted=published.distrusted,
            unseen=published.unseen,
            refusals=before.refusals,
        )

    def refused(self, key: Key) -> int:
        """Count one more reconcile in a row with a refused write, and return the count."""
        before = self.of(key)
        self._observations[key] = replace(before, refusals=before.refusals + 1)
        return before.refusals + 1

    def taken(self, key: Key) -> None:
        """Note that everything a reconcile wrote was taken."""
        self._observations[key] = replace(self.of(key), refusals=0)

    def rest(self, key: Key, mark: object, again_at: datetime | None) -> None:
        """Note the state that was reconciled, and when there is more to do if it stays."""
        # The mark from before the reconcile: changes while it ran are still to be reconciled.
        self._observations[key] = replace(self.of(key), mark=mark, again_at=again_at)

    def wrote_status(self, key: Key, gist: Gist, now: datetime) -> None:
        """Note that a status has been written."""
        before = self.of(key)
        self._observations[key] = replace(
            before, said=rate_limits.remembered(before.said, gist, now)
        )

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self._observations.pop(key, None)
