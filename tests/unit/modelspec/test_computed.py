"""The type that a model computes in decides what its unquantized weights take."""

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.computed import SLOW_FP32, computed_in
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec


def a_model(name: str) -> ModelSpec:
    entry = find_model(name)
    assert entry is not None
    return read_model(entry.config, source=name)


def test_in_fp32_every_weight_takes_twice_the_bits_and_the_plan_warns_of_the_speed() -> None:
    model = a_model("Qwen/Qwen3-8B")

    wide = computed_in(model, "fp32")

    assert [weight.storage.bits for weight in wide.weights] == [2 * weight.storage.bits for weight in model.weights]
    assert (wide.dtype, wide.warnings) == ("fp32", (*model.warnings, SLOW_FP32))


def test_the_type_that_it_has_changes_nothing() -> None:
    model = a_model("Qwen/Qwen3-8B")

    assert computed_in(model, model.dtype) is model


def test_quantized_weights_stay_and_what_is_not_quantized_is_cast() -> None:
    model = a_model("deepseek-ai/DeepSeek-V3")

    cast = computed_in(model, "fp16")

    before, after = ([weight.storage.name for weight in one.weights] for one in (model, cast))
    assert after == ["fp16" if name == "bf16" else name for name in before]
    assert "fp8" in after


def test_quantized_weights_are_not_computed_in_fp32() -> None:
    with pytest.raises(InputError) as caught:
        computed_in(a_model("deepseek-ai/DeepSeek-V3"), "fp32")

    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("QuantizationNotApplicable", "spec.engine.args.dtype")
