"""Enumeration: every shape once, in one order, whole nodes unless pinned, experts whole or
sliced.
"""

from typing import Any

import pytest

from shardwright.engines.trtllm import traits as trtllm
from shardwright.hardware.inventory import Pool
from shardwright.layouts.enumerate import SearchScope, enumerate_candidates, layouts
from shardwright.layouts.layout import Layout, SearchSpace
from tests.support.builders_nodes import a_node, inventory_of
from tests.support.builders_plan import a_model, a_pool, an_inventory, an_nvl72_pool, vllm_traits


def _degrees(model: str, space: SearchSpace, **pool: object) -> list[tuple[int, int]]:
    inventory = an_inventory(a_pool(**pool))  # type: ignore[arg-type]
    found = enumerate_candidates(a_model(model), inventory, space, vllm_traits())
    return [
        (item.layout.tensor, item.layout.pipeline) for item in found if not item.layout.partition
    ]


def test_every_shape_of_one_node_is_tried_also_those_that_divide_nothing() -> None:
    shapes = _degrees("llama-8b", SearchSpace(), gpus_per_node=4)

    assert shapes == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)]


def test_groups_on_two_nodes_take_both_whole() -> None:
    shapes = set(_degrees("llama-8b", SearchSpace(), nodes=2, gpus_per_node=4))

    assert {shape for shape in shapes if shape[0] * shape[1] > 4} == {
        (1, 8),
        (2, 4),
        (4, 2),
        (8, 1),
    }


def test_nothing_is_yielded_twice() -> None:
    shapes = _degrees("llama-405b", SearchSpace(tensor=8), nodes=4)

    assert len(shapes) == len(set(shapes))


def test_no_more_stages_than_layers_and_no_more_ranks_than_heads() -> None:
    shapes = _degrees("qwen2.5-7b", SearchSpace(), nodes=18)

    assert max(pipeline for _, pipeline in shapes) <= 16
    assert max(tensor for tensor, _ in shapes) <= 28


def test_looking_beyond_the_pool_adds_what_a_few_more_nodes_would_allow() -> None:
    inventory, model = an_inventory(a_pool()), a_model("llama-405b")

    here = {
        item.layout for item in enumerate_candidates(model, inventory, SearchSpace(), vllm_traits())
    }
    beyond = {
        item.layout
        for item in enumerate_candidates(
            model, inventory, SearchSpace(), vllm_traits(), SearchScope(beyond=True)
        )
    }

    assert here < beyond
    assert Layout(tensor=8, pipeline=2) in beyond - here


def test_pins_leave_only_what_they_name() -> None:
    assert _degrees("llama-8b", SearchSpace(tensor=2, pipeline=3)) == [(2, 3)]
    assert {tensor for tensor, _ in _degrees("llama-8b", SearchSpace(tensor=2))} == {2}


def test_a_pin_may_leave_nodes_partly_used() -> None:
    assert _degrees("llama-8b", SearchSpace(tensor=2, pipeline=5), nodes=5) == [(2, 5)]


def test_whole_experts_pinned_for_a_dense_model_leave_nothing() -> None:
    assert _degrees("llama-8b", SearchSpace(expert=4)) == []


def test_experts_are_tried_sliced_and_whole() -> None:
    found = set(
        layouts(a_model("qwen3-30b-a3b"), a_pool(gpus_per_node=2), SearchSpace(), vllm_traits(), 1)
    )

    assert found == {
        Layout(),
        Layout(pipeline=2),
        Layout(attention_data=2, expert=2),
        Layout(tensor=2),
        Layout(tensor=2, expert=2),
    }


def test_an_engine_that_slices_sets_of_experts_has_the_degrees_between_tried_and_pinned() -> None:
    """Who scales a model pins its cut: what is planned must be there when it is pinned."""
    model, pool, traits = a_model("qwen3-30b-a3b"), a_pool(), trtllm.traits("1.2.1")
    free = {
        layout.expert
        for layout in layouts(model, pool, SearchSpace(tensor=8, pipeline=1), traits, 1)
    }
    pinned = [
        set(
            layouts(
                model, pool, SearchSpace(tensor=8, pipeline=1, expert=degree, context=1), traits, 1
            )
        )
        for degree in (3, 4)
    ]

    assert free == {1, 2, 4, 8}
    assert pinned == [set(), {Layout(tensor=8, expert=4)}]
    assert _layouts("qwen3-30b-a3b", pool, tensor=8, pipeline=1, expert=4) == set()


def test_a_dense_model_has_no_expert_degree() -> None:
    found = layouts(a_model("llama-8b"), a_pool(), SearchSpace(), vllm_traits(), 1)

    assert {layout.expert for layout in found} == {1}


def test_pools_come_by_name_whatever_their_order() -> None:
    first, second = a_pool(name="a"), a_pool(name="b")
    model = a_model()

    forwards = list(
        enumerate_candidates(model, an_inventory(first, second), SearchSpace(), vllm_traits())
    )
    backwards = list(
        enumerate_candidates(model, an_inventory(second, first), SearchSpace(), vllm_traits())
    )

    assert forwards == backwards
    assert [item.pool.name for item in forwards] == sorted(item.pool.name for item in forwards)


def test_a_rack_is_tried_whole() -> None:
    found = enumerate_candidates(
        a_model("deepseek-v3"), an_inventory(an_nvl72_pool()), SearchSpace(), vllm_traits()
    )

    assert max(item.layout.gpus for item in found) == 72


