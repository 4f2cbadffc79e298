"""Workers: each takes a key, reconciles it, and has a failed one reconciled again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from shardwright.cluster.client import ApiError
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key, Priority, Queue, Requeue

log = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 30.0
"""What a reconcile may take. Basis: assumed, ten times what one takes whose every request needs 100
ms; one that hangs in a webhook longer than this gives its worker back.
"""

TOLD_FROM_SECONDS: Final = 1.0
"""The shortest pause before another try at which an internal error is told. Basis: chosen; most
pass sooner.
"""

TELLING_SECONDS: Final = 5.0
"""What telling of a fault may take. Basis: assumed; the log has told of it already."""

Reconcile = Callable[[Key, Priority], Awaitable[Requeue | None]]
"""Reconciles a model at this urgency and returns when to do so again at the latest, None for only
on a change.
"""

Tell = Callable[[Key, Exception], Awaitable[None]]
"""Tells of a fault of ours in the reconcile of a model."""


class NotAllTakenError(ApiError):
    """A write was not taken; ``requeue`` is when to reconcile again at the latest."""

    def __init__(self, code: int, reason: str, message: str, requeue: Requeue) -> None:
        super().__init__(code, reason, message)
        self.again = requeue


class QueueWorkers:
    """A queue's workers, as many as it serves; reconciles end after ``deadline_seconds``."""

    def __init__(
        self,
        queue: Queue,
        reconcile: Reconcile,
        tell: Tell,
        metrics: Metrics,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._queue = queue
        self._look = reconcile
        self._tell = tell
        self._metrics = metrics
        self._deadline_seconds = deadline_seconds
        self._busy: set[Key] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Work until cancelled."""
        # A group: a worker that ends by a fault of ours ends them all, and so the process.
        async with asyncio.TaskGroup() as group:
            for _ in range(self._queue.workers):
                group.create_task(self._work())

    async def finish(self, seconds: float) -> None:
        """Wait until nothing is worked on, ``seconds`` at most; cancel :meth:`run` afterwards."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    async def _work(self) -> None:
        while True:
            turn = await self._queue.get()
            key = turn.key
            self._busy.add(key)
            self._idle.clear()
            started = monotonic()
            # This stands unless a result comes back: a cancelled reconcile returns none.
            result = "cancelled"
            try:
                result = await self._try(key, turn.priority)
            finally:
                self._metrics.reconciles.labels(result).observe(monotonic() - started)
                self._busy.discard(key)
                if not self._busy:
                    self._idle.set()
                # Last: from now on another worker may take the key.
                self._queue.done(key)

    async def _try(self, key: Key, priority: Priority) -> str:
        # Nothing that goes wrong with one may stop the others.
        try:
            async with asyncio.timeout(self._deadline_seconds) as deadline:
                requeue = await self._look(key, priority)
        except NotAllTakenError as error:
            return self._not_all_taken(key, error)
        # The API server's own word: it is tried again after the pause that it asks for.
        except ApiError as error:
            return self._unanswered(key, error)
        except Exception as fault:
            pause = self._queue.retry(key)
            # A reconcile may raise a TimeoutError of its own. Only this tells it from our deadline.
            if deadline.expired():
                log.warning(
                    "no end after %g s, given up", self._deadline_seconds, extra=_facts(key, pause)
                )
                return "deadline"
            log.exception("a fault of ours", extra=_facts(key, pause))
            if pause >= TOLD_FROM_SECONDS:
                await self._tell_of(key, fault)
            return "error"
        # A reconcile that went well ends the row of failures.
        self._queue.forget(key)
        if requeue is not None:
            self._queue.add_after(key, requeue)
        return "ok"

    def _not_all_taken(self, key: Key, error: NotAllTakenError) -> str:
        log.warning("not all was taken: %s", error, extra=_facts(key, error.again.seconds))
        # The reconcile itself has worked. It knows when to go on, so no pause may grow.
        self._queue.forget(key)
        self._queue.add_after(key, error.again)
        return "api_error"

    def _unanswered(self, key: Key, error: ApiError) -> str:
        pause = self._queue.retry(key, error.retry_after_seconds or 0.0)
        log.warning("API server: %s", error, extra=_facts(key, pause) | {"reason": error.reason})
        return "api_error"

    async def _tell_of(self, key: Key, fault: Exception) -> None:
        try:
            async with asyncio.timeout(TELLING_SECONDS):
                await self._tell(key, fault)
        except Exception:
            log.warning(
                "a fault of ours is not in the status", exc_info=True, extra={"key": "/".join(key)}
            )


def _facts(key: Key, pause_seconds: float) -> dict[str, object]:
    return {"key": "/".join(key), "seconds": round(pause_seconds, 2)}
