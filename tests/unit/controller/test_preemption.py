"""Right of way: others pause while a broken group is looked at, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shardwright.controller.queue import Priority
from shardwright.controller.queue_workers import Preemption
from tests.support.builders_operator import serving
from tests.support.memory_api import nothing


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


async def settled() -> None:
    """Let everything run that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_step_of_another_waits_until_a_look_at_what_is_broken_has_ended() -> None:
    async def scenario() -> None:
        way = Preemption(longest_seconds=5)
        with way.looking(Priority.BROKEN), way.looking(Priority.NEW):
            other = asyncio.create_task(way.step(Priority.NEW))
            await way.step(Priority.BROKEN)
            await settled()
            assert not other.done()
        await other

    run(scenario())


@pytest.mark.parametrize("priority", [one for one in Priority if one.name != "BROKEN"])
def test_a_look_that_can_wait_holds_nobody_up(priority: Priority) -> None:
    async def scenario() -> None:
        way = Preemption(longest_seconds=5)
        with way.looking(priority):
            await way.step(Priority.RESYNC)

    run(scenario())


def test_who_has_paused_has_as_long_to_itself_although_something_is_always_broken() -> None:
    async def scenario() -> None:
        now = 0.0
        way = Preemption(longest_seconds=5, clock=lambda: now)
        first = asyncio.create_task(way.step(Priority.NEW))
        with way.looking(Priority.BROKEN):
            await settled()
            now = 8.0  # it has paused for 8 s, whatever the real clock says
        await first
        with way.looking(Priority.BROKEN):
            now = 15.9
            free = asyncio.create_task(way.step(Priority.NEW))
            await settled()
            assert free.done()
            now = 16.0
            paused = asyncio.create_task(way.step(Priority.NEW))
            await settled()
            assert not paused.done()
        await paused

    run(scenario())


def test_nobody_pauses_for_longer_than_the_longest_pause() -> None:
    async def scenario() -> None:
        way = Preemption(longest_seconds=0.001)
        with way.looking(Priority.BROKEN):
            await way.step(Priority.NEW)

    run(scenario())


def test_other_looks_go_on_while_the_look_at_a_broken_model_waits_for_something_else() -> None:
    async def scenario() -> None:
        way = Preemption(longest_seconds=5)
        with way.looking(Priority.BROKEN):
            with way.letting_on(Priority.BROKEN):
                await way.step(Priority.NEW)
            paused = asyncio.create_task(way.step(Priority.NEW))
            await settled()
            assert not paused.done()
        await paused

    run(scenario())


@pytest.mark.parametrize("ticks", range(4))
def test_a_look_that_is_ended_just_after_its_pause_ends(ticks: int) -> None:
    async def scenario() -> None:
        way = Preemption(longest_seconds=5)
        with way.looking(Priority.BROKEN):
            step = asyncio.create_task(way.step(Priority.NEW))
            await settled()
        for _ in range(ticks):
            await asyncio.sleep(0)
        was_done = step.done()
        step.cancel()
        await asyncio.wait([step])
        assert step.cancelled() is not was_done

    run(scenario())


def test_between_two_steps_of_others_whoever_is_ready_has_its_turn() -> None:
    async def scenario() -> None:
        way, done = Preemption(), []

        async def step(name: str) -> None:
            await way.step(Priority.NEW)
            done.append(name)
            if name == "first":
                asyncio.get_running_loop().call_soon(done.append, "an event")

        async with asyncio.TaskGroup() as group:
            ended = asyncio.Event()
            holding = group.create_task(hold(way, ended))
            await settled()
            for name in ("first", "second", "third"):
                group.create_task(step(name))
            await settled()
            ended.set()
            await holding
        assert done == ["first", "an event", "second", "third"]

    async def hold(way: Preemption, ended: asyncio.Event) -> None:
        with way.looking(Priority.BROKEN):
            await ended.wait()

    run(scenario())


def test_a_new_model_is_planned_after_the_look_that_restarts_a_broken_group() -> None:
    async def scenario() -> None:
        parts, broken = await serving(nodes=4)
        parts.delete_pod("large-0-1")
        asked, answer = asyncio.Event(), asyncio.Event()

        async def hang(verb: str, kind: str) -> None:
            if (verb, kind) == ("get", "statefulsets"):
                asked.set()
                await answer.wait()

        parts.api.before = hang
        repair = asyncio.create_task(parts.reconcile(broken, Priority.BROKEN))
        await asked.wait()
        parts.api.before = nothing
        new = parts.add_model("small", model={"id": "Qwen/Qwen2.5-7B-Instruct"})
        other = asyncio.create_task(parts.reconcile(new, Priority.NEW))
        await settled()
        assert parts.api.written == []
        answer.set()
        await asyncio.gather(repair, other)
        assert parts.api.written[0] == "patch statefulsets/large-0"

    run(scenario())
