"""ConfigMaps' contents, read once per version: the caches hold only names and versions.

Objects of a model as the caches keep them, packed, and as a reconcile reads them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.cluster.client import Client
from shardwright.cluster.resources import CONFIG_MAPS
from shardwright.cluster.sources import Child, packed, unpacked
from shardwright.cluster.store import Store
from shardwright.controller.queue import Key
from shardwright.reconcile.record_object import SigningKeys, StoredRecord, read_record
from shardwright.rendering.bundle import KubernetesObject

KEPT_BYTES_MAX: Final = 64 * 2**20
"""Compressed bytes that are kept of all of them together; what was used longest ago goes first, and
is read again. Basis: assumed, an eighth of what the chart lets the operator have.
"""

RECORDS_MAX: Final = 100
"""Plans of record that are kept as read, those asked for last. Basis: assumed, a model that is
reconciled is so again soon; measured, 26 KiB each with its text.
"""


@dataclass(slots=True)
class _Content:
    version: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class _Record:
    """A plan of record as read from a ConfigMap's version, for an owner, with these keys."""

    version: str
    owner_uid: str
    keys: SigningKeys
    found: StoredRecord | None


class ConfigMaps:
    """The contents of the ConfigMaps that were asked for."""

    def __init__(self, client: Client, store: Store) -> None:
        self._client = client
        self._store = store
        self._kept: OrderedDict[Key, _Content] = OrderedDict()
        self._bytes = 0
        self._records: OrderedDict[Key, _Record] = OrderedDict()

    async def get(self, key: Key) -> KubernetesObject | None:
        """Return a ConfigMap in the version known to the caches, None if there is none.

        Raises:
            ApiError: it could not be read.
        """
        facts = self._store.config_map(key)
        if facts is None:
            self._drop(key)
            return None
        kept = self._kept.get(key)
        # By version, not by age: a ConfigMap may have a megabyte, and is read from the API server
        # once for each.
        if kept and kept.version == facts.version:
            self._kept.move_to_end(key)
            content: KubernetesObject = unpacked(kept.packed)
            return content
        return await self._read(key)

    async def _read(self, key: Key) -> KubernetesObject | None:
        found = await self._client.get(CONFIG_MAPS, *key)
        if found is None:
            # Gone, and not only unknown: a plan of record of the same name that comes later is
            # another one.
            self._drop(key)
            return None
        return self.put(found)

    def put(self, content: KubernetesObject) -> KubernetesObject:
        """Keep a ConfigMap as the API server has just returned it, and return it."""
        metadata = content["metadata"]
        key, version = ((metadata["namespace"], metadata["name"]), metadata["resourceVersion"])
        known = {name: value for name, value in metadata.items() if name != "managedFields"}
        whole = {"apiVersion": "v1", "kind": "ConfigMap", **content, "metadata": known}
        # Our own write comes twice: as the answer, and as an event.
        if (kept := self._kept.get(key)) and kept.version == version:
            return whole  # and what was read from it holds
        self._drop(key)
        self._kept[key] = content_now = _Content(version, packed(whole))
        self._bytes += len(content_now.packed)
        while self._bytes > KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.packed)
        return whole

    async def record(
        self, key: Key, owner_uid: str, keys: SigningKeys, *, fresh: bool = False
    ) -> tuple[KubernetesObject | None, StoredRecord | None]:
        """Return a plan of record's ConfigMap, and its content for an owner, decoded once.

        It is the one the caches know or, if ``fresh``, the one the API server has now: caches may
        lag.

        Raises:
            ApiError: it could not be read.
        """
        content = await (self._read(key) if fresh else self.get(key))
        if content is None:
            return None, None
        version, known = (
            content["metadata"]["resourceVersion"],
            # Taken out and put back below: that makes it the one that was asked for last.
            self._records.pop(key, None),
        )
        if known is None or (known.version, known.owner_uid, known.keys) != (
            version,
            owner_uid,
            keys,
        ):
            known = _Record(version, owner_uid, keys, read_record(content, owner_uid, keys))
        self._records[key] = known
        if len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)
        return content, known.found

    def forget_gone(self, keys: Iterable[Key]) -> None:
        """Forget those ConfigMaps that no longer exist: nobody may ever ask for them again."""
        for key in keys:
            if self._store.config_map(key) is None:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        self._records.pop(key, None)
        if kept := self._kept.pop(key, None):
            self._bytes -= len(kept.packed)


CHILDREN_AT_ONCE: Final = 64
"""Objects of a model up to which they are decoded on the event loop. Basis: measured, 0.08 to 0.3
ms of CPU each.
"""


async def contents(children: Sequence[Child]) -> list[KubernetesObject]:
    """Return the objects; many are decoded on a thread, so that nobody waits."""
    if len(children) <= CHILDREN_AT_ONCE:
        return _decoded(children)
    # A model of 1,000 groups has thousands of objects: on the event loop all others would wait for
    # them.
    return await asyncio.to_thread(_decoded, children)


def _decoded(children: Sequence[Child]) -> list[KubernetesObject]:
    return [child.content() for child in children]
