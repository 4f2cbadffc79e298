"""Events on a ShardedModel: one per change, lost if it cannot be written."""

from collections import OrderedDict
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import EVENTS
from shardwright.reconcile.events import Event
from shardwright.rendering.bundle import KubernetesObject
from shardwright.sinks import in_event

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
