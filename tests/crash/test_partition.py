"""A change that needs other nodes behind a partition, in a cluster in memory."""

from __future__ import annotations

import asyncio

from shardwright.cluster.resources import NODES, SHARDED_MODELS, STATEFUL_SETS
from tests.crash.lives import create, edit
from tests.crash.points import StrikingCluster
from tests.support.builders_nodes import a_node
from tests.support.invariants import at_any_moment
from tests.support.memory_operator import MemoryOperator


def nodes_by_group(cluster: StrikingCluster) -> dict[str, list[str]]:
    """Return where the pods of each group are."""
    sets = cluster.all(STATEFUL_SETS)
    return {
        item["metadata"]["name"]: sorted(pod["spec"]["nodeName"] for pod in cluster.members(item))
        for item in sets
    }


async def canary() -> tuple[dict[str, list[str]], dict[str, list[str]], list[str]]:
    """Return where the groups of two nodes are before and after a cut over three goes to the second
    alone, and broken laws.

    The first group stands on nodes that the new plan has for the second: two of the nodes that come
    first by name hold that one.
    """
    cluster, broken = StrikingCluster(), list[str]()
    operator = MemoryOperator(
        cluster, lambda: broken.extend(at_any_moment(list(cluster.objects.values())))
    )
    await operator.start()
    for added, act in (
        (range(2, 4), create("vLLM")),
        (range(2), edit(replicas=2)),
        (range(4, 9), edit(rollout={"partition": 1})),
    ):
        for number in added:
            cluster.put(NODES, a_node(f"h100-{number}"))
        act(cluster)
        await operator.rest()
    before = nodes_by_group(cluster)
    edit(parallelism={"tensor": 8, "pipeline": 3})(cluster)
    await operator.rest()
    assert [item["status"]["readyReplicas"] for item in cluster.all(SHARDED_MODELS)] == [2]
    return before, nodes_by_group(cluster), broken


def test_a_group_above_the_partition_finds_a_place_although_one_below_stands_on_its_nodes() -> None:
    before, after, broken = asyncio.run(canary())
    assert (before, broken) == (
        {"large-0": ["h100-2", "h100-3"], "large-1": ["h100-0", "h100-1"]},
        [],
    )
    assert after == {"large-0": ["h100-2", "h100-3"], "large-1": ["h100-0", "h100-1", "h100-6"]}
