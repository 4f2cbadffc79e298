"""Right of way: while a broken group is looked at, other looks pause between two of their steps.

A step of a look holds the event loop for some 5 to 40 ms, and asyncio serves whoever is ready in
turn. A look at a broken group asks the API server twice before it writes, and after each answer it
would wait for a step of every other look. So steps of looks that can wait are taken one by one, and
not at all while one that cannot is under way.

It refuses nothing and starves nobody: those that pause have as long to themselves afterwards as
they have paused.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

from shardwright.controller.queue import Priority

LONGEST_SECONDS: Final = 0.25
"""How long the others pause at most. Basis: a look at a broken group needs 70 to 250 ms until it
has written, on a machine that runs the control plane, too (``python -m benchmarks.neighbours``).
"""


class RightOfWay:
    """Who may take a step; one for all looks of an event loop."""

    def __init__(
        self,
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._urgent = 0
        self._clear = asyncio.Event()
        self._clear.set()
        self._one = asyncio.Lock()
        self._theirs_until = float("-inf")

    @contextmanager
    def looking(self, priority: Priority) -> Iterator[None]:
        """Look at a model in this block: if its group is broken, the others pause meanwhile."""
        urgent = priority is Priority.BROKEN
        self._urgent += urgent
        if self._urgent:
            self._clear.clear()
        try:
            yield
        finally:
            self._urgent -= urgent
            if not self._urgent:
                self._clear.set()

    async def step(self, priority: Priority) -> None:
        """Return when a look may take its next step."""
        if priority is Priority.BROKEN:
            return
        async with self._one:
            await asyncio.sleep(0)  # first what has become ready during the last step
            began = self._clock()
            if self._clear.is_set() or began < self._theirs_until:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._clear.wait(), self._longest_seconds)
            now = self._clock()
            self._theirs_until = now + (now - began)
