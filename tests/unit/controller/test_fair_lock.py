"""Turns: one at a time, the most urgent first, and namespaces share the time."""

from __future__ import annotations

import asyncio
from itertools import count

from shardwright.controller.fair_lock import LATELY_SECONDS, FairLock
from shardwright.controller.queue import Key, Priority
from tests.support.builders_operator import Hand


async def taken(lock: FairLock, asked: list[tuple[Key, Priority]]) -> list[Key]:
    """Return who had a turn, in order, where all of these ask while somebody else has it."""
    order: list[Key] = []

    async def take(key: Key, priority: Priority) -> None:
        async with lock.turn(key, priority):
            order.append(key)
            await asyncio.sleep(0)  # others may go on here, if they can

    async with lock.turn(("somebody", "else"), Priority.NEW):
        tasks = [asyncio.create_task(take(key, priority)) for key, priority in asked]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*tasks)
    return order


async def take_once(lock: FairLock, name: str, order: list[str]) -> None:
    """Have one turn, and note it."""
    async with lock.turn(("models", name), Priority.NEW):
        order.append(name)


def test_a_thousand_of_one_namespace_hold_another_up_by_one_turn() -> None:
    flood = [(("flood", f"model-{number}"), Priority.NEW) for number in range(1000)]
    lock = FairLock(clock=count().__next__)  # each turn is as long as the others
    order = asyncio.run(
        taken(lock, [*flood, (("other", "one"), Priority.NEW), (("other", "two"), Priority.NEW)])
    )

    assert order[:4] == [
        ("flood", "model-0"),
        ("other", "one"),
        ("flood", "model-1"),
        ("other", "two"),
    ]
    assert order[4:] == [key for key, _ in flood[2:]]


def test_namespaces_share_the_time_and_not_the_number_of_turns() -> None:
    clock, order = Hand(0.0), list[str]()

    async def take(lock: FairLock, namespace: str, seconds: float) -> None:
        async with lock.turn((namespace, "model"), Priority.NEW):
            order.append(namespace)
            clock.seconds += seconds

    async def scenario() -> None:
        lock = FairLock(clock=clock)
        await lock.take(("somebody", "else"), Priority.NEW)
        asked = [*(["long"] * 3), *(["short"] * 5)]
        tasks = [
            asyncio.create_task(take(lock, name, 3 if name == "long" else 1)) for name in asked
        ]
        await asyncio.sleep(0)
        lock.give_back()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert order == ["long", "short", "short", "short", "long", "short", "short", "long"]


def test_who_asks_now_and_then_waits_for_the_turn_that_somebody_has_and_no_more() -> None:
    clock, order = Hand(0.0), list[str]()

    async def take(lock: FairLock, namespace: str) -> None:
        async with lock.turn((namespace, "model"), Priority.NEW):
            order.append(namespace)
            clock.seconds += 1

    async def scenario() -> None:
        lock = FairLock(clock=clock)
        for _ in range(10):
            await take(lock, "busy")
        await lock.take(("busy", "model"), Priority.NEW)
        tasks = [asyncio.create_task(take(lock, name)) for name in ["busy"] * 3 + ["seldom"] * 3]
        await asyncio.sleep(0)
        order.clear()
        lock.give_back()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert order == ["seldom", "seldom", "seldom", "busy", "busy", "busy"]


def test_what_was_had_long_ago_counts_for_nothing() -> None:
    clock = Hand(0.0)

    async def scenario() -> list[Key]:
        lock = FairLock(clock=clock)
        for namespace, seconds, pause in (("long-ago", 100, 60 * LATELY_SECONDS), ("lately", 1, 0)):
            async with lock.turn((namespace, "model"), Priority.NEW):
                clock.seconds += seconds
            clock.seconds += pause
        return await taken(
            lock, [(("lately", "model"), Priority.NEW), (("long-ago", "model"), Priority.NEW)]
        )

    assert asyncio.run(scenario()) == [("long-ago", "model"), ("lately", "model")]


def test_what_others_wait_for_goes_before_all_else_of_its_namespace_and_not_of_others() -> None:
    async def scenario() -> list[str]:
        lock, order = FairLock(clock=count().__next__), list[str]()

        async def take(namespace: str, name: str, *, first: bool = False) -> None:
            await lock.take((namespace, name), Priority.NEW, first=first)
            order.append(name)
            lock.give_back()

        await lock.take(("flood", "model"), Priority.NEW)
        tasks = [
            asyncio.create_task(take("flood", "one")),
            asyncio.create_task(take("flood", "awaited", first=True)),
            asyncio.create_task(take("other", "small")),
        ]
        await asyncio.sleep(0)
        lock.give_back()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(scenario()) == ["small", "awaited", "one"]


def test_what_is_more_urgent_has_its_turn_first() -> None:
    asked = [
        (("a", "new"), Priority.NEW),
        (("a", "broken"), Priority.BROKEN),
        (("b", "waiting"), Priority.WAITING),
    ]

    assert asyncio.run(taken(FairLock(), asked)) == [
        ("a", "broken"),
        ("a", "new"),
        ("b", "waiting"),
    ]


def test_who_gives_up_while_waiting_or_in_the_moment_of_its_turn_holds_nobody_up() -> None:
    async def scenario() -> list[str]:
        lock, order = FairLock(), list[str]()
        await lock.take(("models", "first"), Priority.NEW)
        tasks = {
            name: asyncio.create_task(take_once(lock, name, order))
            for name in ("second", "third", "fourth")
        }
        await asyncio.sleep(0)
        tasks["second"].cancel()
        await asyncio.sleep(0)
        lock.give_back()  # it is the third one's turn, and it does not know yet
        tasks["third"].cancel()
        await asyncio.wait_for(tasks["fourth"], 10)
        await asyncio.wait_for(take_once(lock, "last", order), 10)
        return order

    assert asyncio.run(scenario()) == ["fourth", "last"]


def test_who_gives_up_in_the_very_moment_in_which_the_turn_before_ends_holds_nobody_up() -> None:
    async def scenario() -> list[str]:
        lock, order = FairLock(), list[str]()
        await lock.take(("models", "first"), Priority.NEW)
        second, third = (
            asyncio.create_task(take_once(lock, "second", order)),
            asyncio.create_task(take_once(lock, "third", order)),
        )
        await asyncio.sleep(0)
        second.cancel()
        lock.give_back()  # the second one does not know yet that it was cancelled
        await asyncio.wait_for(third, 10)
        await asyncio.wait_for(take_once(lock, "last", order), 10)
        await asyncio.gather(second, return_exceptions=True)
        assert second.cancelled()
        return order

    assert asyncio.run(scenario()) == ["third", "last"]
