"""The running measurement: the control plane, the operators, what has been read off them so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.fleet import processes
from benchmarks.fleet.requests import Audit, metric
from benchmarks.fleet.sizes import Size
from benchmarks.fleet.watching import Snapshot
from tests.harness.controlplane import COMPONENTS, ControlPlane
from tests.support.operator import OPERATOR_USER, OperatorProcess

PARALLEL: Final = 12
QUIET_SHARE: Final = 0.1
QUIET_READINGS: Final = 3
QUIET_EVERY_SECONDS: Final = 1.0
"""Quiet is a share of a core over a span of time, so each reading needs its span: nothing happens
that could be waited for.
"""
LOOKS: Final = "shardwright_reconcile_duration_seconds_count"
PLANNING: Final = (
    "shardwright_planning_cpu_seconds_total",
    "shardwright_plan_duration_seconds_sum",
)
"""Where an operator says what planning has cost; none need be there."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds so far, by process, and of the whole machine, at one moment."""

    at: float
    cpu: Mapping[str, float]
    machine: float

    def until(self, later: Reading) -> dict[str, float]:
        """Return what each process has taken until a later reading; `others` is everything else on
        the machine.
        """
        spent = {
            name: later.cpu[name] - seconds
            for name, seconds in self.cpu.items()
            if name in later.cpu
        }
        return spent | {
            "others": max(later.machine - self.machine - sum(spent.values()), 0.0),
            "seconds": later.at - self.at,
        }


class Steps:
    """Says what is being done: a bar in a terminal, a line when it is done in a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @contextmanager
    def step(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show a step; call what is given with how much of it is done."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        bar = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )
        with bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
        self.say(what)

    def say(self, what: str) -> None:
        self._console.print(
            f"{time.monotonic() - self._began:7.1f} s  {what}", highlight=False, soft_wrap=True
        )


@dataclass
class Bench:
    """What the parts of the measurement share; ``figures``, ``requests``, ``cpu`` and ``memory``
    are what they find.
    """

    control_plane: ControlPlane
    size: Size
    steps: Steps
    seen: Snapshot = field(init=False)
    audit: Audit = field(init=False)
    operators: dict[str, OperatorProcess] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    requests: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, dict[str, float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = Snapshot(self.control_plane)
        self.audit = Audit(self.control_plane.audit_log, OPERATOR_USER)

    def close(self) -> None:
        """End the operators and the watches."""
        for operator in self.operators.values():
            operator.kill()
        self.seen.close()

    def new_operator(self, identity: str, *arguments: str) -> OperatorProcess:
        """Return an operator that is not started yet."""
        self.operators[identity] = OperatorProcess(
            self.control_plane, *arguments, identity=identity
        )
        return self.operators[identity]

    def read(self) -> Reading:
        """Read the CPU of all processes."""
        found = {name: operator.running() for name, operator in self.operators.items()}
        roots = {
            name: pid for name, pid in found.items() if pid is not None
        } | self.control_plane.running()
        cpu = processes.cpu_seconds(roots)
        mine = time.process_time()
        return Reading(
            time.monotonic(), {**cpu, "benchmark": mine}, processes.machine_busy_seconds()
        )

    def quiet(self, names: Iterable[str], seconds: float) -> bool:
        """Wait until these processes rest (each a tenth of a core for three seconds), no longer
        than this; whether they do.
        """
        watched, deadline, still, before = (
            tuple(names),
            time.monotonic() + seconds,
            0,
            self.read(),
        )
        while time.monotonic() < deadline:
            time.sleep(QUIET_EVERY_SECONDS)
            now = self.read()
            spent = before.until(now)
            still = (
                still + 1
                if all(
                    spent[name] < QUIET_SHARE * spent["seconds"]
                    for name in watched
                    if name in spent
                )
                else 0
            )
            if still == QUIET_READINGS:
                return True
            before = now
        return False

    def cluster_quiet(self, seconds: float = 120) -> None:
        """Wait until the control plane has nothing more to do."""
        if not self.quiet(COMPONENTS, seconds):
            self.note(
                f"The control plane was not quiet within {seconds:g} s when a measurement began."
            )

    def note(self, text: str) -> None:
        """Keep, and say now, what somebody who reads the figures must know."""
        self.notes.append(text)
        self.steps.say(text)

    def looks(self, operator: OperatorProcess) -> float:
        """Return how many reconciles of models an operator has had."""
        return metric(operator.get("/metrics")[1], LOOKS) or 0.0

    def planning_seconds(self, operator: OperatorProcess) -> float | None:
        """Return the CPU that an operator says it has planned for, None where it says nothing."""
        text = operator.get("/metrics")[1]
        return next((value for name in PLANNING if (value := metric(text, name)) is not None), None)

    def in_parallel(
        self, what: str, function: Callable[[Item], Any], items: Iterable[Item], total: int
    ) -> None:
        """Do something with each item, several at a time, as a step."""
        with self.steps.step(what, total) as show, ThreadPoolExecutor(PARALLEL) as pool:
            for done, _ in enumerate(pool.map(function, items), 1):
                show(done)
