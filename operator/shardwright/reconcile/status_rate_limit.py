"""When may a status be written? News at once; a fact that keeps coming back, or the same in other
words, later. A reconcile that may not write its status yet comes back for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

PACE_SECONDS: Final = 10.0
"""The least time between two writes that say nothing new. Basis: assumed; a probe or a label that
flaps does so every second.
"""

NEWS_SECONDS: Final = 60.0
"""How long a repetition is no news. Basis: assumed; what flaps comes back within it, what comes
back later is another story.
"""

FACTS_MAX: Final = 1024
"""Facts of conditions that are cached. Basis: assumed, several times as many as conditions have
reasons.
"""

Gist = tuple[Any, ...]
"""What a status says in facts: the generation, the newest revision, and of each condition its type,
status and reason.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A status that was written: when, and with which facts."""

    at: datetime
    gist: Gist


def gist_of(status: Mapping[str, Any]) -> Gist:
    """Return the facts of a status."""
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    facts = (_fact(item["type"], item["status"], item["reason"]) for item in conditions)
    newest: Iterable[Mapping[str, Any]] = (status.get("revisions") or ())[-1:]
    return (
        status.get("observedGeneration"),
        *(item["revision"] for item in newest),
        # Sorted: conditions in another order are no news.
        *sorted(facts),
    )


@lru_cache(maxsize=FACTS_MAX)
def _fact(of: str, status: str, reason: str) -> tuple[str, str, str]:
    # Equal facts are one object: they are remembered of every model.
    return of, status, reason


def write_at(said: Iterable[Said], gist: Gist, now: datetime) -> datetime:
    """Return when a status may be written: now if its facts are new, else at the rate limit."""
    recent = _recent(said, now)
    if not any(item.gist == gist for item in recent):
        return now
    # From the last write of any facts: two states that alternate are each other's news only once.
    return max(now, max(item.at for item in recent) + timedelta(seconds=PACE_SECONDS))


def remembered(said: Iterable[Said], gist: Gist, now: datetime) -> tuple[Said, ...]:
    """Return the recent statements, with the one made now."""
    return (*_recent(said, now), Said(at=now, gist=gist))


def _recent(said: Iterable[Said], now: datetime) -> list[Said]:
    return [item for item in said if now - item.at < timedelta(seconds=NEWS_SECONDS)]
