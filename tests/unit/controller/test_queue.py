"""The work queue: every key once, one worker per key, failures after a growing pause."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shardwright.controller.queue import LONGEST_RETRY_SECONDS, Queue

A, B = ("models", "a"), ("models", "b")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


def test_a_key_that_is_added_twice_is_worked_on_once() -> None:
    async def scenario() -> None:
        queue = Queue()
        for key in (A, A, B, A):
            queue.add(key)
        assert queue.depth == 2
        assert [await queue.get(), await queue.get()] == [A, B]
        assert queue.depth == 0

    run(scenario())


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_and_not_at_the_same_time() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.add(A)
        await queue.get()
        queue.add(A)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.02)
        queue.done(A)
        assert await queue.get() == A

    run(scenario())


def test_failures_wait_longer_and_longer_and_a_success_forgets_them() -> None:
    async def scenario() -> None:
        queue = Queue()
        pauses = [queue.retry(A) for _ in range(20)]
        assert all(0.08 <= pause <= 0.12 for pause in pauses[:1])
        assert pauses[10] > 10 * pauses[5]
        assert max(pauses) <= LONGEST_RETRY_SECONDS * 1.2
        queue.forget(A)
        assert queue.retry(A) < 0.2

    run(scenario())


def test_of_two_appointments_the_earlier_stands() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.add_after(A, 0.01)
        queue.add_after(A, 1000)
        assert await queue.get() == A
        queue.done(A)
        queue.add_after(A, 1000)
        queue.add_after(A, 0.01)
        assert await queue.get() == A

    run(scenario())


def test_it_says_how_long_the_first_key_waits() -> None:
    now = 5.0

    async def scenario() -> None:
        nonlocal now
        queue = Queue(clock=lambda: now)
        assert queue.oldest_seconds == 0
        queue.add(A)
        now = 12.0
        queue.add(B)
        assert queue.oldest_seconds == 7

    run(scenario())


def test_a_closed_queue_hands_out_nothing() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.add(A)
        queue.close()
        queue.add(B)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.02)

    run(scenario())
