"""Does the plan of record stand? A better node moves nothing, a flapping label disturbs nothing."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.resolving.intent import Replan

GRACE_SECONDS: Final = 300.0
"""How long a plan stays although it has become invalid. Basis: assumed; a node reboots, a device plugin
restarts and labels come back within it."""


class Choice(StrEnum):
    """What to do with the plan of record."""

    KEEP = "Keep"
    RESCALE = "Rescale"  #: only the number of groups has changed: add or drop groups, move none
    REHOUSE = "Rehouse"  #: some groups cannot go on where they are: they move, the others stay; then as RESCALE
    REPLAN = "Replan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked now; the hashes cover everything that a plan depends on beside the cluster."""

    input_hash: str
    cut_hash: str
    replan: Replan
    replicas: int
    deploy: bool = False  # not only planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong with a plan, and for how long without interruption; ``leaving``: some groups must go elsewhere."""

    problem: Problem
    seconds: float
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The choice, what is wrong with the plan if it stays all the same, and when that changes the choice."""

    choice: Choice
    stale: Problem | None = None
    recheck_seconds: float | None = None


def judge(record: PlanRecord | None, question: Question, trouble: Trouble | None, *, serving: bool) -> Standing:
    """Return what becomes of the plan of record.

    Args:
        record: The plan of record, None where there is none that can be read.
        question: What is asked now.
        trouble: Why the recorded plan could not be started on the cluster as it is, None while it could.
        serving: Whether all its groups are ready: what runs is not moved, whatever labels and cordons say.
    """
    if record is None or record.cut_hash != question.cut_hash or (question.deploy and not record.plan.deployable):
        return Standing(choice=Choice.REPLAN)
    same = Choice.KEEP if record.input_hash == question.input_hash else Choice.RESCALE
    if question.replan is Replan.ALWAYS:
        return Standing(choice=Choice.REPLAN)
    if trouble is None:
        return Standing(choice=same)
    if serving or question.replan is Replan.NEVER:
        return Standing(choice=same, stale=trouble.problem)
    if trouble.seconds < GRACE_SECONDS and not trouble.leaving:
        return Standing(choice=same, stale=trouble.problem, recheck_seconds=GRACE_SECONDS - trouble.seconds)
    return Standing(choice=_after(trouble, fewer=question.replicas < len(record.plan.groups)), stale=trouble.problem)


def _after(trouble: Trouble, *, fewer: bool) -> Choice:
    """Return what becomes of a plan that is invalid for good: what some groups must leave concerns them only.

    Groups that are not wanted any more go before others move, those that are to come wait until the others have moved.
    """
    if not trouble.leaving:
        return Choice.REPLAN
    return Choice.RESCALE if fewer else Choice.REHOUSE
