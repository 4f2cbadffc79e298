"""What an earlier ShardedModel of the name has left without an owner is taken back, where the
operator's own signature proves it, and no pod that serves ends by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from shardwright.cluster.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    SHARDED_MODELS,
    STATEFUL_SETS,
    Resource,
)
from shardwright.reconcile.record_object import SigningKeys
from tests.harness.api import Manifest
from tests.support.builders_nodes import a_node
from tests.support.builders_operator import NAMESPACE
from tests.support.builders_resource import a_sharded_model
from tests.support.invariants import at_any_moment
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_operator import MemoryOperator

NAME: Final = "m"
ALL: Final = (
    SECRETS,
    CONFIG_MAPS,
    PODS,
    STATEFUL_SETS,
    SERVICES,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
)
"""In the order in which Velero restores them; the ShardedModel, of a kind of its own, comes last."""

Lives = list[tuple[str, str]]
"""Uid and node of each pod, in the order of their names."""


class Site:
    """A cluster with an operator and a model of two groups, which fill all of its nodes."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.cluster = MemoryCluster()
        self.broken = list[str]()
        self.spec = spec
        self.operator = MemoryOperator(
            self.cluster,
            lambda: self.broken.extend(at_any_moment(list(self.cluster.objects.values()))),
        )

    async def serve(self, nodes: int) -> None:
        for number in range(nodes):
            self.cluster.put(NODES, a_node(f"h100-{number}"))
        self.create()
        await self.operator.start()
        await self.operator.rest()
        assert self.ready() == ("True", "Serving", 2)

    def create(self) -> None:
        manifest = a_sharded_model(NAME, NAMESPACE, **self.spec, replicas=2, mode="Deploy")
        self.cluster.put(SHARDED_MODELS, manifest)

    def ready(self) -> tuple[str, str, int]:
        status = self.model()["status"]
        (ready,) = (one for one in status["conditions"] if one["type"] == "Ready")
        return ready["status"], ready["reason"], status["readyReplicas"]

    def model(self) -> Manifest:
        (model,) = self.cluster.all(SHARDED_MODELS)
        return model

    def pods(self) -> Lives:
        pods = sorted(self.cluster.all(PODS), key=lambda pod: str(pod["metadata"]["name"]))
        return [(pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in pods]

    def ours(self, *resources: Resource) -> Iterable[tuple[Resource, Manifest]]:
        """Return the objects that the model controls, or did."""
        return [
            (resource, item)
            for resource in resources
            for item in self.cluster.all(resource)
            if "managed-by" in str(item["metadata"].get("labels"))
        ]

    def orphan(self) -> None:
        """Delete the model as ``kubectl delete --cascade=orphan`` does."""
        for resource, item in self.ours(*ALL, CONTROLLER_REVISIONS):
            if resource is not PODS:
                place = item["metadata"]["namespace"], item["metadata"]["name"]
                with self.cluster.changing(resource, *place) as changed:
                    changed["metadata"].pop("ownerReferences", None)
        self.cluster.remove(SHARDED_MODELS, NAMESPACE, NAME)

    def lose(self) -> list[tuple[Resource, Manifest]]:
        """Lose the namespace, and return what a backup of it holds: without uids and owners."""
        saved = []
        for resource, item in self.ours(*ALL):
            kept = ("name", "namespace", "labels", "annotations")
            metadata = {part: item["metadata"].get(part) for part in kept}
            saved.append((resource, {**item, "metadata": metadata}))
            self.cluster.remove(resource, item["metadata"]["namespace"], metadata["name"])
        self.cluster.remove(SHARDED_MODELS, NAMESPACE, NAME)
        return saved


ONE_NODE: Final = {
    "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"},
    "parallelism": {"tensor": 8},
}
TWO_NODES: Final = {
    "model": {"id": "meta-llama/Llama-3.1-405B-Instruct"},
    "parallelism": {"tensor": 8, "pipeline": 2},
}
SHAPES: Final = pytest.mark.parametrize(
    ("spec", "nodes"), [(ONE_NODE, 2), (TWO_NODES, 4)], ids=["one node", "two nodes"]
)


