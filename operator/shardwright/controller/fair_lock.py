"""Turns at a lock: the most urgent first, then the namespace that has held it least lately."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from math import exp
from time import monotonic
from typing import Final

from shardwright.controller.queue import Key, Priority

LATELY_SECONDS: Final = 5.0
"""Time held so long ago counts for 1/e. Basis: assumed. Whoever had all the time waits for one that
comes anew no longer than ln 2 of it, for ten that come anew no longer than ln 11: 3.5 and 12 s, of
the 30 s that a reconcile may take.
"""

FORGOTTEN_SECONDS: Final = 0.001
"""A namespace that has had less lately counts as one that had nothing."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A waiter: its urgency, whether it is behind the first of its namespace, and when it came."""

    priority: Priority
    behind: bool
    number: int
    came: asyncio.Future[None]

    @property
    def place(self) -> tuple[Priority, bool, int]:
        """Return the waiter's place among those of its namespace."""
        return self.priority, self.behind, self.number


class FairLock:
    """A lock that a namespace gets the sooner, the less time it has held it lately.

    A namespace that asks a thousand times, or holds it for long, delays one that seldom asks by a
    single turn. ``on_turn`` gets the seconds that each turn was waited for.
    """

    def __init__(
        self,
        on_turn: Callable[[float], None] = lambda _seconds: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._on_turn = on_turn
        self._clock = clock
        self._waiting: dict[str, list[_Waiting]] = {}
        self._had: dict[str, float] = {}  # seconds by namespace, as they count now
        self._counted_at = clock()
        self._numbers = count()
        self._holder: str | None = None

    @asynccontextmanager
    async def turn(self, key: Key, priority: Priority) -> AsyncIterator[None]:
        """Hold the lock for a key until the end of the block."""
        await self.take(key, priority)
        try:
            yield
        finally:
            self.give_back()

    async def take(self, key: Key, priority: Priority, *, first: bool = False) -> None:
        """Wait for the lock; :meth:`give_back` must follow.

        ``first``: before all equally urgent waiters of its namespace.
        """
        namespace = key[0]
        # Nobody waits while the turn is free: give_back hands it on at once.
        if self._holder is None:
            self._count()
            self._holder = namespace
            self._on_turn(0.0)
            return
        began = monotonic()
        mine = _Waiting(
            priority, not first, next(self._numbers), asyncio.get_running_loop().create_future()
        )
        self._waiting.setdefault(namespace, []).append(mine)
        try:
            await mine.came
        except asyncio.CancelledError:
            # The turn had come in the very moment of the cancellation: it goes to the next.
            if mine.came.done() and not mine.came.cancelled():
                self.give_back()
            elif mine in self._waiting.get(namespace, ()):
                self._remove(namespace, mine)
            raise
        self._on_turn(monotonic() - began)

    def give_back(self) -> None:
        """Give the lock to the next waiter."""
        # Before the next is chosen, so that this turn counts for whoever had it.
        self._count()
        self._holder = None
        while (following := self._next()) is not None:
            namespace, waiting = following
            self._remove(namespace, waiting)
            if (
                not waiting.came.done()
            ):  # who was cancelled a moment ago has not had the time to say so
                self._holder = namespace
                waiting.came.set_result(None)
                return

    def _count(self) -> None:
        now = self._clock()
        seconds, self._counted_at = now - self._counted_at, now
        less = exp(-seconds / LATELY_SECONDS)
        self._had = {
            namespace: less * had
            for namespace, had in self._had.items()
            if less * had >= FORGOTTEN_SECONDS
        }
        if self._holder is not None:
            self._had[self._holder] = self._had.get(self._holder, 0.0) + seconds

    def _next(self) -> tuple[str, _Waiting] | None:
        heads = (
            (namespace, min(waiting, key=lambda one: one.place))
            for namespace, waiting in self._waiting.items()
        )
        return min(
            heads,
            key=lambda head: (
                # Urgency before fairness: a group that has lost its node goes before all first
                # plans.
                head[1].priority,
                self._had.get(head[0], 0.0),
                head[1].number,
            ),
            default=None,
        )

    def _remove(self, namespace: str, waiting: _Waiting) -> None:
        self._waiting[namespace].remove(waiting)
        if not self._waiting[namespace]:
            del self._waiting[namespace]
