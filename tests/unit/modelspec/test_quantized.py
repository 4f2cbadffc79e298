"""How quantized weights are stored: scales, blocks, and the modules that are left alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.model_spec import FP8_PER_HEAD, ModelSpec, WeightFormat
from shardwright.modelspec.quantization import MAX_ENTRIES, MAX_GLOB_BYTES, MAX_PATTERNS, canonical
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model
from shardwright.modelspec.toolkits import with_quantization_file
from tests.support.builders_model import a_config, a_moe, a_small_model, catalogued

CONTRACTS = Path(__file__).parents[2] / "data" / "engines"
BF16 = WeightFormat(name="bf16", bits=16)
FP8 = WeightFormat(name="fp8", bits=8, block=(0, 0), scale_bits=32)
NVFP4 = WeightFormat(name="nvfp4", bits=4, block=(1, 16), scale_bits=8, matrix_bits=64)
MXFP4 = WeightFormat(name="mxfp4", bits=4, block=(1, 32), scale_bits=8)
ALONE = replace(FP8, alone=True)
BLOCK = WeightFormat(name="fp8", bits=8, block=(128, 128), scale_bits=32)


def _storage(model: ModelSpec, name: str, layer: int | None = 0) -> WeightFormat:
    (storage,) = {
        weight.storage for weight in model.weights if weight.name == name and weight.layer == layer
    }
    return storage


def _stored(**quantization: object) -> WeightFormat:
    return _storage(a_small_model(quantization_config=quantization), "mlp.down_proj")


@pytest.mark.parametrize(
    ("quantization", "storage"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, BLOCK),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, FP8),
        (
            {"quant_method": "fp8", "activation_scheme": "static"},
            WeightFormat(name="fp8", bits=8, block=(0, 0), scale_bits=64),
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            WeightFormat(name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=4),
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1},
            WeightFormat(
                name="int8", bits=8, block=(1, 0), scale_bits=16, zero_point_bits=8, alone=True
            ),
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, NVFP4),
        ({"quant_algo": "NVFP4"}, NVFP4),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8"},
            WeightFormat(name="fp8", bits=8, block=(0, 0), scale_bits=64),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            WeightFormat(name="nf4", bits=4, block=(1, 64), scale_bits=32),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=32),
        ),
        (
            {"quant_method": "fbgemm_fp8"},
            WeightFormat(name="fp8", bits=8, block=(1, 0), scale_bits=32),
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {
                    "default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}
                },
            },
            WeightFormat(name="int4", bits=4, block=(1, 64), scale_bits=16, zero_point_bits=16),
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Float8WeightOnlyConfig", "_data": {}}},
            },
            WeightFormat(name="fp8", bits=8, block=(1, 0), scale_bits=32, alone=True),
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True},
            WeightFormat(name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=4),
        ),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "sym": False,
                "packing_format": "auto_round:auto_awq",
            },
            WeightFormat(name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=4),
        ),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}, MXFP4),
        ({"quant_method": "inc", "bits": 8, "group_size": [128, 128], "data_type": "fp8"}, BLOCK),
    ],
)
def test_each_method_has_its_storage(
    quantization: dict[str, object], storage: WeightFormat
) -> None:
    assert _stored(**quantization) == storage


@pytest.mark.parametrize(
    ("weights", "storage"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, ALONE),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, replace(ALONE, block=(1, 0))),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
            replace(BLOCK, alone=True),
        ),
        (
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64},
            WeightFormat(name="int4", bits=4, block=(1, 64), scale_bits=16),
        ),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, NVFP4),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, MXFP4),
    ],
)
def test_compressed_tensors_are_stored_by_strategy(
    weights: dict[str, object], storage: WeightFormat
) -> None:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    assert _stored(quant_method="compressed-tensors", config_groups=groups) == storage


@pytest.mark.parametrize(("activations", "alone"), [({"num_bits": 8}, False), (None, True)])
def test_8_bits_beside_activations_of_16_are_no_product_of_8_bits(
    activations: dict[str, int] | None,
    alone: bool,  # noqa: FBT001
) -> None:
    group = {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float"},
        "input_activations": activations,
    }
    storage = _stored(quant_method="compressed-tensors", config_groups={"group_0": group})
    assert (storage.alone, storage.product) == (alone, "fp8 alone" if alone else "fp8")


def _quark(dtype: str, scheme: str, *, inputs: bool = True, **more: object) -> dict[str, object]:
    """Return how AMD's form says it of all weights, or of some."""
    weight = {"dtype": dtype, "qscheme": scheme, **more}
    return {"weight": weight, "input_tensors": {**weight, "is_dynamic": True} if inputs else None}


