"""Enumeration: every shape once, in one order, whole nodes unless pinned, experts whole or sliced."""

from shardwright.layouts.enumerate import enumerate_candidates, layouts
from shardwright.layouts.layout import Layout, SearchSpace
from tests.support.builders_plan import a_model, a_pool, an_inventory, an_nvl72_pool


def _degrees(model: str, space: SearchSpace, **pool: object) -> list[tuple[int, int]]:
    inventory = an_inventory(a_pool(**pool))  # type: ignore[arg-type]
    found = enumerate_candidates(a_model(model), inventory, space)
    return [(item.layout.tensor, item.layout.pipeline) for item in found]


def test_every_shape_of_one_node_is_tried_also_those_that_divide_nothing() -> None:
    shapes = _degrees("llama-8b", SearchSpace(), gpus_per_node=4)

    assert shapes == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)]


def test_groups_on_two_nodes_take_both_whole() -> None:
    shapes = set(_degrees("llama-8b", SearchSpace(), nodes=2, gpus_per_node=4))

    assert {shape for shape in shapes if shape[0] * shape[1] > 4} == {(1, 8), (2, 4), (4, 2), (8, 1)}


def test_nothing_is_yielded_twice() -> None:
    shapes = _degrees("llama-405b", SearchSpace(tensor=8), nodes=4)

    assert len(shapes) == len(set(shapes))


def test_no_more_stages_than_layers_and_no_more_ranks_than_heads() -> None:
    shapes = _degrees("qwen2.5-7b", SearchSpace(), nodes=18)

    assert max(pipeline for _, pipeline in shapes) <= 16
    assert max(tensor for tensor, _ in shapes) <= 28


def test_looking_beyond_the_pool_adds_what_a_few_more_nodes_would_allow() -> None:
    inventory, model = an_inventory(a_pool()), a_model("llama-405b")

    here = {item.layout for item in enumerate_candidates(model, inventory, SearchSpace())}
    beyond = {item.layout for item in enumerate_candidates(model, inventory, SearchSpace(), beyond=True)}

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
    found = set(layouts(a_model("qwen3-30b-a3b"), a_pool(gpus_per_node=2), SearchSpace(), 1))

    assert found == {Layout(), Layout(pipeline=2), Layout(tensor=2), Layout(tensor=2, expert=2)}


def test_a_dense_model_has_no_expert_degree() -> None:
    found = layouts(a_model("llama-8b"), a_pool(), SearchSpace(), 1)

    assert {layout.expert for layout in found} == {1}


def test_pools_come_by_name_whatever_their_order() -> None:
    first, second = a_pool(name="a"), a_pool(name="b")
    model = a_model()

    forwards = list(enumerate_candidates(model, an_inventory(first, second), SearchSpace()))
    backwards = list(enumerate_candidates(model, an_inventory(second, first), SearchSpace()))

    assert forwards == backwards
    assert [item.pool.name for item in forwards] == sorted(item.pool.name for item in forwards)


def test_a_rack_is_tried_whole() -> None:
    found = enumerate_candidates(a_model("deepseek-v3"), an_inventory(an_nvl72_pool()), SearchSpace())

    assert max(item.layout.gpus for item in found) == 72
