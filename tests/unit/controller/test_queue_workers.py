"""Workers: what goes wrong with one reconcile is tried again later and stops no other."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shardwright.cluster.client import ApiError
from shardwright.controller import queue_workers as module
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key, Priority, Queue, Requeue
from shardwright.controller.queue_workers import QueueWorkers, Reconcile, Tell

A, B = ("models", "a"), ("models", "b")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


async def untold(key: Key, fault: Exception) -> None:
    raise AssertionError(f"told of {key}: {fault!r}")


async def work(
    queue: Queue,
    reconcile: Reconcile,
    until: asyncio.Event,
    deadline_seconds: float = 30,
    tell: Tell = untold,
) -> Metrics:
    """Have workers look until the event is set."""
    metrics = Metrics()
    workers = asyncio.create_task(
        QueueWorkers(queue, reconcile, tell, metrics, deadline_seconds).run()
    )
    await until.wait()
    workers.cancel()
    await asyncio.wait([workers])
    return metrics


def looks(metrics: Metrics, result: str) -> float | None:
    return metrics.registry.get_sample_value(
        "shardwright_reconcile_duration_seconds_count", {"result": result}
    )


def test_a_look_that_never_ends_gives_its_worker_back_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        tries, requeue = [], asyncio.Event()

        async def reconcile(key: Key, _: Priority) -> None:
            tries.append(key)
            if len(tries) == 2:
                requeue.set()
            await asyncio.Event().wait()

        queue = Queue(1)
        queue.add(A, Priority.NEW)
        metrics = await work(queue, reconcile, requeue, deadline_seconds=0.01)
        assert tries == [A, A]
        assert looks(metrics, "deadline") == 1
        assert "no end after 0.01 s" in caplog.text

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (ApiError(503, "", "no"), "api_error"),
        (TimeoutError("ours"), "error"),
        (KeyError("x"), "error"),
    ],
)
def test_a_look_that_fails_is_tried_again_and_the_others_go_on(
    fault: Exception, result: str
) -> None:
    async def scenario() -> None:
        tries, done = [], asyncio.Event()

        async def reconcile(key: Key, _: Priority) -> None:
            tries.append(key)
            if key == A and tries.count(A) == 1:
                raise fault
            if key == A:
                done.set()

        queue = Queue(1)
        queue.add(A, Priority.NEW)
        queue.add(B, Priority.NEW)
        metrics = await work(queue, reconcile, done)
        assert tries == [A, B, A]
        assert looks(metrics, result) == 1

    run(scenario())


def test_a_fault_of_ours_that_comes_back_is_told_and_one_that_passes_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TOLD_FROM_SECONDS", 0.15)  # the first pause is shorter

    async def scenario() -> None:
        tries: list[Key] = []
        told: list[tuple[Key, str]] = []
        done = asyncio.Event()

        async def reconcile(key: Key, _: Priority) -> None:
            tries.append(key)
            raise ZeroDivisionError(f"try {len(tries)}")

        async def tell(key: Key, fault: Exception) -> None:
            told.append((key, str(fault)))
            done.set()

        queue = Queue(1)
        queue.add(A, Priority.NEW)
        await work(queue, reconcile, done, tell=tell)
        assert told == [(A, "try 2")]

    run(scenario())


def test_a_fault_that_cannot_be_told_is_in_the_log_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TOLD_FROM_SECONDS", 0.0)
    monkeypatch.setattr(module, "TELLING_SECONDS", 0.01)

    async def scenario() -> None:
        tries: list[Key] = []
        requeue = asyncio.Event()

        async def reconcile(key: Key, _: Priority) -> None:
            tries.append(key)
            if len(tries) == 3:
                requeue.set()
            raise ZeroDivisionError

        async def tell(_key: Key, _fault: Exception) -> None:
            if len(tries) == 1:
                await asyncio.Event().wait()
            raise KeyError

        queue = Queue(1)
        queue.add(A, Priority.NEW)
        await work(queue, reconcile, requeue, tell=tell)
        assert tries == [A, A, A]

    run(scenario())
    assert "ZeroDivisionError" in caplog.text
    assert caplog.text.count("a fault of ours is not in the status") >= 2


def test_a_look_is_repeated_when_it_asks_for_it() -> None:
    async def scenario() -> None:
        tries, done = [], asyncio.Event()

        async def reconcile(key: Key, _: Priority) -> Requeue | None:
            tries.append(key)
            if len(tries) == 3:
                done.set()
                return None
            return Requeue(seconds=0.001, priority=Priority.ROLL)

        queue = Queue(2)
        queue.add(A, Priority.NEW)
        await work(queue, reconcile, done)
        assert tries == [A, A, A]

    run(scenario())


def test_a_pause_is_at_least_what_the_api_server_asks_for() -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        async def reconcile(_: Key, __: Priority) -> None:
            asked.set()
            raise ApiError(429, "TooManyRequests", "later", retry_after_seconds=20)

        queue = Queue(1)
        queue.add(A, Priority.NEW)
        await work(queue, reconcile, asked)
        assert queue._pauses[A] - queue._clock() > 15

    run(scenario())


def test_a_look_knows_how_urgent_it_is() -> None:
    async def scenario() -> None:
        seen, all_of_them = {}, asyncio.Event()

        async def reconcile(key: Key, priority: Priority) -> None:
            seen[key] = priority
            if len(seen) == 2:
                all_of_them.set()

        queue = Queue(1)
        queue.add(A, Priority.NEW)
        queue.add(B, Priority.BROKEN)
        await work(queue, reconcile, all_of_them)
        assert seen == {A: Priority.NEW, B: Priority.BROKEN}

    run(scenario())
