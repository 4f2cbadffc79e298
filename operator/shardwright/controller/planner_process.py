"""The process for all work whose cost users decide; it may be killed at any time.

It takes one question at a time. One that exceeds its CPU time or memory, or ends the process twice,
has no answer; the next question goes to a new process after a short wait.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from shardwright.controller.budget import Failed, QuestionBudget, QuestionFault
from shardwright.controller.fair_lock import FairLock
from shardwright.controller.ipc import Reply, SharedValues, read_message, write_message
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key, Priority
from shardwright.reconcile.planner_work import Work

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Memoized = TypeVar("Memoized")

TRIES: Final = 2
"""Of how many processes a question is asked that end with it: the first may have ended for another
reason.
"""

STARVED: Final = 10.0
"""How many times its CPU time a question may take by the clock. Basis: assumed; a worker that gets
less than a tenth of a core, or hangs, is replaced.
"""

STILL_LOOK_SECONDS: Final = 1.0
STILL_LOOKS: Final = 10
"""Looks at the worker's CPU time in a row, between which it has got none, after which it counts as
stopped: it alone plans, and all models wait for it. Looks are counted, not seconds: in a machine
that stood still nobody has got any. Basis: assumed; the least that Linux counts is 10 ms.
"""

START_PAUSE_SECONDS: Final = 1.0
LONGEST_START_PAUSE_SECONDS: Final = 30.0
LOGGED_MAX_LENGTH: Final = 500


class WorkError(Exception):
    """A fault of ours in the planner process, with its traceback; ``raised`` is its class."""

    def __init__(self, traceback: str, raised: str) -> None:
        super().__init__(traceback)
        self.raised = raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Memo(Generic[Memoized]):
    """Where a question's outcome is kept, even if nobody waits, for when it is asked again."""

    recall: Callable[[], Memoized | None] = lambda: None
    keep: Callable[[Memoized], None] = lambda _outcome: None


class Answerer(Protocol):
    """Answers questions."""

    async def ask(
        self,
        key: Key,
        priority: Priority,
        work: Work[Answer],
        memo: Memo[Answer | Failed],
        *,
        first: bool = False,
    ) -> Answer | Failed:
        """Return the answer to a question about a model, or why it has none.

        ``first``: before all else of its namespace that is as urgent, since others wait for its
        request.

        Raises:
            WorkError: a fault of ours.
        """


class PlannerProcess:
    """The planner process, and the lock for it."""

    def __init__(self, budget: QuestionBudget, metrics: Metrics) -> None:
        self.budget = budget
        self._metrics = metrics
        self._lock = FairLock(metrics.turn_waits("worker"))
        self._process: _Process | None = None
        self._stopped = False
        self._under_way: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Start the process, without waiting for it."""
        if self._process is None and not self._stopped:
            # Not waited for: starting takes 0.4 s of CPU, in which the caches fill.
            self._process = _Process(self.budget)

    def stop(self) -> None:
        """End the process, and its work."""
        self._stopped = True
        if self._process:
            self._process.end()

    @property
    def pid(self) -> int | None:
        """Return the process id, None without a process."""
        return self._process.pid if self._process else None

    async def ask(
        self,
        key: Key,
        priority: Priority,
        work: Work[Answer],
        memo: Memo[Answer | Failed],
        *,
        first: bool = False,
    ) -> Answer | Failed:
        """Return a question's answer, or why it has none; see :class:`Answerer`."""
        await self._lock.take(key, priority, first=first)
        task = asyncio.create_task(self._finish(work, memo))
        self._under_way.add(task)
        task.add_done_callback(self._finished)
        # A caller may give up; the turn lasts until the process is free.
        return await asyncio.shield(task)

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        self._lock.give_back()
        if not task.cancelled():
            task.exception()  # it is told to who asked; nobody else wants it

    async def _finish(self, work: Work[Answer], memo: Memo[Answer | Failed]) -> Answer | Failed:
        known = memo.recall()  # who asked may have given up and asked again meanwhile
        if known is not None:
            return known
        outcome = await self._outcome(work)
        if isinstance(outcome, Failed):
            self._metrics.worker_refusals.labels(outcome.fault.value).inc()
        memo.keep(outcome)
        return outcome

    async def _outcome(self, work: Work[Answer]) -> Answer | Failed:
        fault = QuestionFault.CRASH
        # A second process: the first may have been full of other people's models, or killed from
        # outside (ADR 11).
        for _ in range(TRIES):
            process = await self._ready()
            outcome = await self._asked_of(process, work)
            if not isinstance(outcome, QuestionFault):
                return outcome
            fault = outcome
            # CPU that was spent once is spent again, and a process that still stands did answer.
            if fault is QuestionFault.CPU or self._process is process:
                break
        return Failed(fault=fault, budget=self.budget)

    async def _asked_of(self, process: "_Process", work: Work[Answer]) -> Answer | QuestionFault:
        alarm = asyncio.get_running_loop().call_later(
            # By the clock as well: a process that gets no CPU, or hangs, spends none of its budget.
            STARVED * self.budget.cpu_seconds,
            process.kill,
        )
        watched = asyncio.create_task(_end_if_still(process))
        try:
            reply = await asyncio.to_thread(process.exchange, work)
        except EndedError as error:
            await self._replace(process, error.fault)
            return error.fault
        except Exception:
            # A message may have gone halfway, and the two ends would not agree on their values any
            # more.
            await self._replace(process, QuestionFault.CRASH)
            raise
        finally:
            alarm.cancel()
            watched.cancel()
        self._metrics.count_work(type(work).__name__, reply.cpu_seconds)
        if reply.error:
            raise WorkError(reply.error, reply.raised)
        # Memory that Python has freed is often not given back, so the next question would fail as
        # well.
        if reply.fault is QuestionFault.MEMORY:
            await self._replace(process, reply.fault)
        answer: Answer = reply.answer
        return reply.fault or answer

    async def _replace(self, process: "_Process", fault: QuestionFault) -> None:
        self._process = None
        await asyncio.to_thread(process.end)
        if not self._stopped:
            self._metrics.worker_restarts.labels(fault.value).inc()
            log.warning("the worker is replaced", extra={"reason": fault.value})
            self.start()

    async def _ready(self) -> "_Process":
        pause = START_PAUSE_SECONDS
        while not self._stopped:
            self.start()
            process = self._process
            assert process is not None  # noqa: S101 - it has been started
            alarm = asyncio.get_running_loop().call_later(
                STARVED * self.budget.cpu_seconds, process.kill
            )
            try:
                ready = await asyncio.to_thread(process.wait_ready)
            finally:
                alarm.cancel()
            # It has said that it is ready: the import of the planner is not counted against a
            # question.
            if ready:
                return process
            log.error(
                "the worker ended before it could be asked; its memory is limited to %d bytes",
                self.budget.memory_bytes,
            )
            self._process = None
            await asyncio.to_thread(process.end)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_START_PAUSE_SECONDS)
        raise asyncio.CancelledError


