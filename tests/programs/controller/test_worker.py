"""The worker, a real process: what costs too much has no answer, and nobody else's question is
lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shardwright.controller import planner_process
from shardwright.controller.budget import Failed, QuestionBudget, QuestionFault
from shardwright.controller.metrics import Metrics
from shardwright.controller.planner_process import Memo, PlannerProcess, WorkError
from shardwright.controller.queue import Priority
from shardwright.reconcile.planner_work import Work
from tests.harness.waiting import wait_for
from tests.support.works import Die, Dive, Fail, Grow, Pid, Say, Spin

KEY = ("models", "llama")
BUDGET = QuestionBudget(cpu_seconds=1, memory_bytes=96 << 20)
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def working() -> AsyncIterator[PlannerProcess]:
    worker = PlannerProcess(BUDGET, Metrics())
    try:
        yield worker
    finally:
        worker.stop()


def run(scenario: Callable[[PlannerProcess], Awaitable[None]]) -> None:
    async def scene() -> None:
        async with working() as worker:
            await asyncio.wait_for(scenario(worker), 120)

    asyncio.run(scene())


async def ask(worker: PlannerProcess, work: Work[int]) -> int | Failed:
    return await worker.ask(KEY, Priority.NEW, work, Memo())


def refused(fault: QuestionFault) -> Failed:
    return Failed(fault=fault, budget=BUDGET)


def test_answers_come_from_another_process_that_stays() -> None:
    async def scenario(worker: PlannerProcess) -> None:
        pids = {await ask(worker, Pid()) for _ in range(3)}
        assert pids == {worker.pid}
        assert pids != {os.getpid()}

    run(scenario)


def test_a_question_that_spends_its_cpu_time_has_no_answer_and_the_next_one_has() -> None:
    async def scenario(worker: PlannerProcess) -> None:
        assert await ask(worker, Spin()) == refused(QuestionFault.CPU)
        assert await ask(worker, Pid()) == worker.pid

    run(scenario)


def test_a_question_that_spends_the_memory_has_no_answer_and_the_next_one_has() -> None:
    async def scenario(worker: PlannerProcess) -> None:
        assert await ask(worker, Grow()) == refused(QuestionFault.MEMORY)
        assert await ask(worker, Pid()) == worker.pid

    run(scenario)


def test_a_question_that_ends_the_process_twice_has_no_answer_and_the_next_one_has(
    tmp_path: Path,
) -> None:
    async def scenario(worker: PlannerProcess) -> None:
        assert await ask(worker, Die(folder=tmp_path)) == refused(QuestionFault.CRASH)
        assert await ask(worker, Pid()) == worker.pid

    run(scenario)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_question_with_which_the_process_is_killed_once_is_answered_by_the_next_process(
    tmp_path: Path,
) -> None:
    async def scenario(worker: PlannerProcess) -> None:
        assert await ask(worker, Die(by=signal.SIGKILL, lives=1, folder=tmp_path)) == 1

    run(scenario)


def test_a_worker_that_is_killed_while_it_has_nothing_to_do_is_nobodys_fault() -> None:
    async def scenario(worker: PlannerProcess) -> None:
        first = await ask(worker, Pid())
        assert isinstance(first, int)
        os.kill(first, signal.SIGKILL)
        second = await ask(worker, Pid())
        assert isinstance(second, int)
        assert second != first

    run(scenario)


def test_a_question_that_recurses_without_end_has_no_answer() -> None:
    async def scenario(worker: PlannerProcess) -> None:
        assert await ask(worker, Dive()) == refused(QuestionFault.CRASH)

    run(scenario)


def test_a_fault_of_ours_is_told_to_who_asked_and_ends_nothing() -> None:
    async def scenario(worker: PlannerProcess) -> None:
        before = await ask(worker, Pid())
        with pytest.raises(WorkError, match="KeyError: 'a fault'"):
            await ask(worker, Fail())
        assert await ask(worker, Pid()) == before

    run(scenario)


def test_what_comes_of_a_question_is_noted_although_who_asked_has_given_up(tmp_path: Path) -> None:
    async def scenario(worker: PlannerProcess) -> None:
        noted: list[int | Failed] = []
        memo: Memo[int | Failed] = Memo(
            recall=lambda: noted[0] if noted else None, keep=noted.append
        )
        begun = tmp_path / "begun"
        asking = asyncio.create_task(worker.ask(KEY, Priority.NEW, Spin(begun=begun), memo))
        await asyncio.to_thread(wait_for, begun.exists, 60, "the question to be worked on")
        asking.cancel()
        again = await worker.ask(
            KEY, Priority.NEW, Pid(), memo
        )  # a question that is known by then is not worked on again
        assert (again, noted) == (refused(QuestionFault.CPU), [refused(QuestionFault.CPU)])
        assert await ask(worker, Pid()) == worker.pid

    run(scenario)


def test_a_worker_that_is_stopped_is_replaced_and_its_question_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(planner_process, "STILL_LOOK_SECONDS", 0.1)

    async def scenario(worker: PlannerProcess) -> None:
        former = await ask(worker, Pid())
        assert worker.pid == former
        os.kill(worker.pid or 0, signal.SIGSTOP)
        # Sooner than the ten times its CPU time that one is given which gets little.
        assert await asyncio.wait_for(ask(worker, Pid()), 9) == worker.pid != former

    run(scenario)
    assert "has got no CPU time in 1 s, so nothing is planned; it is killed" in caplog.text


def test_what_the_worker_prints_is_logged_and_harms_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(worker: PlannerProcess) -> None:
        assert await ask(worker, Say()) == 1
        said = {"worker: to standard output", "worker: to standard error"}
        await asyncio.to_thread(
            wait_for, lambda: said <= set(caplog.messages), 30, "both lines to be logged"
        )

    with caplog.at_level(logging.WARNING):
        run(scenario)


PARENT = """
import asyncio, os
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Priority
from shardwright.controller.planner_process import Memo, PlannerProcess
from shardwright.controller.budget import QuestionBudget
from tests.support.works import Pid

async def main():
    worker = PlannerProcess(QuestionBudget(cpu_seconds=5, memory_bytes=96 << 20), Metrics())
    print(await worker.ask(("a", "b"), Priority.NEW, Pid(), Memo()), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_worker_ends_with_the_operator_however_that_ends() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "operator"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    wait_for(lambda: not is_running(child), 30, "the worker to end")


def is_running(pid: int) -> bool:
    """Return whether a process runs: one that has ended may wait for its new parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
