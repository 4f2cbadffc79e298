"""A few nodes, and the planner before which models stand in line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from shardwright.cluster.handover import Change
from shardwright.cluster.sources import project_node, project_pod, project_priority_class
from shardwright.controller.cluster_cache import ClusterCache, Dependencies
from shardwright.controller.plan_broker import PlanBroker
from shardwright.controller.queue import Key
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import BareNode
from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.snapshot import Ask
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_reconcile import NOON
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_store import a_pod
from tests.support.inline import Inline


class Desk:
    """A view of nodes (two of 8 GPUs), and the planner; models are created one after another."""

    def __init__(self, on: Sequence[dict[str, Any]] | None = None) -> None:
        self.cache = ClusterCache()
        self.planner = PlanBroker(self.cache, Inline())
        nodes: dict[Key, Change[NodeFacts | NodeExclusion | BareNode]] = {
            ("", node["metadata"]["name"]): Change(project_node(node), 0)
            for node in on or h100_nodes(2)
        }
        self.cache.store.take_nodes(nodes)
        self.names = sorted(self.cache.store.nodes)
        self.cache.store.take_priority_classes(
            {("", "high"): Change(project_priority_class({"value": 100}), 0)}
        )

    def add(self, name: str, namespace: str = "models", /, **spec: Any) -> Key:
        manifest = a_sharded_model(name, namespace, **spec)
        created = f"2026-01-01T00:00:{len(self.cache.resources):02}Z"
        manifest["metadata"] |= {
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": created,
        }
        self.cache.take_resource(manifest)
        return namespace, name

    def hold(self, node: str, gpus: int, name: str = "foreign") -> None:
        """Let a pod of nobody's model have GPUs of a node, 0: none any more."""
        pod = project_pod(a_pod(name, node=node, gpus=gpus)) if gpus else None
        concern = self.cache.store.take_pods({("models", name): Change(pod, 0)})
        self.cache.freed |= concern.freed

    def subject(self, key: Key) -> Subject:
        return asyncio.run(self.planner.resolve(self.cache.resources[key], None))

    def answer(self, key: Key, subject: Subject, ask: Ask, now: datetime) -> Replanned:
        answer = asyncio.run(self.planner.answer(key, subject, ask, now, lambda _: True))
        assert isinstance(answer, Replanned)
        return answer

    def ask(self, key: Key, now: datetime = NOON) -> Replanned:
        subject = self.subject(key)
        self.cache.note(key, Dependencies(waits_for_capacity=True))
        answer = self.answer(key, subject, Ask(on=None, choice=PlanChoice.REPLAN), now)
        self.cache.note(key, Dependencies(waits_for_capacity=answer.short is not None))
        return answer

    def nodes_of(self, answer: Replanned) -> set[str]:
        assert answer.record, answer.short
        return {node for group in answer.record.plan.groups for node in group}
