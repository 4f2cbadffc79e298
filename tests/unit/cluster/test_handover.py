"""From thread to loop: many changes, few callbacks, the last of a key alone, and no long
hold-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from shardwright.cluster.handover import SLICE, Change, Handover, Key


class Taken:
    def __init__(self) -> None:
        self.batches: list[tuple[Mapping[Key, Change[int]], bool]] = []
        self.complete = asyncio.Event()

    def __call__(self, changes: Mapping[Key, Change[int]], listed: bool) -> None:  # noqa: FBT001
        self.batches.append((changes, listed))
        if listed:
            self.complete.set()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


def change(value: int | None) -> Change[int]:
    return Change(value, 0)


def test_what_arrives_while_the_loop_is_busy_comes_together_and_the_last_of_a_key_alone() -> None:
    async def scenario() -> None:
        taken = Taken()
        handover = Handover(asyncio.get_running_loop(), taken)
        handover.put({("a", "1"): change(1), ("a", "2"): change(1)}, False)
        handover.put({("a", "1"): change(2)}, False)
        handover.put({("a", "2"): change(None)}, True)
        await taken.complete.wait()
        assert taken.batches == [({("a", "1"): change(2), ("a", "2"): change(None)}, True)]

    run(scenario())


def test_a_list_of_everything_is_taken_over_in_slices_and_is_complete_with_the_last() -> None:
    async def scenario() -> None:
        taken = Taken()
        handover = Handover(asyncio.get_running_loop(), taken)
        everything = {("a", str(number)): change(number) for number in range(2 * SLICE + 1)}
        await asyncio.to_thread(handover.put, everything, True)
        await taken.complete.wait()
        assert [(len(changes), listed) for changes, listed in taken.batches] == [
            (SLICE, False),
            (SLICE, False),
            (1, True),
        ]
        assert {
            key: value for changes, _ in taken.batches for key, value in changes.items()
        } == everything

    run(scenario())


def test_something_else_has_its_turn_between_two_slices() -> None:
    async def scenario() -> None:
        taken = Taken()
        handover = Handover(asyncio.get_running_loop(), taken)
        handover.put({("a", str(number)): change(number) for number in range(3 * SLICE)}, True)
        turns = 0
        while not taken.complete.is_set():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 3

    run(scenario())


def test_a_loop_that_is_closed_takes_nothing_and_harms_nobody() -> None:
    async def scenario() -> Handover[int]:
        return Handover(asyncio.get_running_loop(), Taken())

    handover = asyncio.run(scenario())
    handover.put({("a", "1"): change(1)}, True)
