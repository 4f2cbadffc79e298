"""What does an engine's option make of a model: the type to compute in, bits of states, its
towers?

How are the weights stored when the question says so, against the config of another checkpoint?

Which modules that checkpoint leaves unquantized is not known: the common form stands for all.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.model_spec import (
    BF16,
    FP16,
    FP32,
    ModelSpec,
    PipelineRole,
    RecurrentAttention,
    Split,
    Weight,
    WeightFormat,
)
from shardwright.modelspec.quantization import FP8_PER_TENSOR, MXFP4

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


_PLAIN: Final[Mapping[str, WeightFormat]] = MappingProxyType({"bf16": BF16, "fp16": FP16})

_QUANTIZED: Final[Mapping[str, WeightFormat]] = MappingProxyType(
    {
        "fp8": FP8_PER_TENSOR,
        "int8": WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=32),
        "int4": WeightFormat(name="int4", bits=4, block=(1, 128), scale_bits=16),
        "nvfp4": WeightFormat(name="nvfp4", bits=4, block=(1, 16), scale_bits=8),
        "mxfp4": MXFP4,
    }
)
"""The common form of each; sources: ModelOpt (nvfp4: 16 elements share an FP8 scale), AutoAWQ and
GPTQ (groups of 128).
"""

_METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fp8": "fp8",
        "int8": "compressed-tensors",
        "int4": "gptq",
        "nvfp4": "modelopt_fp4",
        "mxfp4": "mxfp4",
    }
)
"""The method that commonly stores each, as configs name it."""

_EXPERTS_FIRST: Final = frozenset({"nvfp4", "mxfp4"})
"""Formats of 4 bits that published mixture-of-experts checkpoints use for the feed-forward blocks
alone.
"""

STORED: Final = (*_PLAIN, *_QUANTIZED)
"""Every name that can be asked for."""


def stored_as(model: ModelSpec, name: str) -> ModelSpec:
    """Return the model with its weights stored as ``name`` says; as it is if they are already.

    >>> from shardwright.modelspec.catalogue import find_model
    >>> from shardwright.modelspec.read import read_model
    >>> model = read_model(find_model("Qwen/Qwen3-8B").config, source="Qwen/Qwen3-8B")
    >>> half = stored_as(model, "int8")
    >>> (half.quantization, {weight.storage.name for weight in half.weights if weight.quantizable})
    ('compressed-tensors', {'int8'})
    """
    stored = {weight.storage.name for weight in model.weights if weight.quantizable}
    # The checkpoint's own list of unquantized modules is better than the common form.
    if name in stored and (model.quantization is not None or name in _PLAIN):
        return model
    plain = _PLAIN[name] if name in _PLAIN else _PLAIN.get(model.dtype, BF16)
    weights = tuple(
        replace(weight, storage=_storage(model, weight, name, plain)) for weight in model.weights
    )
    return replace(model, weights=weights, dtype=plain.name, quantization=_METHODS.get(name))


def _storage(model: ModelSpec, weight: Weight, name: str, plain: WeightFormat) -> WeightFormat:
    if not weight.quantizable:
        return plain if weight.storage.name in _PLAIN else weight.storage
    if name in _PLAIN:
        return plain
    block = weight.experts or (
        weight.layer is not None and not weight.name.startswith("self_attn.")
    )
    return plain if name in _EXPERTS_FIRST and model.experts and not block else _QUANTIZED[name]
