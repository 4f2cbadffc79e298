"""The laws of the work queue, over any history of additions, looks, failures and time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shardwright.controller.queue import (
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    RETRY_SPREAD,
    SHARE,
    Key,
    Priority,
    Queue,
    Requeue,
)
from tests.support.clocks import Clock

WORKERS = 5
NAMESPACES = ("a", "b", "c")

keys = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(("x", "y", "z")))
priorities = st.sampled_from(Priority)


@dataclass
class Owed:
    """What a key is owed: a reconcile ``now``, and one at ``later``; none before ``pause_end``."""

    now: Priority | None = None
    later: tuple[float, Priority] | None = None
    pause_end: float = 0.0
    failures: int = 0
    fresh: bool = False

    def ask(self, time: float, priority: Priority) -> None:
        if time < self.pause_end:
            self.ask_later(self.pause_end, priority)
        else:
            self.now = priority if self.now is None else min(self.now, priority)

    def ask_later(self, due: float, priority: Priority) -> None:
        before = self.later or (due, priority)
        self.later = min(due, before[0]), min(priority, before[1])

    def come_due(self, time: float) -> None:
        if self.later and self.later[0] <= time:
            (_, priority), self.later = self.later, None
            self.ask(time, priority)

    def end_pause(self, time: float) -> None:
        if time < self.pause_end and self.later:
            (_, priority), self.later = self.later, None
            self.pause_end = 0.0
            self.ask(time, priority)
        self.pause_end, self.failures = 0.0, 0


class QueueLaws(RuleBasedStateMachine):
    """Compares the queue after every step with what each key is owed."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue = Queue(WORKERS, self.clock)
        self.owed: dict[Key, Owed] = defaultdict(Owed)
        self.working: dict[Key, Priority] = {}

    @rule(key=keys, priority=priorities)
    def add(self, key: Key, priority: Priority) -> None:
        self.queue.add(key, priority)
        self.owed[key].ask(self.clock.now, priority)

    @rule(key=keys, priority=priorities)
    def add_fresh(self, key: Key, priority: Priority) -> None:
        self.queue.add(key, priority, fresh=True)
        owed = self.owed[key]
        owed.end_pause(self.clock.now)
        owed.ask(self.clock.now, priority)
        owed.fresh = True

    @rule(key=keys, priority=priorities, seconds=st.floats(0.01, 100))
    def add_after(self, key: Key, priority: Priority, seconds: float) -> None:
        self.queue.add_after(key, Requeue(seconds=seconds, priority=priority))
        self.owed[key].ask_later(self.clock.now + seconds, priority)

    @rule()
    def take(self) -> None:
        ready = self.ready()
        turn = self.queue.take()
        if turn is None:
            assert not ready, "a key is lost, or waits although it may be worked on"
            return
        assert turn.key not in self.working, "a key is worked on twice at once"
        assert turn.key in ready, (
            "a key comes in its pause, or unasked, or beyond the share of its namespace"
        )
        assert turn.priority == ready[turn.key]
        assert turn.priority == min(ready.values()), "something more urgent waits"
        owed = self.owed[turn.key]
        owed.now, owed.later, owed.fresh = None, None, False
        self.working[turn.key] = turn.priority

    def ready(self) -> dict[Key, Priority]:
        """Return what a worker may take now."""
        free = WORKERS - len(self.working)
        busy = Counter(namespace for namespace, _ in self.working)
        calm = Counter(
            key[0] for key, priority in self.working.items() if priority is not Priority.BROKEN
        )
        calm_free = WORKERS - WORKERS // SHARE - calm.total()
        return {
            key: owed.now
            for key, owed in self.owed.items()
            if owed.now is not None
            and key not in self.working
            and (
                busy[key[0]] - calm[key[0]] < free and (free > 1 or not busy[key[0]])
                if owed.now is Priority.BROKEN
                else busy[key[0]] < free and calm[key[0]] < calm_free
            )
        }

    @precondition(lambda self: self.working)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:  # noqa: FBT001
        key = data.draw(st.sampled_from(sorted(self.working)))
        if fails:
            self.fail(key)
        else:
            self.queue.forget(key)
            self.owed[key].pause_end, self.owed[key].failures = 0.0, 0
        self.queue.done(key)
        del self.working[key]

    def fail(self, key: Key) -> None:
        owed, worked = self.owed[key], self.working[key]
        owed.failures += 1
        pause = self.queue.retry(key)
        if owed.fresh:
            assert pause == 0
            return
        nominal = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (owed.failures - 1))
        assert nominal * (1 - RETRY_SPREAD) <= pause <= nominal * (1 + RETRY_SPREAD)
        owed.pause_end = self.clock.now + pause
        urgent, owed.now = min(worked, worked if owed.now is None else owed.now), None
        owed.ask(self.clock.now, urgent)

    @rule(seconds=st.floats(0.01, 400))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        for owed in self.owed.values():
            owed.come_due(self.clock.now)

    @invariant()
    def it_counts_what_there_is(self) -> None:
        load = self.queue.load()
        waiting = Counter(
            owed.now
            for key, owed in self.owed.items()
            if owed.now is not None and key not in self.working
        )
        assert load.depth == {priority: waiting[priority] for priority in Priority}
        assert load.delayed == sum(owed.later is not None for owed in self.owed.values())


