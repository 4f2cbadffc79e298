"""What does an engine's option make of a model: the type to compute in, bits of states, its
towers?
"""

from dataclasses import replace
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.spec import ModelSpec, PipelineRole, RecurrentAttention, Split
from shardwright.modelspec.tensors import BF16, FP16, FP32

_TYPES: Final = {storage.name: storage for storage in (BF16, FP16, FP32)}

UNCOUNTED_TOWERS: Final = (
    "the vision tower is not counted: planned as a text-only model",
    "the audio tower is not counted",
)
"""What is warned of models whose towers for images and for sound are not counted, in this order."""

SLOW_FP32: Final = (
    "the model computes in FP32: its speed is predicted with 16-bit rates, which it does not reach"
)


def computed_in(model: ModelSpec, name: str | None) -> ModelSpec:
    """Return the model as the engine holds it when it computes in ``name`` (bf16, fp16, fp32; None:
    as is).

    Weights in the old type are cast, quantized ones and those with a type of their own stay; K/V
    and activations follow.

    Raises:
        InputError: ``name`` is fp32, which the kernels for these quantized weights do not take.
    """
    if name is None or name == model.dtype:
        return model
    wide = name == FP32.name
    if wide and model.quantization is not None:
        raise InputError([_quantized(model.quantization)])
    weights = tuple(
        replace(weight, storage=_TYPES[name]) if weight.storage.name == model.dtype else weight
        for weight in model.weights
    )
    warnings = (*model.warnings, SLOW_FP32) if wide else model.warnings
    return replace(model, weights=weights, dtype=name, warnings=warnings)


def without_towers(model: ModelSpec) -> ModelSpec:
    """Return the language model alone: nothing for images or sound is loaded."""
    return replace(
        model,
        weights=tuple(weight for weight in model.weights if weight.part is not PipelineRole.TOWER),
        warnings=tuple(warning for warning in model.warnings if warning not in UNCOUNTED_TOWERS),
    )


def with_whole_towers(model: ModelSpec) -> ModelSpec:
    """Return the model with its whole tower on every rank, each of which works at its own
    images.
    """
    weights = (
        replace(weight, split=Split.REPLICATED) if weight.part is PipelineRole.TOWER else weight
        for weight in model.weights
    )
    return replace(model, weights=tuple(weights))


def with_state_bits(model: ModelSpec, bits: int | None) -> ModelSpec:
    """Return the model with recurrent states of so many bits an element (None: as its config
    says).
    """
    if bits is None:
        return model
    layers = (
        replace(layer, attention=replace(layer.attention, state_bits=bits))
        if isinstance(layer.attention, RecurrentAttention)
        else layer
        for layer in model.layers
    )
    return replace(model, layers=tuple(layers))


def _quantized(method: str) -> Problem:
    return Problem(
        code="QuantizationNotApplicable",
        path="spec.engine.args.dtype",
        what=f"{method} weights are not computed in FP32:",
        limit="the engine's kernels for quantized weights take 16 bits",
        remedy="leave it out, or use weights that are not quantized",
    )
