"""Families with layers of their own: what each layer is, read from published configs."""

import json
from collections import Counter

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.model_spec import (
    DenseFeedForward,
    ExpertFeedForward,
    GroupedAttention,
    LatentAttention,
    ModelSpec,
    PipelineRole,
    RecurrentAttention,
)
from shardwright.modelspec.read import read_model
from tests.support.builders_model import a_config, catalogued, window
from tests.support.oracle import LOOSE


def _loose(name: str) -> ModelSpec:
    return read_model(json.loads((LOOSE / f"{name}.json").read_text()), source=name)


def _attentions(model: ModelSpec) -> Counter[str]:
    return Counter(type(layer.attention).__name__ for layer in model.layers)


def test_qwen_3_5_has_a_recurrent_state_in_three_layers_of_four() -> None:
    model = catalogued("Qwen/Qwen3.5-397B-A17B")
    assert _attentions(model) == {"RecurrentAttention": 45, "GroupedAttention": 15}
    assert model.layers[0].attention == RecurrentAttention(
        heads=64,
        key_heads=16,
        width=2 * 16 * 128 + 2 * 64 * 128 + 2 * 64,
        state_elements=64 * 128 * 128,
        convolution_elements=3 * 12_288,
    )
    assert model.layers[3].attention == GroupedAttention(
        heads=32, kv_heads=2, head_dim=256, value_head_dim=256
    )
    assert (model.architecture, model.experts) == ("Qwen3_5MoeForConditionalGeneration", 512)


def test_the_vision_tower_of_a_wrapper_is_counted_apart() -> None:
    tower = [
        weight
        for weight in catalogued("Qwen/Qwen3.5-27B").weights
        if weight.part is PipelineRole.TOWER
    ]
    assert [weight.elements for weight in tower] == [pytest.approx(460_730_096, rel=0.02)]


def test_llama_4_sees_chunks_but_in_every_fourth_layer() -> None:
    model = catalogued("meta-llama/Llama-4-Maverick-17B-128E-Instruct")
    kinds = [
        layer.attention
        for layer in model.layers[:4]
        if isinstance(layer.attention, GroupedAttention)
    ]
    assert [(kind.window, kind.chunked) for kind in kinds] == [(8192, True)] * 3 + [(None, False)]
    assert [type(layer.feed_forward) for layer in model.layers[:2]] == [
        DenseFeedForward,
        ExpertFeedForward,
    ]
    assert model.layers[0].feed_forward == DenseFeedForward(intermediate=16_384)


