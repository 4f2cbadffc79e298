"""Preemption: while a broken group is reconciled, other reconciles pause before their next step.

A step is work of the pure core on the event loop. asyncio serves ready tasks in turn, and a broken
group's reconcile asks the API server twice before it writes; after each answer it would wait for a
step of every other reconcile. So the others' steps are taken one by one, with room for ready tasks
between them, and none while a broken group's reconcile is under way.

Nobody starves: the others then have as long as they have paused, so groups that always break take
half of the time at most. Reading, publishing and work on many groups, which runs on threads, are
not covered.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

from shardwright.controller.queue import Priority

LONGEST_SECONDS: Final = 0.25
"""How long the others pause at most, each time. Basis: measured, the median from the crash of a pod
to the write that ends its group is 0.23 s with nothing else going on, on two cores that run the
control plane, too (``python -m benchmarks.neighbours``).
"""


class Preemption:
    """Decides which reconcile may take a step; one for all reconciles of an event loop."""

    def __init__(
        self, longest_seconds: float = LONGEST_SECONDS, clock: Callable[[], float] = monotonic
    ) -> None:
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._urgent = 0
        self._clear = asyncio.Event()
        self._clear.set()
        # One at a time: asyncio serves whoever is ready in turn, so a dozen reconciles would take a
        # dozen steps in a row.
        self._one = asyncio.Lock()
        self._theirs_until = float("-inf")

    @contextmanager
    def looking(self, priority: Priority) -> Iterator[None]:
        """Reconcile in this block: if a group is broken, the others pause meanwhile."""
        self._count(priority, 1)
        try:
            yield
        finally:
            self._count(priority, -1)

    @contextmanager
    def letting_on(self, priority: Priority) -> Iterator[None]:
        """Let the others go on in this block, which waits for something else."""
        # While it waits for the planner, which takes seconds, the others would pause for nothing.
        self._count(priority, -1)
        try:
            yield
        finally:
            self._count(priority, 1)

    async def step(self, priority: Priority) -> None:
        """Return when a reconcile may take its next step."""
        if priority is Priority.BROKEN:
            return
        async with self._one:
            await asyncio.sleep(0)  # first what has become ready during the last step
            began = self._clock()
            if self._clear.is_set() or began < self._theirs_until:
                return
            # wait_for would lose a cancellation that comes just after the end of the pause
            with suppress(TimeoutError):
                async with asyncio.timeout(self._longest_seconds):
                    await self._clear.wait()
            now = self._clock()
            # As long as they have paused, so that no more than half of the time can be taken from
            # them.
            self._theirs_until = now + (now - began)

    def _count(self, priority: Priority, looks: int) -> None:
        if priority is not Priority.BROKEN:
            return
        self._urgent += looks
        if self._urgent:
            self._clear.clear()
        else:
            self._clear.set()
