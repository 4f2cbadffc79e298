"""The parts of an operator that plan, reconcile and compare, on an API server in memory whose
watches miss nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardwright.cluster.client import Client
from shardwright.cluster.handover import Change
from shardwright.cluster.reports import Recorder
from shardwright.cluster.resources import (
    CONFIG_MAPS,
    LIMIT_RANGES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SHARDED_MODELS,
    STATEFUL_SETS,
    Resource,
)
from shardwright.cluster.sources import (
    CHILD_SOURCES,
    project_child,
    project_config_map,
    project_model,
    project_node,
    project_pod,
)
from shardwright.cluster.store import Changes
from shardwright.controller.cluster_cache import ClusterCache
from shardwright.controller.event_handlers import EventHandlers, Resync
from shardwright.controller.metrics import Metrics
from shardwright.controller.plan_broker import PlanBroker
from shardwright.controller.queue import Key, Priority, Queue, Requeue
from shardwright.controller.queue_workers import NotAllTakenError
from shardwright.controller.reconciler import Parts as ReconcilerParts
from shardwright.controller.reconciler import Reconciler, SteadyClock
from shardwright.controller.snapshots import SetForAll, Snapshots
from shardwright.reconcile.disruption import planned_nodes
from shardwright.reconcile.quotas import read_quota, read_ranges
from shardwright.reconcile.record_object import SigningKeys
from shardwright.reconcile.writes import kind_of
from shardwright.rendering.labels import is_managed
from tests.harness import fleet
from tests.harness.api import Manifest
from tests.support.builders_reconcile import pod
from tests.support.builders_resource import a_sharded_model
from tests.support.inline import Inline, Remembering
from tests.support.keys import KEYS
from tests.support.memory_api import MemoryApi
from tests.support.said import condition_in

NAMESPACE = "models"
H100 = "h100-8x-dell-xe9680"
LARGE = {"id": "meta-llama/Llama-3.1-405B-Instruct"}
"""A model that needs two nodes of 8 x H100."""

_WATCHED = [source.resource for source in CHILD_SOURCES]


@dataclass
class Hand:
    """A clock, in seconds, that moves when it is moved."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Asking(Queue):
    """A queue that nobody works on; ``added`` is what was put in, in order."""

    def __init__(self, clock: Hand) -> None:
        super().__init__(1, clock)
        self.added: list[tuple[Key, Priority]] = []

    def add(self, key: Key, priority: Priority, *, fresh: bool = False) -> None:
        self.added.append((key, priority))
        super().add(key, priority, fresh=fresh)

    def change(self, key: Key) -> None:
        before = len(self.added)
        super().change(key)
        if len(self.added) == before:  # it comes at the pace of its namespace
            self.added.append((key, Priority.NEW))

    def add_after(self, key: Key, requeue: Requeue) -> None:
        self.added.append((key, requeue.priority))
        super().add_after(key, requeue)


