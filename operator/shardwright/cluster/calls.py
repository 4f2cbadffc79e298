"""One request to the API server, its urgency, and the error it may end in.

Which request is sent next: bounded by rate and number, urgent ones first, no namespace alone.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from time import monotonic
from typing import Any, Final

from shardwright.cluster.resources import EVENTS, REVIEWS, Resource

JSON: Final = "application/json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What asks for the metadata of an object alone."""

METADATA: Final = {
    "list": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "watch": METADATA_ONLY,
}
"""What asks for metadata alone, by verb."""

DRY_RUN: Final = (("dryRun", "All"),)

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""Reason of an :class:`ApiError`: the time that its caller gave a request was over."""

NOT_A_STATUS: Final = "NotAStatus"
"""Reason of an :class:`ApiError`: something between us and the API server refused, not the API
server.
"""

TOO_LARGE: Final = "TooLarge"
"""Reason of an :class:`ApiError`: the answer has more bytes than are read."""

UNKNOWN_PATH: Final = "UnknownPath"
"""Reason of an :class:`ApiError` with code 404: the API server does not serve this kind of object.
"""


class Urgency(IntEnum):
    """What a request is for; the smaller, the sooner it is sent."""

    LEASE = 0
    """Leadership: waits for nothing."""
    REPAIR = 1
    """Calls that repair a group: deletions, zero replicas, restarts, and the reads right before
    them.
    """
    OBJECTS = 2
    """Reads, and the objects of new plans."""
    STATUS = 3
    EVENTS = 4
    """Events and dry runs."""


class ApiError(Exception):
    """The API server refused a request or did not answer (``code`` 0)."""

    def __init__(
        self, code: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)

    @property
    def passes(self) -> bool:
        """Return whether the same request may succeed a little later."""
        # A body that is too large is as large the next time. 409 is not among them: its meaning
        # depends on the write, which the caller knows.
        return (self.code in {0, 429} and self.reason != TOO_LARGE) or self.code >= 500  # noqa: PLR2004 - status codes of HTTP


class NotLeadingError(ApiError):
    """A write was not sent, because somebody else may be leading."""

    def __init__(self) -> None:
        super().__init__(403, "NotLeading", "another operator leads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; ``verb`` is the RBAC verb, ``project`` reduces each item of a LIST."""

    verb: str
    resource: Resource
    path: str
    method: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    project: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace it is about, "" for none or all."""
        return self.path.partition("/namespaces/")[2].partition("/")[0]

    @property
    def writes(self) -> bool:
        """Return whether only a leader may send it; a question stores nothing."""
        return self.method != "GET" and self.resource not in REVIEWS

    @property
    def urgency(self) -> Urgency:
        """Return the urgency unless the caller sets another."""
        # Writes that end a group have the right of way: a flood of new models must not hold a
        # repair up.
        if self.verb == "delete":
            return Urgency.REPAIR
        if self.resource is EVENTS or DRY_RUN[0] in self.query:
            return Urgency.EVENTS
        return Urgency.STATUS if self.path.endswith("/status") else Urgency.OBJECTS


SHARE: Final = 4
"""One namespace may have this part of all requests under way, and this part is kept free for
repairs; assumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Requests a second, and at once after a pause.

    API priority and fairness protects the API server; this keeps a fault of ours from becoming a
    flood. 1,000 models in a minute with 20 requests each are 333 a second, so the limit is higher.
    LeaderWorkerSet has the same figures.
    """

    qps: float = 500.0
    burst: int = 500


class Gate:
    """Lets requests pass by urgency, then by namespaces in turn, then in order.

    A namespace whose requests hang holds a quarter of those under way at most. A request that is no
    repair leaves a quarter free, and one of its namespace's.
    """

    def __init__(
        self, limits: RequestLimits, at_once: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._limits = limits
        self._at_once = at_once
        self._clock = clock
        self._tokens = float(limits.burst)
        self._filled_at = clock()
        self._running: Counter[str] = Counter()
        self._waiting: dict[Urgency, OrderedDict[str, deque[asyncio.Future[None]]]] = {
            each: OrderedDict() for each in Urgency
        }
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, urgency: Urgency, namespace: str, deadline: float = inf) -> None:
        """Wait until a request may be sent; :meth:`leave` must follow.

        Raises:
            TimeoutError: it may not by the ``deadline`` of the clock.
        """
        left = deadline - self._clock()
        if left <= 0:
            # At once: a caller without time left must not stand in line before others.
            raise TimeoutError
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[urgency].setdefault(namespace, deque()).append(waiter)
        self._admit()
        if waiter.done():
            return
        try:
            async with asyncio.timeout(None if left == inf else left):
                await waiter
        except BaseException:
            self._withdraw(urgency, namespace, waiter)
            raise

    def leave(self, namespace: str) -> None:
        """End a request."""
        self._running[namespace] -= 1
        if not self._running[namespace]:
            del self._running[namespace]
        self._admit()

    def _withdraw(self, urgency: Urgency, namespace: str, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():  # admitted in the same moment
            self.leave(namespace)
            return
        line = self._waiting[urgency]
        waiters = line.get(namespace, deque())
        with suppress(
            ValueError
        ):  # it has been passed over: others were told first that it gave up
            waiters.remove(waiter)
        if not waiters:
            line.pop(namespace, None)

    def _admit(self) -> None:
        now = self._clock()
        self._tokens = min(
            self._limits.burst, self._tokens + (now - self._filled_at) * self._limits.qps
        )
        self._filled_at = now
        while self._tokens >= 1 and (waiter := self._next()):
            # Taken before the request is sent: one that fails at once has cost the server as much.
            self._tokens -= 1
            waiter.set_result(None)
        if self._timer:
            self._timer.cancel()
        short = self._tokens < 1 and any(self._waiting.values())
        pause = (1 - self._tokens) / self._limits.qps
        self._timer = asyncio.get_running_loop().call_later(pause, self._admit) if short else None

    def _next(self) -> asyncio.Future[None] | None:
        # Enum order is the order of urgency, so the most urgent line is asked first.
        for urgency, line in self._waiting.items():
            for namespace in [
                name
                for name, waiters in line.items()
                if all(waiter.cancelled() for waiter in waiters)
            ]:
                del line[namespace]
            for namespace, waiters in line.items():
                while waiters[0].cancelled():  # it gives up, and has not had its turn to say so
                    waiters.popleft()
                if self._has_room(urgency, namespace):
                    waiter = waiters.popleft()
                    # In turn: a namespace with a thousand requests gets one before the next
                    # namespace gets its own.
                    line.move_to_end(namespace)
                    if not waiters:
                        del line[namespace]
                    self._running[namespace] += 1
                    return waiter
        return None

    def _has_room(self, urgency: Urgency, namespace: str) -> bool:
        share = self._at_once // SHARE
        repairs = urgency is Urgency.REPAIR
        of_all = self._at_once - (0 if repairs else share)
        # One fewer than its share: of the namespace, too, a place is left for a repair.
        of_one = max(1, share - (0 if repairs else 1))
        return self._running.total() < of_all and self._running[namespace] < of_one
