"""What the log says of a look at a model: one line for each thing that changed, with its cause.

What changed is read off the statuses before and after, so a line never says other than they do.
Each line of a look carries its id, and a refusal is said once, however often it is tried.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Final

from shardwright.api.conditions import ConditionType
from shardwright.controller.process_settings import LOOK
from shardwright.controller.queue import Key
from shardwright.reconcile.writes import (
    Apply,
    DryRunPod,
    Patch,
    Why,
    Write,
    shown_name,
    written_kind,
)

log = logging.getLogger(__name__)

_IDS: Final = count(1)

_BAD: Final = frozenset(
    {
        ConditionType.STALLED,
        ConditionType.DEGRADED,
        ConditionType.FIELD_CONFLICT,
        ConditionType.RECORD_REFUSED,
        ConditionType.ROLLOUT_STOPPED,
        ConditionType.ROLLED_BACK,
    }
)
"""Conditions that somebody should read about when they become True."""

_GENERATED: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b|\d+")
"""What differs from try to try in the API server's words: generated ends of names, and numbers.
Source: ``k8s.io/apimachinery`` ``util/rand`` for the alphabet.
"""

QUIET_SECONDS: Final = 600.0
"""After how long a refusal that lasts is said again. Basis: as events are (``cluster.reports``)."""

REMEMBERED_MAX: Final = 8
"""Refusals remembered of a model; more at once are of one cause. Basis: assumed."""


def begin_look() -> None:
    """Give the look that begins, and the lines that follow in its task, an id of its own."""
    LOOK.set(f"{next(_IDS):x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change of something that a status speaks of; empty texts: it was not there before."""

    what: str
    before: str
    after: str
    cause: str = ""
    bad: bool = False


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Transition]:
    """Yield what differs between two statuses: layout, conditions, groups."""
    layouts = [str(status.get("layout") or "") for status in (before, after)]
    if layouts[0] != layouts[1]:
        yield Transition(what="layout", before=layouts[0], after=layouts[1] or "none")
    yield from _of_conditions(before.get("conditions") or (), after.get("conditions") or ())
    yield from _of_groups(before.get("groups") or (), after.get("groups") or ())


def _of_conditions(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[Transition]:
    known = {one["type"]: one for one in before}
    for one in after:
        was = known.pop(one["type"], {})
        said = [f"{it.get('status', '')} {it.get('reason', '')}".strip() for it in (was, one)]
        # A condition that begins as False says that nothing is the matter.
        if said[0] == said[1] or (not was and one["status"] == "False" and one["type"] != "Ready"):
            continue
        yield Transition(
            what=one["type"],
            before=said[0],
            after=said[1],
            cause=one.get("message") or "",
            bad=one["status"] == "True" and one["type"] in _BAD,
        )
    for name, was in known.items():
        if was["status"] == "True":
            yield Transition(what=name, before=f"True {was['reason']}", after="gone")


def _of_groups(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[Transition]:
    known = {one["name"]: one for one in before}
    for one in after:
        name, was = f"group {one['name']}", known.pop(one["name"], {})
        if was.get("nodes") and one.get("nodes") and was["nodes"] != one["nodes"]:
            places = [", ".join(it["nodes"]) for it in (was, one)]
            yield Transition(what=name, before=places[0], after=places[1])
        states = [("ready" if it.get("ready") else "not ready") if it else "" for it in (was, one)]
        failed = one.get("lastFailure") or {}
        news = bool(failed) and failed != was.get("lastFailure")
        if states[0] != states[1] or news:
            yield Transition(
                what=name,
                before=states[0],
                after=states[1],
                cause=_failure(failed) if news else one.get("waiting") or "",
                bad=news,
            )
    for name in known:
        yield Transition(what=f"group {name}", before="there", after="gone")


def _failure(failed: Mapping[str, Any]) -> str:
    """Return a failure in one line: which rank, which container, how it ended."""
    container = f" container {failed['container']}" if failed.get("container") else ""
    code = f" exit code {failed['exitCode']}" if failed.get("exitCode") is not None else ""
    message = f": {failed['message']}" if failed.get("message") else ""
    return f"rank {failed['rank']}{container}{code} {failed['reason']}{message}"


def log_transitions(key: Key, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Log what differs between the status that stood and the one that was written."""
    for one in transitions(before, after):
        log.log(
            logging.WARNING if one.bad else logging.INFO,
            "%s: %s -> %s",
            one.what,
            one.before or "nothing",
            one.after,
            extra={"key": "/".join(key)} | ({"cause": one.cause} if one.cause else {}),
        )


def target_of(write: Write) -> str:
    """Return kind and name of a write's object, for people."""
    return f"{written_kind(write)}/{shown_name(write)}"


def log_write(key: Key, write: Write) -> None:
    """Log a write that was carried out: what, to which object, why, and which fields differ."""
    # A question changes nothing in the cluster.
    if isinstance(write, DryRunPod):
        return
    extra: dict[str, object] = {"key": "/".join(key), "cause": str(write.cause)}
    if isinstance(write, Apply) and write.fields:
        extra["fields"] = write.fields
    # What is only remembered of a group changes nothing that runs.
    notes = isinstance(write, Apply | Patch) and write.why is Why.NOTE
    log.log(
        logging.DEBUG if notes else logging.INFO,
        "%s %s",
        type(write).__name__.lower(),
        target_of(write),
        extra=extra,
    )


class Refusals:
    """Says what is refused of a model once for as long as it lasts, and once that it is over.

    What lasts is said again every :data:`QUIET_SECONDS`.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: dict[Key, dict[tuple[str, str], float]] = {}

    def say(self, key: Key, what: str, message: str, **facts: object) -> None:
        """Log that something was refused: as a warning if it is news, else for debugging.

        ``what`` is the object, or the step of a look; messages that differ by numbers or generated
        names alone are the same.
        """
        gist, now = (what, _GENERATED.sub("#", message)), self._clock()
        known = self._said.get(key, {}).items()
        said = {one: at for one, at in known if now - at < QUIET_SECONDS}
        news = gist not in said and len(said) < REMEMBERED_MAX
        self._said[key] = said | {gist: now} if news else said
        level = logging.WARNING if news else logging.DEBUG
        log.log(level, "%s: %s", what, message, extra={"key": "/".join(key), **facts})

    def over(self, key: Key, what: str) -> None:
        """Note that this is not refused any more."""
        known = self._said.pop(key, {})
        if lasts := {gist: at for gist, at in known.items() if gist[0] != what}:
            self._said[key] = lasts
        if len(lasts) < len(known):
            log.info("%s: taken now", what, extra={"key": "/".join(key)})

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self._said.pop(key, None)
