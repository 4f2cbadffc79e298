"""Questions that plans once answered as no expert would, each with what one would sign."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Layout
from shardwright.modelspec.read import read_model
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_plan import (
    CONFIGS,
    a_model,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)

BALANCED, LATENCY = OptimizeFor.BALANCED, OptimizeFor.LATENCY
EIGHT_H100, EIGHT_H200 = a_pool(nodes=8), a_pool("H200-SXM-141GB", 8)
SMALL: Mapping[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
}
AWQ: Mapping[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def _report(model: str, pool: Pool, request: Request) -> Report:
    return make_plan(a_model(model), an_inventory(pool), request, vllm_traits())


def _plan(model: str, pool: Pool, request: Request) -> Plan:
    plan = _report(model, pool, request).outcome
    assert isinstance(plan, Plan), plan
    return plan


def _at(rate: float, **space: Any) -> Request:
    request = a_request(concurrency=4096, **space)
    return replace(request, workload=replace(request.workload, requests_per_second=rate))


@pytest.mark.parametrize(
    ("pool", "gpus"),
    [(an_nvl72_pool(), 8), (a_pool("H200-SXM-141GB"), 8)],
    ids=["a rack", "eight H200"],
)
def test_one_request_gets_the_ranks_that_work_on_it_and_no_rack(pool: Pool, gpus: int) -> None:
    plan = _plan("deepseek-v3", pool, a_request(concurrency=1))

    assert plan.layout.gpus == gpus
    assert plan.layout.attention_data == 1
    assert plan.performance.output_tokens_per_second <= 1 / plan.performance.tpot_seconds


def test_4_bits_take_no_more_gpus_than_16() -> None:
    pool, request = a_pool("A100-SXM4-80GB"), a_request()
    quantized = read_model({**CONFIGS["llama-70b"], "quantization_config": AWQ}, source="a test")

    plain = _plan("llama-70b", pool, request)
    light = make_plan(quantized, an_inventory(pool), request, vllm_traits()).outcome
    assert isinstance(light, Plan)

    assert light.layout.gpus <= plain.layout.gpus
    assert light.performance.basis == "modelled"


@pytest.mark.parametrize(
    ("model", "concurrency"), [("llama-8b", 256), ("llama-70b", 64), ("llama-70b", 256)]
)
def test_latency_takes_the_gpus_of_one_nvlink_domain(model: str, concurrency: int) -> None:
    plan = _plan(model, EIGHT_H200, a_request(LATENCY, concurrency=concurrency))

    assert (plan.nodes_per_replica, plan.layout.gpus) == (1, 8)


@pytest.mark.parametrize(
    ("model", "rate", "layout"),
    [
        ("llama-8b", 50, Layout(replicas=10)),
        ("llama-70b", 28, Layout(tensor=2, replicas=18)),
        ("llama-70b", 32, Layout(tensor=2, replicas=21)),
    ],
)
def test_a_rate_gets_instances_of_what_fits_and_none_over_nodes(
    model: str, rate: float, layout: Layout
) -> None:
    pool = a_pool(nodes=8) if model == "llama-8b" else EIGHT_H200

    plan = _plan(model, pool, _at(rate))

    assert plan.layout == layout
    assert plan.carries_load


def test_a_few_requests_more_than_k_v_holds_double_no_gpus() -> None:
    plan = _plan("llama-8b", EIGHT_H100, a_request(concurrency=182))

    assert (plan.layout, plan.carries_load) == (Layout(), True)


def test_a_limit_that_more_instances_meet_is_met_by_them() -> None:
    request = a_request()
    limited = replace(request, objective=replace(request.objective, ttft_seconds=0.2))

    plan = _plan("llama-8b", EIGHT_H100, limited)

    assert plan.layout.replicas > 1
    assert plan.performance.ttft_seconds <= 0.2


def test_two_requests_take_no_five_stages_of_eight_gpus() -> None:
    load = a_request(input_tokens=1024, output_tokens=1000, concurrency=2)

    plan = _plan("deepseek-v3", a_pool("B200-SXM-180GB"), load)

    assert (plan.layout.tensor, plan.layout.pipeline) == (8, 1)


def test_one_request_more_than_k_v_holds_changes_no_cut() -> None:
    """405B, 100,000 tokens: seven run at once; the eighth waits for one of them and not for a plan
    of half the speed.
    """
    seven, eight = (
        _plan(
            "llama-405b",
            a_pool(nodes=2),
            a_request(input_tokens=100_000, output_tokens=1000, concurrency=count),
        )
        for count in (7, 8)
    )

    assert eight.layout == seven.layout
    assert (seven.carries_load, eight.carries_load) == (True, False)
    assert (
        eight.performance.output_tokens_per_second
        > 0.95 * seven.performance.output_tokens_per_second
    )


def test_what_more_queues_for_brings_no_less_than_what_is_listed_beside_it() -> None:
    report = _report("llama-8b", a_pool("L4-24GB"), a_request(concurrency=512))
    assert isinstance(report.outcome, Plan)

    best = report.outcome.performance.output_tokens_per_second
    assert all(
        other.performance.output_tokens_per_second < 1.03 * best for other in report.alternatives
    )


def test_a_rate_is_planned_for_with_headroom() -> None:
    plan = _plan("llama-70b", a_pool(nodes=8), _at(2.0))

    (said,) = [
        reason for reason in plan.reasons if reason.startswith("It carries 2 requests a second")
    ]
    assert int(said.split(", ")[-1].split("%")[0]) <= 80


def test_a_rate_that_no_number_serves_gets_all_that_serves_most() -> None:
    plan = _plan("llama-70b", EIGHT_H100, _at(50))

    assert plan.nodes_per_replica == 1
    assert plan.layout.gpus == 64
    assert not plan.carries_load


def test_filling_a_budget_for_a_rate_takes_replicas() -> None:
    plan = _plan("llama-70b", a_pool(nodes=8), _at(40, fill=True, max_gpus=64, replicas=64))

    assert plan.carries_load
    assert plan.layout.replicas > 8


def test_prompts_of_one_attention_rank_hold_the_others() -> None:
    """Sixteen prompts of 65,000 tokens on sixteen ranks: tokens do not come as if nobody computed
    any.
    """
    pool = a_pool("H200-SXM-141GB", 2)
    load: dict[str, Any] = {"input_tokens": 65_000, "output_tokens": 512, "concurrency": 16}
    wide = _plan("deepseek-v3", pool, a_request(**load, tensor=1, pipeline=1, attention_data=16))
    plan = _plan("deepseek-v3", pool, a_request(**load))

    assert wide.performance.tpot_seconds > 0.06
    assert plan.layout.attention_data < 16


def test_an_answer_of_one_token_has_its_time_before_it() -> None:
    speed = _plan("llama-70b", a_pool(), a_request(output_tokens=1)).performance

    assert speed.tpot_seconds < 0.1 < speed.ttft_seconds


def test_a_small_model_for_one_request_goes_to_the_small_gpu() -> None:
    pools = (a_pool("L4-24GB", 4), a_pool(nodes=2), an_nvl72_pool())
    small = read_model({**CONFIGS["llama-8b"], **SMALL}, source="a test")
    plan = make_plan(small, an_inventory(*pools), a_request(concurrency=1), vllm_traits()).outcome

    assert isinstance(plan, Plan)
    assert plan.pool == "l4-24gb"
