"""The life of a model in acts: what a user or the cluster does, after which everything comes to
rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shardwright.cluster.resources import NODES, SHARDED_MODELS, STATEFUL_SETS
from tests.harness.api import Manifest
from tests.support.builders_nodes import a_node
from tests.support.builders_operator import LARGE, NAMESPACE
from tests.support.builders_resource import a_sharded_model
from tests.support.memory_cluster import HANGS, MemoryCluster

NAME: Final = "large"
NODES_THERE: Final = 6

ENGINES: Final[dict[str, dict[str, Any]]] = {
    "vLLM": {"name": "vLLM"},
    "TensorRT-LLM": {
        "name": "TensorRTLLM",
        "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1",
    },
}

Act = Callable[[MemoryCluster], None]


def fill(cluster: MemoryCluster) -> None:
    """Add nodes for three groups."""
    for number in range(NODES_THERE):
        cluster.put(NODES, a_node(f"h100-{number}"))


def create(engine: str) -> Act:
    """Return the act that creates a model whose groups are of two nodes."""

    def act(cluster: MemoryCluster) -> None:
        spec = {
            "model": LARGE,
            "engine": ENGINES[engine],
            "parallelism": {"tensor": 8, "pipeline": 2},
        }
        manifest = a_sharded_model(NAME, NAMESPACE, **spec, replicas=1, mode="Deploy")
        manifest["metadata"]["creationTimestamp"] = "2026-01-02T12:00:00Z"
        cluster.put(SHARDED_MODELS, manifest)

    return act


def edit(**spec: Any) -> Act:
    """Return the act that changes fields of the spec."""

    def act(cluster: MemoryCluster) -> None:
        with cluster.changing(SHARDED_MODELS, NAMESPACE, NAME) as model:
            model["spec"] = model["spec"] | spec

    return act


def add_variable(value: str) -> Act:
    """Return the act that changes what the engine is started with: its groups are to be rolled."""

    def act(cluster: MemoryCluster) -> None:
        engine = model_of(cluster)["spec"]["engine"] | {
            "env": [{"name": "NCCL_DEBUG", "value": value}]
        }
        edit(engine=engine)(cluster)

    return act


def ask_for_restart(cluster: MemoryCluster) -> None:
    with cluster.changing(SHARDED_MODELS, NAMESPACE, NAME) as model:
        model["metadata"]["annotations"] = {"shardwright.io/restart": "once"}


def ask_to_go_back(request: str) -> Act:
    """Return the act that asks for an earlier revision; empty: that takes the request back."""

    def act(cluster: MemoryCluster) -> None:
        with cluster.changing(SHARDED_MODELS, NAMESPACE, NAME) as model:
            model["metadata"]["annotations"]["shardwright.io/rollback-to"] = request

    return act


def fail_to_roll(cluster: MemoryCluster) -> None:
    """Change the engine so that it does not come up, with rollouts that are taken back."""
    edit(rollout={"onFailure": "RollBack", "progressDeadlineSeconds": 300})(cluster)
    add_variable(HANGS)(cluster)


def crash_a_rank(cluster: MemoryCluster) -> None:
    cluster.crash(_last_pod(cluster)["metadata"]["name"])


def lose_a_node(cluster: MemoryCluster) -> None:
    cluster.remove(NODES, None, _last_pod(cluster)["spec"]["nodeName"])


def silence_a_node(cluster: MemoryCluster) -> None:
    cluster.silence(_last_pod(cluster)["spec"]["nodeName"])


def heal_all_nodes(cluster: MemoryCluster) -> None:
    for name in cluster.silent():
        cluster.heal(name)


def delete_a_group(cluster: MemoryCluster) -> None:
    """Let somebody delete a StatefulSet."""
    name = next(item["metadata"]["name"] for item in cluster.all(STATEFUL_SETS))
    cluster.remove(STATEFUL_SETS, NAMESPACE, name)


def delete(cluster: MemoryCluster) -> None:
    cluster.remove(SHARDED_MODELS, NAMESPACE, NAME)


def _last_pod(cluster: MemoryCluster) -> Manifest:
    """Return the last pod of the first group."""
    return cluster.members(cluster.all(STATEFUL_SETS)[0])[-1]


def model_of(cluster: MemoryCluster) -> Manifest:
    found = cluster.find(SHARDED_MODELS, NAMESPACE, NAME)
    assert found
    return found


def life(engine: str) -> dict[str, Act]:
    """Return the acts of a life in order; each begins where the one before has come to rest."""
    return {
        "create": create(engine),
        "restart": ask_for_restart,
        "crash of a rank": crash_a_rank,
        "roll": add_variable("INFO"),
        "go back": ask_to_go_back("1"),
        "scale up": edit(replicas=2),
        "scale down": edit(replicas=1),
        "go on": ask_to_go_back(""),
        "ask for what there is not": ask_to_go_back("99"),
        "roll that fails": fail_to_roll,
        "roll beside": lambda cluster: (
            edit(rollout={"maxSurge": 1})(cluster),
            add_variable("WARN")(cluster),
        )[0],
        "group deleted": delete_a_group,
        "node lost": lose_a_node,
        "node silent": silence_a_node,
        "node answers": heal_all_nodes,
        "re-plan": edit(parallelism={"tensor": 8, "pipeline": 3}),
        "pause": edit(paused=True, replicas=2),
        "resume": edit(paused=False, replicas=1),
        "stop": edit(replicas=0),
        "start again": edit(replicas=1),
        "delete": delete,
    }
