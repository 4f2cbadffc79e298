"""Laws of reading nodes: any object is answered, order does not matter, nothing is free that is not
there.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import GpuUsage, Reservation, build_inventory, read_node, read_pod
from tests.support.builders_nodes import (
    a_gb200_rack,
    a_node,
    a_pod_holding,
    an_l40s_node,
    an_mi300x_node,
    h100_nodes,
)

FLEET = (
    *h100_nodes(4),
    *a_gb200_rack(trays=4, clique=1, prefix="a"),
    *a_gb200_rack(trays=2, clique=2, prefix="b"),
    an_mi300x_node(),
    an_l40s_node(),
    a_node("slow", network_gbps=None),
    a_node("cordoned", cordoned=True),
    a_node("unknown", product="NVIDIA-R100"),
)
FACTS = tuple(found for node in FLEET if (found := read_node(node)) is not None)
NAMES = tuple(node["metadata"]["name"] for node in FLEET)
OWNERS = (("default", "llama"), ("default", "qwen"))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=40) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
usages = st.builds(
    GpuUsage,
    node=st.sampled_from(NAMES),
    resource=st.just("nvidia.com/gpu"),
    gpus=st.integers(0, 20),
    owner=st.none() | st.sampled_from(OWNERS),
    group=st.sampled_from("01"),
)
reservations = st.builds(
    Reservation,
    owner=st.sampled_from(OWNERS),
    node=st.sampled_from(NAMES),
    gpus=st.integers(-4, 20),
    group=st.sampled_from("01"),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every part of an object."""
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, part in parts for found in paths(part, (*path, key)))]


def with_part(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    """Return a copy of an object with one part replaced."""
    if not path:
        return part
    items = dict(value) if isinstance(value, dict) else list(value)
    items[path[0]] = with_part(value[path[0]], path[1:], part)
    return items


@given(value=json_values)
@pytest.mark.parametrize("read", [read_node, read_pod])
def test_any_value_as_an_object_is_answered(
    read: Callable[[object], object], value: object
) -> None:
    read(value)


@given(data=st.data(), part=json_values)
@pytest.mark.parametrize(
    "node",
    [*FLEET[3:6], an_mi300x_node(), a_node("t", taints=[{"key": "a", "effect": "NoSchedule"}])],
    ids=str,
)
def test_a_node_with_any_part_replaced_is_answered_and_can_be_planned_with(
    node: dict[str, Any], data: st.DataObject, part: object
) -> None:
    found = read_node(with_part(node, data.draw(st.sampled_from(paths(node))), part))
    assert found is None or isinstance(found, NodeExclusion | NodeFacts)
    inventory = build_inventory([found] if found else [], [])
    for pool in inventory.pools:
        assert 1 <= pool.gpus_per_node <= 16
        assert pool.network.bytes_per_second > 0
        assert pool.gpu.memory_bytes > 0
        assert pool.name.isprintable()


@given(data=st.data(), part=json_values)
def test_a_pod_with_any_part_replaced_is_answered_and_never_gives_gpus(
    data: st.DataObject, part: object
) -> None:
    pod = a_pod_holding("n", 4, model="llama")
    found = read_pod(with_part(pod, data.draw(st.sampled_from(paths(pod))), part))
    assert all(usage.gpus > 0 for usage in found)


@given(label=st.text(max_size=80), value=st.text(max_size=80))
def test_labels_of_any_text_are_answered(label: str, value: str) -> None:
    for key in (
        label,
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.clique",
    ):
        read_node(a_node("x", labels={key: value}))


@given(
    facts=st.permutations(FACTS),
    usage=st.lists(usages, max_size=8),
    plans=st.lists(reservations, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_order_changes_nothing(
    facts: list[Any], usage: list[GpuUsage], plans: list[Reservation], order: Any
) -> None:
    expected = build_inventory(FACTS, usage, reservations=plans)
    order.shuffle(usage)
    order.shuffle(plans)
    assert build_inventory(facts, usage, reservations=plans) == expected


@given(
    usage=st.lists(usages, max_size=12),
    plans=st.lists(reservations, max_size=8),
    own=st.none() | st.sampled_from(OWNERS),
)
def test_free_is_never_negative_nor_more_than_there_is(
    usage: list[GpuUsage], plans: list[Reservation], own: tuple[str, str] | None
) -> None:
    inventory = build_inventory(FACTS, usage, reservations=plans, own=own)
    assert all(0 <= node.free <= node.gpus for pool in inventory.pools for node in pool.nodes)


@given(usage=st.lists(usages, max_size=12), gpus=st.integers(0, 8))
def test_what_is_kept_for_a_group_is_free_to_nobody_whatever_pods_of_other_groups_hold(
    usage: list[GpuUsage], gpus: int
) -> None:
    plan = Reservation(owner=OWNERS[0], node=NAMES[0], gpus=gpus, group="2")
    before, after = (build_inventory(FACTS, usage, reservations=plans) for plans in ((), (plan,)))
    (was,), (now,) = (
        [n.free for pool in one.pools for n in pool.nodes if n.name == plan.node]
        for one in (before, after)
    )
    assert now == max(0, was - gpus)


@given(usage=st.lists(usages, max_size=12), plans=st.lists(reservations, max_size=8), more=usages)
def test_one_pod_more_frees_nothing(
    usage: list[GpuUsage], plans: list[Reservation], more: GpuUsage
) -> None:
    before = build_inventory(FACTS, usage, reservations=plans)
    after = build_inventory(FACTS, [*usage, more], reservations=plans)
    left = [node.free for pool in before.pools for node in pool.nodes]
    assert all(
        now <= then
        for now, then in zip((n.free for p in after.pools for n in p.nodes), left, strict=True)
    )


def test_every_node_is_in_one_pool_or_excluded() -> None:
    inventory = build_inventory(FACTS, [])
    pooled = [node.name for pool in inventory.pools for node in pool.nodes]
    assert sorted([*pooled, *(exclusion.node for exclusion in inventory.excluded)]) == sorted(NAMES)
