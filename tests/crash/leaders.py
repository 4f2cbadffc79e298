"""Operators on a cluster in memory, one of which leads by a real elector: stopped at a write, it
wakes up when another leads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Self, TypeVar

from shardwright.cluster.client import (
    MERGE_PATCH,
    Call,
    Client,
    NotLeadingError,
    Projection,
    Urgency,
)
from shardwright.cluster.elector import RELEASED_SECONDS, Elector, LeaseIdentity
from shardwright.cluster.leases import LeaseTimings
from shardwright.cluster.resources import LEASES, Resource
from tests.crash.points import Fate, Point, StrikingCluster
from tests.support.builders_operator import Parts
from tests.support.invariants import of_lease
from tests.support.memory_api import MemoryApi
from tests.support.memory_operator import MemoryOperator, WallClock

R = TypeVar("R")

TICK_SECONDS: Final = LeaseTimings().renew_deadline_seconds / 2
"""How far apart a leader renews its Lease, and others look at it: rarer than a real one, for here
no try fails.
"""

_LEASE: Final = ("shardwright-system", "shardwright")
_SECOND: Final = "operator-b"


class FencedError(Exception):
    """The process has ended: it led and does not any more."""


class Door(Client):
    """The API server as one process reaches it, which is stopped at a point.

    A write is sent while the process leads, which is asked last of all, as the transport asks;
    ``sent`` are those that were. ``while_stopped`` is what the others do meanwhile.
    """

    def __init__(self, cluster: StrikingCluster, leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leads = leads
        self._stopped = False
        self.point: Point | None = None
        self.while_stopped: Callable[[], Awaitable[None]] | None = None
        self.sent = 0

    def until(self, deadline: float) -> Self:
        del deadline
        return self

    def at(self, urgency: Urgency) -> Self:
        self._cluster.at(urgency)
        return self

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> dict[str, Any] | None:
        return await self._cluster.get(resource, namespace, name, metadata_only=metadata_only)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        project: Projection | None = None,
        **selectors: str,
    ) -> AsyncIterator[list[dict[str, Any]]]:
        async for page in self._cluster.pages(resource, namespace, project=project, **selectors):
            yield page

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        send = partial(self._cluster.create, resource, namespace, body, dry_run=dry_run)
        return await self._write(send, counted=not dry_run)

    async def patch(
        self, resource: Resource, path: str, body: Any, content_type: str, *, dry_run: bool = False
    ) -> dict[str, Any]:
        send = partial(self._cluster.patch, resource, path, body, content_type, dry_run=dry_run)
        return await self._write(send, counted=not dry_run)

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        stored = await self.patch(
            resource, resource.path(namespace, name, "status"), body, MERGE_PATCH
        )
        return {"metadata": stored["metadata"]}

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
    ) -> None:
        send = partial(
            self._cluster.delete, resource, namespace, name, uid=uid, grace_seconds=grace_seconds
        )
        await self._write(send, counted=True)

    async def send(self, call: Call) -> dict[str, Any]:
        return await self._cluster.send(call)

    async def _write(self, send: Callable[[], Awaitable[R]], *, counted: bool) -> R:
        assert not self._stopped, "a process that is stopped goes on"
        fate = (
            self.point.fate
            if counted and self.point and self.point.number == len(self._cluster.tried)
            else None
        )
        if fate is Fate.STOPPED_BEFORE:
            await self._stop()
        if not self._leads():
            raise NotLeadingError
        self.sent += 1
        answer = await send()
        if fate is Fate.STOPPED_AFTER:
            await self._stop()
        return answer

    async def _stop(self) -> None:
        assert self.while_stopped
        self.point, self._stopped = None, True
        await self.while_stopped()
        self._stopped = False


class Candidate(MemoryOperator):
    """An operator that works while it holds the Lease, and hears of everything while another does,
    its ``standby``.
    """

    def __init__(
        self, cluster: StrikingCluster, leases: MemoryApi, holder: str, on_step: Callable[[], None]
    ) -> None:
        super().__init__(cluster, on_step)
        namespace, name = _LEASE
        self.elector = Elector(
            leases, LeaseIdentity(namespace=namespace, name=name, holder=holder), cluster.clock
        )
        self.door = Door(cluster, lambda: self.elector.leading)
        self.standby: Candidate | None = None

    def made(self) -> Parts:
        clock = self.cluster.clock
        return Parts(
            api=self.cluster,
            client=self.door,
            may_ask=lambda: self.elector.leading,
            clock=clock,
            steady=WallClock(clock),
        )

    async def lead(self) -> None:
        """Wait for the Lease, and begin to work as one does that knows everything already."""
        while not self.elector.leading:
            await self.elector.tick()
            self._work()
            await self.idle()
            await super().move_on(self.cluster.clock.seconds + TICK_SECONDS)
        self.parts.cache.synced = False
        await self.resync()

    async def idle(self) -> None:
        """Do what one does that does not lead."""
        self.parts.handlers.wake_waiting()
        if self.cluster.clock.seconds >= self._resyncs_at:
            self.parts.cache.synced = False
            await self.resync()
        self._due.clear()

    async def step(self) -> None:
        """Do all that is due at this moment.

        Raises:
            FencedError: by now somebody else may lead.
        """
        await super().step()
        if self.elector.must_fence:
            raise FencedError

    async def move_on(self, latest: float) -> None:
        """Move the clock to when something is due next, and renew the Lease on the way."""
        then, clock = self.next_at(latest), self.cluster.clock
        while clock.seconds < then:
            clock.seconds = min(clock.seconds + TICK_SECONDS, then)
            await self.elector.tick()
        if self.standby:
            await self.standby.idle()


class Pair:
    """Two operators: the first leads from the begin, the other one takes over where the first is
    stopped.
    """

    def __init__(self, cluster: StrikingCluster, on_step: Callable[[], None]) -> None:
        namespace, name = _LEASE
        released = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS}
        self._leases = MemoryApi()
        self._leases.put(
            LEASES, {"metadata": {"namespace": namespace, "name": name}, "spec": released}
        )
        self._cluster = cluster
        self._second = Candidate(cluster, self._leases, _SECOND, on_step)
        self.first = Candidate(cluster, self._leases, "operator-a", on_step)
        self.first.door.while_stopped = self._take_over
        self.first.standby = self._second
        self._sent_by_then = -1

    async def start(self) -> None:
        """Start both; the first leads."""
        self._cluster.watches.clear()
        await self.first.elector.tick()
        await self.first.begin()
        await self._second.begin()
        await self._second.idle()

    async def rest(self, point: Point) -> list[str]:
        """Let the first go on to a point and the second from there, until all rests; return what
        was wrong on the way.
        """
        self.first.door.point = point
        try:
            await self.first.rest()
        except FencedError:
            written = self.first.door.sent - self._sent_by_then
            await self._second.rest()
            late = (
                [f"the one that was stopped has written {written} times since it woke up"]
                if written
                else []
            )
            return [*late, *of_lease(list(self._leases.objects.values()), [_SECOND])]
        return [
            "it goes on though another one leads"
            if self._sent_by_then >= 0
            else "there was no such write"
        ]

    async def _take_over(self) -> None:
        """Have the second lead and begin to work, while the first hears and does nothing."""
        self._sent_by_then = self.first.door.sent
        self.first.parts.watching, self.first.standby = False, None
        await self._second.lead()
        await self._second.step()
