"""A client whose API server is a dictionary: uids, resource versions, uid preconditions, owners; no controllers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Self

from shardwright.cluster.client import MERGE_PATCH, ApiError, Call, Client, Urgency
from shardwright.cluster.resources import CONFIG_MAPS, NODES, SERVICES, SHARDED_MODELS, STATEFUL_SETS, Resource
from tests.harness.api import Manifest

Place = tuple[str, str | None, str]
"""Plural, namespace, name."""

BY_PATH = {item.prefix + item.plural: item for item in (SHARDED_MODELS, NODES, SERVICES, CONFIG_MAPS, STATEFUL_SETS)}


class MemoryApi(Client):
    """Objects by place. ``before`` is told verb and plural of each request and may refuse it, or do something first."""

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.before: Callable[[str, str], Awaitable[None]] = _nothing
        self.written: list[str] = []
        self._numbers = itertools.count(1)

    def put(self, resource: Resource, item: Mapping[str, Any]) -> Manifest:
        """Store an object as somebody else would."""
        stored: Manifest = copy.deepcopy(dict(item))
        stored |= {"apiVersion": resource.api_version, "kind": resource.kind}
        number = str(next(self._numbers))
        stored["metadata"] = {"uid": f"uid-{number}", "generation": 1, **stored["metadata"], "resourceVersion": number}
        self.objects[resource.plural, stored["metadata"].get("namespace"), stored["metadata"]["name"]] = stored
        return stored

    def remove(self, resource: Resource, namespace: str | None, name: str) -> None:
        del self.objects[resource.plural, namespace, name]

    def find(self, resource: Resource, namespace: str | None, name: str) -> Manifest | None:
        return self.objects.get((resource.plural, namespace, name))

    def until(self, deadline: float) -> Self:
        del deadline
        return self

    def at(self, urgency: Urgency) -> Self:
        del urgency
        return self

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any] | None:
        await self.before("get", resource.plural)
        return copy.deepcopy(self.find(resource, namespace, name))

    async def pages(
        self, resource: Resource, namespace: str | None = None, **selectors: str
    ) -> AsyncIterator[list[dict[str, Any]]]:
        wanted = dict(part.split("=") for part in selectors.get("labelSelector", "").split(",") if part)
        found = [
            item for (plural, where, _), item in self.objects.items() if plural == resource.plural and namespace in (None, where)
        ]
        page = [item for item in found if wanted.items() <= item["metadata"].get("labels", {}).items()]
        await self.before("list", resource.plural)  # what happens now is not in this list
        yield copy.deepcopy(page)

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        if dry_run:
            return copy.deepcopy(dict(body))
        await self._write("create", resource, body["metadata"]["name"])
        if self.find(resource, namespace, body["metadata"]["name"]):
            raise ApiError(409, "AlreadyExists", "there is one")
        return self.put(resource, body)

    async def patch(
        self, resource: Resource, path: str, body: Any, content_type: str, *, force: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        del force
        if dry_run:
            return copy.deepcopy(dict(body))
        _, _, below = path.partition("/namespaces/")
        namespace, _, name, *subresource = below.split("/")
        await self._write("patch", resource, "/".join([name, *subresource]))
        live = self.objects[resource.plural, namespace, name]
        if body["metadata"]["uid"] != live["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "another object of the name")
        if content_type == MERGE_PATCH and not subresource:
            live["metadata"] = _merged(live["metadata"], body["metadata"])
            return live
        live |= {"status": _merged(live.get("status", {}), body["status"])} if subresource else _but_metadata(body)
        live["metadata"] |= {} if subresource else body["metadata"]
        return live

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None) -> None:
        del uid, grace_seconds
        await self._write("delete", resource, name)
        self.remove(resource, namespace, name)

    async def send(self, call: Call) -> dict[str, Any]:
        """Answer discovery: nothing but what every cluster has is served."""
        assert call.path == "/apis", call.path
        return {"groups": [{"versions": [{"groupVersion": "apps/v1"}]}]}

    async def _write(self, verb: str, resource: Resource, name: str) -> None:
        await self.before(verb, resource.plural)
        self.written.append(f"{verb} {resource.plural}/{name}")


async def _nothing(_verb: str, _plural: str) -> None:
    return


def _but_metadata(body: Mapping[str, Any]) -> Manifest:
    return {field: copy.deepcopy(value) for field, value in body.items() if field != "metadata"}


def _merged(before: Any, patch: Any) -> Any:
    """Return a merge patch applied (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    base = before if isinstance(before, Mapping) else {}
    merged = {key: _merged(base.get(key), value) for key, value in patch.items() if value is not None}
    return {key: value for key, value in base.items() if key not in patch} | merged
