"""A client whose API server is a dictionary: uids, resource versions, uid preconditions, owners; no
controllers.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar, cast

from shardwright.cluster.client import MERGE_PATCH, ApiError, Call, Client, Projection, Urgency
from shardwright.cluster.resources import Resource
from tests.harness.api import Manifest

T = TypeVar("T")

Place = tuple[str, str | None, str]
"""Plural, namespace, name."""

SCALARS = frozenset({str, int, float, bool, type(None)})

OnChange = Callable[[Resource, Manifest, bool], None]
"""Told an object as it is now, or as it was when it went, and whether it is gone: an event of a
watch that misses nothing.
"""


class MemoryApi(Client):
    """Objects by place.

    ``before`` is told verb (a try is a ``dry-run``) and plural of each request and may refuse it,
    or do something first. ``after`` is told of each patch when it is stored and its answer is still
    on the way. ``requests`` are all requests, ``written`` those of them that change something.
    ``watches`` are told every change. ``urgencies`` are all that it was asked to be used with.
    """

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.before: Callable[[str, str], Awaitable[None]] = nothing
        self.after: Callable[[str, str], Awaitable[None]] = nothing
        self.requests: list[str] = []
        self.written: list[str] = []
        self.urgencies: list[Urgency] = []
        self.watches: list[OnChange] = []
        self._numbers = itertools.count(1)
        self._resources: dict[str, Resource] = {}

    def put(self, resource: Resource, item: Mapping[str, Any]) -> Manifest:
        """Store an object as somebody else would."""
        stored: Manifest = copied(dict(item))
        stored |= {"apiVersion": resource.api_version, "kind": resource.kind}
        stored["metadata"] = {
            "uid": f"uid-{next(self._numbers)}",
            "generation": 1,
            **stored["metadata"],
        }
        return self._store(resource, stored)

    def remove(self, resource: Resource, namespace: str | None, name: str) -> None:
        """Remove an object; nobody collects what it owned."""
        gone = self.objects.pop((resource.plural, namespace, name))
        self._tell(resource, gone, gone=True)

    def collect(self, uid: str) -> None:
        """Remove everything that an owner owns, as the garbage collector would."""
        owned = [
            (place, item)
            for place, item in self.objects.items()
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ()))
        ]
        for place, item in owned:
            if place in self.objects:
                self.remove(self._resources[place[0]], *place[1:])
                self.collect(item["metadata"]["uid"])

    @contextmanager
    def changing(self, resource: Resource, namespace: str | None, name: str) -> Iterator[Manifest]:
        """Change an object in place, as somebody else would."""
        item = self.objects[resource.plural, namespace, name]
        before = copied(item.get("spec"))
        yield item
        item["metadata"]["generation"] += before != item.get("spec")
        self._store(resource, item)

    def find(self, resource: Resource, namespace: str | None, name: str) -> Manifest | None:
        return self.objects.get((resource.plural, namespace, name))

    def watch(self, on_change: OnChange) -> None:
        """Tell everything that there is, and then every change."""
        self.watches.append(on_change)
        for place, item in list(self.objects.items()):
            on_change(self._resources[place[0]], copied(item), False)

    def until(self, deadline: float) -> Self:
        del deadline
        return self

    def at(self, urgency: Urgency) -> Self:
        self.urgencies.append(urgency)
        return self

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> dict[str, Any] | None:
        await self._asked("get", resource, name)
        found = copied(self.find(resource, namespace, name))
        return {"metadata": found["metadata"]} if found and metadata_only else found

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        project: Projection | None = None,
        **selectors: str,
    ) -> AsyncIterator[list[dict[str, Any]]]:
        wanted = dict(
            part.split("=") for part in selectors.get("labelSelector", "").split(",") if part
        )
        found = [
            item
            for (plural, where, _), item in self.objects.items()
            if plural == resource.plural and namespace in (None, where)
        ]
        page = copied(
            [item for item in found if wanted.items() <= item["metadata"].get("labels", {}).items()]
        )
        await self._asked("list", resource, "")  # what happens now is not in this list
        yield [project(item) for item in page] if project else page

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        name = (
            body["metadata"]["name"]
            if "name" in body["metadata"]
            else body["metadata"]["generateName"]
        )
        if dry_run:
            await self._asked("dry-run", resource, name)
            return copied(dict(body))
        await self._write("create", resource, name)
        if self.find(resource, namespace, name):
            raise ApiError(409, "AlreadyExists", "there is one")
        return copied(self.put(resource, body))

    async def patch(
        self, resource: Resource, path: str, body: Any, content_type: str, *, dry_run: bool = False
    ) -> dict[str, Any]:
        _, _, below = path.partition("/namespaces/")
        namespace, _, name, *subresource = below.split("/")
        if dry_run:
            await self._asked("dry-run", resource, name)
            return copied(dict(body))
        await self._write("patch", resource, "/".join([name, *subresource]))
        live = self.find(resource, namespace, name)
        if live is None or body["metadata"]["uid"] != live["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "another object of the name")
        with self.changing(resource, namespace, name) as live:
            if subresource:
                live["status"] = _merged(live.get("status", {}), body["status"])
            elif content_type == MERGE_PATCH:
                live.update(_merged(live, body))
            else:
                live.update(_but_metadata(body))
                live["metadata"] |= copied(body["metadata"])
        answer = copied(live)
        await self.after("patch", resource.plural)
        return answer

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        await self._write("update", resource, name)
        live = self.find(resource, namespace, name)
        if (
            live is None
            or body["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]
        ):
            raise ApiError(409, "Conflict", "it has changed")
        return copied(self._store(resource, copied(dict(body))))

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
        await self._write("delete", resource, name)
        live = self.find(resource, namespace, name)
        if live is None:
            return
        if live["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", "another object of the name")
        self._delete(resource, live, grace_seconds)

    def _delete(self, resource: Resource, live: Manifest, grace_seconds: int | None) -> None:
        """Delete an object: it is gone at once."""
        del grace_seconds
        self.remove(resource, live["metadata"].get("namespace"), live["metadata"]["name"])

    async def send(self, call: Call) -> dict[str, Any]:
        """Answer discovery: nothing but what every cluster has is served."""
        assert call.path == "/apis", call.path
        return {"groups": [{"versions": [{"groupVersion": "apps/v1"}]}]}

    def _store(self, resource: Resource, item: Manifest) -> Manifest:
        item["metadata"]["resourceVersion"] = str(next(self._numbers))
        self._resources[resource.plural] = resource
        self.objects[
            resource.plural, item["metadata"].get("namespace"), item["metadata"]["name"]
        ] = item
        self._tell(resource, item, gone=False)
        return item

    def _tell(self, resource: Resource, item: Manifest, *, gone: bool) -> None:
        version = str(next(self._numbers)) if gone else item["metadata"]["resourceVersion"]
        for on_change in self.watches:
            event = copied(item)
            event["metadata"]["resourceVersion"] = version
            on_change(resource, event, gone)

    async def _asked(self, verb: str, resource: Resource, name: str) -> None:
        self.requests.append(f"{verb} {resource.plural}/{name}")
        await self.before(verb, resource.plural)

    async def _write(self, verb: str, resource: Resource, name: str) -> None:
        await self._asked(verb, resource, name)
        self.written.append(f"{verb} {resource.plural}/{name}")


async def nothing(_verb: str, _plural: str) -> None:
    return


def copied(content: T) -> T:
    """Return a copy of JSON; several times as fast as one of whatever there is."""
    copy: Any = content
    if type(content) in SCALARS:  # most of what there is, and to ask what is a Mapping takes long
        return content
    if isinstance(content, Mapping):
        copy = {field: copied(value) for field, value in content.items()}
    elif isinstance(content, list | tuple):
        copy = [copied(value) for value in content]
    return cast("T", copy)


def _but_metadata(body: Mapping[str, Any]) -> Manifest:
    return {field: copied(value) for field, value in body.items() if field != "metadata"}


def _merged(before: Any, patch: Any) -> Any:
    """Return a merge patch applied (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copied(patch)
    base = before if isinstance(before, Mapping) else {}
    merged = {
        key: _merged(base.get(key), value) for key, value in patch.items() if value is not None
    }
    return {key: value for key, value in base.items() if key not in patch} | merged
