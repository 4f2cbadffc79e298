"""Turns at something that one at a time may have: the most urgent first, namespaces in turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic

from shardwright.controller.queue import Key, Line, Priority


class Turns:
    """A lock that namespaces take in turn: one that asks a thousand times holds another up by one turn, not by a thousand.

    ``on_turn`` is told for how many seconds whoever has got it has waited.
    """

    def __init__(self, on_turn: Callable[[float], None] = lambda _seconds: None) -> None:
        self._on_turn = on_turn
        self._line = Line()
        self._waiting: dict[Key, asyncio.Future[None]] = {}
        self._numbers = count()
        self._taken = False

    @asynccontextmanager
    async def turn(self, key: Key, priority: Priority) -> AsyncIterator[None]:
        """Wait for the turn of a key, and have it until the end of the block."""
        await self.take(key, priority)
        try:
            yield
        finally:
            self.give_back()

    async def take(self, key: Key, priority: Priority) -> None:
        """Wait for the turn of a key; :meth:`give_back` must follow."""
        if not self._taken:
            self._taken = True
            self._on_turn(0.0)
            return
        began = monotonic()
        mine = key[0], f"{next(self._numbers)}"  # of one namespace whoever came first
        came = self._waiting[mine] = asyncio.get_running_loop().create_future()
        self._line.put(mine, priority)
        try:
            await came
        except asyncio.CancelledError:
            if came.done() and not came.cancelled():
                self.give_back()
            elif self._waiting.pop(mine, None):
                self._line.remove(mine, priority)
            raise
        self._on_turn(monotonic() - began)

    def give_back(self) -> None:
        """End a turn: the next one begins."""
        while (following := self._line.take(lambda _namespace, _priority: True)) is not None:
            came = self._waiting.pop(following)
            if not came.done():  # who was cancelled a moment ago has not had the time to say so
                came.set_result(None)
                return
        self._taken = False
