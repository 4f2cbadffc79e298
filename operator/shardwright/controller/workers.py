"""Workers: each takes a key, has it looked at, and sees to it that it is looked at again when that failed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

from shardwright.cluster.client import ApiError
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key, Queue

log = logging.getLogger(__name__)

Look = Callable[[Key], Awaitable[float | None]]
"""Looks at a model and returns in how many seconds to look again although nothing may happen."""


class Workers:
    """``count`` workers on one queue."""

    def __init__(self, queue: Queue, look: Look, metrics: Metrics, count: int) -> None:
        self._queue = queue
        self._look = look
        self._metrics = metrics
        self._count = count
        self._busy: set[Key] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._count):
                group.create_task(self._work())

    async def finish(self, seconds: float) -> None:
        """Wait until nothing is worked on, but no longer than this; cancel :meth:`run` afterwards."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._busy.add(key)
            self._idle.clear()
            started = monotonic()
            result = "error"
            try:
                result = await self._try(key)
            finally:
                self._metrics.reconciles.labels(result).observe(monotonic() - started)
                self._busy.discard(key)
                if not self._busy:
                    self._idle.set()
                self._queue.done(key)

    async def _try(self, key: Key) -> str:
        """Look at a key; nothing that goes wrong with one may stop the others."""
        name = "/".join(key)
        try:
            again = await self._look(key)
        except ApiError as error:
            pause = self._queue.retry(key)
            log.warning("API server: %s", error, extra={"key": name, "reason": error.reason, "seconds": round(pause, 2)})
            return "api_error"
        except Exception:
            log.exception("a fault of ours", extra={"key": name, "seconds": round(self._queue.retry(key), 2)})
            return "error"
        self._queue.forget(key)
        if again is not None:
            self._queue.add_after(key, again)
        return "ok"
