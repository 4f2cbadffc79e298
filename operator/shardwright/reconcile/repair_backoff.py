"""Which objects does somebody keep setting back, so that they are repaired only now and then?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shardwright.reconcile.writes import ObjectKey

REPAIRS_MAX: Final = 5
"""Repairs of one object within :data:`WINDOW_SECONDS` that are still taken for chance. Basis:
assumed.
"""

WINDOW_SECONDS: Final = 300.0

PAUSE_SECONDS: Final = 300.0
"""How long a contested object is left as it is. Basis: assumed; as the longest other backoff
here.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One repair of an object: when, and of which fields."""

    at: datetime
    fields: tuple[str, ...]


def contested(
    repairs: Mapping[ObjectKey, Sequence[Repair]], now: datetime
) -> dict[ObjectKey, tuple[str, ...]]:
    """Return the contested objects that are left alone for now, with their fields."""
    return {
        key: done[-1].fields
        for key, done in repairs.items()
        if len(done) >= REPAIRS_MAX
        # Never given up for good: whoever keeps setting it back may have stopped meanwhile.
        and now - done[-1].at < timedelta(seconds=PAUSE_SECONDS)
    }


def remembered(
    repairs: Mapping[ObjectKey, Sequence[Repair]],
    repaired: Mapping[ObjectKey, tuple[str, ...]],
    now: datetime,
) -> dict[ObjectKey, tuple[Repair, ...]]:
    """Return the repairs that still count, with those of this reconcile."""
    # Repairs from before the pause count after it, or a contested object would be repaired
    # REPAIRS_MAX times again before it is left alone.
    window = timedelta(seconds=WINDOW_SECONDS + PAUSE_SECONDS)
    kept = {
        key: tuple(repair for repair in done if now - repair.at < window)
        for key, done in repairs.items()
    }
    # Bounded: somebody who edits an object every second must not grow the operator's memory.
    added = {
        key: (*kept.get(key, ()), Repair(at=now, fields=fields))[-REPAIRS_MAX:]
        for key, fields in repaired.items()
    }
    return {key: done for key, done in {**kept, **added}.items() if done}