QUARK_NVFP4 = [
    {"dtype": "fp4", "qscheme": "per_group", "group_size": 16},
    {"dtype": "fp8_e4m3", "qscheme": "per_tensor"},
]


@pytest.mark.parametrize(
    ("stored", "storage"),
    [
        (_quark("fp8_e4m3", "per_tensor"), FP8),
        (_quark("fp8_e4m3", "per_channel"), replace(FP8, block=(1, 0))),
        (_quark("fp8_e4m3", "per_block", block_size=[128, 128]), BLOCK),
        (
            _quark("int8", "per_channel"),
            WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=32),
        ),
        (
            _quark("uint4", "per_group", inputs=False, group_size=64),
            WeightFormat(name="int4", bits=4, block=(1, 64), scale_bits=16, zero_point_bits=4),
        ),
        (_quark("fp4", "per_group", group_size=32), MXFP4),
        (_quark("fp4", "per_group", inputs=False, group_size=32), MXFP4),
        (
            {
                "weight": [_quark("fp4", "per_group", group_size=32)["weight"]],
                "input_tensors": None,
            },
            MXFP4,
        ),
        ({"weight": QUARK_NVFP4, "input_tensors": QUARK_NVFP4}, NVFP4),
    ],
)
def test_quark_says_by_values_and_scales_how_weights_are_stored(
    stored: dict[str, object], storage: WeightFormat
) -> None:
    assert _stored(quant_method="quark", global_quant_config=stored) == storage


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        (
            _quark("fp8_e4m3", "per_tensor", inputs=False),
            "fp8_e4m3 per_tensor beside plain activations",
        ),
        (
            _quark("int4", "per_group", group_size=128),
            "int4 per_group beside quantized activations",
        ),
        (
            _quark("fp6_e2m3", "per_group", group_size=32),
            "fp6_e2m3 per_group beside quantized activations",
        ),
        (_quark("fp4", "per_group", group_size=16), "fp4 per_group beside quantized activations"),
        (
            {"weight": QUARK_NVFP4[::-1]},
            "fp8_e4m3 per_tensor and fp4 per_group beside plain activations",
        ),
        ({}, "nothing beside plain activations"),
    ],
)
def test_what_of_quark_no_engine_loads_is_refused_with_its_field(
    stored: dict[str, object], what: str
) -> None:
    with pytest.raises(InputError) as refusal:
        _stored(quant_method="quark", global_quant_config=stored)
    (problem,) = refusal.value.problems
    assert (problem.path, problem.what) == ("quantization_config.global_quant_config.weight", what)


def test_quark_stores_modules_that_a_rule_names_or_matches_in_their_own_way() -> None:
    rules = {
        "*self_attn*": _quark("fp8_e4m3", "per_channel"),
        "model.layers.1.mlp.up_proj": _quark("fp8_e4m3", "per_tensor"),
    }
    four = _quark("fp4", "per_group", group_size=32)
    method = {
        "quant_method": "quark",
        "global_quant_config": four,
        "layer_quant_config": rules,
        "exclude": ["lm_head"],
    }
    model = a_small_model(quantization_config=method)
    stored = {
        weight.name: weight.storage
        for weight in model.weights
        if weight.layer == 1 and weight.quantizable
    }
    attention = {f"self_attn.{part}_proj": replace(FP8, block=(1, 0)) for part in "qkvo"}
    assert stored == {
        **attention,
        "mlp.gate_proj": MXFP4,
        "mlp.up_proj": FP8,
        "mlp.down_proj": MXFP4,
    }
    assert model.warnings == ()


def test_a_rule_of_quark_for_experts_speaks_of_all_of_a_layer() -> None:
    four = _quark("fp4", "per_group", group_size=32)
    rules = {
        "*mlp.experts": _quark("fp8_e4m3", "per_tensor"),
        "*down_proj": _quark("int8", "per_channel"),
    }
    model = a_moe(
        quantization_config={
            "quant_method": "quark",
            "global_quant_config": four,
            "layer_quant_config": rules,
        }
    )
    assert {weight.storage.name for weight in model.weights if weight.experts} == {"fp8"}


def test_a_rule_of_autoround_for_one_expert_speaks_of_all_of_its_layer() -> None:
    rules = {f"model.layers.1.mlp.experts.{expert}.gate_proj": {"bits": 8} for expert in range(4)}
    method = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": rules}
    stored = {
        (weight.layer, weight.storage.name)
        for weight in a_moe(quantization_config=method).weights
        if weight.experts
    }
    assert {(0, "int4"), (1, "int8")} <= stored
    assert (1, "int4") not in stored


