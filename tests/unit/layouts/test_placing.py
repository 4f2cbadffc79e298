"""Placement: fullest node first, groups close together, the link that the traffic really
crosses.
"""

from dataclasses import replace

import pytest

from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Layout, Placement
from shardwright.layouts.placing import Over, Shelf, Spread, place
from tests.support.builders_plan import a_pool, an_nvl72_pool


def _nodes(pool: Pool, layout: Layout) -> list[list[int]]:
    return [[int(name.rsplit("-", 1)[1]) for name in group] for group in place(pool, layout).groups]


def test_one_gpu_goes_to_the_fullest_node_that_has_one() -> None:
    pool = a_pool(nodes=4, free={0: 8, 1: 2, 2: 0, 3: 1})

    assert _nodes(pool, Layout()) == [[3]]
    assert _nodes(pool, Layout(tensor=2)) == [[1]]


def test_replicas_share_a_node_before_they_open_another() -> None:
    assert _nodes(a_pool(nodes=2), Layout(tensor=4, replicas=3)) == [[0], [0], [1]]


def test_a_group_of_two_nodes_stays_in_the_leaf_that_it_fills_best() -> None:
    pool = a_pool(nodes=8, free={0: 0, 5: 0, 6: 0})  # leaf 0 keeps three whole nodes, leaf 1 two

    assert _nodes(pool, Layout(tensor=8, pipeline=2)) == [[4, 7]]


def test_a_group_too_large_for_a_leaf_takes_a_whole_leaf_first() -> None:
    pool = a_pool(nodes=8, free={0: 0})

    assert _nodes(pool, Layout(tensor=8, pipeline=6)) == [[4, 5, 6, 7, 1, 2]]


def test_stages_over_two_leaves_change_leaf_once() -> None:
    pool = a_pool(nodes=8, free={0: 0, 2: 0, 4: 0, 6: 0})  # two whole nodes in each leaf

    assert _nodes(pool, Layout(tensor=8, pipeline=4)) == [[1, 3, 5, 7]]


def test_groups_never_share_whole_nodes() -> None:
    assert _nodes(a_pool(nodes=4), Layout(tensor=8, pipeline=2, replicas=2)) == [[0, 1], [2, 3]]


def test_tensor_over_trays_stays_in_one_clique() -> None:
    pool = a_pool(
        "GB200-NVL-186GB", 8, gpus_per_node=4, domain_nodes=4, free={0: 0, 1: 0, 2: 0}
    )  # clique 0 has one tray left

    placement = place(pool, Layout(tensor=8))

    assert placement.groups == (("gb200-nvl-186gb-00004", "gb200-nvl-186gb-00005"),)
    assert placement.tensor_link == pool.gpu.scale_up


def test_tensor_over_trays_of_two_cliques_crosses_the_network() -> None:
    pool = a_pool(
        "GB200-NVL-186GB",
        8,
        gpus_per_node=4,
        domain_nodes=4,
        free={0: 0, 1: 0, 2: 0, 5: 0, 6: 0, 7: 0},
    )

    assert place(pool, Layout(tensor=8)).tensor_link == pool.network


def test_a_replica_over_two_cliques_counts_as_joined_by_the_network_alone() -> None:
    pool = a_pool("GB200-NVL-186GB", 8, gpus_per_node=4, domain_nodes=4, free={3: 0, 7: 0})

    placement = place(pool, Layout(tensor=8, pipeline=2))

    assert placement.tensor_link == placement.pipeline_link == pool.network
    assert not placement.one_domain


@pytest.mark.parametrize(
    ("pool", "layout", "tensor", "pipeline"),
    [
        pytest.param(a_pool(), Layout(), None, None, id="one-gpu-crosses-nothing"),
        pytest.param(a_pool(), Layout(tensor=8), "NVLink4 NVSwitch", None, id="hgx"),
        pytest.param(
            a_pool("L40S-48GB"), Layout(tensor=2, pipeline=2), "PCIe 4 x16", "PCIe 4 x16", id="pcie"
        ),
        pytest.param(
            a_pool("H100-NVL-94GB", gpus_per_node=8, domain_gpus=2),
            Layout(tensor=4),
            "PCIe 5 x16",
            None,
            id="pairs",
        ),
        pytest.param(
            a_pool("H100-NVL-94GB", gpus_per_node=8, domain_gpus=2),
            Layout(tensor=2, pipeline=2),
            "NVLink4 bridge pair",
            "PCIe 5 x16",
            id="pipeline-over-pairs",
        ),
        pytest.param(
            a_pool(nodes=2),
            Layout(tensor=8, pipeline=2),
            "NVLink4 NVSwitch",
            "400 Gb/s RDMA",
            id="two-nodes",
        ),
        pytest.param(
            a_pool(nodes=2), Layout(tensor=16), "400 Gb/s RDMA", None, id="tensor-over-the-network"
        ),
        pytest.param(
            an_nvl72_pool(),
            Layout(tensor=8, pipeline=2),
            "NVLink5 NVL72",
            "NVLink5 NVL72",
            id="rack",
        ),
    ],
)
def test_the_link_is_the_slowest_that_is_crossed(
    pool: Pool, layout: Layout, tensor: str | None, pipeline: str | None
) -> None:
    placement = place(pool, layout)
    names = [link and link.name for link in (placement.tensor_link, placement.pipeline_link)]

    assert [name and name.split(" (")[0] for name in names] == [tensor, pipeline]


