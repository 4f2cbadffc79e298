"""An operator on a cluster in memory: its reconciles are made when they are due, and it is killed and
started at will.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from shardwright.cluster.client import ApiError
from shardwright.controller.queue import FIRST_RETRY_SECONDS, Key, Requeue
from shardwright.controller.queue_workers import NotAllTakenError
from shardwright.controller.reconciler import SteadyClock
from tests.harness.api import Manifest
from tests.support.builders_operator import Hand, Parts
from tests.support.builders_reconcile import NOON
from tests.support.memory_api import Place, copied
from tests.support.memory_cluster import MemoryCluster

QUIET_SECONDS: Final = 700.0
"""How long nothing is to happen before a cluster counts as one at rest: longer than the longest
patience of the operator.
"""

RESTS_WITHIN_SECONDS: Final = 7200.0
RESYNC_SECONDS: Final = 300.0


class WallClock(SteadyClock):
    """The time of a cluster in memory as an operator on it tells it, whose clock may be off."""

    def __init__(self, clock: Hand, ahead_seconds: float = 0.0) -> None:
        super().__init__(clock)
        self._hand = clock
        self._ahead_seconds = ahead_seconds

    def now(self) -> datetime:
        """Return the time by this clock."""
        return NOON + timedelta(seconds=self._hand.seconds + self._ahead_seconds)


class MemoryOperator:
    """The parts of an operator, with those who would work for it: who takes what is due, and who
    lists again.

    ``on_step`` is called after everything that has changed something. ``ahead_seconds`` is how far
    its clock is ahead of the cluster's; negative: it is behind.
    """

    def __init__(self, cluster: MemoryCluster, on_step: Callable[[], None] = lambda: None) -> None:
        self.cluster = cluster
        self.on_step = on_step
        self.ahead_seconds = 0.0

    async def start(self, ahead_seconds: float = 0.0) -> None:
        """Start it in the place of the one before, which does nothing from now on."""
        self.ahead_seconds = ahead_seconds
        self.cluster.watches.clear()
        await self.begin()

    async def begin(self) -> None:
        """Start it beside those that are there."""
        self.parts = self.made()
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._known: dict[Place, Manifest] = {}
        await self.resync()

    def made(self) -> Parts:
        """Return the parts of one that begins."""
        return Parts(
            api=self.cluster,
            clock=self.cluster.clock,
            steady=WallClock(self.cluster.clock, self.ahead_seconds),
        )

    async def resync(self) -> None:
        """List all models, and look at all of them."""
        if self.parts.cache.synced:
            await self.parts.resync.run()
        else:
            await self.parts.sync()
        for key in self.parts.cache.resources:
            self._due[key] = self.cluster.clock.seconds
        self._resyncs_at = self.cluster.clock.seconds + RESYNC_SECONDS

    def deafen(self) -> None:
        """Cut its watches: what happens now it does not hear of."""
        if self.parts.watching:
            self._known = copied(self.cluster.objects)
            self.parts.watching = False

    def hear(self) -> None:
        """Repair its watches: they begin with what there is."""
        if not self.parts.watching:
            self.parts.watching = True
            self.cluster.tell_again(self._known)

    async def rest(self) -> None:
        """Let everybody go on until nothing has happened for ``QUIET_SECONDS``."""
        clock, limit = (self.cluster.clock, self.cluster.clock.seconds + RESTS_WITHIN_SECONDS)
        quiet_since, written = clock.seconds, -1
        while clock.seconds < quiet_since + QUIET_SECONDS:
            assert clock.seconds < limit, f"no rest: {self.cluster.written[-20:]}"
            await self.step()
            if written != (written := self.cluster.changes):
                quiet_since = clock.seconds
            await self.move_on(quiet_since + QUIET_SECONDS)

    async def run(self, seconds: float) -> None:
        """Let everybody go on for a time."""
        clock, ends = self.cluster.clock, self.cluster.clock.seconds + seconds
        while clock.seconds < ends:
            await self.step()
            await self.move_on(ends)
        await self.step()

    async def step(self) -> None:
        """Do all that is due at this moment."""
        self._work()
        while await self._look_at_due():
            self._work()

    def _work(self) -> None:
        before = self.cluster.changes
        self.cluster.work()
        if self.cluster.changes != before:
            self.on_step()

    async def _look_at_due(self) -> bool:
        """Make all reconciles that are due, and return whether there was any."""
        now = self.cluster.clock.seconds
        if now >= self._resyncs_at:
            await self.resync()
        self.parts.handlers.wake_waiting()
        for key, _ in self.parts.queue.added:
            self._due[key] = now
        self.parts.queue.added.clear()
        due = sorted(key for key, at in self._due.items() if at <= now)
        for key in due:
            await self._look(key)
        return bool(due)

    async def _look(self, key: Key) -> None:
        del self._due[key]
        before = self.cluster.changes
        requeue: Requeue | None
        try:
            requeue = await self.parts.reconcile(key)
            self._failures.pop(key, None)
        except NotAllTakenError as error:
            requeue = error.again
        except ApiError:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            requeue = Requeue(seconds=FIRST_RETRY_SECONDS * 2.0**failures)
        finally:
            self.parts.handlers.reconciled(key)
        if requeue:
            self._due[key] = self.cluster.clock.seconds + requeue.seconds
        if self.cluster.changes != before:
            self.on_step()

    async def move_on(self, latest: float) -> None:
        """Move the clock to when something is due next."""
        self.cluster.clock.seconds = self.next_at(latest)

    def next_at(self, latest: float) -> float:
        """Return when something is due next."""
        times = (
            latest,
            self._resyncs_at,
            *self._due.values(),
            *filter(None, (self.cluster.next_at(),)),
        )
        now = self.cluster.clock.seconds
        return max(min(times), now + 0.01) if min(times) <= now else min(times)