def test_llama_4_may_list_its_full_layers() -> None:
    entry = find_model("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    assert entry is not None
    text = entry.config["text_config"]
    assert isinstance(text, dict)
    listed = {**text, "num_hidden_layers": 4, "no_rope_layers": [1, 0, 0, 1]}
    model = read_model({**entry.config, "text_config": listed}, source="a test")
    assert [window(layer) for layer in model.layers] == [8192, None, None, 8192]


def test_an_indexer_selects_and_its_keys_are_known() -> None:
    attention = catalogued("deepseek-ai/DeepSeek-V3.2").layers[0].attention
    assert isinstance(attention, LatentAttention)
    assert (attention.selected_tokens, attention.index_dim, attention.kv_lora_rank) == (
        2048,
        128,
        512,
    )


def test_glm_5_2_shares_an_indexer_among_four_layers() -> None:
    layers = catalogued("zai-org/GLM-5.2-FP8").layers
    latent = [layer.attention for layer in layers if isinstance(layer.attention, LatentAttention)]
    assert len(latent) == 78
    assert [kind.index_dim for kind in latent[:8]] == [128, 128, 128, 0, 0, 0, 128, 0]
    assert {kind.selected_tokens for kind in latent} == {2048}


def test_deepseek_v4_keeps_a_window_and_a_compressed_context() -> None:
    layers = catalogued("deepseek-ai/DeepSeek-V4-Flash").layers
    latent = [layer.attention for layer in layers if isinstance(layer.attention, LatentAttention)]
    assert Counter(kind.compression for kind in latent) == {0: 2, 4: 21, 128: 20}
    assert {kind.window for kind in latent} == {128}
    experts = [
        weight for weight in catalogued("deepseek-ai/DeepSeek-V4-Flash").weights if weight.experts
    ]
    assert {weight.storage.name for weight in experts} == {"mxfp4"}


def test_nemotron_h_has_one_half_in_every_layer() -> None:
    model = catalogued("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert _attentions(model) == {"RecurrentAttention": 23, "NoneType": 23, "GroupedAttention": 6}
    assert all(
        (layer.attention is None) is (layer.feed_forward is not None) for layer in model.layers
    )
    assert model.layers[1].feed_forward == ExpertFeedForward(
        experts=128,
        experts_per_token=6,
        expert_intermediate=1856,
        shared_intermediate=3712,
        matrices=2,
    )


def test_shared_experts_of_nemotron_h_are_as_wide_as_all_of_them() -> None:
    entry = find_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert entry
    block = read_model({**entry.config, "n_shared_experts": 2}, source="a test").layers[1]
    assert isinstance(block.feed_forward, ExpertFeedForward)
    assert block.feed_forward.shared_intermediate == 7424


def test_layers_that_were_cut_away_are_absent() -> None:
    layers = catalogued("nvidia/Llama-3_3-Nemotron-Super-49B-v1").layers
    assert sum(layer.attention is None for layer in layers) == 31
    assert (
        len(
            {
                layer.feed_forward.intermediate
                for layer in layers
                if isinstance(layer.feed_forward, DenseFeedForward)
            }
        )
        > 5
    )


def test_mimo_has_more_key_value_heads_where_it_slides_and_wider_keys_than_values() -> None:
    layers = catalogued("XiaomiMiMo/MiMo-V2-Flash").layers
    full = GroupedAttention(heads=64, kv_heads=4, head_dim=192, value_head_dim=128)
    sliding = GroupedAttention(
        heads=64, kv_heads=8, head_dim=192, value_head_dim=128, window=128, sinks=True
    )
    assert [layer.attention for layer in layers[:6]] == [full, *[sliding] * 4, full]


def test_gemma_4_has_wider_heads_in_full_layers_and_experts_beside_the_dense_block() -> None:
    layers = catalogued("google/gemma-4-26B-A4B").layers
    assert layers[4].attention == GroupedAttention(
        heads=16, kv_heads=8, head_dim=256, value_head_dim=256, window=1024
    )
    assert layers[5].attention == GroupedAttention(
        heads=16, kv_heads=2, head_dim=512, value_head_dim=512
    )
    assert layers[0].feed_forward == ExpertFeedForward(
        experts=128, experts_per_token=8, expert_intermediate=704, shared_intermediate=2112
    )


def test_kimi_k3_has_delta_attention_and_experts_on_a_narrower_width() -> None:
    model = catalogued("moonshotai/Kimi-K3")
    assert _attentions(model) == {"RecurrentAttention": 69, "LatentAttention": 24}
    (down,) = [
        w for w in model.weights if w.layer == 1 and w.name == "block_sparse_moe.experts.down_proj"
    ]
    assert (down.copies, down.outputs, down.inputs, down.storage.name) == (896, 3584, 3072, "mxfp4")


def test_modules_in_groups_of_alternatives_stay_unquantized() -> None:
    model = catalogued("moonshotai/Kimi-K2.5")
    first = {weight.name: weight.storage.name for weight in model.weights if weight.layer == 0}
    assert (first["mlp.gate_proj"], first["self_attn.o_proj"]) == ("bf16", "bf16")
    assert {weight.storage.name for weight in model.weights if weight.experts} == {"int4"}
    assert model.warnings == ()


@pytest.mark.parametrize(
    ("name", "architecture", "layers", "heads"),
    [
        ("EleutherAI--gpt-j-6b", "GPTJForCausalLM", 28, 16),
        ("facebook--opt-125m", "OPTForCausalLM", 12, 12),
        ("tiiuae--falcon-180B", "FalconForCausalLM", 80, 232),
        ("databricks--dbrx-base", "DbrxForCausalLM", 48, 48),
    ],
)
def test_other_spellings_of_the_same_facts_are_read(
    name: str, architecture: str, layers: int, heads: int
) -> None:
    model = _loose(name)
    attention = model.layers[0].attention
    assert (model.architecture, len(model.layers)) == (architecture, layers)
    assert attention is not None
    assert attention.heads == heads


def test_the_usual_name_of_a_field_wins() -> None:
    config = json.loads((LOOSE / "EleutherAI--gpt-j-6b.json").read_text())
    assert len(read_model({**config, "num_hidden_layers": 3}, source="a test").layers) == 3


def test_a_missing_fact_is_named_as_the_config_would_spell_it() -> None:
    config = json.loads((LOOSE / "databricks--dbrx-base.json").read_text())
    del config["n_layers"], config["ffn_config"]["moe_top_k"]
    with pytest.raises(InputError) as refusal:
        read_model(config, source="a test")
    assert [problem.path for problem in refusal.value.problems] == [
        "n_layers",
        "ffn_config.moe_top_k",
    ]


def test_a_plain_decoder_that_is_unknown_by_name_is_read_and_says_so() -> None:
    model = read_model(
        a_config(architectures=["NovelForCausalLM"], hidden_act="silu"), source="a test"
    )
    assert model.parameters == read_model(a_config(), source="a test").parameters
    assert model.warnings == (
        (
            "NovelForCausalLM is not known: read as a plain decoder (gated feed-forward, two "
            "norms a layer)"
        ),
    )


def test_layers_of_a_plain_decoder_slide_where_it_lists_them() -> None:
    kinds = ["sliding_attention", "full_attention"] * 4
    config = a_config(
        architectures=["NovelForCausalLM"], hidden_act="silu", sliding_window=512, layer_types=kinds
    )
    assert [window(layer) for layer in read_model(config, source="a test").layers] == [
        512,
        None,
    ] * 4


@pytest.mark.parametrize(
    "telling",
    [
        {"num_experts": 8},
        {"kv_lora_rank": 512},
        {"layer_types": ["linear_attention"]},
        {"ssm_state_size": 128},
        {"vision_config": {"depth": 2}},
        {"hidden_size": None},
        {"hidden_act": "gelu"},  # two matrices in the feed-forward block
        {"hidden_act": None},
        {"H_cycles": 2},  # layers that are passed several times
        {"num_kv_heads": 2},  # K/V heads under another name
    ],
)
def test_what_a_plain_decoder_does_not_have_is_refused(telling: dict[str, object]) -> None:
    with pytest.raises(InputError) as refusal:
        read_model(
            a_config(**{"architectures": ["NovelForCausalLM"], "hidden_act": "silu", **telling}),
            source="a test",
        )
    assert [problem.code for problem in refusal.value.problems] == ["ArchitectureUnknown"]


def test_lists_shorter_than_the_layers_are_refused_at_their_field() -> None:
    entry = find_model("XiaomiMiMo/MiMo-V2-Flash")
    assert entry is not None
    config = {**entry.config, "moe_layer_freq": [1]}
    with pytest.raises(InputError) as refusal:
        read_model(config, source="a test")
    assert [problem.path for problem in refusal.value.problems] == ["moe_layer_freq"]


def _falcon(**fields: object) -> ModelSpec:
    sizes = {
        "architectures": ["FalconForCausalLM"],
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_kv_heads": 4,
    }
    return read_model(
        {**sizes, "num_hidden_layers": 2, "vocab_size": 4096, **fields}, source="a test"
    )


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({}, 1),  # as of 7B: its config states num_kv_heads, which is not meant
        ({"multi_query": False}, 8),
        ({"new_decoder_architecture": True}, 4),
    ],
)
def test_only_newer_falcons_mean_the_kv_heads_that_they_state(
    fields: dict[str, object], kv_heads: int
) -> None:
    attention = _falcon(**fields).layers[0].attention
    assert isinstance(attention, GroupedAttention)
    assert attention.kv_heads == kv_heads


