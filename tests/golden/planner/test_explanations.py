"""What the planner says, word by word, to questions of which an expert knows the answer; each file
states its question.

``test_expectations.py`` holds what must not change with the figures; these files show the figures
and the sentences.
"""

from pathlib import Path
from typing import Any

import pytest

from shardwright.hardware.inventory import Pool
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_plan import (
    a_model,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)

HERE = Path(__file__).parent
LATENCY, THROUGHPUT = OptimizeFor.LATENCY, OptimizeFor.THROUGHPUT
L40S_NODE = a_pool("L40S-48GB")
FILLED: dict[str, Any] = {"fill": True, "replicas": 1024}

CASES: dict[str, tuple[str, Pool, Request]] = {
    "405b-on-two-h100-nodes": ("llama-405b", a_pool(nodes=2), a_request()),
    "405b-on-two-h100-nodes-latency": ("llama-405b", a_pool(nodes=2), a_request(LATENCY)),
    "405b-fp8-on-two-h100-nodes": ("llama-405b-fp8", a_pool(nodes=2), a_request(replicas=2)),
    "405b-on-one-node": ("llama-405b", a_pool(), a_request()),
    "70b-on-eight-l40s-throughput": (
        "llama-70b",
        L40S_NODE,
        a_request(THROUGHPUT, max_gpus=8, **FILLED),
    ),
    "70b-on-eight-l40s-latency": ("llama-70b", L40S_NODE, a_request(LATENCY, concurrency=1)),
    "40-heads-on-eight-h100": ("40-heads-110b", a_pool(), a_request()),
    "qwen-7b-on-eight-h100-throughput": (
        "qwen2.5-7b",
        a_pool(),
        a_request(THROUGHPUT, concurrency=1024, max_gpus=8, **FILLED),
    ),
    "qwen-7b-on-eight-h100-latency": ("qwen2.5-7b", a_pool(), a_request(LATENCY, concurrency=1)),
    "qwen3-235b-fp8-on-eight-h100": ("qwen3-235b-fp8", a_pool(), a_request(tensor=8)),
    "deepseek-on-16-h200": (
        "deepseek-v3",
        a_pool("H200-SXM-141GB", 2),
        a_request(THROUGHPUT, concurrency=256, max_gpus=16, **FILLED),
    ),
    "deepseek-on-32-of-a-rack": (
        "deepseek-v3",
        an_nvl72_pool(8),
        a_request(concurrency=1024, max_gpus=32, **FILLED),
    ),
    "8b-on-one-l4": ("llama-8b", a_pool("L4-24GB", gpus_per_node=1), a_request()),
    "70b-with-an-impossible-latency": ("llama-70b", a_pool(), a_request(tpot_seconds=0.001)),
    "70b-with-nothing-free": ("llama-70b", a_pool(nodes=2, free={0: 0, 1: 0}), a_request()),
}


def _asked(model: ModelSpec, pool: Pool, request: Request) -> str:
    """Return the question: model and dtype, engine, GPUs and links, objective, load, replicas."""
    work, space, stored = (request.workload, request.space, model.quantization or model.dtype)
    inside = (
        pool.gpu.scale_up.name if pool.gpu.scale_up and pool.domain_gpus > 1 else pool.gpu.host.name
    )
    replicas = (
        f"all of {space.max_gpus} GPUs"
        if space.fill
        else "replicas planned"
        if space.replicas is None
        else f"{space.replicas} replica{'s' if space.replicas > 1 else ''}"
    )
    pins = f", tensor {space.tensor}" if space.tensor else ""
    gpus = f"{len(pool.nodes)} x {pool.gpus_per_node} {pool.gpu.id}"
    return (
        f"Asked: {model.source} in {stored}, vLLM {vllm_traits().version}, {gpus} "
        f"({inside}, {pool.network.name}); {request.objective.optimize_for}, {work.concurrency} "
        "requests of "
        f"{work.input_tokens:,} + {work.output_tokens:,} tokens, {replicas}{pins}"
    )


def _lines(report: Report) -> list[str]:
    outcome = report.outcome
    if isinstance(outcome, Plan):
        lines = [*outcome.reasons, *(f"Warning: {text}" for text in outcome.warnings)]
        lines += (
            [f"Not deployed: {outcome.undeployable.sentence()}"] if outcome.undeployable else []
        )
    else:
        lines = [
            f"{outcome.problem.code}: {outcome.problem.sentence()}",
            f"Heals by itself: {outcome.heals_by_itself}",
        ]
    for item in report.alternatives:
        layout = item.layout
        cut = (
            f"tensor {layout.tensor}, pipeline {layout.pipeline}, expert {layout.expert}, "
            f"attention data {layout.attention_data}"
        )
        lines.append(f"Next: {cut}, replicas {layout.replicas}: {item.loses}")
    lines.append(f"Considered: {report.considered}")
    return [
        *lines,
        *(
            f"Excluded {item.count} {item.code}: {item.nearest_miss or item.example}"
            for item in report.excluded
        ),
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_explanation(case: str, update_goldens: bool) -> None:  # noqa: FBT001 - a fixture of the suite
    name, pool, request = CASES[case]
    model = a_model(name)
    lines = _lines(make_plan(model, an_inventory(pool), request, vllm_traits()))
    text = "\n".join([_asked(model, pool, request), *lines]) + "\n"
    golden = HERE / f"{case}.txt"
    if update_goldens:
        golden.write_text(text)
    assert text == golden.read_text()
