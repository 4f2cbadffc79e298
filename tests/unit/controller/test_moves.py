"""Groups that go elsewhere: after a wait that this process has seen itself, and never on the word
of a cache alone.
"""

from __future__ import annotations

import pytest

from shardwright.cluster.resources import NODES, PODS
from shardwright.controller.queue import Priority, Requeue
from tests.support.builders_operator import NAMESPACE, run, serving
from tests.support.builders_reconcile import crashed

CHANGED = Requeue(seconds=0.1, priority=Priority.ROLL)


def test_a_group_whose_node_died_moves_although_more_groups_wait_for_room() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.change(key, replicas=2)
        parts.add_nodes(1, first=2)
        parts.silence("h100-1")
        parts.delete_pod("large-0-1", grace_seconds=30)
        await parts.reconcile(key)
        assert parts.reserved_nodes() == {"h100-0", "h100-1"}

        parts.wait(30 + 60)
        await parts.reconcile(key)

        assert parts.reserved_nodes() == {"h100-0", "h100-2"}
        assert parts.condition(key, "PlanStale")["status"] == "False"
        assert (
            parts.condition(key, "PartlyPlaced")["reason"] == "InsufficientCapacity"
        )  # of two groups
        assert parts.status(key)["plan"]["placement"]["nodes"] == ["h100-0", "h100-2"]
        assert parts.replicas("large") == [0]

    run(scenario())


def test_a_group_stays_on_a_cordoned_node_until_a_pod_is_evicted_and_then_goes_elsewhere() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=3)
        parts.change_node("h100-1", unschedulable=True)
        await parts.reconcile(key)
        assert (parts.reserved_nodes(), parts.condition(key)["status"]) == (
            {"h100-0", "h100-1"},
            "True",
        )

        parts.api.remove(PODS, NAMESPACE, "large-0-1")
        await parts.reconcile(key)

        assert parts.reserved_nodes() == {"h100-0", "h100-2"}
        assert parts.status(key)["plan"]["placement"]["nodes"] == ["h100-0", "h100-2"]

    run(scenario())


@pytest.mark.parametrize(
    ("seconds", "nodes"), [(360, {"h100-0", "h100-2"}), (359, {"h100-0", "h100-1"})]
)
def test_a_group_whose_planned_node_is_dead_for_long_moves_although_no_pod_of_it_is_there(
    seconds: int, nodes: set[str]
) -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=3)
        parts.silence("h100-1")
        parts.api.remove(PODS, NAMESPACE, "large-0-1")  # by force
        await parts.reconcile(key)
        parts.wait(seconds)
        await parts.reconcile(key)
        assert parts.reserved_nodes() == nodes

    run(scenario())


@pytest.mark.parametrize(
    ("seconds", "nodes"), [(300, {"h100-0", "h100-2"}), (299, {"h100-0", "h100-1"})]
)
def test_a_group_goes_elsewhere_when_somebody_else_keeps_gpus_that_it_is_planned_on(
    seconds: int, nodes: set[str]
) -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=3)
        parts.unbind("large-0-1")
        parts.hold_gpus("h100-1", 1)
        await parts.reconcile(key)
        parts.wait(seconds)
        await parts.reconcile(key)
        assert parts.reserved_nodes() == nodes
        assert parts.status(key)["plan"]["placement"]["nodes"] == sorted(nodes)

    run(scenario())


def test_times_that_others_have_written_count_for_nothing() -> None:
    """All of them lie months back, as the clock of whoever wrote them may say."""

    async def scenario() -> None:
        parts, key = await serving(nodes=3)
        parts.silence("h100-1")
        with parts.api.changing(NODES, None, "h100-1") as node:
            node["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-02T12:00:00Z"
        parts.unbind("large-0-1")
        await parts.reconcile(key)
        assert (parts.reserved_nodes(), parts.replicas("large")) == ({"h100-0", "h100-1"}, [2])

    run(scenario())


def test_nodes_are_read_afresh_before_a_group_leaves_them() -> None:
    async def scenario() -> None:
        parts, key = await serving(nodes=3)
        parts.change_node("h100-1", unschedulable=True)
        parts.watching = False
        parts.change_node("h100-1", unschedulable=False)
        parts.watching = True
        parts.api.remove(PODS, NAMESPACE, "large-0-1")

        assert await parts.reconcile(key) == CHANGED
        assert sorted(parts.api.requests) == ["get nodes/h100-0", "get nodes/h100-1"]
        await parts.reconcile(key)
        assert parts.reserved_nodes() == {"h100-0", "h100-1"}

    run(scenario())


def test_a_group_is_ended_only_when_the_api_server_itself_says_that_it_is_broken() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        with parts.api.changing(PODS, NAMESPACE, "large-0-1") as pod:
            healthy = dict(pod["status"])
            pod["status"] = crashed("large-0-1")["status"]
        parts.watching = False
        with parts.api.changing(PODS, NAMESPACE, "large-0-1") as pod:
            pod["status"] = healthy
        parts.watching = True
        await parts.reconcile(key)
        assert parts.replicas("large") == [2]
        asked = ["shardedmodels/large", "statefulsets/large-0", "pods/large-0-0", "pods/large-0-1"]
        assert [line for line in parts.api.requests if line.startswith("get ")] == [
            f"get {name}" for name in asked
        ]

    run(scenario())


def test_a_group_goes_on_whose_missing_pod_is_there_although_no_cache_shows_it() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        there = dict(parts.api.objects[PODS.plural, NAMESPACE, "large-0-1"])
        parts.api.remove(PODS, NAMESPACE, "large-0-1")
        parts.watching = False
        parts.api.put(PODS, there)
        parts.watching = True
        await parts.reconcile(key)
        assert parts.replicas("large") == [2]
        assert parts.api.requests[-1] == "get pods/large-0-1"

    run(scenario())


def test_a_group_that_is_broken_in_truth_is_ended_in_the_same_look() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        with parts.api.changing(PODS, NAMESPACE, "large-0-1") as pod:
            pod["status"] = crashed("large-0-1")["status"]
        requeue = await parts.reconcile(key)
        assert parts.replicas("large") == [0]
        assert requeue is not None
        assert requeue.priority is Priority.BROKEN

    run(scenario())


def test_nothing_is_ended_for_a_spec_that_is_not_the_newest() -> None:
    async def scenario() -> None:
        parts, key = await serving()
        parts.change(key, replicas=0)
        parts.watching = False
        parts.change(key, replicas=1)
        parts.watching = True
        assert await parts.reconcile(key) == CHANGED
        assert parts.replicas("large") == [2]

    run(scenario())
