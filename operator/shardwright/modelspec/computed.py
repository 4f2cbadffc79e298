"""The type that the engine computes in, where it is told to take another than the config's."""

from dataclasses import replace
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.spec import ModelSpec
from shardwright.modelspec.tensors import BF16, FP16, FP32

_TYPES: Final = {storage.name: storage for storage in (BF16, FP16, FP32)}

SLOW_FP32: Final = "the model computes in FP32: its speed is predicted with 16-bit rates, which it does not reach"


def computed_in(model: ModelSpec, name: str | None) -> ModelSpec:
    """Return the model as the engine holds it when it computes in ``name`` (bf16, fp16, fp32; None: as it is).

    Weights in the old type are cast, quantized ones and those with a type of their own stay; K/V and activations follow.

    Raises:
        InputError: the weights are quantized and ``name`` is fp32, which the kernels for quantized weights do not take.
    """
    if name is None or name == model.dtype:
        return model
    wide = name == FP32.name
    if wide and model.quantization is not None:
        raise InputError([_quantized(model.quantization)])
    weights = tuple(
        replace(weight, storage=_TYPES[name]) if weight.storage.name == model.dtype else weight for weight in model.weights
    )
    warnings = (*model.warnings, SLOW_FP32) if wide else model.warnings
    return replace(model, weights=weights, dtype=name, warnings=warnings)


def _quantized(method: str) -> Problem:
    return Problem(
        code="QuantizationNotApplicable",
        path="spec.engine.args.dtype",
        what=f"{method} weights are not computed in FP32:",
        limit="the engine's kernels for quantized weights take 16 bits",
        remedy="leave it out, or use weights that are not quantized",
    )
