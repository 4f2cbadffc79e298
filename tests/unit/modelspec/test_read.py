"""Reading configs: exact facts, and every problem with the path of its field."""

import csv
import json
import math
from pathlib import Path

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import known_ids
from shardwright.modelspec.model_spec import (
    DenseFeedForward,
    ExpertFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    Split,
)
from shardwright.modelspec.read import read_model
from tests.support.builders_model import (
    a_config,
    a_moe,
    a_moe_config,
    a_small_model,
    catalogued,
    window,
)
from tests.support.oracle import LOOSE

PARAMETERS = Path(__file__).parents[2] / "data" / "oracle" / "parameters.csv"


def _problems(config: dict[str, object]) -> dict[str, str]:
    with pytest.raises(InputError) as refusal:
        read_model(config, source="a test")
    return {problem.path: problem.sentence() for problem in refusal.value.problems}


def _published() -> list[tuple[str, int]]:
    with PARAMETERS.open() as file:
        return [(row["id"], int(row["parameters"])) for row in csv.DictReader(file)]


def test_parameters_are_those_that_are_published() -> None:
    published = dict(_published())

    assert {model_id: catalogued(model_id).parameters for model_id in published} == published


STATES_ANOTHER_SIZE = {
    # 48 layers and 12 K/V heads, where the published model has 40 and 8
    "databricks/dbrx-base": 157_970_307_072,
    # published as 30 billion, of which it is 5% more
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31_577_940_288,
}
"""Configs that are not within 2% of the size in the model's name, with what they do state."""


def _sizes() -> list[tuple[str, int]]:
    with PARAMETERS.with_name("published.csv").open() as file:
        return [(row["id"], int(row["parameters"])) for row in csv.DictReader(file)]


def test_every_model_has_its_published_size() -> None:
    wrong = {
        model_id: (counted, expected)
        for model_id, published in _sizes()
        if abs(
            (counted := _counted(model_id))
            - (expected := STATES_ANOTHER_SIZE.get(model_id, published))
        )
        > 0.02 * expected
    }

    assert wrong == {}


def _counted(model_id: str) -> int:
    loose = LOOSE / f"{model_id.replace('/', '--')}.json"
    if loose.exists():
        return read_model(json.loads(loose.read_text()), source=model_id).parameters
    return catalogued(model_id).parameters


def test_every_catalogued_config_is_read() -> None:
    warned = {
        model_id: warnings
        for model_id in known_ids()
        if (warnings := catalogued(model_id).warnings)
    }

    without_tower = ("the vision tower is not counted: planned as a text-only model",)
    assert warned == {name: without_tower for name in known_ids() if "Llama-4" in name}


def test_a_llama_is_read_whole() -> None:
    model = a_small_model()
    attention = GroupedAttention(heads=8, kv_heads=4, head_dim=64, value_head_dim=64)
    layer = Layer(attention=attention, feed_forward=DenseFeedForward(intermediate=1024))
    assert model.layers == (layer,) * 8
    assert (model.architecture, model.model_type, model.source) == (
        "LlamaForCausalLM",
        "llama",
        "a test",
    )
    assert (model.hidden_size, model.vocabulary, model.max_context_tokens) == (512, 4096, 8192)
    assert (model.dtype, model.quantization, model.tied_embeddings, model.experts) == (
        "bf16",
        None,
        False,
        0,
    )
    assert [weight.name for weight in model.weights if weight.layer in (None, 0)] == [
        "model.embed_tokens",
        "model.norm",
        "lm_head",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
        "input_layernorm",
        "post_attention_layernorm",
    ]


def test_deepseek_v3_has_latent_attention_and_three_dense_layers() -> None:
    model = catalogued("deepseek-ai/DeepSeek-V3-0324")
    attention = LatentAttention(
        heads=128, kv_lora_rank=512, rope_dim=64, nope_dim=128, value_head_dim=128, q_lora_rank=1536
    )
    experts = ExpertFeedForward(
        experts=256, experts_per_token=8, expert_intermediate=2048, shared_intermediate=2048
    )
    dense = Layer(attention=attention, feed_forward=DenseFeedForward(intermediate=18432))
    assert model.layers == (dense,) * 3 + (Layer(attention=attention, feed_forward=experts),) * 58
    assert model.quantization == "fp8"
    assert {w.storage.bits for w in model.weights if w.name == "mlp.gate"} == {16}
    assert {
        w.storage.bits for w in model.weights if w.name == "mlp.gate.e_score_correction_bias"
    } == {32}


