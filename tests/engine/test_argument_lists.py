"""Every argument list of every sample and golden is one that vLLM takes, and understands as the
plan means it.
"""

from pathlib import Path
from typing import Any

import pytest

from shardwright.engines.launch import attention_replicas_per_pod
from shardwright.engines.vllm.arguments import DATA_PARALLEL_PORT
from shardwright.engines.vllm.pins import read_pins
from shardwright.engines.vllm.policy import POLICY
from shardwright.layouts.layout import DraftMethod, Layout
from shardwright.modelspec.read import read_model
from shardwright.rendering.volumes import adapter_folders
from tests.engine.launches import VERSIONS, Launch, has_weights_that_draft, launches
from tests.engine.questions import Engine
from tests.support.builders_deployment import a_deployment, a_plan_of
from tests.support.builders_plan import CONFIGS

Engines = dict[str, Engine]


@pytest.fixture(scope="module", autouse=True)
def _asked_ahead(engines: Engines, folder: Path) -> None:
    """Ask every version everything at once, so that none waits for the other."""
    for launch in launches():
        for version, engine in engines.items():
            for rank in launch.ranks():
                engine.ask(launch.of(version).job(rank, folder))


@pytest.mark.parametrize("launch", launches(), ids=lambda launch: launch.id)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_engine_takes_the_arguments_and_means_what_the_plan_means(
    launch: Launch, version: str, engines: Engines, folder: Path
) -> None:
    for rank in launch.ranks():
        answer = engines[version].ask(launch.of(version).job(rank, folder)).result()

        assert answer.get("message", "") == ""
        found = {name: answer["resolved"][name] for name in meant(launch, rank)}
        assert found == meant(launch, rank)


def meant(launch: Launch, rank: int) -> dict[str, Any]:
    plan, layout = launch.plan, launch.plan.layout
    return {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "attentionData": layout.attention_data,
        "context": layout.context,
        "expert": layout.expert > 1,
        **of_the_pod(launch, rank),
        **of_the_numbers(launch),
        "stages": [list(stage.layers) for stage in plan.stages],
        "maxModelLen": plan.max_model_len,
        "maxSequences": plan.max_sequences,
        "maxBatchedTokens": plan.max_batched_tokens,
        "memoryUtilization": plan.memory_utilization,
        "adapters": [list(adapter) for adapter in adapter_folders(launch.deployment)],
        "adapterSlots": len(launch.deployment.serving.adapters.served),
        "adapterRank": launch.deployment.serving.adapters.rank
        if launch.deployment.serving.adapters.served
        else 0,
        "draftTokens": launch.deployment.drafting.draft_tokens or plan.draft_tokens,
        "draftMethod": ENGINES_METHODS[drafts_by]
        if (drafts_by := launch.deployment.drafting.drafts_by)
        else "",
        "draftTensor": layout.tensor if has_weights_that_draft(launch) else 0,
        "loadFormat": launch.deployment.weights.load_format or "auto",
        "servedName": launch.deployment.serving.served_name or launch.deployment.model,
    }


def of_the_pod(launch: Launch, rank: int) -> dict[str, Any]:
    """Return what the engine of one pod is: of replicas of its own, or a part of a world over all
    pods.
    """
    plan, layout = launch.plan, launch.plan.layout
    replica = layout.tensor * layout.pipeline
    if own := attention_replicas_per_pod(plan):
        worlds = {"attentionDataOfPod": own, "attentionDataPort": DATA_PARALLEL_PORT}
        return worlds | {"nodes": 1, "nodeRank": 0, "ranksPerNode": replica}
    return {
        "nodes": plan.nodes_per_replica,
        "nodeRank": rank,
        "ranksPerNode": replica // plan.nodes_per_replica,
    }


def a_refused_launch(layout: Layout, nodes: int = 1, **deployment: Any) -> Launch:
    plan, config = a_plan_of(layout, nodes=nodes), CONFIGS["llama-70b"]
    return Launch(
        id=f"refused {layout}",
        plan=plan,
        deployment=a_deployment(model="llama-70b", **deployment),
        config=config,
    )


ENGINES_METHODS = {
    DraftMethod.PROMPT_LOOKUP: "ngram",
    DraftMethod.DRAFT_MODEL: "draft_model",
    DraftMethod.EAGLE3: "eagle3",
    DraftMethod.MTP: "mtp",
}


ENGINES_WORDS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def of_the_numbers(launch: Launch) -> dict[str, Any]:
    """Return how weights and K/V are held and what the model computes in, as the planner has
    counted them.
    """
    stored, asked = (
        read_model(launch.config, source=launch.id),
        read_pins(launch.deployment.serving.arguments or {}, POLICY),
    )
    return {
        "quantization": launch.deployment.weights.quantization or stored.quantization,
        "cacheDtype": launch.deployment.serving.kv_cache_dtype,
        "dtype": ENGINES_WORDS[asked.dtype or stored.dtype],
    }


def test_each_way_to_hold_weights_and_cache_and_to_compute_is_among_the_launches() -> None:
    numbers = [of_the_numbers(launch) for launch in launches()]

    assert {found["quantization"] for found in numbers} == {None, "fp8"}
    assert {found["cacheDtype"] for found in numbers} == {"auto", "fp8"}
    assert {found["dtype"] for found in numbers} == {"bfloat16", "float16"}
    assert of_the_numbers(named("feature weights quantized while loading"))["quantization"] == "fp8"
    assert of_the_numbers(named("feature K/V in FP8"))["cacheDtype"] == "fp8"
    assert of_the_numbers(named("feature computed in FP16"))["dtype"] == "float16"
    assert of_the_numbers(named("sample deepseek-v3"))["quantization"] == "fp8"


def named(name: str) -> Launch:
    return next(launch for launch in launches() if launch.id == name)


REFUSED = {
    "an option that no parser knows": (
        a_refused_launch(Layout(), arguments={"no-such-option": 1}),
        None,
        "parse",
    ),
    "heads that do not divide": (a_refused_launch(Layout(tensor=7)), None, "config"),
    "experts of a dense model": (a_refused_launch(Layout(tensor=8, expert=8)), None, "config"),
    "fewer layers than the stages say": (
        a_refused_launch(Layout(pipeline=2, partition=(80, 1))),
        None,
        "launch",
    ),
    "key/value heads that do not divide": (
        a_refused_launch(Layout(tensor=16, pipeline=2), nodes=4),
        None,
        "",
    ),
    "a vocabulary that does not divide": (
        Launch(
            id="vocabulary",
            plan=a_plan_of(Layout(tensor=7)),
            deployment=a_deployment(model="qwen2.5-7b"),
            config=CONFIGS["qwen2.5-7b"],
        ),
        0,
        "shapes",
    ),
}
"""Launch, GPU whose part is built, and the stage that refuses it (empty: taken, a control of the
controls).
"""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_start_is_refused_where_it_must_be(
    case: str, version: str, engines: Engines, folder: Path
) -> None:
    launch, shape_of, stage = REFUSED[case]

    answer = engines[version].ask(launch.of(version).job(0, folder, shape_of)).result()

    assert answer.get("stage", "") == stage


def test_nothing_is_left_out() -> None:
    ids = [launch.id for launch in launches()]

    assert sum(name.startswith("sample ") for name in ids) >= 6
    assert sum(name.startswith("golden ") for name in ids) >= 15
    assert any(launch.plan.nodes_per_replica > 1 for launch in launches())
