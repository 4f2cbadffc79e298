"""Right of way: others pause while a broken group is looked at, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shardwright.controller.queue import Priority
from shardwright.controller.right_of_way import RightOfWay

PAUSE_SECONDS = 0.01


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


async def settled() -> None:
    """Let everything run that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_step_of_another_waits_until_a_look_at_what_is_broken_has_ended() -> None:
    async def scenario() -> None:
        way = RightOfWay(longest_seconds=5)
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
        way = RightOfWay(longest_seconds=5)
        with way.looking(priority):
            await way.step(Priority.RESYNC)

    run(scenario())


def test_who_has_paused_has_as_long_to_itself_although_something_is_always_broken() -> (
    None
):
    async def scenario() -> None:
        now = 0.0
        way = RightOfWay(PAUSE_SECONDS, lambda: now)
        with way.looking(Priority.BROKEN):
            step = asyncio.create_task(way.step(Priority.NEW))
            await settled()
            now = 8.0  # it has paused for 8 s, whatever the real clock says
            await step
            now = 15.9
            for _ in range(100):
                await way.step(Priority.NEW)
            now = 16.0
            paused = asyncio.create_task(way.step(Priority.NEW))
            await settled()
            assert not paused.done()
            await paused

    run(scenario())


def test_between_two_steps_of_others_whoever_is_ready_has_its_turn() -> None:
    async def scenario() -> None:
        way, done = RightOfWay(), []

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

    async def hold(way: RightOfWay, ended: asyncio.Event) -> None:
        with way.looking(Priority.BROKEN):
            await ended.wait()

    run(scenario())
