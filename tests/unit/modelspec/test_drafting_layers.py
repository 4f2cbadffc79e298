"""MTP layers and EAGLE-3 heads: their bytes are those of vLLM's own classes, and what is refused.

The bytes were read off the classes of vLLM 0.33 (``make test-engine`` asks them again).
"""

from typing import Any

import pytest

from shardwright.errors import InputError
from shardwright.layouts.layout import Layout
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.eagle import read_eagle
from shardwright.modelspec.model_spec import GroupedAttention, LatentAttention, ModelSpec
from shardwright.modelspec.read import read_predictor
from tests.support.builders_model import A_HEAD
from tests.support.builders_plan import vllm_traits
from tests.support.held_memory import stage_weight_bytes


def predictor(model: str) -> ModelSpec | None:
    entry = find_model(model)
    assert entry is not None
    return read_predictor(entry.config, source=model)


def test_the_mtp_layers_of_deepseek_have_the_bytes_of_the_engines_class() -> None:
    layers = predictor("deepseek-ai/DeepSeek-V3")

    assert layers is not None
    held = stage_weight_bytes(layers, Layout(tensor=8), vllm_traits())
    assert held == (1_661_047_968,)


def test_an_eagle_3_head_has_the_bytes_of_the_engines_class() -> None:
    head = read_eagle(A_HEAD, source="acme/head", vocabulary=128_256)

    assert stage_weight_bytes(head, Layout(tensor=2), vllm_traits()) == (1_000_630_272,)


def test_mtp_layers_of_a_hybrid_keep_the_whole_context() -> None:
    layers = predictor("Qwen/Qwen3.5-27B")

    assert layers is not None
    (layer,) = layers.layers
    assert isinstance(layer.attention, GroupedAttention)
    assert layer.attention.window is None


def test_a_model_without_mtp_layers_has_none() -> None:
    assert predictor("meta-llama/Llama-3.1-8B-Instruct") is None


def test_a_head_with_the_vocabulary_of_its_target_holds_no_map_to_it() -> None:
    whole = {name: value for name, value in A_HEAD.items() if name != "draft_vocab_size"}
    names = (
        {weight.name for weight in read_eagle(config, source="a", vocabulary=128_256).weights}
        for config in (A_HEAD, whole)
    )

    assert ["d2t" in each for each in names] == [True, False]


def test_a_head_of_latent_attention_keeps_latent_vectors() -> None:
    latent = A_HEAD | {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    head = read_eagle(latent, source="acme/head", vocabulary=128_256)

    assert isinstance(head.layers[0].attention, LatentAttention)
    (queries,) = (w for w in head.weights if w.name == "self_attn.q_a_proj")
    assert (queries.outputs, queries.inputs) == (1536, 2 * 4096)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["EagleLlamaForCausalLM"]}, "is no EAGLE-3 head"),
        ({"quantization_config": {"quant_method": "fp8"}}, "a quantized head"),
        ({"intermediate_size": "wide"}, "must be a whole number"),
    ],
)
def test_a_head_that_cannot_be_counted_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_eagle(A_HEAD | changes, source="acme/head", vocabulary=128_256)

    assert said in caught.value.problems[0].sentence()
