"""Slots of adapters: their bytes are those that vLLM's own classes make, per rank and stage."""

from dataclasses import replace

import pytest

from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.weight_bytes import load_bytes_per_node
from shardwright.costs.working_memory import (
    Device,
    LoadedStage,
    overhead_bytes,
    stage_adapter_bytes,
)
from shardwright.costs.workload import Workload, limits_to_try
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import AdapterSlots, EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec
from tests.support.builders_model import catalogued
from tests.support.builders_plan import a_model, vllm_traits
from tests.support.held_memory import replica_memory

H100 = load_gpus()["H100-SXM-80GB"]
LOAD = Workload(input_tokens=2048, output_tokens=512, concurrency=64, max_model_len=3072)


def traits_with(count: int, rank: int) -> EngineTraits:
    return vllm_traits(adapters=AdapterSlots(count=count, rank=rank))


MADE_BY_VLLM = {
    "one GPU": ("meta-llama/Llama-3.1-8B-Instruct", Layout(), 64, (738_852_864,)),
    "tensor and pipeline": ("meta-llama/Llama-3.1-8B-Instruct", Layout(tensor=2, pipeline=2), 64, (260_374_528, 260_374_528)),
    "a tied embedding": ("meta-llama/Llama-3.2-1B-Instruct", Layout(), 16, (61_767_680,)),
    "a tied embedding on two stages": (
        "meta-llama/Llama-3.2-1B-Instruct", Layout(tensor=2, pipeline=2), 64, (93_126_656, 126_484_480)
    ),
    "fewer K/V heads than ranks": ("Qwen/Qwen3-8B", Layout(tensor=4), 64, (452_657_152,)),
    "a class that leaves its vocabulary alone": ("Qwen/Qwen2.5-7B-Instruct", Layout(tensor=2), 64, (412_876_800,)),
    "latent attention and shared experts": ("deepseek-ai/DeepSeek-V2-Lite", Layout(tensor=2, expert=2), 16, (594_745_344,)),
    "experts in slices": ("Qwen/Qwen3-30B-A3B", Layout(tensor=4), 16, (2_701_049_856,)),
    "whole experts": ("Qwen/Qwen3-30B-A3B", Layout(tensor=4, expert=4), 16, (889_110_528,)),
    "ends on every stage": (
        "mistralai/Mixtral-8x7B-Instruct-v0.1", Layout(tensor=4, pipeline=2), 16, (216_965_120, 216_965_120)
    ),
}  # fmt: skip
"""Two slots of a rank: what vLLM 0.32 allocates, built on the meta device (``tests/engine``)."""


@pytest.mark.parametrize("case", MADE_BY_VLLM)
def test_the_bytes_are_those_of_the_engine(case: str) -> None:
    model, layout, rank, made = MADE_BY_VLLM[case]

    assert stage_adapter_bytes(catalogued(model), layout, traits_with(2, rank)) == made


@pytest.mark.parametrize(
    ("model", "layout", "rank", "made"),
    [
        ("microsoft/Phi-3-mini-128k-instruct", Layout(), 64, 420_642_816),
        ("openai/gpt-oss-20b", Layout(tensor=2), 16, 557_727_744),
    ],
    ids=["projections merged on disk", "experts merged on disk"],
)
def test_what_a_class_merges_takes_no_more_than_is_counted(
    model: str, layout: Layout, rank: int, made: int
) -> None:
    (counted,) = stage_adapter_bytes(catalogued(model), layout, traits_with(2, rank))

    assert made <= counted < 1.3 * made


def test_slots_grow_with_their_number_and_their_rank() -> None:
    (one,) = stage_adapter_bytes(a_model(), Layout(), traits_with(1, 8))

    assert stage_adapter_bytes(a_model(), Layout(), traits_with(4, 32)) == (16 * one,)
    assert stage_adapter_bytes(a_model(), Layout(pipeline=2), vllm_traits()) == (0, 0)


def memory_of(model: ModelSpec, traits: EngineTraits, load: Workload = LOAD) -> ReplicaMemory:
    device = Device(gpu=H100, joined_gpus=8)
    return replica_memory(model, Layout(), device, load, traits)


def test_adapters_are_held_beside_the_weights_and_leave_less_for_requests() -> None:
    bare, adapted = (memory_of(a_model(), vllm_traits()), memory_of(a_model(), traits_with(8, 64)))

    (before,), (after,) = bare.stages, adapted.stages
    assert (before.adapter_bytes, after.adapter_bytes) == (0, 4 * 738_852_864)
    assert after.weights_bytes - before.weights_bytes == after.adapter_bytes
    parts = (
        after.weights_bytes + after.activations_bytes + after.overhead_bytes + after.kv_cache_bytes
    )
    assert parts == after.budget_bytes == before.budget_bytes


def test_graphs_are_captured_with_adapters_and_without() -> None:
    limits = next(limits_to_try(LOAD, vllm_traits(), H100, 64))
    device, loaded = (Device(gpu=H100, joined_gpus=8), LoadedStage(layers=32, weights_bytes=0))
    bare, adapted = (
        overhead_bytes(Layout(), device, traits, limits, loaded)
        for traits in (vllm_traits(), traits_with(1, 8))
    )

    assert adapted - bare == bare - vllm_traits().memory.fixed_overhead_bytes


def test_a_batch_holds_the_drafts_of_all_sequences() -> None:
    drafting = replace(LOAD, draft_tokens=16, draft_acceptance=0.5)

    tried = list(limits_to_try(drafting, traits_with(1, 8), H100, 1024))

    assert min(limits.batched_tokens / limits.sequences for limits in tried) == 17
    assert (
        min(
            limits.batched_tokens / limits.sequences
            for limits in limits_to_try(drafting, vllm_traits(), H100, 1024)
        )
        < 17
    )


def test_nothing_of_the_weights_own_changes() -> None:
    assert load_bytes_per_node(a_model(), Layout(), traits_with(8, 64), 8) == load_bytes_per_node(
        a_model(), Layout(), vllm_traits(), 8
    )