def test_torchao_leaves_experts_alone() -> None:
    kind = {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}}
    model = a_moe(quantization_config={"quant_method": "torchao", "quant_type": kind})
    assert {weight.storage.name for weight in model.weights if weight.experts} == {"bf16"}
    assert _storage(model, "self_attn.q_proj").name == "int4"


def test_modules_of_autoround_have_bits_by_their_name_its_end_or_a_pattern() -> None:
    rules = {
        "model.layers.0.mlp.down_proj": {"bits": 16},
        "mlp.up_proj": {"bits": 8},
        r".*self_attn\.o_proj": {"bits": 4, "group_size": 64},
    }
    model = a_small_model(
        quantization_config={
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "extra_config": rules,
        }
    )
    assert _storage(model, "mlp.down_proj", 0) == BF16
    assert _storage(model, "mlp.down_proj", 1) == _storage(model, "mlp.gate_proj", 1)
    assert (_storage(model, "mlp.up_proj").name, _storage(model, "mlp.gate_proj").name) == (
        "int8",
        "int4",
    )
    assert _storage(model, "self_attn.o_proj").block == (1, 64)


def test_modules_that_autoround_keeps_in_16_bits_stay() -> None:
    kept = {"model.layers.0.mlp.down_proj": {"bits": 16}}
    model = a_small_model(
        quantization_config={
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "extra_config": kept,
        }
    )
    stored = {
        weight.layer: weight.storage.name
        for weight in model.weights
        if weight.name == "mlp.down_proj"
    }
    assert (stored[0], stored[1], model.warnings) == ("bf16", "int4", ())


