"""The readers of all the operator watches beside its ShardedModels, and the store they fill."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from shardwright.cluster.client import Client
from shardwright.cluster.handover import Change, Handover, Key
from shardwright.cluster.reader import Counts, Reader, ReaderHealth, Source, Timing
from shardwright.cluster.sources import (
    CHILD_SOURCES,
    CLAIM_SOURCE,
    CONFIG_MAP_SOURCE,
    DEVICE_CLASS_SOURCE,
    POD_SOURCE,
    PRIORITY_CLASS_SOURCE,
    QUOTA_SOURCE,
    RANGE_SOURCE,
    SLICE_SOURCE,
    node_source,
)
from shardwright.cluster.store import Changes, Store
from shardwright.cluster.streams import Trouble
from shardwright.hardware.gpus import NONE, Stated
from shardwright.hardware.inventory import KnownPods
from shardwright.reconcile.writes import kind_of

Take = Callable[[Mapping[Key, Change[Any]]], Changes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is read: ``namespaces`` (empty: all), known ``pods``, and what is stated of nodes."""

    namespaces: tuple[str, ...] = ()
    pods: KnownPods = KnownPods.ALL
    stated: Stated = NONE


EVERYTHING: Final = Scope()


class Caches:
    """Fills :attr:`store` after :meth:`start`; ``on_concern`` is called on the loop after
    batches that matter.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        on_concern: Callable[[Changes], None],
        *,
        scope: Scope = EVERYTHING,
        timing: Timing | None = None,
    ) -> None:
        self.store = store
        self._client = client
        self._on_concern = on_concern
        self._scope = scope
        self._timing = timing
        self._readers: dict[str, Reader[Any]] = {}
        self._kinds: dict[str, list[Reader[Any]]] = {}
        # Those that are not optional.
        self._of_namespace: dict[str, list[Reader[Any]]] = {}
        self._listed: set[str] = set()
        # Until then no reconcile decides: with half of the nodes known, every decision could be a
        # wrong one.
        self.filled = asyncio.Event()

    def start(self) -> None:
        """Start reading; called on the event loop."""
        self._read(node_source(self._scope.stated), self.store.take_nodes)
        self._read(PRIORITY_CLASS_SOURCE, self.store.take_priority_classes)
        self._read(SLICE_SOURCE, self.store.take_slices)
        self._read(DEVICE_CLASS_SOURCE, self.store.take_device_classes)
        if self._scope.pods is KnownPods.ALL:
            self._read(POD_SOURCE, self.store.take_pods)
            self._read(CLAIM_SOURCE, self.store.take_claims)
        if self._scope.pods is KnownPods.WATCHED:
            self._read_watched(POD_SOURCE, self.store.take_pods)
            self._read_watched(CLAIM_SOURCE, self.store.take_claims)
        self._read_watched(CONFIG_MAP_SOURCE, self.store.take_config_maps)
        self._read_watched(QUOTA_SOURCE, self.store.take_quotas)
        self._read_watched(RANGE_SOURCE, self.store.take_ranges)
        for source in CHILD_SOURCES:
            self._read_watched(source, partial(self.store.take_children, _kind(source)))

    def stop(self) -> None:
        """Stop reading."""
        for reader in self._readers.values():
            reader.stop()

    def join(self, seconds: float) -> None:
        """Wait until the readers have stopped, ``seconds`` at most for each; blocking."""
        for reader in self._readers.values():
            reader.join(seconds)

    @property
    def synced(self) -> bool:
        """Return whether all kinds have been listed and taken over."""
        return bool(self._readers) and self._listed == self._readers.keys()

    @property
    def absent_kinds(self) -> frozenset[str]:
        """Return the kinds of object this cluster does not have, or does not let us see."""
        return frozenset(
            kind
            for kind, readers in self._kinds.items()
            # A kind that one namespace shows is there, whatever rights the others lack.
            if not any(reader.health.served for reader in readers)
        )

    @property
    def unread(self) -> frozenset[str]:
        """Return the watched namespaces of which something has never been read."""
        return frozenset(
            name
            for name, readers in self._of_namespace.items()
            # Never once read: objects that were read before a right was lost still count (ADR 34).
            if not all(reader.counts.lists for reader in readers)
        )

    @property
    def refused(self) -> frozenset[str]:
        """Return the watched namespaces of which something may not be read now."""
        return frozenset(
            name
            for name, readers in self._of_namespace.items()
            if any(reader.health.trouble is Trouble.FORBIDDEN for reader in readers)
        )

    @property
    def health(self) -> Mapping[str, ReaderHealth]:
        """Return the readers' health by kind, or by kind and namespace if read by namespace."""
        return {kind: reader.health for kind, reader in self._readers.items()}

    @property
    def counts(self) -> Mapping[str, Counts]:
        """Return the readers' counts, by the keys of :attr:`health`."""
        return {kind: reader.counts for kind, reader in self._readers.items()}

    def _read_watched(self, source: Source[Any], take: Take) -> None:
        for namespace in self._scope.namespaces or (None,):
            self._read(replace(source, namespace=namespace), take)

    def _read(self, source: Source[Any], take: Take) -> None:
        kind = _kind(source)
        name = f"{kind} of {source.namespace}" if source.namespace else kind

        def take_over(changes: Mapping[Key, Change[Any]], listed: bool) -> None:  # noqa: FBT001  # a fact
            affected = take(changes)
            # After the changes are taken: whoever waits for the caches to be full looks into the
            # store at once.
            if listed:
                self._listed.add(name)
                if self.synced:
                    self.filled.set()
            if affected:
                self._on_concern(affected)

        handover: Handover[Any] = Handover(asyncio.get_running_loop(), take_over)
        reader = self._readers[name] = Reader(self._client, source, handover.put, self._timing)
        self._kinds.setdefault(kind, []).append(reader)
        if source.namespace and not source.optional:
            # Not of optional kinds: a namespace need not have them, so nobody is told that they are
            # missing.
            self._of_namespace.setdefault(source.namespace, []).append(reader)
        # Before the reader starts, so that no write is missed between its first LIST and this.
        self.store.tell_writes(kind, source.namespace, reader.expect)
        reader.start()


def _kind(source: Source[Any]) -> str:
    return kind_of({"apiVersion": source.resource.api_version, "kind": source.resource.kind})
