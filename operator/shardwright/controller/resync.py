"""The full comparison: every cache is listed afresh, ghosts go, and every model is looked at.

A watch can miss a deletion and say nothing, so the absence of an event is no evidence.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from time import time
from typing import Any, TypeVar

from shardwright.api.record import RECORD_KEY, PlanRecord, decode
from shardwright.cluster.client import Client
from shardwright.cluster.projection import Projection
from shardwright.cluster.resources import CONFIG_MAPS, NODES, PODS, SHARDED_MODELS, Resource
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key
from shardwright.controller.view import View, base_key
from shardwright.controller.watches import MANAGED, UNFINISHED
from shardwright.hardware.nodes import read_node, read_pod
from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.publish import Kept

K = TypeVar("K")
V = TypeVar("V")


class Resync:
    """Fills the view from LISTs."""

    def __init__(self, client: Client, view: View, metrics: Metrics) -> None:
        self._client = client
        self._view = view
        self._metrics = metrics
        self._listing = asyncio.Lock()

    async def run(self) -> list[Key]:
        """List everything and return the models to look at: all there are.

        Raises:
            ApiError: a LIST has failed; what was known before stands.
        """
        async with self._listing:
            return await self._list_all()

    async def _list_all(self) -> list[Key]:
        await self._fill(self._view.nodes, NODES, _node_name, read_node)
        self._view.node_version += 1
        if self._view.pods_visible:
            await self._fill_pods()
        return await self._list_models()

    async def _fill_pods(self) -> None:
        found = {_key(item): usage async for item in self._items(PODS, fieldSelector=UNFINISHED) if (usage := read_pod(item))}
        self._view.ledger.bind_all(found)
        self._view.pods_listed = True

    async def _list_models(self) -> list[Key]:
        """Take over all models and what they reserve; forget those that were known before and are in the list no more."""
        known = set(self._view.models.values())
        models = {_key(item): item async for item in self._items(SHARDED_MODELS)}
        await self._read_records(models)
        for gone in known - models.keys():
            self._view.forget(gone)
            self._metrics.drop(gone)
        self._view.models |= {base_key(key): key for key in models}
        return sorted(models)

    async def _fill(
        self,
        cache: Projection[K, V],
        resource: Resource,
        key_of: Callable[[Mapping[str, Any]], K],
        read: Callable[[Mapping[str, Any]], V | None],
        **selectors: str,
    ) -> None:
        cache.begin_list()
        found: dict[K, V] = {}
        async for item in self._items(resource, **selectors):
            if (value := read(item)) is not None:
                found[key_of(item)] = value
        cache.finish_list(found)
        self._metrics.last_sync.labels(resource.plural).set(time())

    async def _items(self, resource: Resource, **selectors: str) -> AsyncIterator[dict[str, Any]]:
        async for page in self._client.pages(resource, **selectors):
            for item in page:
                yield item

    async def _read_records(self, models: Mapping[Key, Mapping[str, Any]]) -> None:
        """Keep the GPUs of the plans of record of deployed models, once, before anybody plans; looks see to it afterwards."""
        gone = self._view.ledger.owners() - {base_key(key) for key, item in models.items() if holds_gpus(item)}
        for owner in gone:
            self._view.ledger.forget(owner)
        if self._view.records_read:
            return
        deployed = {item["metadata"]["uid"]: key for key, item in models.items() if holds_gpus(item)}
        async for item in self._items(CONFIG_MAPS, labelSelector=MANAGED):
            key = deployed.get(controller_uid(item) or "")
            record = decode(item.get("data", {}).get(RECORD_KEY, "")) if key else None
            if key and isinstance(record, PlanRecord) and record.plan.deployable:
                self._view.keep(key, Kept(record=record))
        self._view.records_read = True


def holds_gpus(model: Mapping[str, Any]) -> bool:
    """Return whether the plan of a model reserves its nodes."""
    spec = model.get("spec", {})
    return spec.get("mode") != "PlanOnly" and spec.get("replicas") != 0 and "deletionTimestamp" not in model["metadata"]


def _key(item: Mapping[str, Any]) -> Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _node_name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])
