"""Which resource is reconciled next: urgent ones first, namespaces in turn, failed ones later.

Six laws, each a property test. No key that was asked for is lost, and none is worked on twice at
once. The more urgent key goes first. Of 16 workers, the default, a broken model always finds one,
however many are busy with others. Namespaces take turns within an urgency, and none may hold more
workers for broken models than it leaves free; for the rest no more than it leaves free beside all
it holds, nor the last one beside others of its own. So a namespace that floods, or whose API calls
hang, keeps no other from its workers. A failed key comes again after a growing pause, whatever
happens meanwhile; only its user ends the pause, by changing the resource. Changes by a namespace's
users are reconciled at a bounded rate: each such reconcile sees the last change, and until then
only a broken resource is reconciled.
"""

import asyncio
import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from time import monotonic
from typing import Final

from shardwright.controller.rate_limits import CHANGES_AT_ONCE, CHANGES_PER_SECOND, RateLimit

Key = tuple[str, str]
"""Namespace and name of a ShardedModel."""

FIRST_RETRY_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = 300.0
# share by which a pause differs at random, so that keys that failed together do not come together
RETRY_SPREAD: Final = 0.2
# More would say nothing: the longest pause is reached long before.
DOUBLINGS: Final = 16


def retry_pause_seconds(failures: int) -> float:
    """Return the pause after so many failures in a row, doubling up to the longest."""
    pause = min(
        LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * float(2 ** (min(failures, DOUBLINGS) - 1))
    )
    # Spread, so that keys that failed together do not come back together.
    return pause * random.uniform(1 - RETRY_SPREAD, 1 + RETRY_SPREAD)  # noqa: S311  # guards nothing


SHARE: Final = 4
"""The part of the workers kept free for groups that do not serve: reconciles of new models wait for
the planner one by one, and hold a worker each. Basis: assumed, as is the same part of all requests
(``cluster.throttle``).
"""


