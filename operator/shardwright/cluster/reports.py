"""Writes the status of a ShardedModel: only on change, all of it, and again until it is there.

Events on a ShardedModel: one per change, lost if it cannot be written.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import EVENTS, SHARDED_MODELS
from shardwright.cluster.sources import kept_metadata, project_model
from shardwright.reconcile.events import Event
from shardwright.rendering.bundle import KubernetesObject
from shardwright.sinks import in_event

ATTEMPTS: Final = 5


async def write_status(
    client: Client, live: KubernetesObject, status: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Write ``status`` to a live object and return it as stored, None if nothing was written.

    Fields missing in the new status are removed. A resource that is gone or replaced is fine; one
    that changed at the same moment is read and written again.

    Raises:
        ApiError: it could not be written, or it changed at every attempt.
    """
    metadata = live["metadata"]
    # A write that changes nothing still costs a request.
    if (live.get("status") or {}) == status:
        return None
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return await _patch(client, live, status)
        except ApiError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                break
            if error.code != HTTPStatus.CONFLICT or not attempts_left:
                raise
        found = await client.get(SHARDED_MODELS, metadata["namespace"], metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            break
        # Read again for its status: the patch is the difference to the present one.
        live = project_model(found)
    return None


async def _patch(
    client: Client, live: KubernetesObject, status: Mapping[str, Any]
) -> dict[str, Any]:
    metadata = live["metadata"]
    body = {
        # A precondition: a resource of the same name that is made meanwhile answers 409.
        "metadata": {"uid": metadata["uid"]},
        "status": merge_patch(live.get("status") or {}, status),
    }
    answer = await client.patch_status(
        SHARDED_MODELS, metadata["namespace"], metadata["name"], body
    )
    return {
        **live,
        # Only the metadata came back: with an inline config the whole object has up to 1.5 MB.
        "metadata": kept_metadata(answer["metadata"]),
        "status": dict(status),
    }


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that turns one object into the other.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 5}})
    {'b': {'c': 5, 'd': None}, 'a': None}
    """
    patch: dict[str, Any] = {}
    for key, value in after.items():
        if isinstance(value, Mapping) and isinstance(before.get(key), Mapping):
            inner = merge_patch(before[key], value)
            patch |= {key: inner} if inner else {}
        elif key not in before or before[key] != value:
            patch[key] = value
    # None removes a field, by RFC 7386.
    return patch | dict.fromkeys(before.keys() - after.keys())


QUIET_SECONDS: Final = 600.0
REMEMBERED: Final = 4096


class Recorder:
    """Writes events and forgets failures: an event is never worth repeating a reconcile."""

    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._written: OrderedDict[tuple[str, Event], float] = OrderedDict()

    async def record(self, regarding: KubernetesObject, event: Event) -> None:
        """Write an event unless the same was written within ``QUIET_SECONDS``."""
        key = regarding["metadata"]["uid"], event
        # A reconcile repeats its findings, and an event each time would drown those of everybody
        # else in the namespace.
        if not self._is_news(key):
            return
        try:
            await self._client.create(
                EVENTS, regarding["metadata"]["namespace"], self._body(regarding, event)
            )
        except ApiError:
            self._written.pop(key, None)  # nobody has read it: the next time it is news

    def _is_news(self, key: tuple[str, Event]) -> bool:
        now = monotonic()
        if now - self._written.get(key, float("-inf")) < QUIET_SECONDS:
            return False
        self._written[key] = now
        self._written.move_to_end(key)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return True

    def _body(self, regarding: KubernetesObject, event: Event) -> dict[str, Any]:
        metadata = regarding["metadata"]
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                # Names of events have up to 253 characters, and so have those of resources.
                "name": f"{metadata['name'][:200]}.{uuid4().hex[:16]}",
                "namespace": metadata["namespace"],
            },
            # Required by events.k8s.io/v1, with the two fields of the reporter; without them the
            # event is refused.
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "shardwright.io/operator",
            # 128 characters are the most that the API takes here.
            "reportingInstance": self._instance[:128],
            "action": event.action,
            "reason": event.reason,
            "type": "Warning" if event.warning else "Normal",
            "note": in_event(event.note),
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
        }
