"""How often a namespace may have something done; a delayed request is told when to come back.

When may a status be written? News at once; a fact that keeps coming back, or the same in other
words, later. A reconcile that may not write its status yet comes back for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from math import inf
from typing import Any, Final

CHANGES_PER_SECOND: Final = 5.0
CHANGES_AT_ONCE: Final = 20
"""How many resources of a namespace are reconciled for their users' changes, after so many at once.
Basis: assumed; each change of a model that runs is four to five requests of ours (measured,
``python -m benchmarks.neighbours``) and at most a restart of its groups; more of them than turns to
restart only say again and again that they wait.
"""

RECHECKS_PER_SECOND: Final = 1.0
RECHECKS_AT_ONCE: Final = 30
LONGEST_RECHECK_SECONDS: Final = 600.0
"""How many models of a namespace are reconciled only to be sure, and after how long each is at the
latest. Basis: assumed; so many come back after half a minute each, as they would alone. Without it
700 objects that mean harm were nine reconciles a second (measured).
"""


class RateLimit:
    """A leaky bucket for each namespace: ``at_once``, then ``per_second``, with a wait of
    ``longest_seconds`` at most.
    """

    def __init__(self, per_second: float, at_once: int, longest_seconds: float = inf) -> None:
        self._per_second = per_second
        self._at_once = at_once
        # A fuller bucket would have somebody wait for longer than that.
        self._fullest = at_once + longest_seconds * per_second
        self._levels: dict[str, float] = {}
        self._at = 0.0

    def next(self, namespace: str, now: float) -> float:
        """Return when one more may be done, and count it."""
        leaked, self._at = self._per_second * (now - self._at), now
        # Empty ones go: a namespace that asks for nothing costs no memory.
        self._levels = {
            other: level - leaked for other, level in self._levels.items() if level > leaked
        }
        level = min(self._levels.get(namespace, 0.0) + 1, self._fullest)
        self._levels[namespace] = level
        return now + max(0.0, level - self._at_once) / self._per_second


class Rechecks:
    """When to reconcile models only to be sure: one appointment each, at their namespace's pace."""

    def __init__(self) -> None:
        self._pace = RateLimit(RECHECKS_PER_SECOND, RECHECKS_AT_ONCE, LONGEST_RECHECK_SECONDS)
        self._at: dict[tuple[str, str], float] = {}

    def next(self, key: tuple[str, str], asked: float, now: float) -> float:
        """Return when to reconcile a model, not before ``asked``.

        A reconcile for another reason leaves the appointment as it is: a namespace pays for
        reconciles, not for each request.
        """
        at = self._at.get(key)
        if at is None or at <= now:
            at = self._at[key] = max(asked, self._pace.next(key[0], now))
        return max(asked, at)

    def forget(self, key: tuple[str, str]) -> None:
        """Forget the appointment of a model that needs none."""
        self._at.pop(key, None)


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