def test_gpt_oss_slides_on_every_other_layer_and_has_biases_and_sinks() -> None:
    model = catalogued("openai/gpt-oss-120b")
    assert [window(layer) for layer in model.layers[:4]] == [128, None, 128, None]
    of_layer = {weight.name: weight for weight in model.weights if weight.layer == 0}
    assert of_layer["self_attn.sinks"].outputs == 64
    assert of_layer["self_attn.o_proj.bias"].split is Split.REPLICATED
    assert of_layer["self_attn.q_proj"].storage.name == "bf16"
    assert of_layer["mlp.experts.gate_proj"].storage.name == "mxfp4"
    assert of_layer["mlp.experts.gate_proj.bias"].storage.name == "bf16"
    assert of_layer["mlp.router"].storage.name == "bf16"


def test_gemma_3_is_read_out_of_its_text_config_with_its_defaults() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 12,
        "sliding_window": 1024,
    }
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": {},
    }
    model = read_model(config, source="a test")
    windows = [window(layer) for layer in model.layers]
    assert windows == [1024, 1024, 1024, 1024, 1024, None] * 2
    assert isinstance(model.layers[0].attention, GroupedAttention)
    assert model.layers[0].attention.heads == 8
    assert (model.vocabulary, model.max_context_tokens, model.tied_embeddings) == (
        262_208,
        131_072,
        True,
    )
    assert model.warnings == ("the vision tower is not counted: planned as a text-only model",)


def test_layers_that_are_listed_as_dense_have_no_experts() -> None:
    model = a_moe(mlp_only_layers=[0, 3])
    dense = [isinstance(layer.feed_forward, DenseFeedForward) for layer in model.layers]
    assert dense == [True, False, False, True, False, False, False, False]


def test_a_shared_expert_stands_beside_the_routed_ones() -> None:
    model = a_moe(
        architectures=["Qwen2MoeForCausalLM"],
        model_type="qwen2_moe",
        shared_expert_intermediate_size=768,
    )
    assert model.layers[0].feed_forward == ExpertFeedForward(
        experts=16, experts_per_token=2, expert_intermediate=256, shared_intermediate=768
    )
    assert {w.outputs for w in model.weights if w.name == "mlp.shared_expert_gate"} == {1}


def test_tied_embeddings_are_counted_once() -> None:
    assert (
        a_small_model().parameters - a_small_model(tie_word_embeddings=True).parameters
        == 4096 * 512
    )


