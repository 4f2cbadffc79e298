"""The parts of an operator that plan, reconcile and compare, on an API server in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardwright.cluster.events import Recorder
from shardwright.cluster.resources import NODES, PODS, SHARDED_MODELS, STATEFUL_SETS
from shardwright.controller.intake import Intake
from shardwright.controller.metrics import Metrics
from shardwright.controller.planner import Planner
from shardwright.controller.queue import Key
from shardwright.controller.reconciler import Reconciler, Terms
from shardwright.controller.resync import Resync
from shardwright.controller.view import View
from tests.harness import fleet
from tests.harness.api import Manifest
from tests.support.builders_reconcile import pod
from tests.support.builders_resource import a_sharded_model
from tests.support.memory_api import MemoryApi

NAMESPACE = "models"
H100 = "h100-8x-dell-xe9680"
LARGE = {"id": "meta-llama/Llama-3.1-405B-Instruct"}


@dataclass
class Parts:
    """One operator; ``asked`` are the models that events and freed capacity want looked at."""

    api: MemoryApi = field(default_factory=MemoryApi)
    asked: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view = View(wake=self.asked.append)
        self.metrics = Metrics()
        self.planner = Planner(self.view, None)
        recorder = Recorder(self.api, "test")
        self.reconciler = Reconciler(self.api, self.view, self.planner, recorder, self.metrics, Terms())
        self.resync = Resync(self.api, self.view, self.metrics)
        self.intake = Intake(self.view, self.asked.append)

    def add_nodes(self, count: int, first: int = 0) -> None:
        """Add nodes of 8 x H100, and tell the operator as its watch would."""
        for node in fleet.make(H100, count, "h100", first=first):
            self.intake.on_event(NODES, self.api.put(NODES, node), False)

    def add_model(self, name: str, **spec: Any) -> Key:
        """Create or replace a ShardedModel, and tell the operator as its watch would."""
        manifest = a_sharded_model(name, NAMESPACE, **spec)
        manifest["spec"] = {"replicas": 1, "mode": "Deploy"} | manifest["spec"]
        self.intake.on_event(SHARDED_MODELS, self.api.put(SHARDED_MODELS, manifest), False)
        return NAMESPACE, name

    def change(self, key: Key, **spec: Any) -> None:
        self.model(key)["spec"] |= spec
        self.model(key)["metadata"]["generation"] += 1

    async def look(self, key: Key) -> float | None:
        return await self.reconciler.look(key)

    def model(self, key: Key) -> Manifest:
        found = self.api.find(SHARDED_MODELS, *key)
        assert found
        return found

    def status(self, key: Key) -> Manifest:
        return dict(self.model(key)["status"])

    def condition(self, key: Key, kind: str = "Ready") -> Manifest:
        (found,) = (item for item in self.status(key)["conditions"] if item["type"] == kind)
        return dict(found)

    def groups(self, name: str) -> list[Manifest]:
        """Return the StatefulSets of a model."""
        return [
            item
            for (plural, _, own), item in sorted(self.api.objects.items(), key=str)
            if plural == STATEFUL_SETS.plural and own.startswith(f"{name}-")
        ]

    def scripts(self) -> dict[str, Manifest]:
        """Return the ConfigMaps of the scripts, as they are stored."""
        return {
            name: item for (plural, _, name), item in self.api.objects.items() if plural == "configmaps" and "-scripts-" in name
        }

    def run_pods(self, name: str, **status: Any) -> None:
        """Let every pod of a model run and be ready, as the StatefulSet controller and the kubelets would."""
        for group in self.groups(name):
            self.run_group(group, **status)

    def run_group(self, group: Manifest, **status: Any) -> None:
        labels = group["spec"]["template"]["metadata"]["labels"]
        for rank in range(group["spec"]["replicas"]):
            item = pod(f"{group['metadata']['name']}-{rank}", revision=labels["shardwright.io/template-hash"], **status)
            item["metadata"] |= {"namespace": NAMESPACE, "labels": {**labels, **item["metadata"]["labels"]}}
            item["metadata"]["ownerReferences"][0] |= {"uid": group["metadata"]["uid"]}
            item["spec"] |= {"volumes": group["spec"]["template"]["spec"]["volumes"]}
            self.api.put(PODS, item)

    def lose_node(self, name: str, pod_name: str) -> None:
        """Let a node stop answering, with a pod on it that should have been gone long ago."""
        node = self.api.objects["nodes", None, name]
        node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        lost = self.api.objects["pods", NAMESPACE, pod_name]
        lost["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
        lost["spec"]["nodeName"] = name

    def reserved_nodes(self) -> set[str]:
        return {reservation.node for reservation in self.view.ledger.reservations()}
