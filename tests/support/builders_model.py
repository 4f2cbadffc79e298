"""Models and engines for tests: a small Llama, a small mixture of experts, and the catalogue's
own.
"""

from functools import cache
from typing import Any

from shardwright.engines.vllm.traits import traits
from shardwright.layouts.layout import EngineTraits
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.model_spec import GroupedAttention, LatentAttention, Layer, ModelSpec
from shardwright.modelspec.read import read_model
from tests.support.parts import with_parts


def a_config(**overrides: object) -> dict[str, object]:
    """Return the config of a small Llama; a field given as None is left out."""
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 4096,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    return {name: value for name, value in {**config, **overrides}.items() if value is not None}


def a_moe_config(**overrides: object) -> dict[str, object]:
    """Return the config of a small Qwen3 mixture of 16 experts, 2 of them per token."""
    experts = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "head_dim": 64,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
    }
    return a_config(**{**experts, **overrides})


def a_small_model(**overrides: object) -> ModelSpec:
    """Return a small Llama: 8 layers, 8 heads, 4 K/V heads."""
    return read_model(a_config(**overrides), source="a test")


def a_moe(**overrides: object) -> ModelSpec:
    """Return a small Qwen3 mixture of experts."""
    return read_model(a_moe_config(**overrides), source="a test")


@cache
def catalogued(model_id: str) -> ModelSpec:
    """Return a model of the built-in catalogue; it cannot change, and every test reads the same."""
    entry = find_model(model_id)
    assert entry is not None, model_id
    return read_model(entry.config, source=entry.id)


def oracle_traits(**overrides: object) -> EngineTraits:
    """Return vLLM 0.32.0, the version that the oracle ran."""
    return with_parts(traits("0.32.0"), **overrides)


def window(layer: Layer) -> int | None:
    """Return the window of a layer that has a K/V cache."""
    assert isinstance(layer.attention, GroupedAttention | LatentAttention)
    return layer.attention.window


A_HEAD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
"""An EAGLE-3 head for Llama-3.1-8B, as they are published."""
