"""A model that is not counted has the bytes that its user states."""

from collections.abc import Mapping
from typing import Any

from shardwright.costs.kvcache import kv_cache
from shardwright.costs.weight_bytes import stage_weight_parts
from shardwright.engines.vllm.traits import traits
from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.stated import ASSUMED_SHARE, StatedBytes, stated_model, total_size

VLLM = traits("0.33.0")


def a_stated_model(config: Mapping[str, Any] | None = None, **said: int) -> ModelSpec:
    stated = {"weight_bytes": 800_000_000, "kv_bytes_per_token": 700, "tensor": 4, "pipeline": 2}
    return stated_model(StatedBytes(longest=4096, **(stated | said)), config or {}, source="acme/x")


def test_a_rank_holds_an_even_share_with_the_margin_and_the_stated_cache_on_every_stage() -> None:
    model, layout = a_stated_model(), Layout(tensor=4, pipeline=2)

    held = [part.total_bytes for part in stage_weight_parts(model, layout, VLLM)]
    caches = [kv_cache(model, layout, stage, "fp8", VLLM) for stage in (0, 1)]

    even = 100_000_000 * ASSUMED_SHARE
    assert [0 <= stage - even < 1000 for stage in held] == [True, True]
    assert [cache.bytes_per_token for cache in caches] == [700, 700]


def test_what_the_config_says_of_sizes_and_storage_is_taken_and_the_rest_assumed() -> None:
    config = {
        "architectures": ["Day0ForCausalLM"],
        "text_config": {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": "odd"},
        "max_position_embeddings": 163840,
        "torch_dtype": "float16",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    model, bare = a_stated_model(config), a_stated_model()

    assert (model.architecture, len(model.layers), model.hidden_size, model.vocabulary) == (
        "Day0ForCausalLM",
        62,
        7168,
        262144,
    )
    assert (model.max_context_tokens, model.dtype, model.quantization) == (163840, "fp16", "fp8")
    assert {weight.storage.name for weight in model.weights} == {"fp8"}
    assert (len(bare.layers), bare.hidden_size, bare.dtype, bare.quantization) == (
        128,
        16384,
        "bf16",
        None,
    )


def test_a_way_to_store_weights_that_is_not_known_is_no_obstacle() -> None:
    odd = {"quantization_config": {"quant_method": "of-tomorrow"}, "dtype": "float4"}
    assert a_stated_model(odd).quantization is None


def test_the_index_says_how_many_bytes_there_are_only_if_it_says_a_number() -> None:
    index = "model.safetensors.index.json"
    sizes = (7, 7.0, "7", -7, 10**16, None)
    found = [total_size({index: {"metadata": {"total_size": size}}}) for size in sizes]
    assert found == [7, 7, None, None, None, None]
    assert [total_size({}), total_size({index: []}), total_size({index: {"metadata": 1}})] == [
        None,
        None,
        None,
    ]
