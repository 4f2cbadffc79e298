"""Which objects does somebody keep undoing, so that they are repaired only now and then? A repair
counts where what is rendered has not changed since it was written: what we change ourselves is
nobody's fault.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from shardwright.reconcile.observed import object_key
from shardwright.reconcile.snapshot import Outcome
from shardwright.reconcile.write_cause import Contest, Origin, rendered_hash
from shardwright.reconcile.writes import Apply, Create, Delete, ObjectKey, Why, Write

REPAIRS_MAX: Final = 3
"""Times that somebody undoes one object within :data:`WINDOW_SECONDS` until it counts as contested.
Basis: assumed.
"""

WINDOW_SECONDS: Final = 300.0

PAUSE_SECONDS: Final = 300.0
"""How long a contested object is left as it is. Basis: assumed; as the longest other backoff
here.
"""

CONFLICT: Final = 409  # HTTP: the object has changed meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One time that an object was made, or set to what was ``rendered`` then (its hash).

    ``undone``: somebody else had changed it since it was written so; ``fields`` are those, none if
    it had been deleted.
    """

    rendered: str
    fields: tuple[str, ...] = ()
    by: str = ""
    undone: bool = False
    at: datetime


def contested(
    repairs: Mapping[ObjectKey, Sequence[Repair]], now: datetime
) -> dict[ObjectKey, Contest]:
    """Return the contested objects."""
    found = {key: [one for one in done if one.undone] for key, done in repairs.items()}
    return {
        key: Contest(fields=undone[-1].fields, by=undone[-1].by, rendered=undone[-1].rendered)
        for key, undone in found.items()
        if len(undone) >= REPAIRS_MAX
        # Never given up for good: whoever keeps undoing it may have stopped meanwhile.
        and now - undone[-1].at < timedelta(seconds=PAUSE_SECONDS)
    }


def remembered(
    repairs: Mapping[ObjectKey, Sequence[Repair]], done: Outcome, now: datetime
) -> dict[ObjectKey, tuple[Repair, ...]]:
    """Return the repairs that still count, with those of this reconcile."""
    # Repairs from before the pause count after it, or a contested object would be repaired
    # REPAIRS_MAX times again before it is left alone.
    window = timedelta(seconds=WINDOW_SECONDS + PAUSE_SECONDS)
    kept = {key: tuple(one for one in row if now - one.at < window) for key, row in repairs.items()}
    for key, repair in _repairs(done, now):
        # None: we have deleted it ourselves.
        kept[key] = _added(kept.get(key, ()), repair) if repair else ()
    return {key: row for key, row in kept.items() if row}


def _added(row: Sequence[Repair], repair: Repair) -> tuple[Repair, ...]:
    # The same again: it was undone, whatever the object said of itself.
    again = bool(row) and row[-1].rendered == repair.rendered != ""
    # Bounded: somebody who edits an object every second must not grow the operator's memory.
    undone = [before for before in row if before.undone]
    return (*undone[-REPAIRS_MAX:], replace(repair, undone=repair.undone or again))


def _repairs(done: Outcome, now: datetime) -> Iterator[tuple[ObjectKey, Repair | None]]:
    for write in done.written:
        if isinstance(write, Delete) and write.why is None:
            yield (write.kind, write.name), None
        elif found := _repair(write, now):
            yield found
    for item in done.refused:
        # Also those that met somebody else's change at the same moment.
        if item.code == CONFLICT and (found := _repair(item.write, now)) and found[1].undone:
            yield found


def _repair(write: Write, now: datetime) -> tuple[ObjectKey, Repair] | None:
    fields: tuple[str, ...] = ()
    match write:
        case Create(content=content):
            key, rendered = object_key(content), rendered_hash(content)
        case Apply(content=content, why=Why.DRIFT, fields=fields):
            key, rendered = object_key(content), rendered_hash(content)
        case Delete(why=Why.DRIFT):
            key, rendered, fields = (write.kind, write.name), "", (write.cause.what,)
        case _:
            return None
    undone = write.cause.origin is Origin.UNDONE
    return key, Repair(rendered=rendered, fields=fields, by=write.cause.by, undone=undone, at=now)
