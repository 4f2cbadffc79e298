"""The work queue: what wakes whom, what is counted; its laws are in
tests/property/test_queue_laws.py.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shardwright.controller.queue import (
    DOUBLINGS,
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    Key,
    Priority,
    Queue,
    Requeue,
    Turn,
)
from shardwright.controller.rate_limits import CHANGES_AT_ONCE, CHANGES_PER_SECOND
from tests.support.clocks import Clock

A, B = ("models", "a"), ("models", "b")
NEW, BROKEN, RESYNC = Priority.NEW, Priority.BROKEN, Priority.RESYNC


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def queue(clock: Clock) -> Queue:
    return Queue(16, clock)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


def taken(queue: Queue) -> Key | None:
    turn = queue.take()
    return turn.key if turn else None


def fail(queue: Queue, key: Key) -> float:
    """Have a key that is in line fail."""
    assert taken(queue) == key
    pause = queue.retry(key)
    queue.done(key)
    return pause


def test_a_key_that_is_added_twice_is_worked_on_once(queue: Queue) -> None:
    for key in (A, A, B, A):
        queue.add(key, NEW)
    assert [taken(queue), taken(queue), taken(queue)] == [A, B, None]


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards(queue: Queue) -> None:
    queue.add(A, NEW)
    assert taken(queue) == A
    queue.add(A, NEW)
    assert taken(queue) is None
    queue.done(A)
    assert taken(queue) == A


def test_what_is_asked_for_again_more_urgently_moves_up_and_never_down(
    queue: Queue, clock: Clock
) -> None:
    for key, priority in ((A, RESYNC), (B, NEW), (A, BROKEN), (A, RESYNC)):
        queue.add(key, priority)
        clock.now += 1
    assert queue.take() == Turn(key=A, priority=BROKEN)
    assert queue.take() == Turn(key=B, priority=NEW)


def test_what_becomes_more_urgent_while_it_is_worked_on_comes_again_as_urgent(queue: Queue) -> None:
    queue.add(A, RESYNC)
    queue.take()
    queue.add(A, NEW)
    queue.add(A, BROKEN)
    queue.add(B, NEW)
    queue.done(A)
    assert queue.take() == Turn(key=A, priority=BROKEN)


def test_failures_wait_longer_and_longer_and_a_success_forgets_them(
    queue: Queue, clock: Clock
) -> None:
    queue.add(A, NEW)
    pauses = []
    for _ in range(20):
        pauses.append(fail(queue, A))
        clock.now += pauses[-1]
    assert pauses[0] == pytest.approx(FIRST_RETRY_SECONDS, rel=0.2)
    assert pauses[5] == pytest.approx(32 * FIRST_RETRY_SECONDS, rel=0.2)
    assert pauses[19] == pytest.approx(LONGEST_RETRY_SECONDS, rel=0.2)
    queue.forget(A)
    assert fail(queue, A) == pytest.approx(FIRST_RETRY_SECONDS, rel=0.2)


def test_the_event_that_a_failed_look_has_caused_itself_waits_for_the_pause(
    queue: Queue, clock: Clock
) -> None:
    queue.add(A, NEW)
    queue.take()
    queue.add(A, BROKEN)  # our own status write comes back
    pause = queue.retry(A)
    queue.done(A)
    queue.add(A, BROKEN)
    clock.now += pause * 0.99
    assert taken(queue) is None
    clock.now += pause * 0.02
    assert queue.take() == Turn(key=A, priority=BROKEN)


def test_an_appointment_in_a_pause_is_kept_at_its_end(queue: Queue, clock: Clock) -> None:
    for _ in range(DOUBLINGS):
        queue.add(A, NEW)
        clock.now += 2 * LONGEST_RETRY_SECONDS
        pause = fail(queue, A)
    queue.add_after(A, Requeue(seconds=1, priority=BROKEN))
    clock.now += 0.99 * pause
    assert taken(queue) is None
    clock.now += 0.02 * pause
    assert queue.take() == Turn(key=A, priority=BROKEN)


def test_a_change_by_the_user_ends_a_pause_and_the_failures_before_it(queue: Queue) -> None:
    queue.add(A, NEW)
    fail(queue, A)
    queue.add(A, NEW, fresh=True)
    assert fail(queue, A) == pytest.approx(FIRST_RETRY_SECONDS, rel=0.2)


def test_a_change_by_the_user_during_a_look_that_fails_is_looked_at_at_once(queue: Queue) -> None:
    queue.add(A, NEW)
    queue.take()
    queue.add(A, NEW, fresh=True)
    assert queue.retry(A) == 0
    queue.done(A)
    assert taken(queue) == A


def reconciled(queue: Queue) -> list[Key]:
    """Return all keys that may be looked at now, each reconcile over at once."""
    keys = []
    while (key := taken(queue)) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def flooded(queue: Queue) -> None:
    """Use up all that a namespace may have changed at once."""
    for number in range(CHANGES_AT_ONCE):
        queue.change(("models", f"flood-{number}"))
    assert len(reconciled(queue)) == CHANGES_AT_ONCE


def test_looks_for_changes_of_a_busy_namespace_are_paced_and_no_other_namespace_waits(
    queue: Queue, clock: Clock
) -> None:
    flooded(queue)
    for key in (A, B, ("other", "a")):
        queue.change(key)
    assert reconciled(queue) == [("other", "a")]
    clock.now += 1 / CHANGES_PER_SECOND
    assert reconciled(queue) == [A]
    clock.now += 1 / CHANGES_PER_SECOND
    assert reconciled(queue) == [B]


def test_of_the_changes_of_a_model_that_wait_the_last_is_looked_at_and_counts_once(
    queue: Queue, clock: Clock
) -> None:
    flooded(queue)
    for key in (A, A, A, B):
        queue.change(key)
    clock.now += 2 / CHANGES_PER_SECOND
    assert reconciled(queue) == [A, B]
    clock.now += 60
    assert reconciled(queue) == []


def test_a_model_whose_change_waits_is_looked_at_before_only_if_broken_and_then_not_again(
    queue: Queue, clock: Clock
) -> None:
    flooded(queue)
    queue.change(A)
    queue.add(A, Priority.ROLL)
    queue.add_after(A, Requeue(seconds=0.0))
    assert reconciled(queue) == []
    queue.add(A, BROKEN)
    assert reconciled(queue) == [A]
    clock.now += 60
    assert reconciled(queue) == []


def test_a_change_that_waits_ends_the_pause_after_a_failure(queue: Queue, clock: Clock) -> None:
    queue.add(A, NEW)
    fail(queue, A)
    clock.now += FIRST_RETRY_SECONDS * 2
    assert fail(queue, A) > 1 / CHANGES_PER_SECOND / 2
    flooded(queue)
    queue.change(A)
    clock.now += 1 / CHANGES_PER_SECOND
    assert reconciled(queue) == [A]


def test_a_look_that_fails_while_a_change_waits_is_repeated_with_it(
    queue: Queue, clock: Clock
) -> None:
    queue.add(A, NEW)
    assert taken(queue) == A
    for number in range(CHANGES_AT_ONCE):
        queue.change(("models", f"flood-{number}"))
    queue.change(A)
    assert queue.retry(A, least_seconds=60) == pytest.approx(1 / CHANGES_PER_SECOND)
    queue.done(A)
    clock.now += 1 / CHANGES_PER_SECOND
    assert A in reconciled(queue)


def test_what_is_broken_is_tried_again_after_its_pause_though_a_change_waits_for_longer(
    queue: Queue, clock: Clock
) -> None:
    flooded(queue)
    for number in range(100):
        queue.change(("models", f"flood-{number}"))
    queue.add(A, BROKEN)
    assert taken(queue) == A
    queue.change(A)
    queue.add(A, BROKEN)
    pause = queue.retry(A)
    queue.done(A)

    assert (FIRST_RETRY_SECONDS * 0.5 <= pause <= FIRST_RETRY_SECONDS * 1.5, taken(queue)) == (
        True,
        None,
    )
    clock.now += pause
    assert reconciled(queue)[:1] == [A]


def test_a_pause_is_at_least_what_the_api_server_asks_for(queue: Queue) -> None:
    queue.add(A, NEW)
    queue.take()
    assert queue.retry(A, least_seconds=17) == 17


def test_of_two_appointments_the_earlier_stands_with_the_greater_urgency(
    queue: Queue, clock: Clock
) -> None:
    queue.add_after(A, Requeue(seconds=10, priority=RESYNC))
    queue.add_after(A, Requeue(seconds=1000, priority=BROKEN))
    clock.now += 10
    assert queue.take() == Turn(key=A, priority=BROKEN)
    queue.done(A)
    queue.add_after(B, Requeue(seconds=1000))
    queue.add_after(B, Requeue(seconds=10))
    clock.now += 10
    assert queue.take() == Turn(key=B, priority=RESYNC)


def test_a_look_makes_the_appointment_before_it_void(queue: Queue, clock: Clock) -> None:
    queue.add_after(A, Requeue(seconds=10))
    queue.add(A, NEW)
    assert taken(queue) == A
    queue.done(A)
    clock.now += 20
    assert taken(queue) is None


def test_void_appointments_do_not_pile_up(queue: Queue) -> None:
    for _ in range(1000):
        queue.add_after(A, Requeue(seconds=300))
        queue.add(A, NEW)
        queue.take()
        queue.done(A)
    assert len(queue._calendar) < 100


def test_each_namespace_gets_half_of_the_remaining_workers_that_mend_nothing(queue: Queue) -> None:
    for namespace in ("a", "b", "c"):
        for number in range(20):
            queue.add((namespace, str(number)), NEW)
        while queue.take():
            pass
    assert queue._busy == {"a": 6, "b": 3, "c": 2}


def test_one_worker_serves_every_namespace(clock: Clock) -> None:
    queue = Queue(1, clock)
    queue.add(A, NEW)
    assert taken(queue) == A


def test_the_load_of_the_queue_is_its_depth_age_and_work_in_progress(
    queue: Queue, clock: Clock
) -> None:
    for key in (A, B, ("other", "c"), ("other", "d")):
        queue.add(key, NEW)
    queue.add(("other", "d"), BROKEN)
    clock.now += 5
    queue.take()
    clock.now += 2
    queue.take()
    queue.retry(A)
    clock.now += 1
    load = queue.load()
    assert (load.depth[NEW], load.depth[BROKEN], load.oldest_seconds) == (2, 0, 8)
    assert load.unfinished_seconds == 4


def test_a_worker_waits_for_a_key() -> None:
    async def scenario() -> None:
        queue = Queue(2)
        worker = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add(A, NEW)
        assert (await worker).key == A

    run(scenario())


def test_a_worker_wakes_for_an_appointment_that_is_made_while_it_waits() -> None:
    async def scenario() -> None:
        queue = Queue(2)
        worker = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add_after(B, Requeue(seconds=1000))
        queue.add_after(A, Requeue(seconds=0.01))
        assert (await worker).key == A

    run(scenario())


def test_a_worker_wakes_when_a_share_of_its_namespace_comes_free() -> None:
    async def scenario() -> None:
        queue = Queue(2)
        queue.add(A, NEW)
        await queue.get()
        queue.add(B, NEW)
        worker = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert not worker.done()
        queue.done(A)
        assert (await worker).key == B

    run(scenario())


def test_the_news_for_a_worker_that_is_cancelled_goes_to_the_next() -> None:
    async def scenario() -> None:
        queue = Queue(4)
        first, second = (asyncio.create_task(queue.get()), asyncio.create_task(queue.get()))
        await asyncio.sleep(0)
        queue.add(A, NEW)
        first.cancel()
        assert (await second).key == A

    run(scenario())


def test_a_worker_that_was_cancelled_before_gets_no_news() -> None:
    async def scenario() -> None:
        queue = Queue(4)
        first, second = (asyncio.create_task(queue.get()), asyncio.create_task(queue.get()))
        await asyncio.sleep(0)
        first.cancel()
        queue.add(A, NEW)
        assert (await second).key == A

    run(scenario())


def test_a_closed_queue_hands_out_nothing(queue: Queue) -> None:
    queue.add(A, NEW)
    queue.close()
    queue.add(B, NEW)
    assert taken(queue) is None