def test_an_opt_with_an_embedding_of_another_width_is_refused_at_its_field() -> None:
    config = {
        **json.loads((LOOSE / "facebook--opt-125m.json").read_text()),
        "word_embed_proj_dim": 512,
    }
    with pytest.raises(InputError) as refusal:
        read_model(config, source="a test")
    assert [problem.path for problem in refusal.value.problems] == ["word_embed_proj_dim"]


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_a_qwen_slides_only_where_its_switch_is_on(architecture: str) -> None:
    fields = {"architectures": [architecture], "sliding_window": 512, "max_window_layers": 0}
    on, off = (
        read_model(a_config(**fields, use_sliding_window=switch), source="a test")
        for switch in (True, False)
    )
    assert {window(layer) for layer in on.layers} == {512}
    assert {window(layer) for layer in off.layers} == {None}


def test_windows_of_some_layers_of_a_qwen_are_refused_as_vllm_refuses_them() -> None:
    fields = {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512, "max_window_layers": 4}
    with pytest.raises(InputError) as refusal:
        read_model(a_config(**fields, use_sliding_window=True), source="a test")
    assert [problem.path for problem in refusal.value.problems] == ["max_window_layers"]


def test_a_window_of_0_is_none() -> None:
    model = read_model(
        a_config(architectures=["MistralForCausalLM"], sliding_window=0), source="a test"
    )
    assert {window(layer) for layer in model.layers} == {None}


def test_what_a_config_leaves_out_is_what_its_class_fills_in_and_null_is_not() -> None:
    left_out = a_config(architectures=["MistralForCausalLM"])
    assert window(read_model(left_out, source="a test").layers[0]) == 4096
    assert (
        window(read_model({**left_out, "sliding_window": None}, source="a test").layers[0]) is None
    )


def test_biases_of_the_feed_forward_block_are_counted() -> None:
    with_bias, without = (
        read_model(a_config(mlp_bias=bias), source="a test").parameters for bias in (True, False)
    )
    assert with_bias - without == 8 * (1024 + 1024 + 512)


