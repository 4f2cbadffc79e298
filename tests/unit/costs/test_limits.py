"""Limits: what the engine takes by itself on which GPU, and the order in which they are lowered."""

from dataclasses import replace

import pytest

from shardwright.costs.workload import Limits, Workload, default_batch, limits_to_try
from shardwright.engines.vllm.traits import traits
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import EngineOverrides
from tests.support.builders_plan import vllm_traits

LOAD = Workload(input_tokens=2048, output_tokens=512, concurrency=64, max_model_len=3072)


@pytest.mark.parametrize(
    ("gpu", "tokens", "sequences"),
    [
        ("L4-24GB", 2048, 256),
        ("L40S-48GB", 2048, 256),
        ("A100-SXM4-80GB", 2048, 256),  # vLLM leaves the A100 out by name
        ("H100-SXM-80GB", 8192, 1024),
        ("RTX-PRO-6000-BSE-96GB", 8192, 1024),
        ("B200-SXM-180GB", 16384, 1024),
        ("MI300X-192GB", 16384, 1024),
    ],
)
def test_a_gpu_starts_with_the_batch_that_vllm_0_32_takes_on_it(
    gpu: str, tokens: int, sequences: int
) -> None:
    assert default_batch(vllm_traits(), load_gpus()[gpu]) == (tokens, sequences)


def test_sequences_stay_enough_for_the_load_until_the_tokens_are_at_their_fewest() -> None:
    tried = list(limits_to_try(LOAD, vllm_traits(), load_gpus()["H100-SXM-80GB"], 64))

    assert [(limits.batched_tokens, limits.sequences) for limits in tried] == [
        (8192, 1024),
        (4096, 512),
        (2048, 256),
        (1024, 128),
        (1024, 64),
        (1024, 32),
        (1024, 16),
    ]


def test_sequences_that_the_load_needs_are_given_up_last() -> None:
    tried = list(limits_to_try(LOAD, vllm_traits(), load_gpus()["H100-SXM-80GB"], 600))

    assert [(limits.batched_tokens, limits.sequences) for limits in tried[:5]] == [
        (8192, 1024),
        (4096, 1024),
        (2048, 1024),
        (1024, 1024),
        (1024, 512),
    ]


def test_more_requests_than_the_default_raise_the_sequences_and_the_tokens_with_them() -> None:
    first = next(limits_to_try(LOAD, vllm_traits(), load_gpus()["L4-24GB"], 3000))

    assert first == Limits(batched_tokens=4096, sequences=4096, model_len=3072)


def test_an_engine_that_does_not_chunk_prompts_takes_the_longest_whole() -> None:
    old, gpu = traits("0.6.3"), load_gpus()["L4-24GB"]
    short, long = (replace(LOAD, max_model_len=length) for length in (20000, 65536))

    assert {limits.batched_tokens for limits in limits_to_try(short, old, gpu, 1)} == {20000}
    assert next(limits_to_try(long, old, gpu, 1)).batched_tokens == 2048


@pytest.mark.parametrize(
    ("told", "tried"),
    [
        (EngineOverrides(batched_tokens=4096, sequences=32), {(4096, 32)}),
        (
            EngineOverrides(batched_tokens=64),
            {(64, 64), (64, 32), (64, 16)},
        ),  # a batch has a token of every sequence
        (EngineOverrides(sequences=3000), {(8192, 3000), (4096, 3000), (3000, 3000)}),
    ],
)
def test_a_limit_that_the_engine_is_told_stays_and_the_other_leaves_it_room(
    told: EngineOverrides, tried: set[tuple[int, int]]
) -> None:
    traits_told = vllm_traits(told=told)

    found = limits_to_try(LOAD, traits_told, load_gpus()["H100-SXM-80GB"], 64)

    assert {(limits.batched_tokens, limits.sequences) for limits in found} == tried