@pytest.mark.parametrize(
    ("rope", "tokens"),
    [
        (None, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        ({"type": "yarn", "factor": 4.0}, 8192),
        ({"type": "linear", "factor": 4.0}, 32768),
        ({"type": "dynamic", "factor": 2}, 16384),
    ],
)
def test_the_longest_context_is_what_vllm_derives(
    rope: dict[str, object] | None, tokens: int
) -> None:
    assert a_small_model(rope_scaling=rope).max_context_tokens == tokens


@pytest.mark.parametrize(
    ("rope", "tokens"),
    [
        ({"type": "longrope"}, 4096),
        ({"type": "su"}, 4096),
        ({"rope_type": "llama3", "factor": 8.0}, None),
        (None, None),
    ],
)
def test_an_engine_takes_the_context_of_the_training_where_rope_has_two_sets(
    rope: dict[str, object] | None, tokens: int | None
) -> None:
    model = a_small_model(rope_scaling=rope, original_max_position_embeddings=4096)

    assert (model.max_context_tokens, model.own_context_tokens) == (8192, tokens)


def test_the_hash_is_that_of_the_content_and_not_of_its_order() -> None:
    config = a_config()
    turned = dict(reversed(config.items()))
    assert read_model(config, source="a").config_hash == read_model(turned, source="b").config_hash
    assert a_small_model().config_hash != a_small_model(rope_theta=10000.0).config_hash


def test_what_real_configs_hold_beside_the_facts_is_taken() -> None:
    extra = a_small_model(
        rms_norm_eps=1e-05, attention_chunk_size=math.inf, auto_map={"a": "b"}, id2label={"0": "x"}
    )
    assert extra.weights == a_small_model().weights


def test_all_problems_are_found_at_once_with_their_paths() -> None:
    config = a_config(
        num_attention_heads=None, vocab_size="many", num_hidden_layers=-3, torch_dtype="int7"
    )
    assert _problems(config) == {
        "num_attention_heads": "num_attention_heads: missing; give a whole number, 1 to 4096",
        "vocab_size": 'vocab_size: "many" must be a whole number',
        "num_hidden_layers": "num_hidden_layers: -3 must be 1 to 1024",
        "torch_dtype": "torch_dtype: 'int7' must be one of bfloat16, float16, float32",
    }


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (a_config(num_hidden_layers=10**9), "num_hidden_layers"),
        (a_config(num_hidden_layers=True), "num_hidden_layers"),
        (a_config(num_hidden_layers=8.0), "num_hidden_layers"),
        (a_config(hidden_size=math.nan), "hidden_size"),
        (a_config(vocab_size=10**30), "vocab_size"),
        (a_config(num_key_value_heads=3), "num_key_value_heads"),
        (a_config(attention_bias="yes"), "attention_bias"),
        (a_config(rope_scaling=[1]), "rope_scaling"),
        (a_config(rope_scaling={"type": "linear", "factor": 1e30}), "rope_scaling.factor"),
        (a_config(quantization_config={"bits": 4}), "quantization_config.quant_method"),
        (a_config(quantization_config={"quant_method": "gptq"}), "quantization_config.bits"),
        (
            a_config(quantization_config={"quant_method": "gptq", "bits": 4, "desc_act": True}),
            "quantization_config.desc_act",
        ),
        (
            a_config(quantization_config={"quant_method": "fp8", "weight_block_size": [128]}),
            "quantization_config.weight_block_size",
        ),
        (a_moe_config(num_experts=10**9), "num_experts"),
        (a_moe_config(num_experts_per_tok=17), "num_experts_per_tok"),
        (a_moe_config(mlp_only_layers=["all"]), "mlp_only_layers"),
        (
            {"architectures": ["Gemma3ForCausalLM"], "text_config": {"hidden_size": 0}},
            "text_config.hidden_size",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_and_mistaken_values_are_refused_at_their_field(
    config: dict[str, object], path: str
) -> None:
    assert path in _problems(config)


@pytest.mark.parametrize("named", [None, [], ["BertModel"], "LlamaForCausalLM", [1]])
def test_an_architecture_that_cannot_be_read_is_a_problem_of_its_own(named: object) -> None:
    assert list(_problems(a_config(architectures=named))) == ["architectures"]


def test_an_unknown_architecture_is_told_the_nearest_name_and_where_all_are_listed() -> None:
    with pytest.raises(InputError) as refusal:
        read_model(a_config(architectures=["LlamaFooCausalLM"]), source="a test")
    (problem,) = refusal.value.problems
    assert (problem.code, problem.gap) == ("ArchitectureUnknown", "did you mean LlamaForCausalLM?")
    assert "docs/reference/architectures.md" in problem.limit
    assert "spec.model.unproven" in problem.remedy


def test_an_architecture_that_only_ends_like_a_known_one_is_told_no_name() -> None:
    with pytest.raises(InputError) as refusal:
        read_model(a_config(architectures=["WhisperForConditionalGeneration"]), source="a test")
    assert [problem.gap for problem in refusal.value.problems] == [""]


def test_a_list_of_the_kinds_of_layers_says_how_many_there_are_where_nothing_else_does() -> None:
    assert (
        len(a_small_model(num_hidden_layers=None, layer_types=["full_attention"] * 5).layers) == 5
    )
    with pytest.raises(InputError, match="num_hidden_layers: missing"):
        a_small_model(num_hidden_layers=None)
