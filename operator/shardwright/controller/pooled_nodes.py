"""Which pools are a cluster's nodes for pods of given terms?"""

from dataclasses import replace
from typing import Final

from shardwright.controller.cluster_cache import ClusterCache
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.pools import build_inventory
from shardwright.hardware.scheduling import PodTerms

REMEMBERED: Final = 16
"""Terms of pods for which the whole cluster is kept in pools: those of models beyond it are
collapsed anew.
"""


class PooledNodes:
    """All nodes of a cluster in pools, computed anew only when a node has changed."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._known: dict[str, tuple[int, Inventory]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, terms: PodTerms, *, to_come: bool = False) -> Inventory:
        """Return all nodes in pools as pods of these terms see them; ``to_come``: with nodes an
        autoscaler may add.
        """
        asked = f"{terms!r} {to_come}"
        version = self._cache.store.node_version
        known = self._known.get(asked)
        if known and known[0] == version:
            return known[1]
        nodes = (
            *self._cache.store.nodes.values(),
            *(self._cache.to_come.values() if to_come else ()),
        )
        # Without pods: which GPUs are taken changes with each pod, the pools only with the nodes.
        inventory = replace(
            build_inventory(nodes, (), terms=terms), known_pods=self._cache.known_pods
        )
        if len(self._known) >= REMEMBERED:
            # All at once: terms are few in practice, and which of them is used least is not worth a
            # count.
            self._known.clear()
        self._known[asked] = version, inventory
        return inventory