TestQueueLaws = QueueLaws.TestCase


@given(
    flood=st.integers(1, 1000),
    others=st.lists(st.tuples(st.sampled_from("bcdefgh"), priorities), min_size=1, max_size=20),
    flooded=priorities,
)
def test_a_flood_of_one_namespace_costs_the_others_no_more_than_a_turn_for_each_of_theirs(
    flood: int, others: list[tuple[str, Priority]], flooded: Priority
) -> None:
    queue = Queue(WORKERS)
    for number in range(flood):
        queue.add(("a", str(number)), flooded)
    for number, (namespace, priority) in enumerate(others):
        queue.add((namespace, str(number)), priority)
    order = turns(queue)
    for number, (namespace, priority) in enumerate(others):
        if priority <= flooded:
            key = (namespace, str(number))
            ahead = order[: order.index(key)]
            of_its_own = sum(other == namespace for other, _ in ahead)
            assert sum(other == "a" for other, _ in ahead) <= of_its_own + 1


def turns(queue: Queue) -> list[Key]:
    """Return the keys in the order in which one worker takes them."""
    order = []
    while turn := queue.take():
        order.append(turn.key)
        queue.done(turn.key)
    return order


@given(
    waves=st.lists(st.tuples(st.integers(1, 100), priorities), min_size=1, max_size=5),
    workers=st.integers(2, 32),
)
def test_a_namespace_whose_looks_hang_leaves_a_worker_for_another_whatever_is_urgent(
    waves: list[tuple[int, Priority]], workers: int
) -> None:
    queue = Queue(workers)
    for wave, (slow, priority) in enumerate(waves):
        for number in range(slow):
            queue.add(("slow", f"{wave}-{number}"), priority)
        while queue.take():
            pass
    queue.add(("quick", "x"), Priority.RESYNC)
    turn = queue.take()
    assert turn is not None
    assert turn.key == ("quick", "x")


@given(
    looks=st.lists(
        st.tuples(
            st.sampled_from("abcdefgh"), st.sampled_from(sorted(set(Priority) - {Priority.BROKEN}))
        ),
        max_size=64,
    ),
    broken=st.sampled_from("abcdefghi"),
)
def test_what_is_broken_finds_a_worker_whatever_is_worked_on_that_is_not(
    looks: list[tuple[str, Priority]], broken: str
) -> None:
    queue = Queue(
        16
    )  # as many as there are by default: of few, the last free one is for a namespace that has none
    for number, (namespace, priority) in enumerate(looks):
        queue.add((namespace, str(number)), priority)
    while queue.take():
        pass
    queue.add((broken, "x"), Priority.BROKEN)
    turn = queue.take()
    assert turn is not None
    assert turn.key == (broken, "x")
