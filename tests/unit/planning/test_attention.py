"""Kinds of attention that the engine has no kernels for on a GPU are refused, and no others."""

from dataclasses import replace

import pytest

from shardwright.engines.vllm.traits import traits as of_version
from shardwright.errors import Problem
from shardwright.hardware.gpus import Gpu, load_gpus
from shardwright.layouts.layout import Drafter
from shardwright.modelspec.model_spec import FP8_PER_HEAD, LatentAttention, ModelSpec
from shardwright.planning.attention import attention_needs, attention_problems
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from tests.support.builders_model import catalogued
from tests.support.builders_plan import a_pool, a_request, an_inventory, vllm_traits

V32 = "deepseek-ai/DeepSeek-V3.2"
V4 = "deepseek-ai/DeepSeek-V4-Flash"
DENSE = "deepseek-ai/DeepSeek-V3"
VERSIONS = ("0.32.0", "0.33.0")


def _problems(
    model: ModelSpec | str, gpu: Gpu | str, cache: str = "auto", version: str = "0.33.0"
) -> list[Problem]:
    spec = catalogued(model) if isinstance(model, str) else model
    row = load_gpus()[gpu] if isinstance(gpu, str) else gpu
    return list(attention_problems(spec, row, cache, of_version(version)))


def _selecting(tokens: int) -> ModelSpec:
    model = catalogued(V32)
    layers = tuple(
        replace(layer, attention=replace(layer.attention, selected_tokens=tokens))
        if isinstance(layer.attention, LatentAttention)
        else layer
        for layer in model.layers
    )
    return replace(model, layers=layers, config_hash=f"selecting {tokens}")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "gpu",
    ["A100-SXM4-80GB", "A40-48GB", "L40S-48GB", "RTX-4090-24GB", "RTX-3090-24GB", "MI250-128GB"],
)
@pytest.mark.parametrize("model", [V32, V4])
def test_sparse_attention_is_refused_where_no_backend_serves_it(
    model: str, gpu: str, version: str
) -> None:
    assert [each.code for each in _problems(model, gpu, version=version)] == [
        "AttentionNotSupported"
    ]
    assert _problems(DENSE, gpu, version=version) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gpu", ["H100-SXM-80GB", "H20-96GB", "B200-SXM-180GB", "MI300X-192GB"])
@pytest.mark.parametrize("model", [V32, V4, DENSE])
def test_sparse_attention_runs_where_a_backend_serves_it(
    model: str, gpu: str, version: str
) -> None:
    assert _problems(model, gpu, version=version) == []


def test_capability_12_serves_2048_selected_tokens_alone() -> None:
    assert _problems(_selecting(2048), "RTX-PRO-6000-BSE-96GB") == []
    (problem,) = _problems(_selecting(1024), "RTX-PRO-6000-BSE-96GB")
    assert problem.what == "sparse latent attention with heads of 576, 1024 tokens selected"


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "MiniMaxAI/MiniMax-M3", DENSE])
@pytest.mark.parametrize("gpu", ["T4-16GB", "A100-SXM4-80GB", "L40S-48GB", "RTX-5090-32GB"])
def test_sinks_blocks_and_dense_latent_vectors_run_on_older_gpus(model: str, gpu: str) -> None:
    assert _problems(model, gpu) == []


def test_a_scale_for_every_head_of_the_cache_needs_newer_gpus_than_fp8_alone() -> None:
    model = replace(
        catalogued("Qwen/Qwen3-8B"), cache_dtype=FP8_PER_HEAD, config_hash="a scale for every head"
    )

    (problem,) = _problems(model, "L40S-48GB")

    assert problem.sentence() == (
        "spec.engine.kvCacheQuantization: attention with heads of 128, K/V in FP8 with a scale for "
        "every head is served by no backend of vLLM 0.33.0 on L40S-48GB (8.9), only on 9.0, 10.0, "
        "10.3, 10.7; leave the K/V cache in 16 bits, or select other GPUs"
    )
    assert _problems(model, "H100-SXM-80GB") == []
    assert _problems(model, "L40S-48GB", "bf16") == []
    assert _problems("Qwen/Qwen3-8B", "L40S-48GB", "fp8") == []


def test_what_nobody_asked_about_refuses_nothing() -> None:
    unknown = replace(load_gpus()["A100-SXM4-80GB"], compute_capability=(13, 0))

    assert _problems(V32, unknown) == []
    assert _problems(_selecting(100), "A100-SXM4-80GB") == []
    assert _problems(V32, "A100-SXM4-80GB", version="0.99.0") == []


def test_the_attention_of_what_drafts_counts() -> None:
    drafting = vllm_traits(drafter=Drafter(model=catalogued(V32)))

    found = attention_problems(catalogued(DENSE), load_gpus()["A100-SXM4-80GB"], "auto", drafting)

    assert [each.code for each in found] == ["AttentionNotSupported"]


def test_every_model_of_the_catalogue_asks_what_was_asked_of_the_wheel() -> None:
    backends = of_version("0.33.0").support.backends
    assert backends is not None
    names = (V32, V4, DENSE, "openai/gpt-oss-120b", "MiniMaxAI/MiniMax-M3", "Qwen/Qwen3.5-27B")

    needs = {need for name in names for need in attention_needs(catalogued(name), "auto")}

    assert needs - backends.serving.keys() == set()


def test_a_plan_on_such_gpus_says_which_gpus_would_do() -> None:
    stock = an_inventory(a_pool("A100-SXM4-80GB", nodes=4))

    found = make_plan(catalogued(V32), stock, a_request(), vllm_traits()).outcome

    assert isinstance(found, NoPlan)
    assert found.problem.code == "AttentionNotSupported"
    assert found.problem.gap.startswith("only on 9.0, 10.0, 10.3, 10.7, 12.0, 12.1")
    assert not found.heals_by_itself


@pytest.mark.parametrize(
    ("gpu", "model", "said"),
    [("MI300X-192GB", V32, True), ("MI300X-192GB", DENSE, False), ("H200-SXM-141GB", V32, False)],
)
def test_a_plan_for_sparse_attention_on_amd_says_what_must_be_switched_on(
    gpu: str, model: str, *, said: bool
) -> None:
    found = make_plan(
        catalogued(model), an_inventory(a_pool(gpu)), a_request(), vllm_traits()
    ).outcome

    assert isinstance(found, Plan)
    assert any("VLLM_ROCM_USE_AITER" in warning for warning in found.warnings) is said
