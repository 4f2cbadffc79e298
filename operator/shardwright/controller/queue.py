"""Which resource is looked at next: each key once, one worker per key, failures again after a growing pause."""

import asyncio
import random
from collections.abc import Callable
from time import monotonic
from typing import Final

Key = tuple[str, str]
"""Namespace and name of a ShardedModel."""

FIRST_RETRY_SECONDS: Final = 0.05
LONGEST_RETRY_SECONDS: Final = 300.0


class Queue:
    """The semantics of client-go's work queue: a key that is added while it is worked on comes again afterwards."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: dict[Key, float] = {}  # since when
        self._working: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        self._closed = False

    @property
    def depth(self) -> int:
        """Return how many keys wait for a worker."""
        return len(self._waiting)

    @property
    def oldest_seconds(self) -> float:
        """Return how long the first key has been waiting."""
        return self._clock() - min(self._waiting.values()) if self._waiting else 0.0

    def add(self, key: Key) -> None:
        """Ask for a look at a key, now."""
        if key in self._waiting or self._closed:
            return
        self._waiting[key] = self._clock()
        if key not in self._working:
            self._ready.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a look at a key in a while; an earlier appointment stands."""
        due = self._clock() + seconds
        appointment = self._timers.get(key)
        if appointment and appointment[0] <= due:
            return
        if appointment:
            appointment[1].cancel()
        self._timers[key] = due, asyncio.get_running_loop().call_later(seconds, self._due, key)

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    def close(self) -> None:
        """Hand out no more keys: workers that ask for one wait for ever."""
        self._closed = True
        self._ready = asyncio.Queue()

    async def get(self) -> Key:
        """Take the next key to work on; :meth:`done` must follow."""
        key = await self._ready.get()
        del self._waiting[key]
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        """Give a key back."""
        self._working.discard(key)
        if key in self._waiting and not self._closed:
            self._ready.put_nowait(key)

    def retry(self, key: Key) -> float:
        """Ask for a look after a pause that doubles with every failure; return the pause in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * float(2 ** min(failures, 16)))
        pause *= random.uniform(0.8, 1.2)  # noqa: S311  spreads load, guards nothing
        self.add_after(key, pause)
        return pause

    def forget(self, key: Key) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)
