"""How much may a question to the planner cost, and what is said when it costs more?
``controller.planner_process`` enforces the budget.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from shardwright.controller.queue import Key
from shardwright.errors import Problem
from shardwright.units import MIB

REFUSED_SECONDS: Final = 3600.0
"""How long what cost too much is not asked again of a model that has not changed: the cluster may
have.
"""


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


class TooCostly:
    """Each model's questions that cost too much, by its spec's hash and what else tells them apart:
    not asked again for :data:`REFUSED_SECONDS`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Key, dict[tuple[Any, ...], tuple[float, Failed]]] = {}

    def of(self, key: Key, asked: tuple[Any, ...]) -> Failed | None:
        """Return how a question failed, None if it is to be asked."""
        until, failed = self._until.get(key, {}).get(asked, (0.0, None))
        return failed if self._clock() < until else None

    def keep(self, key: Key, asked: tuple[Any, ...], failed: Failed) -> None:
        """Keep that a question failed; those of an earlier spec will not be asked again."""
        known = self._until.get(key, {})
        present = {other: kept for other, kept in known.items() if other[0] == asked[0]}
        self._until[key] = present | {asked: (self._clock() + REFUSED_SECONDS, failed)}

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self._until.pop(key, None)


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
