"""The ladder an expert expects: it comes out of enumerate, estimate, select on catalogue GPUs, vLLM
0.33.

Every case states model and dtype, GPUs and link between nodes, load, objective and replicas. No
branch of the planner encodes a step: the tests at the end change a link and see the layout follow.
"""

from dataclasses import dataclass, replace

import pytest

from shardwright.hardware.gpus import Link, load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_plan import (
    a_model,
    a_network,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
    with_scale_up,
)

BALANCED, LATENCY, THROUGHPUT = (OptimizeFor.BALANCED, OptimizeFor.LATENCY, OptimizeFor.THROUGHPUT)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One question; the load is 2,048 + 512 tokens at concurrency 64 where nothing else is
    stated.
    """

    id: str
    model: str
    pool: Pool
    request: Request
    tensor: int
    pipeline: int = 1
    context: int = 1


CASES = (
    Case(
        id="8B BF16 fits one H100: one",
        model="llama-8b",
        pool=a_pool(),
        request=a_request(),
        tensor=1,
    ),
    Case(
        id="8B BF16, lowest latency for one request: the NVLink domain",
        model="llama-8b",
        pool=a_pool(),
        request=a_request(LATENCY, concurrency=1),
        tensor=8,
    ),
    Case(
        id="70B BF16 on 8 H100: tensor inside the node",
        model="llama-70b",
        pool=a_pool(nodes=4),
        request=a_request(),
        tensor=4,
    ),
    Case(
        id="405B BF16 on 2 x 8 H100 at 400G: tensor in the node, pipeline across",
        model="llama-405b",
        pool=a_pool(nodes=2),
        request=a_request(),
        tensor=8,
        pipeline=2,
    ),
    Case(
        id="405B FP8 weights: one node",
        model="llama-405b-fp8",
        pool=a_pool(nodes=2),
        request=a_request(),
        tensor=8,
    ),
    Case(
        id="DeepSeek-V3 FP8 on GB200, light load: one tray",
        model="deepseek-v3",
        pool=an_nvl72_pool(),
        request=a_request(concurrency=16),
        tensor=4,
    ),
    Case(
        id="DeepSeek-V3 FP8 on GB200, more K/V than a tray holds in copies: the ranks of the tray "
        "share it",
        model="deepseek-v3",
        pool=an_nvl72_pool(),
        request=a_request(concurrency=64),
        tensor=4,
        context=4,
    ),
    Case(
        id="405B BF16 on GB200, more than a tray holds: tensor across trays of one clique",
        model="llama-405b",
        pool=an_nvl72_pool(),
        request=a_request(),
        tensor=8,
    ),
    Case(
        id="DeepSeek-V3 FP8 on H200: one node, sliced experts, as whole ones would be uneven",
        model="deepseek-v3",
        pool=a_pool("H200-SXM-141GB", 2),
        request=a_request(),
        tensor=8,
    ),
    Case(
        id="DeepSeek-V3 FP8 on H200, one request: all ranks on it",
        model="deepseek-v3",
        pool=a_pool("H200-SXM-141GB", 2),
        request=a_request(concurrency=1),
        tensor=8,
    ),
    Case(
        id="DeepSeek-V3 FP8 on H200, many requests: every rank has its own",
        model="deepseek-v3",
        pool=a_pool("H200-SXM-141GB"),
        request=a_request(concurrency=1024),
        tensor=1,
    ),
    Case(
        id="70B BF16 on 8 L40S without NVLink, throughput: two instances, no GPU is left over",
        model="llama-70b",
        pool=a_pool("L40S-48GB"),
        request=a_request(THROUGHPUT),
        tensor=4,
    ),
    Case(
        id="70B BF16 on 8 L40S, one request, latency: all of them",
        model="llama-70b",
        pool=a_pool("L40S-48GB"),
        request=a_request(LATENCY, concurrency=1),
        tensor=8,
    ),
    Case(
        id="Qwen2.5-7B with 28 heads, latency: TP4 (8 fails the heads, 7 the K/V heads)",
        model="qwen2.5-7b",
        pool=a_pool(),
        request=a_request(LATENCY, concurrency=1),
        tensor=4,
    ),
    Case(
        id="Qwen2.5-7B, throughput: one GPU",
        model="qwen2.5-7b",
        pool=a_pool(),
        request=a_request(THROUGHPUT),
        tensor=1,
    ),
    Case(
        id="8B BF16 on one L4: it queues and says so",
        model="llama-8b",
        pool=a_pool("L4-24GB", gpus_per_node=1),
        request=a_request(),
        tensor=1,
    ),
    Case(
        id="Llama 8B on MI300X: one",
        model="llama-8b",
        pool=a_pool("MI300X-192GB"),
        request=a_request(),
        tensor=1,
    ),
)


def _report(model: str, pool: Pool, request: Request) -> Report:
    return make_plan(a_model(model), an_inventory(pool), request, vllm_traits())


def _degrees(model: str, pool: Pool, request: Request) -> tuple[int, int]:
    outcome = _report(model, pool, request).outcome
    assert isinstance(outcome, Plan), outcome
    return outcome.layout.tensor, outcome.layout.pipeline


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_ladder(case: Case) -> None:
    plan = _report(case.model, case.pool, case.request).outcome

    assert isinstance(plan, Plan), plan
    assert (plan.layout.tensor, plan.layout.pipeline, plan.layout.context) == (
        case.tensor,
        case.pipeline,
        case.context,
    )


def test_405b_loses_with_tensor_across_nodes_by_its_price() -> None:
    found = _report("llama-405b", a_pool(nodes=2), a_request()).alternatives

    (across,) = (other for other in found if other.layout.tensor == 16)
    assert across.loses.endswith("more per token for tensor communication")


def test_70b_on_pcie_gains_from_not_using_tensor_8() -> None:
    best, flat = (
        _report("llama-70b", a_pool("L40S-48GB"), a_request(THROUGHPUT, tensor=tensor)).outcome
        for tensor in (None, 8)
    )
    assert isinstance(best, Plan)
    assert isinstance(flat, Plan)

    per_gpu = [
        plan.performance.output_tokens_per_second / plan.layout.gpus for plan in (best, flat)
    ]
    assert per_gpu[0] > 1.3 * per_gpu[1]


def test_three_ranks_fail_the_heads() -> None:
    excluded = {
        item.code: item.example for item in _report("qwen2.5-7b", a_pool(), a_request()).excluded
    }

    assert "28 attention heads must be divisible by 3 ranks" in excluded["HeadsNotDivisible"]


def test_a_network_like_nvlink_moves_405b_from_pipeline_to_tensor_across_nodes() -> None:
    nvlink = load_gpus()["H100-SXM-80GB"].scale_up
    assert nvlink is not None

    request = a_request(concurrency=32)
    layouts = [
        _degrees("llama-405b", a_pool(nodes=2, network=link), request)
        for link in (a_network(400), nvlink)
    ]

    assert layouts == [(8, 2), (16, 1)]


def test_a_slower_rack_link_moves_405b_from_tensor_to_pipeline() -> None:
    racks = [
        replace(an_nvl72_pool(), gpu=with_scale_up("GB200-NVL-186GB", bytes_per_second=gb * 1e9))
        for gb in (900, 100, 20)
    ]

    (tensor, stages), slower, slowest = (
        _degrees("llama-405b", rack, a_request()) for rack in racks
    )

    assert (tensor, stages) == (8, 1)
    assert tensor > slower[0] > slowest[0]
    assert stages < slower[1] < slowest[1]


def test_nvlink_on_the_l40s_would_make_tensor_8_right() -> None:
    slow = load_gpus()["L40S-48GB"]
    fast: Link = replace(slow.host, bytes_per_second=450e9)

    layouts = [
        _degrees(
            "llama-70b",
            replace(a_pool("L40S-48GB"), gpu=replace(slow, host=host)),
            a_request(THROUGHPUT),
        )
        for host in (slow.host, fast)
    ]

    assert layouts == [(4, 1), (8, 1)]
