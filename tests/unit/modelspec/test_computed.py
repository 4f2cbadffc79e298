"""The type that a model computes in decides what its unquantized weights take."""

from dataclasses import replace

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.computed import (
    SLOW_FP32,
    UNCOUNTED_TOWERS,
    computed_in,
    with_state_bits,
    with_whole_towers,
    without_towers,
)
from shardwright.modelspec.model_spec import ModelSpec, PipelineRole, RecurrentAttention, Split
from shardwright.modelspec.read import read_model


def a_known_model(name: str) -> ModelSpec:
    entry = find_model(name)
    assert entry is not None
    return read_model(entry.config, source=name)


def test_in_fp32_every_weight_takes_twice_the_bits_and_the_plan_warns_of_the_speed() -> None:
    model = a_known_model("Qwen/Qwen3-8B")

    wide = computed_in(model, "fp32")

    assert [weight.storage.bits for weight in wide.weights] == [
        2 * weight.storage.bits for weight in model.weights
    ]
    assert (wide.dtype, wide.warnings) == ("fp32", (*model.warnings, SLOW_FP32))


def test_the_type_that_it_has_changes_nothing() -> None:
    model = a_known_model("Qwen/Qwen3-8B")

    assert computed_in(model, model.dtype) is model


def test_quantized_weights_stay_and_what_is_not_quantized_is_cast() -> None:
    model = a_known_model("deepseek-ai/DeepSeek-V3")

    cast = computed_in(model, "fp16")

    before, after = ([weight.storage.name for weight in one.weights] for one in (model, cast))
    assert after == ["fp16" if name == "bf16" else name for name in before]
    assert "fp8" in after


def test_quantized_weights_are_not_computed_in_fp32() -> None:
    with pytest.raises(InputError) as caught:
        computed_in(a_known_model("deepseek-ai/DeepSeek-V3"), "fp32")

    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("QuantizationNotApplicable", "spec.engine.args.dtype")


def test_without_towers_the_language_model_is_left_and_nothing_is_said_of_them() -> None:
    model = a_known_model("Qwen/Qwen3.5-27B")
    blind = replace(model, warnings=("another", *UNCOUNTED_TOWERS))

    alone = without_towers(blind)

    assert {weight.part for weight in model.weights} - {
        weight.part for weight in alone.weights
    } == {PipelineRole.TOWER}
    assert alone.layers == model.layers
    assert alone.warnings == ("another",)


def test_a_vision_tower_kept_whole_is_on_every_rank_and_all_else_is_cut_as_before() -> None:
    model = a_known_model("Qwen/Qwen3.5-27B")

    whole = with_whole_towers(model)

    changed = {
        now.part for before, now in zip(model.weights, whole.weights, strict=True) if before != now
    }
    assert changed == {PipelineRole.TOWER}
    assert {weight.split for weight in whole.weights if weight.part is PipelineRole.TOWER} == {
        Split.REPLICATED
    }


def test_states_of_other_bits_take_their_share_and_k_v_stays() -> None:
    model = a_known_model("Qwen/Qwen3.5-27B")

    narrow = with_state_bits(model, 16)

    states = [
        layer.attention.state_bits
        for layer in narrow.layers
        if isinstance(layer.attention, RecurrentAttention)
    ]
    assert set(states) == {16}
    assert len(states) == sum(
        isinstance(layer.attention, RecurrentAttention) for layer in model.layers
    )
    assert with_state_bits(model, None) is model