@pytest.mark.parametrize(
    ("quantization", "field"),
    [
        ({"quant_method": "quark"}, "global_quant_config"),
        ({"quant_method": "inc", "bits": 8, "group_size": 32, "data_type": "mx_fp"}, "data_type"),
        ({"quant_method": "inc", "bits": 8, "group_size": 128, "data_type": "fp8"}, "group_size"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": False}, "sym"),
        (
            {
                "quant_method": "inc",
                "bits": 4,
                "group_size": 32,
                "data_type": "mx_fp",
                "extra_config": {"lm_head": {"bits": 8}},
            },
            "extra_config.lm_head.bits",
        ),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Mixed"}}}, "quant_type"),
    ],
)
def test_a_type_of_weights_that_is_not_known_is_refused_with_its_field(
    quantization: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as refusal:
        a_small_model(quantization_config=quantization)
    assert refusal.value.problems[0].path.endswith(field)


def test_embeddings_head_norms_and_biases_stay() -> None:
    config = a_config(
        architectures=["Qwen2ForCausalLM"], quantization_config={"quant_method": "fp8"}
    )
    model = a_small_model(**config)
    assert _storage(model, "model.embed_tokens", None) == BF16
    assert _storage(model, "lm_head", None) == BF16
    assert _storage(model, "input_layernorm") == BF16
    assert _storage(model, "self_attn.q_proj.bias") == BF16
    assert _storage(model, "self_attn.q_proj") == FP8


@pytest.mark.parametrize(
    "entry", ["model.layers.0.mlp.gate", "re:.*mlp.gate$", "model.layers.*.mlp.gate", "gate"]
)
def test_a_module_is_left_alone_by_name_by_pattern_or_by_its_last_part(entry: str) -> None:
    model = a_moe(quantization_config={"quant_method": "fp8", "modules_to_not_convert": [entry]})
    assert _storage(model, "mlp.gate") == BF16
    assert _storage(model, "mlp.experts.gate_proj") == FP8


def test_a_listed_module_leaves_all_below_it_alone_and_no_other_layer() -> None:
    model = a_small_model(
        quantization_config={
            "quant_method": "fp8",
            "modules_to_not_convert": ["model.layers.1.self_attn"],
        }
    )
    assert _storage(model, "self_attn.q_proj", 1) == BF16
    assert _storage(model, "self_attn.q_proj", 2) == FP8
    assert _storage(model, "mlp.up_proj", 1) == FP8


def test_an_expression_that_is_more_than_a_glob_is_not_run_but_reported() -> None:
    model = a_small_model(
        quantization_config={"quant_method": "fp8", "ignored_layers": ["re:(a+)+$", "re:.*q_proj"]}
    )
    assert model.warnings == (
        "1 patterns of unquantized modules are taken as matching none, for example re:(a+)+$",
    )
    assert _storage(model, "self_attn.q_proj") == BF16


@pytest.mark.parametrize(
    "entry",
    ["model.layers.{}.mlp*", "re:model\\.layers\\.{}\\.mlp.*", "re:^model.layers.{}.mlp.*$"],
)
def test_a_list_may_name_the_layers_one_by_one(entry: str) -> None:
    listed = [entry.format(f"{layer}") for layer in range(1, 1000)]
    model = a_small_model(quantization_config={"quant_method": "fp8", "ignored_layers": listed})
    assert {
        weight.layer
        for weight in model.weights
        if weight.name == "mlp.up_proj" and weight.storage == FP8
    } == {0}
    assert (_storage(model, "self_attn.q_proj", 1), model.warnings) == (FP8, ())


def test_patterns_that_are_tried_on_every_name_are_bounded_by_their_bytes() -> None:
    patterns = [
        f"re:.*{number:05}.*" for number in range(MAX_GLOB_BYTES // 7 + 1)
    ]  # 7 bytes as a glob
    with pytest.raises(
        InputError,
        match=rf"a star before their end: \d+ bytes must be at most {MAX_GLOB_BYTES} bytes",
    ):
        a_small_model(quantization_config={"quant_method": "fp8", "ignored_layers": patterns})
    assert (
        a_small_model(
            quantization_config={"quant_method": "fp8", "ignored_layers": patterns[1:]}
        ).quantization
        == "fp8"
    )


@pytest.mark.parametrize(
    ("named", "module"),
    [
        ("language_model.model.layers.0*", "model.layers.0*"),
        (
            "model.language_model.layers.3.linear_attn.in_proj_a",
            "model.layers.3.linear_attn.in_proj_a",
        ),
        ("backbone.layers.4.mixer.in_proj", "model.layers.4.mixer.in_proj"),
        ("layers.0.ffn.experts", "model.layers.0.ffn.experts"),
        ("language_model.lm_head", "lm_head"),
        ("model.layers.1.mlp.experts.17.down_proj", "model.layers.1.mlp.experts"),
        ("mlp.gate", "mlp.gate"),
        ("*.self_attn.*", "*.self_attn.*"),
    ],
)
def test_a_module_is_the_same_whatever_a_checkpoint_wraps_its_layers_in(
    named: str, module: str
) -> None:
    assert canonical(named) == module


def test_an_expert_whose_name_has_a_line_break_is_of_its_layers_experts_too() -> None:
    assert (
        canonical("model.layers.0.mlp.experts.1.up\n_proj.experts.2.x\n")
        == "model.layers.0.mlp.experts"
    )


def test_an_unknown_method_has_its_own_code() -> None:
    with pytest.raises(InputError) as refusal:
        a_small_model(quantization_config={"quant_method": "homemade"})
    (problem,) = refusal.value.problems
    assert (problem.code, problem.path) == (
        "QuantizationUnknown",
        "quantization_config.quant_method",
    )


def test_fp8_at_load_time_takes_linear_layers_and_experts() -> None:
    model = apply_quantization(a_moe(), "FP8")
    assert model.quantization == "fp8"
    assert _storage(model, "self_attn.q_proj") == FP8
    assert _storage(model, "mlp.experts.down_proj") == FP8
    assert _storage(model, "self_attn.q_norm") == BF16
    assert _storage(model, "lm_head", None) == BF16


def test_what_is_stored_that_way_already_is_left_as_it_is() -> None:
    deepseek = catalogued("deepseek-ai/DeepSeek-R1")
    assert apply_quantization(deepseek, "FP8") is deepseek
    assert apply_quantization(deepseek, "Auto") is deepseek
    assert apply_quantization(a_small_model(), "BF16") == a_small_model()


def test_fp16_recasts_what_is_not_quantized() -> None:
    model = apply_quantization(a_small_model(), "FP16")
    assert model.dtype == "fp16"
    assert {weight.storage for weight in model.weights} == {WeightFormat(name="fp16", bits=16)}


@pytest.mark.parametrize(
    ("model_id", "wanted"), [("openai/gpt-oss-20b", "FP8"), ("deepseek-ai/DeepSeek-R1", "BF16")]
)
def test_quantized_weights_cannot_become_something_else(model_id: str, wanted: str) -> None:
    with pytest.raises(InputError) as refusal:
        apply_quantization(catalogued(model_id), wanted)
    (problem,) = refusal.value.problems
    assert (problem.code, problem.path) == ("QuantizationNotApplicable", "quantization")


def test_groups_of_modules_are_stored_each_in_its_way() -> None:
    attention = {
        "targets": ["re:.*self_attn.*"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
    }
    rest = {
        "targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
    }
    groups = {"group_0": rest, "group_1": attention}
    model = a_small_model(
        quantization_config={
            "quant_method": "compressed-tensors",
            "config_groups": groups,
            "ignore": ["lm_head"],
        }
    )
    assert _storage(model, "self_attn.o_proj").name == "fp8"
    assert _storage(model, "mlp.down_proj").name == "int4"
    assert _storage(model, "lm_head", None) == BF16


def test_groups_beyond_those_that_are_taken_are_counted_and_not_read() -> None:
    groups = {
        f"group_{number}": {"targets": ["Linear"], "weights": {"num_bits": "odd"}}
        for number in range(4096)
    }
    with pytest.raises(InputError) as refusal:
        a_small_model(
            quantization_config={"quant_method": "compressed-tensors", "config_groups": groups}
        )

    paths = [
        problem.path.removeprefix("quantization_config.") for problem in refusal.value.problems
    ]
    assert len(paths) == 1 + 16
    assert "config_groups" in paths
    assert "4096 groups must be 1 to 16" in str(refusal.value)


def test_the_patterns_of_all_groups_are_bounded_together() -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    groups = {
        f"group_{number}": {
            "targets": [f"re:.*{number}x{index}.*" for index in range(64)],
            "weights": weights,
        }
        for number in range(16)
    }
    with pytest.raises(InputError, match=f"at most {MAX_GLOB_BYTES} together"):
        a_small_model(
            quantization_config={"quant_method": "compressed-tensors", "config_groups": groups}
        )


@pytest.mark.parametrize(("ignored", "storage"), [([], NVFP4), (["lm_head"], BF16)])
def test_modelopt_quantizes_the_head_unless_it_is_listed(
    ignored: list[str], storage: WeightFormat
) -> None:
    model = a_small_model(
        quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignored}
    )
    assert _storage(model, "lm_head", None) == storage


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        {
            "quant_method": "modelopt",
            "quant_algo": "FP8",
            "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
        },
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}
            },
            "kv_cache_scheme": {
                "num_bits": 8,
                "type": "float",
                "strategy": "tensor",
                "symmetric": True,
            },
        },
    ],
)
def test_a_checkpoint_may_ask_for_a_smaller_cache(quantization: dict[str, object]) -> None:
    assert a_small_model(quantization_config=quantization).cache_dtype == "fp8"
    assert a_small_model().cache_dtype is None


