"""The full comparison: all models are listed, their GPUs booked, and they are reconciled.

A watch can miss a deletion silently, so the absence of an event is no evidence.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import time
from typing import Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.cluster.sources import project_model
from shardwright.controller.cluster_cache import ClusterCache, base_key
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key
from shardwright.controller.snapshots import RecordForm, Snapshots
from shardwright.hardware.pools import Reservation
from shardwright.rendering.bundle import KubernetesObject
from shardwright.resolving.stock import reservations_of

log = logging.getLogger(__name__)

AT_ONCE: Final = 8  # plans of record that are read at the same time

Booking = tuple[RecordForm | None, tuple[Reservation, ...] | None]
"""The form of a plan of record as far as one tells, and what it keeps; None if it says nothing."""


class Resync:
    """Fills the cache with models and their GPUs; ``on_gone`` gets models gone without an event."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        snapshots: Snapshots,
        metrics: Metrics,
        on_gone: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._snapshots = snapshots
        self._metrics = metrics
        self._on_gone = on_gone
        self._listing = asyncio.Lock()
        self._booked: dict[Key, Booking] = {}

    async def run(self) -> None:
        """List all models; those not found are passed to ``on_gone``.

        Raises:
            ApiError: a LIST failed, or a plan of record could not be read; what was known stands.
                An unreadable named namespace counts, but the others do not wait for it.
        """
        async with self._listing:
            ending, hidden = 0, []
            for namespace in self._cache.namespaces or (None,):
                try:
                    ending += await self._list(namespace)
                except ApiError as error:
                    if namespace is None or error.code != HTTPStatus.FORBIDDEN:
                        raise
                    # The others are listed: a namespace that was deleted must not stop them all.
                    hidden.append(namespace)
                    log.warning(
                        "namespace %s is not watched: %s",
                        namespace,
                        error,
                        extra={"reason": error.reason},
                    )
            self._metrics.being_deleted.set(ending)
            if not hidden:
                self._metrics.last_sync.labels(SHARDED_MODELS.plural).set(time())

    async def _list(self, namespace: str | None) -> int:
        derived, found, ending = (
            # Known before the LIST: a model that comes while it is read is in none of its pages,
            # and not gone.
            {key for key in self._cache.resources if namespace in {None, key[0]}},
            set(),
            0,
        )
        async for page in self._client.pages(SHARDED_MODELS, namespace, project=project_model):
            for item in page:
                key = item["metadata"]["namespace"], item["metadata"]["name"]
                found.add(key)
                ending += "deletionTimestamp" in item["metadata"]
                if (
                    key in self._cache.resources or key not in derived
                ):  # else it has ended while it was on its way to us
                    self._take(item)
        for gone in derived - found:
            self._on_gone(gone)
        return ending

    async def book(self) -> None:
        """Book the GPUs of deployed models' plans of record: running ones first, then older ones.

        Records unchanged since the last call are not read.

        Raises:
            ApiError: a plan of record could not be read.
        """
        models = {key: item for key, item in self._cache.resources.items() if holds_gpus(item)}
        # A standby that starts to lead asks for all of them again, and its first reconcile waits
        # for it.
        self._booked = await self._bookings(models)
        # The others have ended while their plans were read.
        keys = models.keys() & self._cache.resources.keys()
        for key in sorted(keys, key=self._precedence):
            _, wanted = self._booked[key]
            if wanted is not None:
                self._cache.reserve(key, wanted)
        # GPUs that are kept for models that are gone, or hold nothing any more, are given back
        # last, so that nobody plans on them in between.
        for owner in self._cache.ledger.owners() - {base_key(key) for key in keys}:
            self._cache.freed |= self._cache.ledger.forget(owner)

    def _precedence(self, key: Key) -> tuple[bool, str, Key]:
        item = self._cache.resources[key]
        runs = bool(self._cache.store.members_of(base_key(key)))
        # Plans whose pods run hold their GPUs in any case, so they are booked first (ADR 7).
        return not runs, str(item["metadata"].get("creationTimestamp") or ""), key

    async def _bookings(self, models: Mapping[Key, KubernetesObject]) -> dict[Key, Booking]:
        gate, derived = asyncio.Semaphore(AT_ONCE), self._booked

        async def read(key: Key, item: KubernetesObject) -> Booking:
            form = self._snapshots.record_form(item)
            if form is not None and key in derived and derived[key][0] == form:
                return derived[key]
            # Bounded: after a start thousands of records are read while the first reconciles wait.
            async with gate:
                record, form = await self._snapshots.kept_record(item)
            # None, not empty: nothing is known, so its bookings stay as they are.
            if record is None or not record.plan.deployable:
                return form, None
            return form, tuple(reservations_of(base_key(key), record.plan, record.generations))

        found = await asyncio.gather(*(read(*model) for model in models.items()))
        return dict(zip(models, found, strict=True))

    def _take(self, item: KubernetesObject) -> None:
        metadata = item["metadata"]
        derived = self._cache.resources.get((metadata["namespace"], metadata["name"]))
        # A watch may have been faster than the pages of the LIST.
        if derived is None or _version(item) > _version(derived):
            self._cache.take_resource(item)


def _version(item: KubernetesObject) -> int:
    text = str(item["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


def holds_gpus(model: KubernetesObject) -> bool:
    """Return whether the plan of a model reserves its nodes."""
    spec = model.get("spec", {})
    return (
        spec.get("mode") != "PlanOnly"
        and spec.get("replicas") != 0
        and "deletionTimestamp" not in model["metadata"]
    )
