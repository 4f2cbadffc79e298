"""Who answers in place what the operator asks its worker: the same functions, in this process and
without a budget.
"""

from __future__ import annotations

from typing import TypeVar

from shardwright.controller.budget import Failed
from shardwright.controller.planner_process import Memo
from shardwright.controller.queue import Key, Priority
from shardwright.reconcile.planner_work import Work
from tests.support.known_answers import known

Answer = TypeVar("Answer")


class Inline:
    """Answers at once.

    ``asked`` are the types of the questions, in order, ``urgency`` how urgent each was; ``failing``
    are those without an answer.
    """

    def __init__(self, **failing: Failed) -> None:
        self.asked: list[str] = []
        self.urgency: list[Priority] = []
        self.failing = failing

    async def ask(
        self,
        key: Key,  # noqa: ARG002
        priority: Priority,
        work: Work[Answer],
        memo: Memo[Answer | Failed],
        *,
        first: bool = False,  # noqa: ARG002
    ) -> Answer | Failed:
        kind = type(work).__name__
        self.asked.append(kind)
        self.urgency.append(priority)
        answer = self.failing[kind] if kind in self.failing else self._answer(work)
        memo.keep(answer)
        return answer

    def _answer(self, work: Work[Answer]) -> Answer:
        return work.answer()


class Remembering(Inline):
    """The same, but a question that any test has asked before is not worked out again."""

    def _answer(self, work: Work[Answer]) -> Answer:
        return known(_worked_out, work)


def _worked_out(work: Work[Answer]) -> Answer:
    return work.answer()
