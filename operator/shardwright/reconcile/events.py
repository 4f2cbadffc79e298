"""Which changes are worth an event: a new plan, a changed outcome, a group that restarts, a repair?
An event is made of a change, never of a state: a reconcile that finds the same says nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwright.api.conditions import ConditionType, Reason
from shardwright.planning.phrases import on_gpus
from shardwright.planning.report import Plan
from shardwright.reconcile.findings import Findings, summarise
from shardwright.reconcile.model_status import (
    no_way_back,
    partly_placed,
    rolled_back,
    rollout_stopped,
)
from shardwright.reconcile.wording import failure_sentence
from shardwright.reconcile.write_cause import Origin, WriteCause
from shardwright.reconcile.writes import (
    Apply,
    Create,
    Delete,
    Patch,
    Why,
    Write,
    written_kind,
    written_name,
)
from shardwright.rendering.names import generation_of

WRITES_TOLD: Final = 20
"""Writes of one reconcile that have an event of their own: a thousand groups that fail at once say
no more. Basis: assumed.
"""


_ORDINARY: Final = frozenset(
    {
        Reason.SERVING,
        Reason.PLAN_ONLY,
        Reason.PAUSED,
        Reason.SCALED_TO_ZERO,
        Reason.ASLEEP,
        Reason.PROGRESSING,
        Reason.ROLLING_OUT,
        Reason.WAITING_FOR_NODES,
        Reason.WAITING_FOR_QUOTA,
        Reason.CONFIG_FETCHING,
        Reason.CLUSTER_READING,
    }
)
"""Reasons in the course of which nothing has gone wrong; all others are told as warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A happening, for ``kubectl describe``; reason and action are from a small set of words."""

    reason: str
    action: str
    note: str
    warning: bool = False


def events_of(
    before: Iterable[Mapping[str, Any]], found: Findings, written: Iterable[Write]
) -> Iterator[Event]:
    """Yield the events of one reconcile: ``before`` are the conditions that the status had,
    ``written`` the writes that were carried out.
    """
    yield from _of_outcome(before, found)
    yield from _of_places(before, found)
    yield from _of_rollout(before, found)
    told = [event for write in written for event in _of_write(write, found)]
    yield from told[:WRITES_TOLD]
    if len(told) > WRITES_TOLD:
        yield replace(
            # An event needs a reason and an action: those of the first one left out.
            told[WRITES_TOLD],
            note=f"and {len(told) - WRITES_TOLD} more at once, which status.groups shows",
        )


def _of_outcome(before: Iterable[Mapping[str, Any]], found: Findings) -> Iterator[Event]:
    summary = summarise(found)
    ready = _before(before, ConditionType.READY)
    # Says no more than that there is a plan.
    begins = not ready and summary.reason == Reason.PROGRESSING
    if ready.get("reason") != summary.reason and not begins:
        fails = summary.stalled or any(group.failing for group in found.groups)
        yield Event(
            reason=summary.reason,
            action="Reconcile",
            note=summary.message,
            warning=not summary.ready and (fails or summary.reason not in _ORDINARY),
        )
    # Told by the change of the condition: the finding holds for ten minutes, and each reconcile
    # would tell it again.
    if found.distrusted and not _before(before, ConditionType.RECORD_REFUSED):
        yield Event(
            reason=Reason.PLAN_RECORD_REFUSED,
            action="Repair",
            note=found.distrusted.sentence(),
            warning=True,
        )


def _of_places(before: Iterable[Mapping[str, Any]], found: Findings) -> Iterator[Event]:
    partly = partly_placed(found)
    if partly and not _before(before, ConditionType.PARTLY_PLACED):
        yield Event(
            reason=ConditionType.PARTLY_PLACED,
            action="Plan",
            note=partly.message,
            warning=partly.reason not in _ORDINARY,
        )


def _of_rollout(before: Iterable[Mapping[str, Any]], found: Findings) -> Iterator[Event]:
    stopped = rollout_stopped(found)
    if stopped and not _before(before, ConditionType.ROLLOUT_STOPPED):
        yield Event(reason="RolloutStopped", action="Restart", note=stopped.message, warning=True)
    back = rolled_back(found)
    if back and not _before(before, ConditionType.ROLLED_BACK):
        yield Event(
            reason="RolledBack", action="Restart", note=back.message, warning=found.spec_rejected
        )
    barred, was = no_way_back(found), _before(before, ConditionType.NO_WAY_BACK)
    if barred and barred.reason != was.get("reason"):
        yield Event(reason=barred.reason, action="Reconcile", note=barred.message, warning=True)


def _before(conditions: Iterable[Mapping[str, Any]], kind: ConditionType) -> Mapping[str, Any]:
    return next((condition for condition in conditions if condition["type"] == kind), {})


def plan_event(plan: Plan) -> Event:
    """Return the event of a new plan of record."""
    return Event(reason="Planned", action="Plan", note=f"{on_gpus(plan.layout)} of {plan.pool}")


def surge_event(group: str, nodes: Sequence[str]) -> Event:
    """Return the event of a group that surges."""
    return Event(
        reason="Surging",
        action="Restart",
        note=f"{group} serves until its next generation on {', '.join(nodes)} is ready",
    )


def refuge_event(group: str, nodes: Sequence[str]) -> Event:
    """Return the event of a group that is down and goes elsewhere at once."""
    return Event(
        reason="Rebuilt",
        action="Restart",
        note=f"{group} is down and cannot come up where it is; its next generation starts on "
        f"{', '.join(nodes)}",
        warning=True,
    )


def _of_write(write: Write, found: Findings) -> Iterator[Event]:
    match write:
        case Apply(why=Why.FAILURE | Why.CAUSE) | Patch(why=Why.FAILURE | Why.CAUSE):
            yield _restart(write, found)
        case Apply(why=Why.ROLLOUT | Why.REQUESTED) | Patch(why=Why.ROLLOUT | Why.REQUESTED):
            yield _stop_on_purpose(write)
        case Create(content={"kind": "StatefulSet", "metadata": {"name": name}}) if (
            found.lost and generation_of(name)[1]
        ):
            note = (
                f"{name} starts on other nodes: pods on {', '.join(sorted(found.lost))} should "
                "be gone, and are not"
            )
            yield Event(reason="Rebuilt", action="Restart", note=note, warning=True)
        # A new release repairs every field that it renders otherwise: nobody edited those, and an
        # event for each object would drown the others.
        case Apply(fields=fields, cause=WriteCause(origin=Origin.UNDONE)):
            yield Event(
                reason="Repaired", action="Repair", note=f"{_name(write)}: {', '.join(fields[:5])}"
            )
        case Delete(kind=kind, name=name, why=Why.DRIFT):
            yield Event(
                reason="Repaired",
                action="Repair",
                note=f"{kind} {name} is made again: the fields that differ cannot be changed",
            )
        # A pod is deleted only to cut its grace short, and its group has an event for that.
        case Delete(kind=kind, name=name) if kind != "Pod":
            yield Event(
                reason="Pruned",
                action="Delete",
                note=f"{kind} {name} is not part of the plan any more",
            )


def _restart(write: Apply | Patch, found: Findings) -> Event:
    group = next(group for group in found.groups if group.name == written_name(write))
    return Event(
        reason="GroupFailed",
        action="Restart",
        note=f"{group.name}: {failure_sentence(group)}",
        warning=True,
    )


def _stop_on_purpose(write: Apply | Patch) -> Event:
    if write.why is Why.REQUESTED:
        return Event(
            reason="Restarting",
            action="Restart",
            note=f"{_name(write)} restarts as a whole, as asked",
        )
    next_start = (
        "starts with the new template"
        if isinstance(write, Apply)
        else "is replaced by its next generation: the fields that differ cannot be changed"
    )
    note = f"{_name(write)} stops as a whole and {next_start}"
    return Event(reason="RollingOut", action="Restart", note=note)


def _name(write: Write) -> str:
    return f"{written_kind(write)} {written_name(write)}"