class Priority(IntEnum):
    """How urgent a reconcile is, the most urgent first."""

    BROKEN = 0  #: a group does not serve and may be repaired
    ROLL = 1  #: a group moves or rolls
    NEW = 2  #: a resource was made or changed
    WAITING = 3  #: room may have come free for one that waits
    RESYNC = 4  #: nothing is known to have changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """When to reconcile a key again if nothing happens, and how urgent that is."""

    seconds: float
    priority: Priority = Priority.RESYNC


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A key taken by a worker, and how urgent it was."""

    key: Key
    priority: Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """The work before and behind the queue.

    ``depth`` counts keys waiting for a worker, ``oldest_seconds`` is how long the first has waited.
    ``delayed`` counts keys with an appointment, including pauses after failures. Keys with a worker
    have been there for ``unfinished_seconds`` together.
    """

    depth: Mapping[Priority, int]
    oldest_seconds: float
    delayed: int
    unfinished_seconds: float


@dataclass(slots=True)
class _Asked:
    """A requested reconcile; ``fresh``: for a change of the resource that no reconcile has seen."""

    priority: Priority
    since: float
    fresh: bool


@dataclass(slots=True)
class _Work:
    priority: Priority
    since: float


@dataclass(frozen=True, slots=True)
class _Appointment:
    due: float
    number: int
    priority: Priority


class WaitingLine:
    """Keys in the order of service; one that is taken and put in again goes to the end."""

    def __init__(self) -> None:
        # The inner dicts stand for ordered sets: the first key is the first in turn.
        self._queued: dict[Priority, dict[str, dict[str, None]]] = {
            priority: {} for priority in Priority
        }

    def put(self, key: Key, priority: Priority) -> None:
        """Put a key in line, behind those of its namespace."""
        namespace, name = key
        self._queued[priority].setdefault(namespace, {})[name] = None

    def remove(self, key: Key, priority: Priority) -> None:
        """Take a key out of line."""
        namespace, name = key
        names = self._queued[priority][namespace]
        del names[name]
        if not names:
            del self._queued[priority][namespace]

    def take(self, may_work: Callable[[str, Priority], bool]) -> Key | None:
        """Return the next key of a namespace that ``may_work`` now, and put its namespace last."""
        for priority, namespaces in self._queued.items():
            namespace = next(
                (namespace for namespace in namespaces if may_work(namespace, priority)), None
            )
            if namespace is not None:
                # Taken out and put in again behind the others: a dict keeps that order, which makes
                # the turns.
                names = namespaces.pop(namespace)
                name = next(iter(names))
                del names[name]
                if names:
                    namespaces[namespace] = names
                return namespace, name
        return None


class Queue:
    """The semantics of client-go's work queue, with urgency, turns and backoff; for one event loop.

    A key added while it is worked on comes again afterwards. Taking a key cancels its appointment,
    as the reconcile decides anew when to come back.
    """

    def __init__(self, workers: int, clock: Callable[[], float] = monotonic) -> None:
        self.workers = workers
        self._clock = clock
        self._line = WaitingLine()
        self._asked: dict[Key, _Asked] = {}
        self._working: dict[Key, _Work] = {}
        self._busy: Counter[str] = Counter()  # workers by namespace
        self._calm: Counter[str] = Counter()  # those of them that repair nothing
        self._appointments: dict[Key, _Appointment] = {}
        # A heap; entries that no appointment has any more are skipped.
        self._calendar: list[tuple[float, int, Key]] = []
        self._numbers = count()
        self._failures: dict[Key, int] = {}
        self._pauses: dict[Key, float] = {}  # until when
        self._pace = RateLimit(CHANGES_PER_SECOND, CHANGES_AT_ONCE)
        self._changed: dict[Key, float] = {}  # when these are reconciled for a change
        self._idle: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, key: Key, priority: Priority, *, fresh: bool = False) -> None:
        """Request a reconcile: now or, unless a user's change is ``fresh``, after its pause.

        A key in line moves up if this is more urgent. Former failures say nothing of a changed
        resource: they are forgotten, and a request that waited for the end of a pause comes along.
        """
        if self._closed:
            return
        paused = self._pauses.get(key, 0.0) > self._clock()
        if paused and not fresh:
            self._appoint(key, self._pauses[key], priority)
            return
        # A change ends the pause. The entry that waited for it may have been more urgent than the
        # change.
        if paused:
            priority = min(priority, self._appointments.pop(key).priority)
        if fresh:
            self.forget(key)
        elif priority is not Priority.BROKEN and self._changed.get(key, 0.0) > self._clock():
            self._appoint(key, self._changed[key], priority)
            return
        self._ask(key, priority, fresh=fresh)

    def change(self, key: Key) -> None:
        """Request a reconcile of a key changed by its user, at its namespace's pace; past failures
        are forgotten.
        """
        now = self._clock()
        # A reconcile is due already, and it will see this change, too.
        if self._closed or self._changed.get(key, 0.0) > now:
            return
        # In line already: the reconcile to come sees this change, too, so it costs its namespace
        # nothing.
        due = now if key in self._asked else self._pace.next(key[0], now)
        if due <= now:
            self.add(key, Priority.NEW, fresh=True)
            return
        self.forget(key)
        self._changed[key] = due
        self._appoint(key, due, Priority.NEW)

    def add_after(self, key: Key, requeue: Requeue) -> None:
        """Request a reconcile in a while; an earlier appointment stands."""
        if not self._closed:
            self._appoint(key, self._clock() + requeue.seconds, requeue.priority)

    def retry(self, key: Key, least_seconds: float = 0.0) -> float:
        """Request a reconcile after a pause that doubles with every failure; return it, in seconds.

        Requests made meanwhile wait as long, unless they tell of a change no reconcile has seen. A
        broken model waits no longer than until its last change is due. ``least_seconds`` is the API
        server's demand.
        """
        failures = self._failures[key] = min(self._failures.get(key, 0) + 1, DOUBLINGS)
        pause = max(retry_pause_seconds(failures), least_seconds)
        asked = self._asked.get(key)
        # The failure was that of an earlier form of the resource.
        if asked and asked.fresh:
            return 0.0
        urgent = min(
            (work.priority for work in (self._working.get(key), asked) if work),
            default=Priority.RESYNC,
        )
        if (left := self._changed.get(key, 0.0) - self._clock()) > 0:
            if urgent is not Priority.BROKEN:
                return left
            pause = min(pause, left)
        self._asked.pop(key, None)
        self._pauses[key] = self._clock() + pause
        self._appoint(key, self._pauses[key], urgent)
        return pause

    def forget(self, key: Key) -> None:
        """Forget the failures of a key, and the pause after them."""
        self._failures.pop(key, None)
        self._pauses.pop(key, None)

    async def get(self) -> Turn:
        """Return the next key, waiting for one; :meth:`done` must follow."""
        while (turn := self.take()) is None:
            await self._news()
        return turn

    def take(self) -> Turn | None:
        """Return the next key, None if none may be taken; :meth:`done` must follow."""
        if self._closed or len(self._working) >= self.workers:
            return None
        # Here and not only by the alarm: a free worker takes a key that has become due at once.
        self._keep_appointments()
        key = self._line.take(self._may_work)
        if key is None:
            return None
        asked = self._asked.pop(key)
        self._appointments.pop(key, None)
        # This reconcile sees the last of the changes, so none is due any more.
        self._changed.pop(key, None)
        self._working[key] = _Work(asked.priority, self._clock())
        self._count(key[0], asked.priority, 1)
        return Turn(key=key, priority=asked.priority)

    def done(self, key: Key) -> None:
        """Give a key back."""
        self._count(key[0], self._working.pop(key).priority, -1)
        if asked := self._asked.get(key):
            # Requests while it was worked on had to wait: no key is worked on twice at once.
            self._line.put(key, asked.priority)
        self._wake()  # one more worker is free: a namespace that held its share may take it

    def _count(self, namespace: str, priority: Priority, workers: int) -> None:
        for held in (self._busy, self._calm) if priority is not Priority.BROKEN else (self._busy,):
            held[namespace] += workers
            if not held[namespace]:
                del held[namespace]

    def close(self) -> None:
        """Hand out no more keys: workers that ask for one wait for ever."""
        # Nothing is cancelled by it: running reconciles end, and their workers then wait until the
        # process ends.
        self._closed = True

    def load(self) -> QueueLoad:
        """Return the load of the queue."""
        self._keep_appointments()
        now = self._clock()
        waiting = [asked for key, asked in self._asked.items() if key not in self._working]
        depth = Counter(asked.priority for asked in waiting)
        return QueueLoad(
            depth={priority: depth[priority] for priority in Priority},
            oldest_seconds=now - min((asked.since for asked in waiting), default=now),
            delayed=len(self._appointments),
            unfinished_seconds=sum(now - work.since for work in self._working.values()),
        )

    def _may_work(self, namespace: str, priority: Priority) -> bool:
        """Return whether a namespace may have one more worker: it must leave as many free.

        Alone it gets half of them, the next one half of the rest, and so on, so no namespace needs
        a share set aside. Reconciles that repair nothing share their part in the same way, and do
        not count against repairs; the last free worker is for a namespace that has none.
        """
        free, busy, calm = (
            self.workers - len(self._working),
            self._busy[namespace],
            self._calm[namespace],
        )
        if priority is Priority.BROKEN:
            return busy - calm < free and (free > 1 or not busy)
        return busy < free and calm < self.workers - self.workers // SHARE - self._calm.total()

    def _ask(self, key: Key, priority: Priority, *, fresh: bool = False) -> None:
        asked = self._asked.get(key)
        if asked:
            asked.fresh |= fresh
            # A key keeps its place in line: being asked for again must not put it behind others.
            if asked.priority <= priority:
                return
            if key not in self._working:
                self._line.remove(key, asked.priority)
            asked.priority = priority
        else:
            self._asked[key] = _Asked(priority, self._clock(), fresh)
        if key not in self._working:
            self._line.put(key, priority)
            self._wake()

    def _appoint(self, key: Key, due: float, priority: Priority) -> None:
        """Make an appointment; of a key's two the earlier stands, at the higher urgency."""
        before = self._appointments.get(key)
        if before:
            due, priority = min(due, before.due), min(priority, before.priority)
        # The same moment: the entry of the calendar stands, whose number must stay.
        if before and before.due == due:
            self._appointments[key] = _Appointment(due, before.number, priority)
            return
        appointment = self._appointments[key] = _Appointment(due, next(self._numbers), priority)
        heapq.heappush(self._calendar, (due, appointment.number, key))
        # Entries that are outdated are left in the heap, and cleared out when they are the most of
        # it.
        if len(self._calendar) > 2 * len(self._appointments) + self.workers:
            self._calendar = [
                (kept.due, kept.number, key) for key, kept in self._appointments.items()
            ]
            heapq.heapify(self._calendar)
        self._set_alarm()

    def _keep_appointments(self) -> None:
        now = self._clock()
        while self._calendar and self._calendar[0][0] <= now:
            _, number, key = heapq.heappop(self._calendar)
            appointment = self._appointments.get(key)
            # Another appointment has taken its place; its own entry comes later.
            if appointment is None or appointment.number != number:
                continue
            del self._appointments[key]
            # The pause may have begun after this appointment was made.
            until = self._pauses.get(key, 0.0)
            if appointment.priority is not Priority.BROKEN:
                until = max(until, self._changed.get(key, 0.0))
            if until > now:
                self._appoint(key, until, appointment.priority)
            else:
                self._ask(key, appointment.priority)

    async def _news(self) -> None:
        # A future for each worker, not one event for all: one key wakes one worker.
        news = asyncio.get_running_loop().create_future()
        self._idle.append(news)
        self._set_alarm()
        try:
            await news
        except asyncio.CancelledError:
            if not news.cancelled():
                self._wake()  # the news is for whoever waits next
            raise

    def _wake(self) -> None:
        while self._idle:
            news = self._idle.popleft()
            if not news.cancelled():
                news.set_result(None)
                return

    def _set_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if self._idle and self._calendar:
            seconds = max(0.0, self._calendar[0][0] - self._clock())
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._keep_appointments()
        self._set_alarm()