def test_what_is_missing_is_counted_in_nodes() -> None:
    pool = a_pool(nodes=3, free={0: 4})

    assert place(pool, Layout(tensor=8, pipeline=3)).missing_nodes == 1
    assert place(pool, Layout(tensor=8, replicas=5)).missing_nodes == 3
    assert place(pool, Layout(tensor=4, replicas=7)).missing_nodes == 1


def test_on_the_empty_pool_only_its_size_counts() -> None:
    pool = a_pool(nodes=2, free={0: 0, 1: 0})

    assert place(pool, Layout(tensor=8, pipeline=2)).missing_nodes == 2
    assert Shelf(pool, free=False).place(Layout(tensor=8, pipeline=2)).missing_nodes == 0


def test_leftovers_are_the_gpus_that_stay_free_beside_the_groups() -> None:
    assert place(a_pool(free={0: 7}), Layout(tensor=2, replicas=2)) == Placement(
        groups=(("h100-sxm-80gb-00000",),) * 2,
        nodes_per_replica=1,
        gpus_per_node=2,
        leftover_gpus=3,
        tensor_link=a_pool().gpu.scale_up,
    )


@pytest.mark.parametrize(
    ("tensor", "pipeline", "spread"),
    [
        (8, 2, Spread(nodes=2, gpus=8)),
        (4, 4, Spread(nodes=2, gpus=8)),
        (2, 5, Spread(nodes=5, gpus=2)),
        (16, 1, Spread(nodes=2, gpus=8)),
        (3, 3, Spread(nodes=3, gpus=3)),
        (11, 1, Spread(nodes=11, gpus=1)),
    ],
)
def test_ranks_spread_over_the_fewest_equal_nodes_that_keep_tensor_groups_whole(
    tensor: int, pipeline: int, spread: Spread
) -> None:
    assert Spread.of(Layout(tensor=tensor, pipeline=pipeline), 8) == spread


def test_replicas_fill_one_leaf_after_the_other_and_take_what_is_left_over_in_the_end() -> None:
    pool = a_pool(nodes=16, free={5: 0})  # leaf 1 keeps three whole nodes, the others four

    assert _nodes(pool, Layout(tensor=8, pipeline=3, replicas=9)) == [
        [4, 6, 7],
        [0, 1, 2],
        [8, 9, 10],
        [12, 13, 14],
        [3, 11, 15],
    ]
    assert _nodes(pool, Layout(tensor=8, pipeline=2, replicas=3)) == [[4, 6], [0, 1], [2, 3]]


def zoned(zones: str, free: dict[int, int] | None = None) -> Pool:
    """Return a pool of a node for each letter, which is the zone that it is in; ``-`` is none."""
    pool = a_pool(nodes=len(zones), free=free or {})
    nodes = (
        replace(node, labels={} if zone == "-" else {"zone": zone})
        for node, zone in zip(pool.nodes, zones, strict=True)
    )
    return replace(pool, nodes=tuple(nodes))


def spread(pool: Pool, layout: Layout, **standing: int) -> list[list[int]]:
    placement = Shelf(pool, over=Over(label="zone", standing=standing)).place(layout)
    return [[int(name.rsplit("-", 1)[1]) for name in group] for group in placement.groups]


def test_replicas_are_put_where_the_fewest_are() -> None:
    pool, layout = zoned("aabb"), Layout(tensor=4, replicas=4)

    assert _nodes(pool, layout) == [[0], [0], [1], [1]]
    assert spread(pool, layout) == [[0], [2], [0], [2]]


def test_replicas_that_there_are_count() -> None:
    assert spread(zoned("aabb"), Layout(tensor=8, replicas=3), a=2) == [[2], [3], [0]]


def test_of_values_with_as_many_replicas_the_fullest_node_comes_first() -> None:
    assert spread(zoned("ab", {1: 4}), Layout(tensor=4)) == [[1]]


def test_replicas_spread_over_zones_go_to_the_others_where_one_is_full() -> None:
    assert spread(zoned("abb", {0: 4}), Layout(tensor=4, replicas=4)) == [[0], [1], [1], [2]]


def test_nodes_without_the_label_are_a_value_of_their_own() -> None:
    assert spread(zoned("a-"), Layout(tensor=4, replicas=2)) == [[0], [1]]


def test_a_replica_over_nodes_lies_in_one_value_as_long_as_there_is_room_and_in_several_last() -> (
    None
):
    layout = Layout(tensor=8, pipeline=2, replicas=3)

    assert spread(zoned("aabbab"), layout) == [[0, 1], [2, 3], [4, 5]]
    assert place(zoned("aab"), replace(layout, replicas=2)).missing_nodes == 1
