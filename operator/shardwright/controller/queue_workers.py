"""Workers: each takes a key, reconciles it, and has a failed one reconciled again.

Preemption: while a broken group is reconciled, other reconciles pause before their next step.

A step is work of the pure core on the event loop. asyncio serves ready tasks in turn, and a broken
group's reconcile asks the API server twice before it writes; after each answer it would wait for a
step of every other reconcile. So the others' steps are taken one by one, with room for ready tasks
between them, and none while a broken group's reconcile is under way.

Nobody starves: the others then have as long as they have paused, so groups that always break take
half of the time at most. Reading, publishing and work on many groups, which runs on threads, are
not covered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

from shardwright.cluster.client import ApiError
from shardwright.controller.look_log import Refusals, begin_look
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
        self._refusals = Refusals()

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
            begin_look()
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
                said = f"no end after {self._deadline_seconds:g} s, given up"
                self._refusals.say(key, "look", said, **_seconds(pause))
                return "deadline"
            log.exception("a fault of ours", extra=_facts(key, pause))
            if pause >= TOLD_FROM_SECONDS:
                await self._tell_of(key, fault)
            return "error"
        # A reconcile that went well ends the row of failures.
        self._queue.forget(key)
        self._refusals.over(key, "look")
        if requeue is not None:
            self._queue.add_after(key, requeue)
        return "ok"

    def _not_all_taken(self, key: Key, error: NotAllTakenError) -> str:
        # Each refusal is said where it is met, by the writes.
        log.debug("not all was taken: %s", error, extra=_facts(key, error.again.seconds))
        self._refusals.over(key, "look")
        # The reconcile itself has worked. It knows when to go on, so no pause may grow.
        self._queue.forget(key)
        self._queue.add_after(key, error.again)
        return "api_error"

    def _unanswered(self, key: Key, error: ApiError) -> str:
        pause = self._queue.retry(key, error.retry_after_seconds or 0.0)
        self._refusals.say(key, "look", str(error), reason=error.reason, **_seconds(pause))
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
    return {"key": "/".join(key), **_seconds(pause_seconds)}


def _seconds(pause: float) -> dict[str, object]:
    return {"seconds": round(pause, 2)}


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
