"""Pools that an autoscaler adds nodes to, and what there is of them."""

from collections.abc import Collection, Mapping
from typing import Any

from shardwright.api.node_settings import read_pools
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import NONE
from shardwright.hardware.nodes import read_node
from shardwright.hardware.provisioning import AutoscaledPool, Turnout
from tests.support.builders_nodes import a_node

SPOT = {"pool": "spot"}


def an_autoscaled_pool(max_nodes: int = 4, selector: Mapping[str, str] = SPOT) -> AutoscaledPool:
    """Return a pool of H100 nodes."""
    described: dict[str, Any] = {
        "name": "spot",
        "maxNodes": max_nodes,
        "selector": dict(selector),
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "allocatable": {"nvidia.com/gpu": 8},
    }
    (pool,) = read_pools([described], NONE)
    return pool


def turnout(
    there: Collection[str] = (),
    held: Collection[str] = (),
    booked: Collection[str] = (),
    selector: Mapping[str, str] = SPOT,
) -> Turnout:
    """Return what there is of a pool of four nodes; node ``a`` has the hostname ``host-a``."""
    nodes = {}
    for name in there:
        node = read_node(
            a_node(name, labels={**selector, "kubernetes.io/hostname": f"host-{name}"})
        )
        assert isinstance(node, NodeFacts)
        nodes[name] = node
    return Turnout(
        pool=an_autoscaled_pool(selector=selector),
        there=nodes,
        held=frozenset(held),
        booked=frozenset(booked),
    )