def test_a_head_width_that_the_engine_s_class_does_not_read_is_not_read() -> None:
    attention = (
        read_model(a_config(architectures=["Qwen2ForCausalLM"], head_dim=128), source="a test")
        .layers[0]
        .attention
    )
    assert isinstance(attention, GroupedAttention)
    assert attention.head_dim == 512 // 8


def _wrapped(**text: object) -> dict[str, object]:
    inner = {**a_config(architectures=None), "model_type": "qwen3", "head_dim": 64, **text}
    vision = {"depth": 2, "hidden_size": 128, "intermediate_size": 256, "spatial_merge_size": 2}
    return {
        "architectures": ["NovelForConditionalGeneration"],
        "text_config": inner,
        "vision_config": vision,
    }


def test_a_wrapper_that_is_unknown_by_name_has_the_language_model_that_it_names() -> None:
    model = read_model(_wrapped(), source="a test")
    alone = read_model(a_config(architectures=["Qwen3ForCausalLM"], head_dim=64), source="a test")
    tower = [weight for weight in model.weights if weight.part is PipelineRole.TOWER]
    assert model.architecture == "NovelForConditionalGeneration"
    assert [weight for weight in model.weights if weight.part is not PipelineRole.TOWER] == list(
        alone.weights
    )
    assert sum(weight.elements for weight in tower) > 2 * (4 * 128 * 128 + 3 * 128 * 256)
    assert model.warnings == (
        (
            "NovelForConditionalGeneration is not known: its language model is read as "
            "Qwen3ForCausalLM, "
            "its vision tower by its sizes alone"
        ),
    )


@pytest.mark.parametrize("section", ["llm_config", "language_config"])
def test_a_wrapper_may_call_its_language_model_otherwise_and_name_its_architecture(
    section: str,
) -> None:
    wrapped = _wrapped()
    inner = {**a_config(), "model_type": "novel"}
    model = read_model(
        {"architectures": ["Novel"], section: inner, "vision_config": wrapped["vision_config"]},
        source="a test",
    )
    alone = read_model(a_config(), source="a test")
    assert [weight for weight in model.weights if weight.part is not PipelineRole.TOWER] == list(
        alone.weights
    )


@pytest.mark.parametrize(
    "section", ["audio_config", "sound_config", "speech_config", "audio_encoder_config"]
)
def test_of_a_speaking_model_the_thinker_is_read_and_its_audio_tower_is_said_to_be_left_out(
    section: str,
) -> None:
    thinker = {**_wrapped(architectures=None), section: {"d_model": 64}}
    model = read_model({"architectures": ["NovelOmni"], "thinker_config": thinker}, source="a test")
    assert len(model.layers) == 8
    assert model.warnings[1] == "the audio tower is not counted"


def test_an_audio_tower_is_said_to_be_left_out_of_a_model_that_is_known_by_name_too() -> None:
    inner = {**MUSE, "architectures": None}
    towers = {"vision_config": _wrapped()["vision_config"], "audio_config": {"d_model": 64}}
    config = {
        "architectures": ["MuseGlimmerForConditionalGeneration"],
        "text_config": inner,
        **towers,
    }
    assert read_model(config, source="a test").warnings == ("the audio tower is not counted",)
    assert read_model({**config, "audio_config": None}, source="a test").warnings == ()


@pytest.mark.parametrize(
    ("algorithm", "stored"), [("nvfp4", "nvfp4"), ("NVFP4", "nvfp4"), (None, "mxfp4")]
)
def test_deepseek_v4_stores_its_experts_as_its_quantization_says_in_any_case(
    algorithm: str | None, stored: str
) -> None:
    entry = find_model("deepseek-ai/DeepSeek-V4-Flash")
    assert entry is not None
    section = {"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": algorithm}
    model = read_model({**entry.config, "quantization_config": section}, source="a test")
    assert {weight.storage.name for weight in model.weights if weight.experts} == {stored}


MUSE = a_config(
    architectures=["MuseGlimmerForCausalLM"],
    head_dim=64,
    sliding_window=128,
    layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    * 2,
)


def test_muse_glimmer_has_gated_outputs_and_windows_as_they_are_listed() -> None:
    model = read_model(MUSE, source="a test")
    layer = 512 * 8 * 64 * 3 + 512 * 4 * 64 * 2 + 3 * 512 * 1024 + 4 * 512
    assert model.parameters == 8 * layer + 2 * 4096 * 512 + 512
    assert [window(layer) for layer in model.layers[:4]] == [128, 128, 128, None]


def test_a_wrapper_of_a_language_model_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError) as refusal:
        read_model(_wrapped(model_type="novel"), source="a test")
    assert [problem.code for problem in refusal.value.problems] == ["ArchitectureUnknown"]
