"""What an estimate takes from the model and what from the load."""

from dataclasses import replace

import pytest

from shardwright.costs.estimator import Estimator, estimate
from shardwright.costs.host import Storage, loading_time
from shardwright.engines.registry import traits_of
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan
from shardwright.rendering.pod_resources import start_budget
from tests.support.builders_plan import (
    a_model,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)


def test_k_v_that_the_checkpoint_wants_in_fp8_is_read_as_fast_as_k_v_that_the_load_wants_so() -> (
    None
):
    model, load = (
        a_model("llama-70b"),
        a_request(input_tokens=16384, max_model_len=32768).workload,
    )
    candidate = Candidate(
        layout=Layout(tensor=4), pool=a_pool(), placement=place(a_pool(), Layout(tensor=4))
    )

    asked, own = (
        estimate(one, candidate, replace(load, kv_cache_dtype=kept), vllm_traits())
        for one, kept in ((model, "fp8"), (replace(model, cache_dtype="fp8"), "auto"))
    )

    assert own == asked


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "TensorRT-LLM"])
def test_eight_ranks_sum_a_large_message_in_two_steps_unless_the_engine_has_none(
    engine: str,
) -> None:
    layout, load = Layout(tensor=8), a_request(concurrency=64).workload
    candidate = Candidate(layout=layout, pool=a_pool(), placement=place(a_pool(), layout))

    task = Estimator(a_model("llama-70b"), load, traits_of(engine, None)).task(candidate)

    tensor = task.replica.links.tensor
    assert (tensor.own_kernel, tensor.two_shot) == (True, engine != "TensorRT-LLM")


def test_attention_replicas_over_many_nodes_read_the_model_once_a_node() -> None:
    """48 ranks on twelve trays: each node reads the whole model and not twelve of it."""
    request = replace(
        a_request(concurrency=4096, tensor=1, pipeline=1, attention_data=48), storage=Storage.HUB
    )
    plan = make_plan(
        a_model("deepseek-v3"), an_inventory(an_nvl72_pool()), request, vllm_traits()
    ).outcome
    assert isinstance(plan, Plan)

    assert plan.nodes_per_replica == 12
    assert plan.load == loading_time(plan.load_bytes_per_node, 1, Storage.HUB)
    assert start_budget(plan, storage=Storage.HUB).load_seconds < 5 * 3600


def test_which_of_its_nodes_holds_which_stage_is_no_part_of_a_pipelines_price() -> None:
    """Any pod of a group may take any node of it, so every hop is priced as the slowest link
    between two of them.
    """
    one_leaf, two_leaves = (a_pool(nodes=4), a_pool(nodes=8, free={0: 0, 2: 0, 4: 0, 6: 0}))
    layout, model, load = (
        Layout(tensor=8, pipeline=4),
        a_model("llama-405b"),
        a_request().workload,
    )

    candidates = [
        Candidate(layout=layout, pool=pool, placement=place(pool, layout))
        for pool in (one_leaf, two_leaves)
    ]
    prices = [estimate(model, candidate, load, vllm_traits()) for candidate in candidates]

    assert prices[0] == prices[1]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(attention_data=16, expert=16),
        Layout(tensor=8, pipeline=2),
        Layout(tensor=8, attention_data=2, expert=16),
    ],
    ids=["attention replicas", "tensor groups that fill a clique", "both"],
)
def test_ranks_of_two_cliques_meet_over_the_network_in_whatever_order_their_nodes_come(
    layout: Layout,
) -> None:
    load = a_request().workload
    one_clique = a_pool("GB200-NVL-186GB", 8, gpus_per_node=4, domain_nodes=4)
    halves = a_pool(
        "GB200-NVL-186GB", 8, gpus_per_node=4, domain_nodes=4, free={0: 0, 1: 0, 4: 0, 5: 0}
    )
    estimator = Estimator(a_model("deepseek-v3"), load, vllm_traits())

    joined, apart = (
        estimator.estimate(
            Candidate(layout=layout, pool=pool, placement=place(pool, layout))
        ).performance
        for pool in (one_clique, halves)
    )

    assert apart.tpot_seconds > 1.2 * joined.tpot_seconds
