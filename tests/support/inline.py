"""Who answers in place what the operator asks its worker: the same functions, in this process and without a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardwright.controller.queue import Key, Priority
from shardwright.reconcile.budget import Failed
from shardwright.reconcile.work import Work

Answer = TypeVar("Answer")


class Inline:
    """Answers at once; ``asked`` are the types of the questions, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(
        self,
        key: Key,  # noqa: ARG002
        priority: Priority,  # noqa: ARG002
        work: Work[Answer],
        then: Callable[[Answer | Failed], None],
    ) -> Answer | Failed:
        self.asked.append(type(work).__name__)
        answer = work.answer()
        then(answer)
        return answer
