"""Where nothing fits, only what helps is advised: what every layout was tried with is not."""

import re
from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.gpus import Gpu, load_gpus
from shardwright.hardware.suitability import slice_of
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.request import Request
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

WIDE = "H100-SXM-80GB"
"""Eight of them."""


def remedy(model: str, gpu: Gpu | str, gpus: int, request: Request | None = None) -> str:
    """Return the last advice of a refusal on one node, without the nodes that would do."""
    pool = a_pool(gpu, gpus_per_node=gpus)
    asked = request or a_request()
    outcome = make_plan(a_model(model), an_inventory(pool), asked, vllm_traits()).outcome
    assert isinstance(outcome, NoPlan)
    return re.sub(r"^or ", "", outcome.problem.remedy.rpartition("; ")[2])


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "told"),
    [
        ("llama-405b", WIDE, 8, "use GPUs with more memory or 8-bit weights"),
        ("llama-405b", WIDE, 4, "use GPUs with more memory or 4-bit weights"),
        ("llama-405b", WIDE, 1, "use more GPUs per replica"),
        ("llama-70b-fp8", "L4-24GB", 1, "use GPUs with more memory"),
    ],
)
def test_weights_of_fewer_bits_are_advised_where_they_would_fit(
    model: str, gpu: str, gpus: int, told: str
) -> None:
    assert remedy(model, gpu, gpus) == told


def test_a_slice_may_be_larger() -> None:
    sliced = slice_of(load_gpus()[WIDE], "1g.10gb")

    assert remedy("llama-70b", sliced, 1) == "use a larger migProfile"


@pytest.mark.parametrize(
    ("tpot_ms", "rate", "told"),
    [
        (3, None, "relax the limit: one request alone exceeds it, too"),
        (
            20,
            None,
            "relax the limit, lower the concurrency to 29 or use 3 x TP8 on 24 H100-SXM-80GB",
        ),
        (3, 20.0, "relax the limit: one request alone exceeds it, too"),
        (
            20,
            4.0,
            "relax the limit, lower the rate to 2.7 requests a second or use 2 x TP8 on 16 H100-SXM-80GB",
        ),
        (20, 20.0, "lower the rate to 2.7 requests a second or use 8 x TP8 on 64 H100-SXM-80GB"),
    ],
)
def test_a_load_and_gpus_that_meet_a_limit_are_advised_where_it_can_be_met_at_all(
    tpot_ms: int, rate: float | None, told: str
) -> None:
    request = a_request(tpot_seconds=tpot_ms / 1000)
    offered = replace(request, workload=replace(request.workload, requests_per_second=rate))

    assert remedy("llama-70b", WIDE, 8, offered) == told


@pytest.mark.parametrize(
    ("asked", "helps"),
    [
        ({"ttft_seconds": 0.2, "rate": 8.0}, {"rate": 1.0}),
        ({"ttft_seconds": 0.2, "rate": 8.0}, {"nodes": 9}),
        ({"tpot_seconds": 0.02, "rate": 20.0}, {"rate": 2.7}),
        ({"tpot_seconds": 0.02, "rate": 20.0}, {"nodes": 8}),
        ({"tpot_seconds": 0.02}, {"concurrency": 29}),
        ({"tpot_seconds": 0.02}, {"nodes": 3}),
    ],
)
def test_what_is_advised_against_a_limit_has_a_plan(
    asked: dict[str, Any], helps: dict[str, Any]
) -> None:
    assert not isinstance(answered(**asked), Plan)
    assert isinstance(answered(**{**asked, **helps}), Plan)


def answered(*, nodes: int = 1, rate: float | None = None, **more: Any) -> Plan | NoPlan:
    request = a_request(**more)
    offered = replace(request, workload=replace(request.workload, requests_per_second=rate))
    pools = an_inventory(a_pool(WIDE, nodes=nodes))
    return make_plan(a_model("llama-70b"), pools, offered, vllm_traits()).outcome


def test_a_queue_that_grows_without_end_is_no_matter_of_the_limit() -> None:
    outcome = answered(ttft_seconds=0.2, rate=8.0)

    assert isinstance(outcome, NoPlan)
    assert outcome.problem.sentence() == (
        "spec.objective.ttftMilliseconds: time to first token, which grows without end, must be at "
        "most 200 ms, 6.89 of 8 requests a second are served; closest is 2 x TP2·PP2 on h100-sxm-80gb; "
        "lower the rate to 1 request a second or use 9 x TP8 on 72 H100-SXM-80GB"
    )


def test_requests_may_be_as_long_as_the_cache_holds() -> None:
    pinned = a_request(concurrency=1, max_model_len=131072)
    mean = a_request(concurrency=1, input_tokens=100_000, output_tokens=20_000)

    assert remedy("llama-8b", "L4-24GB", 1, pinned) == (
        "lower maxModelLen to 38,736 or use GPUs with more memory"
    )
    assert re.fullmatch(
        r"plan for inputTokens and outputTokens of \d\d,\d{3} together or use GPUs with more memory",
        remedy("llama-8b", "L4-24GB", 1, mean),
    )
