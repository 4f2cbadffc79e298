"""The K/V cache: bytes per token as vLLM's classes have them, and the block arithmetic of its
scheduler.
"""

import math
from dataclasses import replace

from shardwright.costs.kvcache import NULL_BLOCKS, kv_bytes_per_token, kv_cache
from shardwright.layouts.layout import Layout, Remainder
from tests.support.builders_model import a_config, a_small_model, catalogued, oracle_traits
from tests.support.oracle import CacheCase, OracleCase, cache_cases, oracle_cases

ACCEPTED = [case for case in oracle_cases() if case.accepted]


def test_every_stage_needs_the_bytes_per_token_that_vllm_needs() -> None:
    wrong = {
        (case.name, stage): (ours, theirs)
        for case in ACCEPTED
        for stage, (_, theirs) in enumerate(case.stages)
        if theirs is not None and (ours := _bytes_per_token(case, stage)) != theirs
    }

    assert wrong == {}


def test_as_many_requests_fit_as_vllm_fits() -> None:
    wrong = {
        (case.source, case.layout.tensor, case.kv_cache_dtype): (ours, theirs)
        for case in cache_cases()
        if (ours := _dealt_out(case))
        != (theirs := (case.bytes_per_block, case.blocks_per_request, case.blocks - NULL_BLOCKS))
    }

    assert wrong == {}


def _bytes_per_token(case: OracleCase, stage: int) -> int:
    return kv_bytes_per_token(case.model, case.layout, stage, case.kv_cache_dtype, oracle_traits())


def _dealt_out(case: CacheCase) -> tuple[int, int, int]:
    """Return the bytes of a block, the blocks of a request, and how many there are."""
    cache = kv_cache(case.model, case.layout, 0, case.kv_cache_dtype, oracle_traits())
    cache = replace(cache, in_flight_tokens=case.in_flight_tokens)
    asked = cache.blocks_for_request(case.max_model_len)
    return cache.bytes_per_block, asked, cache.blocks(case.available_bytes)


def test_tokens_fill_all_blocks_but_the_one_that_is_held_back() -> None:
    cache = kv_cache(catalogued("meta-llama/Llama-3.1-8B"), Layout(), 0, "auto", oracle_traits())
    blocks = 1000
    assert cache.bytes_per_block == 131_072 * 16
    assert cache.tokens(blocks * cache.bytes_per_block, 1600) == 999 * 16
    assert cache.tokens(cache.bytes_per_block, 16) == 0


def test_a_request_takes_whole_blocks() -> None:
    cache = kv_cache(a_small_model(), Layout(), 0, "auto", oracle_traits())
    assert [cache.blocks_for_request(tokens) for tokens in (1, 16, 17)] == [1, 1, 2]
    assert cache.bytes_for_request(17) == 2 * cache.bytes_per_block


def test_sliding_layers_keep_their_window_and_what_is_in_flight() -> None:
    model = catalogued("openai/gpt-oss-120b")
    cache = kv_cache(model, Layout(tensor=8), 0, "auto", oracle_traits(max_batched_tokens=2048))
    full = math.ceil(100_000 / 16)
    sliding = math.ceil((128 - 1 + 2 * 2048) / 16) + 1
    assert cache.windows == (128, None)
    assert cache.bytes_per_block == 18 * 4096
    assert cache.blocks_for_request(100_000) == full + sliding


def test_a_window_reaches_back_one_token_less_than_it_is_wide() -> None:
    mistral = a_small_model(architectures=["MistralForCausalLM"], sliding_window=17)
    cache = kv_cache(mistral, Layout(), 0, "auto", oracle_traits(max_batched_tokens=16))
    assert cache.blocks_for_request(8192) == (17 - 1 + 2 * 16) // 16 + 1


def test_a_short_request_takes_no_more_than_its_length_of_a_window() -> None:
    cache = kv_cache(catalogued("openai/gpt-oss-20b"), Layout(), 0, "auto", oracle_traits())
    assert cache.blocks_for_request(160) == 10 + 11


def test_a_rare_kind_of_layer_sets_the_size_of_the_groups() -> None:
    gemma = a_config(
        architectures=["Gemma3ForCausalLM"],
        model_type="gemma3_text",
        num_hidden_layers=62,
        sliding_window=1024,
    )
    model = a_small_model(**gemma)
    cache = kv_cache(model, Layout(), 0, "auto", oracle_traits())
    page = 16 * 2 * 4 * 256 * 2
    assert sorted(cache.windows, key=str) == [1024] * 6 + [None]
    assert cache.bytes_per_block == 10 * page


def test_a_mistral_whose_layers_all_slide_has_one_group() -> None:
    cache = kv_cache(catalogued("mistralai/Mistral-7B-v0.1"), Layout(), 0, "auto", oracle_traits())
    assert cache.windows == (4096,)


def test_fp8_halves_the_bytes() -> None:
    model, traits = a_small_model(), oracle_traits()
    assert kv_bytes_per_token(model, Layout(), 0, "fp8", traits) * 2 == kv_bytes_per_token(
        model, Layout(), 0, "auto", traits
    )


def test_latent_attention_is_repeated_on_every_tensor_rank() -> None:
    model, traits = catalogued("deepseek-ai/DeepSeek-V3-0324"), oracle_traits()
    assert [kv_bytes_per_token(model, Layout(tensor=t), 0, "auto", traits) for t in (1, 8, 16)] == [
        70_272
    ] * 3


def test_a_stage_pays_for_its_own_layers_only() -> None:
    traits = oracle_traits(remainder=Remainder.FIRST)
    sizes = [
        kv_bytes_per_token(a_small_model(), Layout(pipeline=3), stage, "auto", traits)
        for stage in range(3)
    ]
    assert sizes == [3 * 1024, 3 * 1024, 2 * 1024]
