"""Search for the spec and config that cost most to read, plan and render, in CPU and memory, of all
that the API server admits.

    python -m benchmarks.worst [--questions 400] [--seed 0] [--cpu-seconds 10] [--memory-mib 192]

Each question is put to the operator's own worker, within its budget; what exceeds that has no
answer, and counts as the whole budget. The search draws choices of `tests.support.costly`, keeps
for each figure the worst few, and changes and crosses those. The same seed asks the same questions,
as far as CPU time orders them alike. It ends with 1 where rendering, which the operator does
outside of the worker, spent a whole budget.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from shardwright.controller.budget import Failed, QuestionBudget
from shardwright.controller.metrics import Metrics
from shardwright.controller.planner_process import Memo, PlannerProcess
from shardwright.controller.queue import Priority
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.planner_work import MakePlan, Planned, Resolve, Stock, Work
from shardwright.reconcile.snapshot import Ask
from shardwright.resolving.subject import Administration, Subject
from shardwright.units import MIB
from tests.support.costly import (
    CHOICES,
    Choice,
    Render,
    changed,
    crossed,
    drawn,
    inventory_of,
    resource_of,
)

KEY: Final = ("models", "model")
ASK: Final = Ask(on=None, choice=PlanChoice.REPLAN)
FIGURES: Final = ("read", "planned", "rendered", "peak")
"""What is searched for: CPU seconds of each part, and MiB of the process."""
KEPT: Final = 6
"""Choices that are kept for each figure."""
DRAWN: Final = 0.25
"""Share of the questions that is drawn anew: what was found may be a hill beside the mountain."""


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a choice has cost, and what came of it."""

    choice: Choice
    figures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FIGURES, 0.0))
    said: str = ""


class Search:
    """One worker, and the worst that it was asked so far."""

    def __init__(self, budget: QuestionBudget, seed: int) -> None:
        self._metrics = Metrics()
        self._worker = PlannerProcess(budget, self._metrics)
        self._budget = budget
        self._dice = random.Random(seed)  # noqa: S311 - the same questions for the same seed are wanted
        self.worst: dict[str, list[Cost]] = {figure: [] for figure in FIGURES}
        self.said = Counter[str]()

    async def run(self, questions: int) -> None:
        for _ in range(questions):
            cost = await self._cost(self._next())
            self.said[cost.said] += 1
            for figure in FIGURES:
                ordered = sorted(
                    [*self.worst[figure], cost], key=lambda one: one.figures[figure], reverse=True
                )
                if ordered[0] is cost:
                    print(
                        f"{figure:9} {cost.figures[figure]:8.2f}  {cost.said}: {told(cost.choice)}",
                        flush=True,
                    )
                self.worst[figure] = ordered[:KEPT]
        self._worker.stop()

    def _next(self) -> Choice:
        parents = self.worst[self._dice.choice(FIGURES)]
        if not parents or self._dice.random() < DRAWN:
            return drawn(self._dice)
        one, other = (self._dice.choice(parents).choice, self._dice.choice(parents).choice)
        return changed(crossed(one, other, self._dice), self._dice)

    async def _cost(self, choice: Choice) -> Cost:
        content, text = resource_of(choice)
        cost = Cost(choice=choice)
        asked = Resolve(text=json.dumps(content), config_text=text, administration=Administration())
        subject = await self._asked(cost, "read", asked)
        if not isinstance(subject, Subject):
            cost.said = (
                f"refused: {subject[0].code}"
                if isinstance(subject, tuple) and subject
                else cost.said
            )
            return cost
        whole = inventory_of(choice["nodes"], choice["pools"], choice["free"])
        planned = await self._asked(
            cost, "planned", MakePlan(subject=subject, ask=ASK, stock=Stock(whole=whole, taken={}))
        )
        if isinstance(planned, Planned):
            cost.said = "planned" if planned.replanned.record else "no plan"
            rendered = await self._asked(cost, "rendered", Render(subject=subject, planned=planned))
            if isinstance(rendered, tuple) and rendered[0]:
                cost.said = f"{rendered[0]:,} objects of {rendered[1] / MIB:,.1f} MiB"
        return cost

    async def _asked(self, cost: Cost, figure: str, work: Work[Any]) -> Any:
        self._forget_peak()
        before = self._seconds(work)
        outcome = await self._worker.ask(KEY, Priority.NEW, work, Memo())
        spent = self._seconds(work) - before
        if isinstance(outcome, Failed):
            cost.said = f"{figure}: no answer ({outcome.fault.value})"
            spent = self._budget.cpu_seconds if outcome.fault.value == "Cpu" else spent
        cost.figures[figure] = spent
        cost.figures["peak"] = max(cost.figures["peak"], self._peak_mib())
        return outcome

    def _seconds(self, work: Work[Any]) -> float:
        question = {"question": type(work).__name__}
        return (
            self._metrics.registry.get_sample_value(
                "shardwright_worker_cpu_seconds_total", question
            )
            or 0.0
        )

    def _forget_peak(self) -> None:
        if self._worker.pid:
            Path(f"/proc/{self._worker.pid}/clear_refs").write_text("5")

    def _peak_mib(self) -> float:
        """Return the most memory since it was forgotten; 0 of a process that is being replaced."""
        lines = (
            Path(f"/proc/{self._worker.pid}/status").read_text().splitlines()
            if self._worker.pid
            else ()
        )
        return next(
            (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0
        )


def told(choice: Choice) -> str:
    """Return what a choice has of the values that cost."""
    own = choice["model"] == "own"
    config = {
        "source",
        "layers",
        "heads",
        "kv_heads",
        "width",
        "experts",
        "layer_types",
        "quantization",
        "patterns",
        "ways",
        "filling",
    }
    names = [
        name
        for name in CHOICES
        if name != "model" and (name in config) <= own and (name != "catalogue" or not own)
    ]
    return ", ".join(f"{name} {choice[name]}" for name in names if choice[name] not in ("", 0, {}))


def main() -> int:
    """Run the search; the exit code says whether all stayed within the budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--questions", type=int, default=400, help="how many are asked (default: 400)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")
    parser.add_argument("--cpu-seconds", type=float, default=10.0)
    parser.add_argument("--memory-mib", type=int, default=192)
    given, console, began = parser.parse_args(), Console(), monotonic()
    search = Search(
        QuestionBudget(cpu_seconds=given.cpu_seconds, memory_bytes=given.memory_mib * MIB),
        given.seed,
    )
    asyncio.run(search.run(given.questions))
    table = Table("the worst", "read s", "planned s", "rendered s", "peak MiB", "what came of it")
    for figure in FIGURES:
        cost = search.worst[figure][0]
        table.add_row(figure, *(f"{cost.figures[name]:.2f}" for name in FIGURES), cost.said)
    console.print(table)
    for figure in FIGURES:
        console.print(f"{figure}: {told(search.worst[figure][0].choice)}")
    answers = Counter(
        said if "objects" not in said else "rendered" for said in search.said.elements()
    )
    console.print(
        f"{given.questions} questions in {monotonic() - began:.0f} s; {dict(answers.most_common())}"
    )
    return 0 if search.worst["rendered"][0].figures["rendered"] < given.cpu_seconds else 1


if __name__ == "__main__":
    sys.exit(main())
