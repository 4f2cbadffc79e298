"""Crash points: one write of an act, and what becomes of it; a cluster in memory that strikes
there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import Resource
from tests.support.memory_cluster import MemoryCluster

R = TypeVar("R")


class Fate(StrEnum):
    """What becomes of a write."""

    LOST_BEFORE = "lost before"  #: it never reached the API server
    LOST_AFTER = "lost after"  #: it was carried out, and no answer came
    # : it was carried out, its answer was lost, and the client has sent it again
    REPEATED = "repeated"
    KILLED_BEFORE = "killed before"  #: the operator was killed before it was sent
    KILLED_AFTER = "killed after"  #: the operator was killed when it was carried out
    # : the leader was stopped before it was sent, and woken up when another one led
    STOPPED_BEFORE = "stopped before"
    # : the leader was stopped when it was answered, and woken up when another one led
    STOPPED_AFTER = "stopped after"
    # : the right to it and to all of its sort was revoked, and given back later
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Point:
    """The write of an act with this number, from 0, and what becomes of it; who is killed starts
    from what was saved there.
    """

    number: int
    fate: Fate


class StrikingCluster(MemoryCluster):
    """A cluster in memory to which something happens at one write, or that is saved before and
    after each.

    ``tried`` are all writes that were sent, by verb and object, and ``states`` the cluster before
    and after each of them, where it was to be saved. While there is an ``outage`` that becomes of
    every write, and nothing can be read. Who asks for what would need the right ``revoked``, "verb
    plural", is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[str] = []
        self.states: list[tuple[bytes, bytes]] = []
        self.outage: Fate | None = None
        self.revoked = ""
        self._point: Point | None = None
        self._saves = False

    def strike(self, point: Point | None, *, save: bool = False) -> None:
        """Count from now on and strike at this point, or save everything."""
        self._point, self._saves = point, save
        self.tried, self.states = [], []

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        send = partial(super().create, resource, namespace, body, dry_run=dry_run)
        return await (
            send()
            if dry_run
            else self._through(f"create {resource.plural}/{body['metadata']['name']}", send)
        )

    async def patch(
        self, resource: Resource, path: str, body: Any, content_type: str, *, dry_run: bool = False
    ) -> dict[str, Any]:
        send = partial(super().patch, resource, path, body, content_type, dry_run=dry_run)
        below = path.rpartition(f"/{resource.plural}/")[2]
        return await (
            send() if dry_run else self._through(f"patch {resource.plural}/{below}", send)
        )

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
            super().delete, resource, namespace, name, uid=uid, grace_seconds=grace_seconds
        )
        await self._through(f"delete {resource.plural}/{name}", send)

    async def _asked(self, verb: str, resource: Resource, name: str) -> None:
        if f"{verb} {resource.plural}" == self.revoked:
            raise ApiError(
                403, "Forbidden", f"{resource.plural} {name!r} is forbidden: may not {verb}"
            )
        if self.outage and verb in ("get", "list"):
            raise _unanswered(f"{verb} {resource.plural}/{name}")
        await super()._asked(verb, resource, name)

    async def _through(self, write: str, send: Callable[[], Awaitable[R]]) -> R:
        fate = (
            self._point.fate
            if self._point and self._point.number == len(self.tried)
            else self.outage
        )
        self.tried.append(write)
        before = self.saved() if self._saves else b""
        if fate is Fate.LOST_BEFORE:
            raise _unanswered(write)
        try:
            answer = await send()
        finally:
            if self._saves:
                self.states.append((before, self.saved()))
        if fate is Fate.LOST_AFTER:
            raise _unanswered(write)
        return await send() if fate is Fate.REPEATED else answer


def _unanswered(write: str) -> ApiError:
    return ApiError(0, "Unreachable", f"no answer to {write}")