def _layouts(model: str, pool: Pool, **space: Any) -> set[Layout]:
    return {
        item.layout
        for item in enumerate_candidates(
            a_model(model), an_inventory(pool), SearchSpace(**space), vllm_traits()
        )
    }


def test_attention_replicas_come_with_whole_experts_only() -> None:
    found = _layouts("deepseek-v3", a_pool("H200-SXM-141GB", 2))

    wide = {layout for layout in found if layout.attention_data > 1}
    assert Layout(tensor=1, attention_data=16, expert=16) in wide
    assert Layout(tensor=8, attention_data=2, expert=16) in wide
    assert {layout.expert for layout in wide} - {
        layout.tensor * layout.attention_data for layout in wide
    } == set()
    assert {layout.pipeline for layout in wide} == {1}


def test_pins_may_put_attention_replicas_beside_stages_and_sliced_experts() -> None:
    found = _layouts("qwen3-30b-a3b", a_pool(), tensor=2, pipeline=2, attention_data=2, expert=1)

    assert found == {Layout(tensor=2, pipeline=2, attention_data=2)}


def test_a_dense_model_gets_attention_replicas_only_by_a_pin_so_that_a_check_can_refuse_them() -> (
    None
):
    assert {layout.attention_data for layout in _layouts("llama-8b", a_pool())} == {1}
    assert {
        layout.attention_data for layout in _layouts("llama-8b", a_pool(), attention_data=2)
    } == {2}


@pytest.mark.parametrize(
    ("model", "pool", "degrees"),
    [
        ("llama-70b", a_pool(nodes=2), {(16, 2)}),  # 8 K/V heads: only 16 ranks hold copies
        (
            "qwen2.5-7b",
            a_pool(),
            set(),
        ),  # 28 heads over 4 K/V heads: 7 heads are not divisible by 2 copies
        (
            "deepseek-v3",
            a_pool("H200-SXM-141GB"),
            {(2, 2), (4, 4), (6, 2), (8, 8)},
        ),  # one latent vector
    ],
)
def test_context_parallelism_is_tried_where_ranks_hold_copies_of_k_v(
    model: str, pool: Pool, degrees: set[tuple[int, int]]
) -> None:
    assert {
        (layout.tensor, layout.context) for layout in _layouts(model, pool) if layout.context > 1
    } == degrees


def test_a_context_pin_is_tried_as_it_is_so_that_a_check_can_refuse_it() -> None:
    assert {layout.context for layout in _layouts("llama-70b", a_pool(), context=3)} == {3}


def test_uneven_stages_are_tried_beside_the_engines_own_where_they_balance_better() -> None:
    found = _layouts(
        "deepseek-v3", a_pool("H200-SXM-141GB", 2), tensor=8, pipeline=2, expert=8, context=1
    )

    assert found == {
        Layout(tensor=8, pipeline=2, expert=8),
        Layout(tensor=8, pipeline=2, expert=8, partition=(32, 29)),
    }


def test_a_pinned_partition_leaves_only_itself() -> None:
    assert _layouts("llama-8b", a_pool(), pipeline=2, partition=(20, 12), tensor=1, replicas=1) == {
        Layout(pipeline=2, partition=(20, 12))
    }
    assert _layouts("llama-8b", a_pool(), pipeline=2, partition=(20, 6, 6)) == set()


def test_filling_gives_every_layout_the_replicas_that_the_budget_holds() -> None:
    found = _layouts("llama-8b", a_pool(nodes=2), fill=True, replicas=64, max_gpus=12)

    assert {(layout.tensor, layout.replicas) for layout in found if layout.pipeline == 1} == {
        *((1, 12), (2, 6), (3, 4), (4, 3), (5, 2), (6, 2), (7, 1), (8, 1)),
        (16, 1),  # more than the budget: a check says so
    }


def test_filling_stops_at_what_is_free_and_at_the_budget_of_nodes() -> None:
    pool = a_pool(nodes=3, free={0: 3})

    assert Layout(replicas=19) in _layouts("llama-8b", pool, fill=True, replicas=64)
    assert Layout(tensor=4, replicas=2) in _layouts(
        "llama-8b", a_pool(nodes=3), fill=True, replicas=64, max_nodes=1
    )
    assert Layout(tensor=8, replicas=2) in _layouts("llama-8b", pool, fill=True, replicas=64)


def test_instances_inside_nodes_have_all_nodes_of_a_family_and_larger_ones_those_of_a_pool() -> (
    None
):
    inventory = inventory_of(a_node("a"), a_node("b", gpus=4), a_node("c", gpus=4))
    eight, four = "h100-sxm-80gb-8x-400g", "h100-sxm-80gb-4x-400g"

    found = list(enumerate_candidates(a_model("llama-8b"), inventory, SearchSpace(), vllm_traits()))

    inside = [item for item in found if item.placement.nodes_per_replica == 1]
    assert {item.pool.name for item in inside} == {"h100-sxm-80gb"}
    assert {item.layout.replicas for item in inside if item.layout.tensor == 4} == {4, 1}
    over = {(item.pool.name, *item.placement.groups) for item in found if item not in inside}
    assert over == {(four, ("b", "c"))}
    alone = inventory.of_nodes({"a"})
    found = list(enumerate_candidates(a_model("llama-8b"), alone, SearchSpace(), vllm_traits()))
    assert {item.pool.name for item in found} == {eight}
