"""What the operator knows of the cluster between two looks: nodes, GPUs in use, reservations, who waits for what.

Everything is a projection that can be listed again at any time; nothing here is the only copy of anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shardwright.api.record import PlanRecord
from shardwright.cluster.projection import Projection
from shardwright.controller.queue import Key
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import GpuUsage, NodeFacts, Reservation, read_node, read_pod
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import base_name
from shardwright.resolving.stock import reservations_of


@dataclass(slots=True)
class Interests:
    """What one model depends on beside its own objects."""

    config_map: Key | None = None
    nodes: frozenset[str] = frozenset()
    waits_for_capacity: bool = False


@dataclass(slots=True)
class View:
    """The caches, and which models to look at when something in them changes.

    ``wake`` is called with each model that waits for capacity when a reservation is given up.
    """

    wake: Callable[[Key], None] = lambda _key: None
    nodes: Projection[str, NodeFacts | NodeExclusion] = field(default_factory=Projection)
    usage: Projection[Key, GpuUsage] = field(default_factory=Projection)
    models: dict[Key, Key] = field(default_factory=dict)  # by namespace and base name
    interests: dict[Key, Interests] = field(default_factory=dict)
    reservations: dict[Key, tuple[Reservation, ...]] = field(default_factory=dict)
    records_read: bool = False
    pods_visible: bool = True

    @property
    def synced(self) -> bool:
        """Return whether every cache has seen a complete LIST."""
        return self.nodes.synced and self.records_read and (self.usage.synced or not self.pods_visible)

    def usage_now(self) -> tuple[GpuUsage, ...] | None:
        """Return who holds GPUs, None where pods may not be listed."""
        return self.usage.values() if self.pods_visible else None

    def not_ready(self) -> Mapping[str, datetime | None]:
        """Return the nodes whose kubelet does not answer or says that it cannot run pods, whatever else is wrong with them.

        Each has since when, None where nothing says.
        """
        nodes = ((name, self.nodes.get(name)) for name in self.nodes)
        return {name: node.unready_since for name, node in nodes if node and not node.ready}

    def reserved(self) -> Iterator[Reservation]:
        """Yield what the plans of record keep."""
        for reservations in self.reservations.values():
            yield from reservations

    def reserve(self, key: Key, record: PlanRecord | None) -> None:
        """Note what a plan of record keeps: nothing where there is none (None), or none that can be deployed."""
        kept = tuple(reservations_of(base_key(key), record.plan, record.generations)) if record and record.plan.deployable else ()
        given_up = set(self.reservations.get(key, ())) - set(kept)
        self.reservations[key] = kept
        if given_up:
            self._wake_waiting()

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self.models.pop(base_key(key), None)
        self.interests.pop(key, None)
        if self.reservations.pop(key, ()):
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        for key in self.waiting():
            self.wake(key)

    def node_changed(self, node: Mapping[str, Any], *, gone: bool) -> Iterable[Key]:
        """Take over a node event and return the models that it concerns; a heartbeat concerns none."""
        name = node["metadata"]["name"]
        if not self.nodes.set(name, None if gone else read_node(node)):
            return ()
        return self.concerned_by(frozenset({name}))

    def pod_changed(self, pod: Mapping[str, Any], *, gone: bool) -> Iterable[Key]:
        """Take over a pod event and return the models that wait for what it may have freed."""
        key = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
        changed = self.usage.set(key, None if gone else read_pod(pod))
        return self.waiting() if changed else ()

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


def base_key(key: Key) -> Key:
    """Return namespace and base name of a model: what its pods and its reservations go by."""
    return key[0], base_name(key[1])