async def _end_if_still(process: "_Process") -> None:
    """Kill a process that gets no CPU time while it works: stopped, or kept from every core."""
    seen, still = process.ticks(), 0
    while still < STILL_LOOKS:
        await asyncio.sleep(STILL_LOOK_SECONDS)
        before, seen = seen, process.ticks()
        still = still + 1 if seen is not None and seen == before else 0
    log.error(
        "the worker has got no CPU time in %g s, so nothing is planned; it is killed",
        STILL_LOOKS * STILL_LOOK_SECONDS,
    )
    process.kill()


class EndedError(Exception):
    """The process has ended instead of answering."""

    def __init__(self, fault: QuestionFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class _Process:
    """One planner process; its blocking methods are called on threads, one at a time."""

    def __init__(self, budget: QuestionBudget) -> None:
        command = [
            sys.executable,
            "-m",
            "shardwright.controller.planner_child",
            str(budget.cpu_seconds),
            str(budget.memory_bytes),
        ]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        pipe = subprocess.PIPE
        # A new interpreter and no fork: this process has threads, and has loaded kopf and the
        # Kubernetes client, which no question needs (ADR 11).
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            # As this process finds its modules, also from a source tree that is not installed.
            env={**os.environ, "PYTHONPATH": path},
        )
        self._shared = SharedValues(decides=True)
        self._ready = False
        # A pipe that nobody reads fills up, and whoever writes to it hangs.
        self._logging = threading.Thread(target=self._log, name="worker-log", daemon=True)
        self._logging.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ticks(self) -> int | None:
        """Return the CPU time of the process in ticks, None where the kernel does not tell."""
        try:
            said = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return None
        # Behind its name, which may hold anything: proc(5), fields 14 and 15.
        behind = said.rpartition(")")[2].split()
        return int(behind[11]) + int(behind[12])

    def wait_ready(self) -> bool:
        """Wait until it can be asked, and return whether it can."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._ready = self._ready or read_message(self._process.stdout) is not None
        return self._ready

    def exchange(self, work: Work[Any]) -> Reply:
        """Return the reply to a question.

        Raises:
            EndedError: the process has ended.
        """
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            write_message(self._process.stdin, self._shared.dumps(work))
            data = read_message(self._process.stdout)
        except BrokenPipeError:
            data = None
        if data is None:
            # The default action of the timer's signal: no handler could run within a regular
            # expression.
            spent = self._process.wait() == -signal.SIGPROF
            raise EndedError(QuestionFault.CPU if spent else QuestionFault.CRASH)
        reply: Reply = self._shared.loads(data)
        return reply

    def kill(self) -> None:
        """Kill it without waiting."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, and leave nothing of it."""
        self._process.kill()
        self._process.wait()
        self._logging.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None  # noqa: S101 - it is a pipe
            with suppress(BrokenPipeError):
                pipe.close()

    def _log(self) -> None:
        # Its output is nothing but faults.
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        with self._process.stderr as source:
            for line in iter(lambda: source.readline(LOGGED_MAX_LENGTH), b""):
                log.warning("worker: %s", line.decode(errors="replace").rstrip())
