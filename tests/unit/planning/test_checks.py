"""Checks: each says what, the limit, the gap and the way out; nothing is said of a layout that is
fine.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from shardwright.engines.vllm import traits as vllm
from shardwright.errors import Problem
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.hardware.suitability import slice_of
from shardwright.layouts.layout import Candidate, EngineOverrides, Layout
from shardwright.layouts.placing import place
from shardwright.planning.checks import Judge, Verdict, image_violations, limit_violations
from shardwright.planning.request import Request
from shardwright.units import GIB
from tests.support.builders_model import catalogued
from tests.support.builders_plan import a_model, a_pool, a_request, vllm_traits
from tests.support.builders_reporting import a_reported_performance


def _verdict(model: str, layout: Layout, pool: Pool, request: Request | None = None) -> Verdict:
    judge = Judge(a_model(model), request or a_request(), vllm_traits())
    return judge.verdict(Candidate(layout=layout, pool=pool, placement=place(pool, layout)))


def _problems(
    model: str, layout: Layout, pool: Pool, request: Request | None = None
) -> dict[str, Problem]:
    verdict = _verdict(model, layout, pool, request)
    return {violation.problem.code: violation.problem for violation in verdict.violations}


def test_nothing_is_said_of_a_layout_that_is_fine() -> None:
    assert _problems("llama-8b", Layout(), a_pool()) == {}


def test_degrees_that_do_not_divide_are_not_priced() -> None:
    verdict = _verdict("llama-8b", Layout(tensor=3), a_pool())

    assert verdict.estimate is None
    assert "HeadsNotDivisible" in verdict.codes


def test_weights_that_exceed_memory_say_by_how_much() -> None:
    problem = _problems("llama-70b", Layout(), a_pool())["WeightsExceedMemory"]

    assert re.fullmatch(
        r"spec\.model: 131\.4 GiB of weights and \d\.\d GiB of buffers per GPU must be less than "
        r"7\d\.\d GiB, "
        r"\d\d\.\d GiB short; use more GPUs per replica, GPUs with more memory, or quantized "
        r"weights",
        problem.sentence(),
    )


def test_a_cache_that_cannot_hold_one_request_says_how_many_tokens_are_short() -> None:
    request = a_request(input_tokens=120_000, output_tokens=8_000, concurrency=1)
    problem = _problems("llama-8b", Layout(), a_pool("L4-24GB", gpus_per_node=1), request)[
        "KvCacheTooSmall"
    ]

    assert problem.limit == "must hold one request of 128,000"
    assert problem.gap.endswith("tokens short on L4-24GB")
    assert problem.path == "spec.engine.maxModelLen"


def test_more_k_v_than_there_is_room_for_is_what_the_message_names_and_what_it_offers_fits() -> (
    None
):
    def found(kv_cache_bytes: int) -> dict[str, Problem]:
        judge = Judge(a_model("llama-8b"), a_request(), vllm_traits(kv_cache_bytes=kv_cache_bytes))
        pool, layout = a_pool(), Layout()
        verdict = judge.verdict(Candidate(layout=layout, pool=pool, placement=place(pool, layout)))
        return {violation.problem.code: violation.problem for violation in verdict.violations}

    (problem,) = found(75 * GIB).values()
    offered = re.search(r"lower it to ([\d,]+) or less", problem.remedy)

    assert (problem.code, problem.path) == (
        "KvCachePinTooLarge",
        "spec.engine.args.kv-cache-memory-bytes",
    )
    assert problem.what == "75.0 GiB of K/V per GPU"
    assert offered
    room = int(offered[1].replace(",", ""))
    assert found(room) == {}
    assert set(found(room + 1)) == {"KvCachePinTooLarge"}


def test_less_k_v_than_one_request_needs_says_that_it_was_asked_for() -> None:
    judge = Judge(a_model("llama-8b"), a_request(), vllm_traits(kv_cache_bytes=2**20))
    verdict = judge.verdict(
        Candidate(layout=Layout(), pool=a_pool(), placement=place(a_pool(), Layout()))
    )

    (problem,) = [violation.problem for violation in verdict.violations]
    assert problem.code == "KvCacheTooSmall"
    assert problem.remedy.endswith(
        "or use more than 1,048,576 bytes of K/V (spec.engine.args.kv-cache-memory-bytes)"
    )


def test_more_sequences_than_states_have_blocks_are_refused_with_a_number_that_fits() -> None:
    def found(sequences: int) -> dict[str, Problem]:
        told = EngineOverrides(sequences=sequences)
        judge = Judge(catalogued("Qwen/Qwen3.5-27B"), a_request(), vllm_traits(told=told))
        pool, layout = a_pool(), Layout()
        verdict = judge.verdict(Candidate(layout=layout, pool=pool, placement=place(pool, layout)))
        return {violation.problem.code: violation.problem for violation in verdict.violations}

    (problem,) = found(1024).values()
    offered = re.search(r"lower it to ([\d,]+) or less", problem.remedy)

    assert (problem.code, problem.path) == (
        "SequencesExceedBlocks",
        "spec.engine.args.max-num-seqs",
    )
    assert offered
    assert found(int(offered[1].replace(",", ""))) == {}


@pytest.mark.parametrize(
    ("model", "gpu", "what"),
    [
        ("llama-8b", "T4-16GB", "the model computes in bf16"),
        ("llama-70b-fp8", "MI250-128GB", "the weights are held in fp8"),
    ],
)
def test_a_number_format_without_a_unit_is_refused(model: str, gpu: str, what: str) -> None:
    assert _problems(model, Layout(tensor=8), a_pool(gpu))["DtypeNotSupported"].what == what


def test_unquantized_weights_without_a_bf16_unit_can_be_computed_in_fp16() -> None:
    assert _problems("llama-8b", Layout(), a_pool("T4-16GB"))["DtypeNotSupported"].remedy == (
        "set model.quantization: FP16, or select other GPUs or other weights"
    )
    assert _problems("llama-70b-fp8", Layout(), a_pool("T4-16GB"))["DtypeNotSupported"].remedy == (
        "set engine.args.dtype: float16, or select other GPUs or other weights"
    )


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "A10G-24GB", "L40S-48GB", "H100-SXM-80GB"])
def test_fp8_weights_run_on_every_gpu_that_marlin_runs_on(gpu: str) -> None:
    assert "DtypeNotSupported" not in _problems("llama-70b-fp8", Layout(tensor=8), a_pool(gpu))


def test_a_gpu_that_the_engine_has_dropped_is_too_old() -> None:
    problems = _problems("llama-8b", Layout(), a_pool("V100-SXM2-32GB"))

    assert problems["GpuTooOld"].gap == "V100-SXM2-32GB has 7.0"
    assert "DtypeNotSupported" not in problems
    assert vllm.traits("0.22.0").support.least_capability is None


def test_an_fp8_cache_needs_an_fp8_unit() -> None:
    request = a_request()
    request = replace(request, workload=replace(request.workload, kv_cache_dtype="fp8"))

    assert _problems("llama-8b", Layout(), a_pool("A100-SXM4-80GB"), request)[
        "DtypeNotSupported"
    ].path == ("spec.engine.kvCacheQuantization")
    assert _problems("llama-8b", Layout(), a_pool("H100-SXM-80GB"), request) == {}


def test_limits_on_latency_name_the_field_and_the_share() -> None:
    problems = _problems(
        "llama-70b", Layout(tensor=4), a_pool(), a_request(ttft_seconds=0.5, tpot_seconds=0.001)
    )

    assert {code: problem.path for code, problem in problems.items()} == {
        "TtftLimitExceeded": "spec.objective.ttftMilliseconds",
        "TpotLimitExceeded": "spec.objective.tpotMilliseconds",
    }
    assert problems["TpotLimitExceeded"].limit == "must be at most 1 ms"
    assert problems["TpotLimitExceeded"].gap.endswith(" times as long")
    assert problems["TtftLimitExceeded"].gap.endswith("% over")


def test_a_time_far_over_its_limit_is_said_in_units_that_can_be_read() -> None:
    speed = replace(a_reported_performance(), ttft_seconds=716.834)

    (violation,) = limit_violations(speed, a_request(ttft_seconds=2.0))

    assert replace(violation.problem, path="").sentence() == (
        "time to first token of 12 min must be at most 2,000 ms, 358 times as long"
    )


@pytest.mark.parametrize(
    ("space", "layout", "gap"),
    [
        ({"max_gpus": 4}, Layout(tensor=8), "4 over"),
        ({"max_gpus": 4}, Layout(tensor=2, replicas=3), "2 over"),
        ({"max_nodes": 1}, Layout(tensor=8, pipeline=2), "1 over"),
    ],
)
def test_budgets_count_all_replicas(space: dict[str, Any], layout: Layout, gap: str) -> None:
    problem = _problems("llama-8b", layout, a_pool(nodes=2), a_request(**space))["BudgetExceeded"]

    assert problem.gap == gap


def test_replicas_that_share_a_node_are_one_node_of_the_budget() -> None:
    assert (
        _problems(
            "llama-8b", Layout(tensor=2, replicas=4), a_pool(), a_request(max_nodes=1, replicas=4)
        )
        == {}
    )


def test_a_busy_pool_lacks_capacity_for_now() -> None:
    problem = _problems(
        "llama-405b", Layout(tensor=8, pipeline=2), a_pool(nodes=3, free={0: 4, 1: 4})
    )["InsufficientCapacity"]

    assert problem.sentence() == (
        "needs 2 nodes of h100-sxm-80gb with 8 free GPUs each, 1 free of 3, 1 short; "
        "free GPUs or add nodes; it goes on by itself then"
    )


def test_a_small_pool_is_too_small_whatever_is_free() -> None:
    problem = _problems("llama-405b", Layout(tensor=8, pipeline=2), a_pool(free={0: 0}))[
        "PoolTooSmall"
    ]

    assert (
        problem.sentence()
        == "needs 2 nodes of h100-sxm-80gb with 8 healthy GPUs each, 1 there, 1 of them not free, "
        "2 short; add nodes"
    )


def test_a_pool_too_small_for_its_replicas_counts_what_is_not_free_among_what_is_missing() -> None:
    problem = _problems("llama-8b", Layout(tensor=8, replicas=5), a_pool(nodes=3, free={0: 4}))[
        "PoolTooSmall"
    ]

    assert problem.gap == "3 fit, 1 of them not free, 3 short"


def _slices() -> Pool:
    return a_pool(slice_of(load_gpus()["H100-SXM-80GB"], "3g.40gb"), gpus_per_node=16)


def test_slices_of_a_gpu_are_never_joined() -> None:
    assert _problems("llama-8b", Layout(replicas=16), _slices()) == {}
    for layout in (Layout(tensor=2), Layout(pipeline=2), Layout(attention_data=2)):
        problem = _problems("llama-8b", layout, _slices())["MigSlicesJoined"]

        assert problem.sentence() == (
            "spec.placement.migProfile: 2 slices of 3g.40gb for one replica are not joined by "
            "MIG: a replica has one slice; unpin the degrees, or use a larger profile or whole "
            "GPUs"
        )


def test_what_exceeds_a_slice_is_told_of_larger_ones() -> None:
    problem = _problems("llama-70b", Layout(), _slices())["WeightsExceedMemory"]

    assert problem.remedy == (
        "use a larger migProfile, GPUs with more memory, or quantized weights"
    )


def test_an_image_for_whole_gpus_serves_slices_that_go_by_another_name() -> None:
    pool = replace(_slices(), resource="nvidia.com/mig-3g.40gb")

    found = {
        runs_on: [
            violation.problem.code
            for violation in image_violations(
                pool,
                replace(vllm_traits(), support=replace(vllm_traits().support, runs_on=(runs_on,))),
            )
        ]
        for runs_on in ("nvidia.com/gpu", "amd.com/gpu")
    }
    assert found == {"nvidia.com/gpu": [], "amd.com/gpu": ["EngineImageMissing"]}


def test_everything_that_is_wrong_is_said_at_once() -> None:
    request = a_request(max_gpus=1, tpot_seconds=0.001)

    assert set(_problems("llama-70b", Layout(tensor=2, replicas=5), a_pool(), request)) == {
        "BudgetExceeded",
        "TpotLimitExceeded",
        "PoolTooSmall",
    }
