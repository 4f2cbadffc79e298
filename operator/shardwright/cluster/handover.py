"""From a reader's thread to the event loop: one callback for many changes, the last of each key."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

V = TypeVar("V")

Key = tuple[str, str]
"""Namespace (empty for what has none) and name of an object."""

SLICE: Final = 500
"""Changes taken over in one go, so that a LIST of everything does not hold up the loop. Basis:
measured, 1 to 8 µs each.
"""


@dataclass(frozen=True, slots=True)
class Change(Generic[V]):
    """The current object, None if gone or of no interest, and its version (0: no number)."""

    value: V | None
    version: int


TakeOver = Callable[[Mapping[Key, Change[V]], bool], None]
"""Told changes, and whether with them all that the last LIST has found is there."""


class Handover(Generic[V]):
    """``take_over`` is called on the loop; while it is busy, newer changes replace waiting ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take_over: TakeOver[V]) -> None:
        self._loop = loop
        self._take_over = take_over
        self._lock = threading.Lock()
        self._waiting: dict[Key, Change[V]] = {}
        self._listed = False
        self._called = False

    def put(self, changes: Mapping[Key, Change[V]], listed: bool) -> None:  # noqa: FBT001  # a fact
        """Hand changes over; ``listed``: they complete a LIST. Called on the reader's thread."""
        with self._lock:
            # Only the last change of a key counts, so a loop that is busy finds no queue of
            # outdated ones.
            self._waiting.update(changes)
            self._listed |= listed
            # One callback on its way is enough: it takes all that has come by then.
            called, self._called = self._called, True
        if not called:
            self._call(self._loop.call_soon_threadsafe)

    def _call(self, call: Callable[[Callable[[], None]], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: we are ending
            call(self._run)

    def _run(self) -> None:
        with self._lock:
            if len(self._waiting) <= SLICE:
                changes, self._waiting = self._waiting, {}
                listed, self._listed, self._called, more = (self._listed, False, False, False)
            else:
                changes, listed = (
                    {key: self._waiting[key] for key in islice(self._waiting, SLICE)},
                    False,
                )
                more = True
                for key in changes:
                    del self._waiting[key]
        if more:
            # By another callback rather than a loop: other ready work comes in between.
            self._call(self._loop.call_soon)
        # Outside of the lock: the reader's thread must not wait for the loop.
        self._take_over(changes, listed)
