"""Turns: one at a time, the most urgent first, and no namespace waits for more than one turn of another."""

from __future__ import annotations

import asyncio

from shardwright.controller.queue import Key, Priority
from shardwright.controller.turns import Turns


async def taken(turns: Turns, asked: list[tuple[Key, Priority]]) -> list[Key]:
    """Return who had a turn, in order, where all of these ask while somebody else has it."""
    order: list[Key] = []

    async def take(key: Key, priority: Priority) -> None:
        async with turns.turn(key, priority):
            order.append(key)
            await asyncio.sleep(0)  # others may go on here, if they can

    async with turns.turn(("somebody", "else"), Priority.NEW):
        tasks = [asyncio.create_task(take(key, priority)) for key, priority in asked]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*tasks)
    return order


async def take_once(turns: Turns, name: str, order: list[str]) -> None:
    """Have one turn, and note it."""
    async with turns.turn(("models", name), Priority.NEW):
        order.append(name)


def test_a_thousand_of_one_namespace_hold_another_up_by_one_turn() -> None:
    flood = [(("flood", f"model-{number}"), Priority.NEW) for number in range(1000)]
    order = asyncio.run(taken(Turns(), [*flood, (("other", "one"), Priority.NEW), (("other", "two"), Priority.NEW)]))

    assert order[:4] == [("flood", "model-0"), ("other", "one"), ("flood", "model-1"), ("other", "two")]
    assert order[4:] == [key for key, _ in flood[2:]]


def test_what_is_more_urgent_has_its_turn_first() -> None:
    asked = [(("a", "new"), Priority.NEW), (("a", "broken"), Priority.BROKEN), (("b", "waiting"), Priority.WAITING)]

    assert asyncio.run(taken(Turns(), asked)) == [("a", "broken"), ("a", "new"), ("b", "waiting")]


def test_who_gives_up_while_waiting_or_in_the_moment_of_its_turn_holds_nobody_up() -> None:
    async def scenario() -> list[str]:
        turns, order = Turns(), list[str]()
        await turns.take(("models", "first"), Priority.NEW)
        tasks = {name: asyncio.create_task(take_once(turns, name, order)) for name in ("second", "third", "fourth")}
        await asyncio.sleep(0)
        tasks["second"].cancel()
        await asyncio.sleep(0)
        turns.give_back()  # it is the third one's turn, and it does not know yet
        tasks["third"].cancel()
        await asyncio.wait_for(tasks["fourth"], 10)
        await asyncio.wait_for(take_once(turns, "last", order), 10)
        return order

    assert asyncio.run(scenario()) == ["fourth", "last"]


def test_who_gives_up_in_the_very_moment_in_which_the_turn_before_ends_holds_nobody_up() -> None:
    async def scenario() -> list[str]:
        turns, order = Turns(), list[str]()
        await turns.take(("models", "first"), Priority.NEW)
        second, third = (
            asyncio.create_task(take_once(turns, "second", order)),
            asyncio.create_task(take_once(turns, "third", order)),
        )
        await asyncio.sleep(0)
        second.cancel()
        turns.give_back()  # the second one does not know yet that it was cancelled
        await asyncio.wait_for(third, 10)
        await asyncio.wait_for(take_once(turns, "last", order), 10)
        await asyncio.gather(second, return_exceptions=True)
        assert second.cancelled()
        return order

    assert asyncio.run(scenario()) == ["third", "last"]
