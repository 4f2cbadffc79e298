"""Reports made by hand: they name what matters to a test of reporting, the rest is plausible."""

from dataclasses import replace

from shardwright.costs.estimates import Performance, StageMemory
from shardwright.costs.workload import Workload
from shardwright.errors import Problem
from shardwright.layouts.layout import Layout, SearchSpace
from shardwright.planning.report import Alternative, Exclusion, NearMiss, NoPlan, Plan, Report
from shardwright.planning.request import Objective, Request
from shardwright.units import GIB


def a_reported_request(*, concurrency: int = 64, objective: Objective | None = None) -> Request:
    workload = Workload(
        input_tokens=2048, output_tokens=512, concurrency=concurrency, max_model_len=3072
    )
    return Request(workload=workload, objective=objective or Objective(), space=SearchSpace())


def a_reported_performance(
    *, output: float = 2314.2, low: float = 1512, high: float = 3090, running: int = 64
) -> Performance:
    return Performance(
        ttft_seconds=0.31,
        tpot_seconds=0.0273,
        output_tokens_per_second=output,
        requests_per_second=output / 512,
        low=low,
        high=high,
        basis="modelled",
        running_requests=running,
        decode_shares=(),
        prefill_shares=(),
    )


def a_reported_stage(
    stage: int, first: int, last: int, *, weights_gib: float = 47.0
) -> StageMemory:
    weights = int(weights_gib * GIB)
    rest = 72 * GIB - weights - 3 * GIB
    return StageMemory(
        stage=stage,
        layers=(first, last + 1),
        weights_bytes=weights,
        activations_bytes=1 * GIB,
        overhead_bytes=2 * GIB,
        kv_cache_bytes=rest,
        budget_bytes=72 * GIB,
        kv_bytes_per_token=64_512,
    )


def a_reported_plan(**changes: object) -> Plan:
    """Return Llama 405B over two nodes of eight H100."""
    plan = Plan(
        layout=Layout(tensor=8, pipeline=2),
        pool="h100-sxm-80gb-8x",
        product="NVIDIA-H100-80GB-HBM3",
        resource="nvidia.com/gpu",
        architecture="amd64",
        groups=(("ip-10-0-1-10", "ip-10-0-1-11"),),
        nodes_per_replica=2,
        gpus_per_node=8,
        tensor_link="NVLink4 NVSwitch",
        pipeline_link="400G RDMA",
        stages=(a_reported_stage(0, 0, 62), a_reported_stage(1, 63, 125, weights_gib=48.5)),
        kv_tokens=331_900,
        max_model_len=3072,
        max_sequences=256,
        max_batched_tokens=8192,
        memory_utilization=0.9,
        load_bytes_per_node=376 * GIB,
        performance=a_reported_performance(),
        carries_load=True,
        reasons=("the only layout that carries the load within the NVLink domain of a node",),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]  # a builder takes any field


def an_exclusion(
    code: str, count: int, nearest_miss: str = "", example: str = "TP4", gap: str = ""
) -> Exclusion:
    nearest = NearMiss(layout=Layout(tensor=8), gap=gap) if gap else None
    return Exclusion(
        code=code, count=count, example=example, nearest_miss=nearest_miss, nearest=nearest
    )


def an_alternative(layout: Layout, loses: str) -> Alternative:
    return Alternative(
        layout=layout,
        pool="h100-sxm-80gb-8x",
        performance=a_reported_performance(output=1208, low=790, high=1600),
        loses=loses,
        product="NVIDIA-H100-80GB-HBM3",
    )


def a_report(outcome: Plan | NoPlan | None = None, **changes: object) -> Report:
    report = Report(
        outcome=outcome or a_reported_plan(),
        alternatives=(
            an_alternative(Layout(tensor=16), "tensor traffic crosses nodes: 48% less output"),
        ),
        excluded=(
            an_exclusion("WeightsExceedMemory", 31, "TP8: 2.1 GiB short", gap="2.1 GiB short"),
            an_exclusion("KvCacheTooSmall", 12),
        ),
        considered=48,
    )
    return replace(report, **changes)  # type: ignore[arg-type]  # a builder takes any field


def a_refusal() -> NoPlan:
    problem = Problem(
        code="WeightsExceedMemory",
        what="93.9 GiB of weights and 2.3 GiB of buffers per GPU",
        limit="must be less than 40.5 GiB",
        gap="55.7 GiB short",
        remedy="add nodes, or take a quantized model",
    )
    return NoPlan(problem=problem, heals_by_itself=False)