@SHAPES
def test_a_model_that_was_orphaned_and_made_again_serves_on(
    spec: dict[str, Any], nodes: int
) -> None:
    async def scenario() -> None:
        site = Site(spec)
        await site.serve(nodes)
        before = site.pods()
        site.orphan()
        await site.operator.rest()
        assert site.pods() == before
        site.create()
        await site.operator.rest()

        assert site.ready() == ("True", "Serving", 2)
        assert (site.pods(), site.broken) == (before, [])
        uid = site.model()["metadata"]["uid"]
        owners = {
            owner["uid"]
            for resource, item in site.ours(*ALL)
            # The operator may not change Secrets: one of before stays nobody's.
            if resource not in {PODS, SECRETS}
            for owner in item["metadata"]["ownerReferences"]
        }
        assert owners == {uid}

    asyncio.run(scenario())


@SHAPES
@pytest.mark.parametrize("model_first", [True, False])
def test_a_namespace_from_a_backup_serves_on_the_nodes_that_it_had(
    spec: dict[str, Any], nodes: int, *, model_first: bool
) -> None:
    async def scenario() -> None:
        site = Site(spec)
        await site.serve(nodes)
        before = [node for _, node in site.pods()]
        saved = site.lose()
        await site.operator.rest()
        if model_first:
            site.create()
        for resource, item in saved:
            # Pods are restored, too; here their StatefulSets make them anew.
            if resource is not PODS:
                site.cluster.put(resource, item)
                await site.operator.step()
        if not model_first:
            site.create()
        await site.operator.rest()

        assert site.ready() == ("True", "Serving", 2)
        assert [node for _, node in site.pods()] == before
        assert site.broken == []

    asyncio.run(scenario())


@SHAPES
def test_in_another_cluster_with_the_same_key_it_serves_on_the_nodes_that_are_there(
    spec: dict[str, Any], nodes: int
) -> None:
    async def scenario() -> None:
        site = Site(spec)
        await site.serve(nodes)
        saved = site.lose()
        for number in range(nodes):
            site.cluster.remove(NODES, None, f"h100-{number}")
            site.cluster.put(NODES, a_node(f"other-{number}"))
        await site.operator.rest()
        for resource, item in saved:
            if resource is not PODS:
                site.cluster.put(resource, item)
        site.create()
        await site.operator.rest()

        assert site.ready() == ("True", "Serving", 2)
        assert {node for _, node in site.pods()} == {f"other-{number}" for number in range(nodes)}
        assert site.broken == []

    asyncio.run(scenario())


def other_key(site: Site) -> None:
    site.operator.parts.keys = SigningKeys((b"another" * 8,))
    site.operator.parts.wire()


def a_forged_record(site: Site) -> None:
    with site.cluster.changing(CONFIG_MAPS, NAMESPACE, f"{NAME}-plan") as record:
        record["data"]["plan.json"] = record["data"]["plan.json"].replace("h100-0", "h100-1")


def a_record_of_another_model(site: Site) -> None:
    with site.cluster.changing(CONFIG_MAPS, NAMESPACE, f"{NAME}-plan") as record:
        record["data"]["signatureOfPlace"] = record["data"]["signature"]


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("spoil", [other_key, a_forged_record, a_record_of_another_model])
def test_without_the_operators_signature_nothing_is_taken_and_the_way_out_is_said(
    spoil: Callable[[Site], None], nodes: int
) -> None:
    async def scenario() -> None:
        site = Site(ONE_NODE)
        # With two, the model's own former pods hold every GPU that there is.
        await site.serve(nodes)
        before = site.pods()
        site.orphan()
        spoil(site)
        site.create()
        await site.operator.run(60)

        (ready,) = (one for one in site.model()["status"]["conditions"] if one["type"] == "Ready")
        assert ready["reason"] == "NameConflict"
        assert "is controlled by nobody" in ready["message"]
        assert "give the operator the key that signed it back" in ready["message"]
        assert site.pods() == before
        assert not any(
            item["metadata"].get("ownerReferences")
            for resource, item in site.ours(*ALL)
            if resource is not PODS
        )

    asyncio.run(scenario())


def test_what_has_the_label_and_no_name_of_ours_stays_nobodys() -> None:
    async def scenario() -> None:
        site = Site(ONE_NODE)
        await site.serve(2)
        (service,) = (item for _, item in site.ours(SERVICES))
        copy = {**service, "metadata": {**service["metadata"], "name": "m-copy"}}
        copy["metadata"].pop("ownerReferences")
        copy["metadata"].pop("uid")
        site.cluster.put(SERVICES, copy)
        site.orphan()
        site.create()
        await site.operator.rest()

        assert site.ready() == ("True", "Serving", 2)
        kept = site.cluster.find(SERVICES, NAMESPACE, "m-copy")
        assert kept is not None
        assert "ownerReferences" not in kept["metadata"]

    asyncio.run(scenario())
