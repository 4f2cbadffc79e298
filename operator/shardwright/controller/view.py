"""What the operator knows of the cluster between two looks: nodes, the ledger of GPUs, who waits for what.

Everything is a projection that can be read again at any time; nothing here is the only copy of anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.cluster.projection import Projection
from shardwright.controller.queue import Key
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node, read_pod
from shardwright.hardware.pools import Reservation
from shardwright.reconcile.ledger import Ledger, Owner
from shardwright.reconcile.publish import Kept
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import base_name
from shardwright.resolving.stock import reservations_of


@dataclass(slots=True)
class Interests:
    """What one model depends on beside its own objects; ``moving`` is how many of its groups are down on purpose."""

    config_map: Key | None = None
    nodes: frozenset[str] = frozenset()
    waits_for_capacity: bool = False
    moving: int = 0


@dataclass(slots=True)
class View:
    """The caches, and which models to look at when something in them changes.

    ``wake`` is called with each model that waits for capacity when GPUs come free. ``node_version`` changes with every node.
    """

    wake: Callable[[Key], None] = lambda _key: None
    nodes: Projection[str, NodeFacts | NodeExclusion] = field(default_factory=Projection)
    ledger: Ledger = field(default_factory=Ledger)
    models: dict[Owner, Key] = field(default_factory=dict)
    interests: dict[Key, Interests] = field(default_factory=dict)
    node_version: int = 0
    pods_listed: bool = False
    records_read: bool = False
    pods_visible: bool = True

    @property
    def synced(self) -> bool:
        """Return whether every cache has seen a complete LIST."""
        return self.nodes.synced and self.records_read and (self.pods_listed or not self.pods_visible)

    def keep(self, key: Key, kept: Kept | None) -> bool:
        """Keep the GPUs of a plan of record (None: none) and return whether all of them could be kept."""
        wanted: tuple[Reservation, ...] = ()
        if kept is not None:
            record = kept.record
            wanted = tuple(reservations_of(base_key(key), record.plan, record.generations, kept.released))
        refused, freed = self.ledger.keep(base_key(key), wanted, self._healthy(item.node for item in wanted))
        if freed:
            self._wake_waiting()
        return not refused

    def _healthy(self, nodes: Iterable[str]) -> Mapping[str, int]:
        found = ((name, self.nodes.get(name)) for name in set(nodes))
        return {name: node.gpus for name, node in found if isinstance(node, NodeFacts)}

    def free(self, key: Key, nodes: Iterable[str]) -> dict[str, int] | None:
        """Return how many GPUs others leave a model on these nodes, None where pods may not be listed."""
        if not self.pods_visible:
            return None
        healthy = self._healthy(nodes)
        taken = self.ledger.taken_on(healthy, base_key(key))
        return {name: max(0, gpus - taken[name]) for name, gpus in healthy.items()}

    def moving_elsewhere(self, key: Key) -> int:
        """Return how many groups of other models are down on purpose."""
        return sum(wants.moving for other, wants in self.interests.items() if other != key)

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self.models.pop(base_key(key), None)
        self.interests.pop(key, None)
        if self.ledger.forget(base_key(key)):
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        for key in self.waiting():
            self.wake(key)

    def node_changed(self, node: Mapping[str, Any], *, gone: bool) -> Iterable[Key]:
        """Take over a node event and return the models that it concerns; a heartbeat concerns none."""
        name = node["metadata"]["name"]
        if not self.nodes.set(name, None if gone else read_node(node)):
            return ()
        self.node_version += 1
        return self.concerned_by(frozenset({name}))

    def pod_changed(self, pod: Mapping[str, Any], *, gone: bool) -> Iterable[Key]:
        """Take over a pod event and return the models that wait for what it may have freed."""
        key = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
        freed = self.ledger.bind(key, None if gone else read_pod(pod))
        return self.waiting() if freed else ()

    def models_of_pod(self, metadata: Mapping[str, Any]) -> Iterable[Key]:
        """Return the model that a pod carries the label of."""
        base = (metadata.get("labels") or {}).get(MODEL, "")
        key = self.models.get((metadata["namespace"], base))
        return (key,) if key else ()

    def concerned_by(self, nodes: frozenset[str]) -> list[Key]:
        """Return the models that are planned on one of these nodes, or that wait for capacity."""
        return [key for key, wants in self.interests.items() if wants.waits_for_capacity or wants.nodes & nodes]

    def waiting(self) -> list[Key]:
        """Return the models that wait for capacity."""
        return [key for key, wants in self.interests.items() if wants.waits_for_capacity]

    def reading(self, config_map: Key) -> list[Key]:
        """Return the models whose architecture comes from this ConfigMap."""
        return [key for key, wants in self.interests.items() if wants.config_map == config_map]


def base_key(key: Key) -> Owner:
    """Return namespace and base name of a model: what its pods and its reservations go by."""
    return key[0], base_name(key[1])