SCHEMES = [
    (case["scheme"], case["loads"])
    for version in ("0.32.0", "0.33.0")
    for case in json.loads((CONTRACTS / f"contract-{version}.json").read_text())["schemes"]
]


@pytest.mark.parametrize(("scheme", "loads"), SCHEMES)
def test_a_scheme_of_the_cache_is_taken_where_the_wheel_loads_it(
    scheme: dict[str, object], *, loads: bool
) -> None:
    weights = {"num_bits": 8, "type": "float"}
    config = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "kv_cache_scheme": scheme,
    }

    if loads:
        per_head = scheme["strategy"] == "attn_head"
        expected = FP8_PER_HEAD if per_head else "fp8"
        assert a_small_model(quantization_config=config).cache_dtype == expected
    else:
        with pytest.raises(InputError, match="must be symmetric FP8"):
            a_small_model(quantization_config=config)


def test_a_cache_that_is_asked_to_be_smaller_than_is_counted_widens_the_band() -> None:
    model = a_small_model(
        quantization_config={
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "NVFP4",
        }
    )
    assert (model.cache_dtype, model.warnings) == (
        None,
        ("asks for a K/V cache of NVFP4: counted in the model's type",),
    )


def test_a_pattern_with_too_many_ways_is_left_out_and_said() -> None:
    wide = (
        "re:.*"  # noqa: ISC003
        + "("
        + "|".join("abcdefghij")
        + ")"
        + "("
        + "|".join("abcdefghij")
        + ").*"
    )
    model = a_small_model(
        quantization_config={"quant_method": "fp8", "modules_to_not_convert": [wide]}
    )
    assert len(model.warnings) == 1


