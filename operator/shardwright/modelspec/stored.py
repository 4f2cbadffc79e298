"""How are the weights stored when the question says so, against the config of another checkpoint?

Which modules that checkpoint leaves unquantized is not known: the common form stands for all.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.formats import FP8_PER_TENSOR, MXFP4
from shardwright.modelspec.spec import ModelSpec, Weight, WeightFormat
from shardwright.modelspec.tensors import BF16, FP16

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
