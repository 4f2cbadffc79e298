"""When may a status be written? What is new at once; what comes back again and again, or says the same in other words, later."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

PACE_SECONDS: Final = 10.0
"""The least time between two writes that say nothing new. Basis: assumed; a probe or a label that flaps does so every second."""

Gist = tuple[Any, ...]
"""What a status says in facts: the generation, and of each condition its type, status and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A status that was written: when, and what it said in facts."""

    at: datetime
    gist: Gist


def gist_of(status: Mapping[str, Any]) -> Gist:
    """Return what a status says in facts."""
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    facts = ((item["type"], item["status"], item["reason"]) for item in conditions)
    return status.get("observedGeneration"), *sorted(facts)


def write_at(said: Iterable[Said], gist: Gist, now: datetime) -> datetime:
    """Return when a status may be written: now, unless its facts were said a moment ago, or are those that were said last."""
    recent = sorted((item for item in said if now - item.at < timedelta(seconds=PACE_SECONDS)), key=lambda item: item.at)
    if not any(item.gist == gist for item in recent):
        return now
    return recent[-1].at + timedelta(seconds=PACE_SECONDS)


def remembered(said: Iterable[Said], gist: Gist, now: datetime) -> tuple[Said, ...]:
    """Return what has been said lately, with what is said now."""
    recent = (item for item in said if now - item.at < timedelta(seconds=PACE_SECONDS))
    return (*recent, Said(at=now, gist=gist))