@pytest.mark.parametrize(
    ("quantization", "field"),
    [
        ({"quant_method": "modelopt", "quant_algo": "W2A16"}, "quantization_config.quant_algo"),
        ({"quantization": {"quant_algo": "W2A16"}}, "quantization_config.quantization.quant_algo"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
            "quantization_config.quantized_layers",
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"lm_head": {"quant_algo": "W2A16"}},
            },
            "quantization_config.quantized_layers.lm_head.quant_algo",
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "config_groups": {"group_0": {"weights": {"num_bits": 6}, "targets": ["lm_head"]}},
            },
            "quantization_config.config_groups.group_0.weights",
        ),
    ],
)
def test_an_algorithm_of_nvidia_that_is_not_known_is_refused(
    quantization: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as refusal:
        a_small_model(quantization_config=quantization)
    assert refusal.value.problems[0].path == field


STATIC_FP8 = WeightFormat(name="fp8", bits=8, block=(0, 0), scale_bits=64)


@pytest.mark.parametrize(
    ("algorithm", "storage"),
    [
        ("FP8", STATIC_FP8),
        ("fp8_pb_wo", BLOCK),
        ("FP8_PER_CHANNEL_PER_TOKEN", replace(FP8, block=(1, 0))),
        ("W4A16_NVFP4", NVFP4),
        ("MXFP8", WeightFormat(name="fp8", bits=8, block=(1, 32), scale_bits=8)),
    ],
)
def test_each_algorithm_of_nvidia_has_its_storage(algorithm: str, storage: WeightFormat) -> None:
    assert _stored(quant_method="modelopt", quant_algo=algorithm) == storage


BY_MODULE: dict[str, object] = {
    "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    "model.language_model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
    "model.language_model.layers.1.mlp.down_proj": {"quant_algo": "FP8"},
    "lm_head": {"quant_algo": "NVFP4", "group_size": 16},
}
BY_GROUP: dict[str, object] = {
    "group_0": {
        "weights": {"num_bits": 8, "type": "float"},
        "targets": [
            "model.language_model.layers.0.self_attn.q_proj",
            "model.language_model.layers.1.mlp.down_proj",
        ],
    },
    "group_1": {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
        "targets": ["model.language_model.layers.0.mlp.down_proj", "lm_head"],
    },
}


@pytest.mark.parametrize("says", [{"quantized_layers": BY_MODULE}, {"config_groups": BY_GROUP}])
def test_mixed_precision_stores_each_module_as_it_is_named_and_leaves_all_others_alone(
    says: dict[str, object],
) -> None:
    ignored = ["model.language_model.layers.1*"]
    model = a_small_model(
        quantization_config={
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "ignore": ignored,
            **says,
        }
    )
    stored = {
        (weight.layer, weight.name): weight.storage
        for weight in model.weights
        if weight.storage != BF16
    }
    assert stored == {
        (0, "self_attn.q_proj"): STATIC_FP8,
        (0, "mlp.down_proj"): NVFP4,
        (None, "lm_head"): NVFP4,
    }


@pytest.mark.parametrize(
    ("weights", "targets", "field"),
    [
        ({"num_bits": 8, "type": "int"}, ["lm_head"], "weights"),
        ({"num_bits": 8}, ["lm_head"], "weights"),
        ({"num_bits": 8, "type": "float", "group_size": 32}, ["lm_head"], "weights"),
        ({"num_bits": 4, "type": "float", "group_size": 32}, ["lm_head"], "weights"),
        ({"num_bits": 4, "type": "float"}, ["lm_head"], "weights"),
        ({"num_bits": 8, "type": "float"}, ["lm_head", "Linear"], "targets"),
        ({"num_bits": 8, "type": "float"}, ["re:.*mlp.*"], "targets"),
        ({"num_bits": 8, "type": "float"}, [], "targets"),
    ],
)
def test_a_group_of_a_mixture_that_is_no_fp8_or_nvfp4_of_named_modules_is_refused(
    weights: dict[str, object], targets: list[str], field: str
) -> None:
    groups = {"group_0": {"weights": weights, "targets": targets}}
    with pytest.raises(InputError) as refusal:
        a_small_model(
            quantization_config={"quant_algo": "MIXED_PRECISION", "config_groups": groups}
        )
    assert refusal.value.problems[0].path == f"quantization_config.config_groups.group_0.{field}"


@pytest.mark.parametrize("named", ["mlp.experts", "mlp.experts.0.up_proj", "mlp.gate_proj"])
def test_mixed_precision_may_name_experts_as_one_one_by_one_or_beside_their_module(
    named: str,
) -> None:
    layers: dict[str, object] = {f"model.layers.1.{named}": {"quant_algo": "NVFP4"}}
    model = a_moe(quantization_config={"quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert _storage(model, "mlp.experts.gate_proj", 1) == NVFP4
    assert _storage(model, "mlp.experts.gate_proj", 0) == BF16


def test_the_file_beside_the_config_says_how_weights_are_stored_where_the_config_does_not() -> None:
    inner = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head", "model.layers.0*"],
    }
    beside = {"producer": {"name": "modelopt"}, "quantization": inner}
    model = read_model(
        {"config.json": a_config(), "hf_quant_config.json": beside}, source="a folder"
    )
    assert (_storage(model, "mlp.down_proj", 0), _storage(model, "mlp.down_proj", 1)) == (
        BF16,
        NVFP4,
    )
    assert (_storage(model, "lm_head", None), model.quantization, model.cache_dtype) == (
        BF16,
        "modelopt",
        "fp8",
    )


def test_a_file_that_names_no_module_that_stays_unquantized_widens_the_band() -> None:
    def warnings(**listed: object) -> tuple[str, ...]:
        beside = {"quantization": {"quant_algo": "NVFP4", **listed}}
        return read_model(
            {"config.json": a_config(), "hf_quant_config.json": beside}, source="a folder"
        ).warnings

    assert warnings() == (
        "the file beside the config names no module that stays unquantized: bytes may be off",
    )
    assert warnings(exclude_modules=[]) == ()


def test_the_configs_own_section_goes_before_the_file_beside_it() -> None:
    beside = {"quantization": {"quant_algo": "NVFP4"}}
    own = a_config(quantization_config={"quant_method": "fp8"})
    assert with_quantization_file(own, beside) == own


def test_what_a_mixture_leaves_out_comes_from_the_file_beside_it() -> None:
    own = a_config(
        quantization_config={"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    )
    joined = with_quantization_file(
        own, {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": BY_MODULE}}
    )
    assert _storage(a_small_model(**joined), "mlp.down_proj") == NVFP4


@pytest.mark.parametrize(
    "beside",
    [{"quantization": {"quant_algo": None, "exclude_modules": []}}, {"quant_algo": None}, {}],
)
def test_a_file_that_names_no_algorithm_stands_beside_unquantized_weights(
    beside: dict[str, object],
) -> None:
    model = read_model({"config.json": a_config(), "hf_quant_config.json": beside}, source="a test")
    assert model == a_small_model()


@pytest.mark.parametrize(
    "own", [{"quant_method": "fp8"}, {"quant_algo": "MIXED_PRECISION", "config_groups": {}}]
)
def test_a_file_that_adds_nothing_leaves_the_config_as_it_is(own: dict[str, object]) -> None:
    config = a_config(quantization_config=own)
    assert with_quantization_file(config, {"quantization": {"quant_algo": "NVFP4"}}) is config


def test_a_quantization_file_changes_the_hash_of_the_model_and_not_that_of_its_config() -> None:
    beside = {"quantization": {"quant_algo": "NVFP4"}}
    model = read_model({"config.json": a_config(), "hf_quant_config.json": beside}, source="a test")
    assert (
        model.config_hash
        != model.config_file_hash
        == a_small_model().config_file_hash
        == a_small_model().config_hash
    )


def test_files_of_a_model_that_are_no_objects_are_refused() -> None:
    with pytest.raises(InputError, match=r"config\.json and hf_quant_config\.json must be objects"):
        read_model({"config.json": a_config(), "hf_quant_config.json": []}, source="a folder")


def test_a_module_that_is_one_here_and_several_in_the_checkpoint_is_left_alone_by_their_names() -> (
    None
):
    listed = [f"model.layers.0.linear_attn.in_proj_{part}" for part in "ab"]
    entry = find_model("Qwen/Qwen3.5-27B")
    assert entry is not None
    method = {"quant_method": "fp8", "modules_to_not_convert": listed}
    model = read_model({**entry.config, "quantization_config": method}, source="a model")
    assert _storage(model, "linear_attn.in_proj_ba", 0).name == "bf16"
    assert _storage(model, "linear_attn.in_proj_ba", 1).name == "fp8"


_FUSED = ["model.layers.1.self_attn.qkv_proj", "model.layers.1.mlp.gate_up_proj"]


@pytest.mark.parametrize(
    "method",
    [
        {"quant_method": "fp8", "modules_to_not_convert": _FUSED},
        {"quant_algo": "FP8", "ignore": _FUSED},
    ],
)
def test_what_is_one_module_in_the_engine_is_left_alone_by_that_name(
    method: dict[str, object],
) -> None:
    model = a_small_model(quantization_config=method)
    alone = {w.name for w in model.weights if w.layer == 1 and w.quantizable and w.storage == BF16}
    assert alone == {*(f"self_attn.{part}_proj" for part in "qkv"), "mlp.gate_proj", "mlp.up_proj"}


def test_a_mixture_may_name_what_is_one_module_in_the_engine() -> None:
    layers = {name: {"quant_algo": "FP8"} for name in _FUSED}
    model = a_small_model(
        quantization_config={"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    )
    stored = {(w.layer, w.name) for w in model.weights if w.storage == STATIC_FP8}
    assert stored == {(1, f"self_attn.{part}_proj") for part in "qkv"} | {
        (1, "mlp.gate_proj"),
        (1, "mlp.up_proj"),
    }


def test_a_bare_name_of_a_merged_module_leaves_experts_alone_no_more_than_their_own_names_do() -> (
    None
):
    model = a_moe(
        quantization_config={"quant_method": "fp8", "modules_to_not_convert": ["gate_up_proj"]}
    )
    assert {w.storage.name for w in model.weights if w.experts} == {"fp8"}


def _stored_by_name(method: dict[str, object]) -> dict[str, str]:
    model = a_small_model(quantization_config={"bits": 4, "group_size": 128, **method})
    return {w.name: w.storage.name for w in model.weights if w.layer == 1 and w.quantizable}


def test_awq_leaves_alone_what_has_an_entry_in_its_name_or_in_that_of_the_merged_module() -> None:
    stored = _stored_by_name(
        {"quant_method": "awq", "modules_to_not_convert": ["mlp.gate", "self_attn.o_proj"]}
    )
    assert {name for name, how in stored.items() if how == "bf16"} == {
        "mlp.gate_proj",
        "mlp.up_proj",
        "self_attn.o_proj",
    }


def test_awq_leaves_routers_alone_and_not_the_experts_whose_matrices_are_named_alike() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"]}
    model = a_moe(quantization_config=awq)
    assert {w.storage.name for w in model.weights if w.experts} == {"int4"}
    assert {w.storage.name for w in model.weights if w.name == "mlp.gate"} == {"bf16"}


def test_rules_of_gptq_leave_modules_alone_or_change_their_bits() -> None:
    rules = {r"-:.*self_attn.*": {}, r"+:.*\.down_proj$": {"bits": 8, "group_size": 64}}
    stored = _stored_by_name({"quant_method": "gptq", "dynamic": rules})
    assert {name for name, how in stored.items() if how == "bf16"} == {
        f"self_attn.{x}_proj" for x in "qkvo"
    }
    assert (stored["mlp.down_proj"], stored["mlp.up_proj"]) == ("int8", "int4")


def test_a_rule_of_gptq_that_is_more_than_a_glob_is_warned_of() -> None:
    method = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {r"+:.*\.(?:1[0-5])\..*": {"bits": 8}},
    }
    assert (
        "1 rules for single modules are not followed"
        in a_small_model(quantization_config=method).warnings[0]
    )


def test_rules_beyond_those_that_are_followed_are_warned_of() -> None:
    method = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {f"-:{n}": {} for n in range(MAX_PATTERNS + 1)},
    }
    assert (
        f"for example re:{MAX_PATTERNS}: bytes may be off"
        in a_small_model(quantization_config=method).warnings[0]
    )


def test_of_two_rules_of_gptq_for_the_same_modules_the_first_counts() -> None:
    rules = {r"+:.*mlp.*": {"bits": 8}, r"-:.*mlp.*": {}}
    model = a_small_model(
        quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": rules}
    )
    assert _storage(model, "mlp.down_proj").name == "int8"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (
            {"quant_method": "gptq", "dynamic": {"+:.*": {"bits": "eight"}}},
            "quantization_config.dynamic.+:.*.bits",
        ),
        (
            {
                "quant_method": "awq",
                "modules_to_not_convert": [str(n) for n in range(MAX_ENTRIES + 1)],
            },
            "quantization_config.modules_to_not_convert",
        ),
    ],
)
def test_rules_that_are_wrong_or_too_many_are_refused_at_their_field(
    method: dict[str, object], path: str
) -> None:
    with pytest.raises(InputError) as refusal:
        a_small_model(quantization_config={"bits": 4, "group_size": 128, **method})
    assert [problem.path for problem in refusal.value.problems] == [path]
