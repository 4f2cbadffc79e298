"""How much may a question to the planner cost, and what is said when it costs more?
``controller.planner_process`` enforces the budget.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shardwright.errors import Problem
from shardwright.units import MIB


class QuestionFault(StrEnum):
    """Why a question has no answer."""

    CPU = "Cpu"  #: its CPU time was spent
    MEMORY = "Memory"  #: it needs more memory
    CRASH = "Crash"  #: the process that worked on it ended, twice


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBudget:
    """The CPU seconds and the memory in bytes of the planner process for one question."""

    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A question without an answer within its budget."""

    fault: QuestionFault
    budget: QuestionBudget


def config_too_costly(failed: Failed) -> Problem:
    """Return the problem of a resource whose config costs too much to read."""
    return Problem(
        code="ConfigTooCostly",
        path="spec.model",
        what="reading the resource and its model's config",
        limit=_limit(failed),
        gap=_GAPS[failed.fault],
        remedy="give the model's own config.json, with few, simple patterns in "
        "quantization_config; that is read again",
    )


def plan_too_costly(failed: Failed) -> Problem:
    """Return the problem of a model that costs too much to plan."""
    return Problem(
        code="PlanTooCostly",
        path="spec",
        what="planning this model",
        limit=_limit(failed),
        gap=_GAPS[failed.fault],
        remedy="ask for fewer replicas, or pin spec.parallelism; it is planned again when the "
        "spec changes, and after an hour",
    )


def _limit(failed: Failed) -> str:
    budget = failed.budget
    return (
        f"must take at most {budget.cpu_seconds:g} s of CPU and {budget.memory_bytes // MIB}"
        " MiB of memory"
    )


_GAPS: Final = {
    QuestionFault.CPU: "the CPU time was spent",
    QuestionFault.MEMORY: "the memory was not enough",
    QuestionFault.CRASH: "the process that did it ended, twice",
}