@dataclass
class Parts:
    """One operator; ``most_moving`` is how many groups of all models it may have down on purpose.

    While ``watching`` is False its watches are cut: what happens then it does not hear of. Of kinds
    that are ``unheard`` it never hears. ``client`` is how it reaches the API server, as one of
    several; while not ``may_ask``, it does not lead. ``keys`` are what it signs with. ``steady`` is
    the time by which reconciles are made: that of ``clock`` from now on, unless it is given.
    """

    api: MemoryApi = field(default_factory=MemoryApi)
    client: Client | None = None
    may_ask: Callable[[], bool] = lambda: True
    most_moving: int | None = None
    watching: bool = True
    unheard: set[Resource] = field(default_factory=set)
    keys: SigningKeys = KEYS
    clock: Hand = field(default_factory=Hand)
    steady: SteadyClock | None = None

    def __post_init__(self) -> None:
        self.cache = ClusterCache()
        self.queue = Asking(self.clock)
        self.metrics = Metrics()
        self.worker: Inline = Remembering()
        self.planner = PlanBroker(self.cache, self.worker)
        self.handlers = EventHandlers(self.cache, self.queue, self.may_ask, self.clock)
        self.wire()
        self.api.watch(self._on_change)

    def wire(self) -> None:
        """Have all that looks be done with the planner as it is now."""
        client = self.client or self.api
        self.snapshots = Snapshots(
            client,
            self.cache,
            self.planner,
            SetForAll(most_moving=self.most_moving),
            lambda: self.keys,
        )
        self.resync = Resync(
            client, self.cache, self.snapshots, self.metrics, self.handlers.on_gone
        )
        parts = ReconcilerParts(
            client=client,
            cache=self.cache,
            planner=self.planner,
            snapshots=self.snapshots,
            recorder=Recorder(client, "test"),
            metrics=self.metrics,
        )
        self.reconciler = Reconciler(parts, self.steady or SteadyClock(self.clock))

    @property
    def asked(self) -> list[Key]:
        """Return the models that were to be looked at, in the order in which they were asked
        for.
        """
        return [key for key, _ in self.queue.added]

    async def sync(self) -> None:
        """List everything, and book what the plans of record keep."""
        await self.resync.run()
        await self.resync.book()
        self.cache.synced = True

    async def reconcile(self, key: Key, priority: Priority = Priority.RESYNC) -> Requeue | None:
        return await self.reconciler.reconcile(key, priority)

    async def reconcile_again(self, key: Key) -> None:
        """Look after a minute, whatever the last reconcile has said of the next one; what is not taken
        is for the status to say.
        """
        self.wait(60)
        with suppress(NotAllTakenError):
            await self.reconcile(key)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.seconds += seconds

    def add_nodes(self, count: int, first: int = 0) -> None:
        """Add nodes of 8 x H100."""
        for node in fleet.make(H100, count, "h100", first=first):
            self.api.put(NODES, node)

    def change_node(self, name: str, **spec: Any) -> None:
        """Change the spec of a node: ``unschedulable=True`` cordons it."""
        with self.api.changing(NODES, None, name) as node:
            node["spec"] = {**node.get("spec", {}), **spec}

    def silence(self, name: str) -> None:
        """Let the kubelet of a node stop answering."""
        with self.api.changing(NODES, None, name) as node:
            node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]

    def add_model(self, name: str, created: str = "2026-01-02T12:00:00Z", **spec: Any) -> Key:
        """Create a ShardedModel, or another one in its place."""
        manifest = a_sharded_model(name, NAMESPACE, **spec)
        manifest["metadata"]["creationTimestamp"] = created
        manifest["spec"] = {"replicas": 1, "mode": "Deploy"} | manifest["spec"]
        self.api.put(SHARDED_MODELS, manifest)
        return NAMESPACE, name

    def change(self, key: Key, **spec: Any) -> None:
        with self.api.changing(SHARDED_MODELS, *key) as model:
            model["spec"] = model["spec"] | spec

    def model(self, key: Key) -> Manifest:
        found = self.api.find(SHARDED_MODELS, *key)
        assert found
        return found

    def status(self, key: Key) -> Manifest:
        return dict(self.model(key)["status"])

    def condition(self, key: Key, kind: str = "Ready") -> Manifest:
        return condition_in(self.status(key), kind)

    def groups(self, name: str) -> list[Manifest]:
        """Return the StatefulSets of a model."""
        return [
            item
            for (plural, _, own), item in sorted(self.api.objects.items(), key=str)
            if plural == STATEFUL_SETS.plural and own.startswith(f"{name}-")
        ]

    def replicas(self, name: str) -> list[int]:
        """Return how many pods each group of a model is to have."""
        return [group["spec"]["replicas"] for group in self.groups(name)]

    def scripts(self) -> dict[str, Manifest]:
        """Return the ConfigMaps of the scripts, as they are stored."""
        return {
            name: item
            for (plural, _, name), item in self.api.objects.items()
            if plural == CONFIG_MAPS.plural and "-scripts-" in name
        }

    def run_pods(self, name: str, **status: Any) -> None:
        """Let every pod of a model run and be ready, as the StatefulSet controller, the scheduler
        and the kubelets would.
        """
        for group in self.groups(name):
            self.run_group(group, **status)

    def run_group(self, group: Manifest, **status: Any) -> None:
        """Let the pods of one group run; those beyond its replicas end."""
        template, name, nodes = (
            group["spec"]["template"],
            group["metadata"]["name"],
            sorted(planned_nodes(group)),
        )
        labels, replicas = template["metadata"]["labels"], group["spec"]["replicas"]
        for rank in range(replicas):
            item = pod(f"{name}-{rank}", revision=labels["shardwright.io/template-hash"], **status)
            item["metadata"] |= {
                "namespace": NAMESPACE,
                "labels": {**labels, **item["metadata"]["labels"]},
            }
            item["metadata"]["ownerReferences"][0] |= {"uid": group["metadata"]["uid"]}
            item["spec"] = {**template["spec"], "nodeName": nodes[rank]}
            self.api.put(PODS, item)
        beyond = [
            own
            for plural, _, own in self.api.objects
            if plural == PODS.plural and _rank(own, name) >= replicas
        ]
        for own in beyond:
            self.api.remove(PODS, NAMESPACE, own)

    def delete_pod(self, name: str, grace_seconds: int = 30) -> None:
        """Let a pod be deleted that does not end."""
        with self.api.changing(PODS, NAMESPACE, name) as item:
            item["metadata"] |= {
                "deletionTimestamp": "2026-01-02T12:00:00Z",
                "deletionGracePeriodSeconds": grace_seconds,
            }

    def unbind(self, name: str) -> None:
        """Let the scheduler find no place for a pod."""
        waits = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": "2026-01-02T12:00:00Z",
        }
        with self.api.changing(PODS, NAMESPACE, name) as item:
            item["spec"].pop("nodeName")
            item["status"] = {"phase": "Pending", "conditions": [waits]}

    def hold_gpus(self, node: str, gpus: int, name: str = "p") -> None:
        """Let a pod of somebody else take GPUs of a node."""
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        spec = {"nodeName": node, "containers": [container]}
        self.api.put(
            PODS,
            {
                "metadata": {"namespace": "them", "name": name},
                "spec": spec,
                "status": {"phase": "Running"},
            },
        )

    def reserved_nodes(self) -> set[str]:
        return {reservation.node for reservation in self.cache.ledger.reservations()}

    def _on_change(self, resource: Resource, item: Manifest, gone: bool) -> None:  # noqa: FBT001  # a fact
        if not self.watching or resource in self.unheard:
            return
        if resource == SHARDED_MODELS:
            self.handlers.on_model(project_model(item), gone)
        else:
            affected = self._taken(resource, item, gone=gone)
            self.snapshots.config_maps.forget_gone(affected.config_maps)
            self.handlers.on_concern(affected)

    def _taken(self, resource: Resource, item: Manifest, *, gone: bool) -> Changes:
        metadata, store = item["metadata"], self.cache.store
        key, version = (
            (metadata.get("namespace", ""), metadata["name"]),
            int(metadata["resourceVersion"]),
        )
        readers: dict[Resource, tuple[Callable[[Any], Any], Callable[[Any], Changes]]] = {
            NODES: (project_node, store.take_nodes),
            PODS: (project_pod, store.take_pods),
            CONFIG_MAPS: (project_config_map, store.take_config_maps),
            RESOURCE_QUOTAS: (read_quota, store.take_quotas),
            LIMIT_RANGES: (read_ranges, store.take_ranges),
        }
        if resource in readers:
            project, take_over = readers[resource]
            return take_over({key: Change(None if gone else project(item), version)})
        if resource not in _WATCHED:
            return Changes()
        gone = gone or not is_managed(item)  # as a watch with a selector says it
        take = partial(store.take_children, kind_of(item))
        return take({key: Change(None if gone else project_child(resource, item), version)})


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end."""
    asyncio.run(asyncio.wait_for(coroutine, 60))


async def synced(nodes: int = 2, most_moving: int | None = None) -> Parts:
    """Return an operator that knows of nodes and of no model."""
    parts = Parts(most_moving=most_moving)
    parts.add_nodes(nodes)
    await parts.sync()
    return parts


async def deployed(nodes: int = 2) -> tuple[Parts, Key]:
    """Return an operator that has looked at a model for two nodes once."""
    parts = await synced(nodes)
    key = parts.add_model("large", model=LARGE)
    await parts.reconcile(key)
    return parts, key


async def serving(nodes: int = 2) -> tuple[Parts, Key]:
    """Return an operator with a model on h100-0 and h100-1 that serves, and has no more to do for
    it.
    """
    parts, key = await deployed(nodes)
    parts.run_pods("large")
    while parts.api.written:
        parts.api.written.clear()
        await parts.reconcile(key)
    assert parts.condition(key)["reason"] == "Serving"
    parts.api.requests.clear()
    parts.queue.added.clear()
    return parts, key


def _rank(pod_name: str, group: str) -> int:
    """Return the rank of a pod in a group, -1 where it is of another."""
    head, _, rank = pod_name.rpartition("-")
    return int(rank) if head == group else -1
