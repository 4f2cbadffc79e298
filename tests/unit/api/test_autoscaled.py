"""Pools of nodes that an autoscaler adds: what is read, what is refused, and the nodes that may
come.
"""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.node_settings import read_pools
from shardwright.api.settings import read_settings
from shardwright.errors import InputError
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import NODE_SET, NONE, Stated
from shardwright.hardware.nodes import read_node
from shardwright.hardware.topology import DomainKind
from tests.support.builders_nodes import a_node

SPOT: dict[str, Any] = {
    "name": "spot",
    "maxNodes": 12,
    "selector": {"example.com/pool": "spot"},
    "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"},
    "allocatable": {"nvidia.com/gpu": 8},
    "taints": [{"key": "team", "value": "serving", "effect": "NoSchedule"}],
}


def problems(*described: object) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as refused:
        read_pools(list(described), NONE)
    return [(problem.code, problem.path) for problem in refused.value.problems]


def test_a_node_to_come_is_what_the_node_will_be_under_a_name_that_no_node_has() -> None:
    (pool,) = read_pools([SPOT], NONE)
    made = a_node("n", network_gbps=None, labels=SPOT["selector"], taints=SPOT["taints"])
    there = read_node(made)
    assert isinstance(there, NodeFacts)

    nodes = list(pool.nodes())

    assert [node.name for node in nodes] == [f"~spot-{number:02}" for number in range(12)]
    assert {node.domain.name for node in nodes} == {node.name for node in nodes}
    first = nodes[0]
    assert (first.gpu, first.gpus, first.product, first.taints) == (
        there.gpu,
        there.gpus,
        there.product,
        there.taints,
    )
    assert (first.domain.kind, first.network, first.resource) == (
        there.domain.kind,
        there.network,
        there.resource,
    )
    assert (pool.has(there), pool.has(replace(there, labels={"example.com/pool": "other"}))) == (
        True,
        False,
    )


def test_the_settings_hold_pools_whose_gpus_they_state_themselves() -> None:
    text = """
gpus:
  - {product: NVIDIA-R200, memoryMiB: 294912, memoryGigabytesPerSecond: 22000, teraflops: {bf16: 4000},
     computeCapability: "10.7", source: data sheet}
autoscaledPools:
  - {name: new, maxNodes: 2, selector: {pool: new}, labels: {nvidia.com/gpu.product: NVIDIA-R200},
     allocatable: {nvidia.com/gpu: 4}}
"""
    (pool,) = read_settings(text).autoscaled_pools

    assert (pool.name, pool.max_nodes, pool.selector, pool.pattern.product) == (
        "new",
        2,
        (("pool", "new"),),
        "NVIDIA-R200",
    )


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"maxNodes": 0}, ("OutOfRange", "autoscaledPools[0].maxNodes")),
        ({"maxNodes": 1001}, ("OutOfRange", "autoscaledPools[0].maxNodes")),
        ({"name": "Spot_1"}, ("BadFormat", "autoscaledPools[0].name")),
        ({"selector": {}}, ("MissingField", "autoscaledPools[0].selector")),
        (
            {"selector": {"kubernetes.io/hostname": "n"}},
            ("UnknownField", "autoscaledPools[0].selector"),
        ),
        (
            {"labels": {"nvidia.com/gpu.memory": 81559}},
            ("WrongType", "autoscaledPools[0].labels.nvidia.com/gpu.memory"),
        ),
        ({"labels": {}}, ("GpuUnknown", "autoscaledPools[0].labels")),
        ({"allocatable": {"cpu": 8}}, ("MissingField", "autoscaledPools[0].allocatable")),
        ({"max": 3}, ("UnknownField", "autoscaledPools[0].max")),
    ],
)
def test_what_cannot_be_planned_with_is_refused_with_its_path(
    changed: dict[str, Any], refused: tuple[str, str]
) -> None:
    assert problems(SPOT | changed) == [refused]


def test_a_rack_to_come_is_refused_as_long_as_it_names_its_nvlink_domain() -> None:
    rack = {
        "nvidia.com/gpu.product": "NVIDIA-GB200",
        "nvidia.com/gpu.memory": "189471",
        "nvidia.com/gpu.clique": "6a130f54-faaa-4b8f-847f-be44ab70f917.1",
    }
    trays = SPOT | {"allocatable": {"nvidia.com/gpu": 4}}
    assert problems(trays | {"labels": rack}) == [("UnknownField", "autoscaledPools[0].labels")]

    del rack["nvidia.com/gpu.clique"]
    (pool,) = read_pools([trays | {"labels": rack}], NONE)
    assert pool.pattern.domain.kind is DomainKind.NODE


def test_names_are_told_apart_and_all_pools_together_are_bounded() -> None:
    assert problems(SPOT, SPOT) == [("Duplicate", "autoscaledPools[1].name")]
    many = [SPOT | {"name": f"pool-{number}", "maxNodes": 501} for number in range(2)]
    assert problems(*many) == [("OutOfRange", "autoscaledPools")]


def test_a_pool_whose_nodes_would_be_for_another_installation_is_refused() -> None:
    ours = {**SPOT, "labels": {**SPOT["labels"], NODE_SET: "team"}}
    (pool,) = read_pools([ours], Stated(node_set="team"))
    with pytest.raises(InputError) as refused:
        read_pools([SPOT], Stated(node_set="team"))

    assert len(list(pool.nodes())) == SPOT["maxNodes"]
    assert [(problem.code, problem.path) for problem in refused.value.problems] == [
        ("OtherNodeSet", "autoscaledPools[0].labels")
    ]
