"""What stands for a model that cannot be counted? What its user states: bytes of weights, and of
K/V per token, at pinned degrees.

Its layers are alike and of nothing but these bytes, so that memory is judged as that of any other
model. Nothing of it divides anything, and no time follows from it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from shardwright.modelspec.checkpoint_files import LARGEST_BYTES
from shardwright.modelspec.config_json import CONTEXT, INDEX_FILE, LAYERS, VOCABULARY, WIDTH, Bounds
from shardwright.modelspec.model_spec import (
    Layer,
    ModelSpec,
    PipelineRole,
    Split,
    StatedAttention,
    Weight,
    WeightFormat,
)
from shardwright.modelspec.quantized import quantized
from shardwright.modelspec.read import read_outline

ASSUMED_SHARE: Final = 1.1
"""Bytes of a rank, as a multiple of an even share of all. Basis: assumed; stages are uneven, norms
and routers are on every rank, and the output head on one stage.
"""

ASSUMED_LAYERS: Final = 128
"""Layers of a model that states none: CUDA graphs of each take memory. Basis: assumed; Llama 3.1
405B has 126.
"""

ASSUMED_HIDDEN: Final = 16384
"""Width of a model that states none: buffers of a step grow with it. Basis: assumed; Llama 3.1 405B
has it, other models less.
"""

ASSUMED_VOCABULARY: Final = 262144
"""Tokens of the vocabulary of a model that states none: sampling takes memory for each. Basis:
assumed; Gemma's, the largest in common use.
"""

BYTE: Final = WeightFormat(name="", bits=8)

_CELLS: Final = 2
"""Inputs of a weight of bytes: more than one, as of a matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedBytes:
    """``weight_bytes`` of the files, ``kv_bytes_per_token`` on one GPU, the pinned degrees, and the
    longest request in tokens if the config does not say how long it may be.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    tensor: int
    pipeline: int
    longest: int


def total_size(config: Mapping[str, object]) -> int | None:
    """Return the bytes of all tensors by the index among a model's files, None without one.

    >>> total_size({"model.safetensors.index.json": {"metadata": {"total_size": 16060522496}}})
    16060522496
    """
    index = config.get(INDEX_FILE)
    metadata = index.get("metadata") if isinstance(index, Mapping) else None
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    return int(total) if isinstance(total, int | float) and 0 < total < LARGEST_BYTES else None


def stated_model(stated: StatedBytes, config: Mapping[str, object], *, source: str) -> ModelSpec:
    """Return a model of what is stated; what the config (empty: there is none) says of sizes and
    storage replaces what is assumed.

    Raises:
        InputError: The config is no object of JSON, or nested too deeply.
    """
    seen = read_outline(config, source=source)
    sizes = partial(_size, seen.fields.values)
    layers = -(-sizes("num_hidden_layers", LAYERS, ASSUMED_LAYERS) // stated.pipeline)
    layer, kept = Layer(attention=None, feed_forward=None), stated.kv_bytes_per_token
    first = Layer(attention=StatedAttention(bytes_per_token=kept), feed_forward=None)
    even = _even_share(stated, layers, seen.dtype)
    (weight,) = quantized((even,), seen.quantization) if seen.quantization else (even,)
    stored = replace(BYTE, name=weight.storage.name, alone=weight.storage.alone)
    return ModelSpec(
        source=source,
        architecture=seen.architecture,
        model_type="",
        config_hash=seen.config_hash,
        config_file_hash=seen.config_file_hash,
        hidden_size=sizes("hidden_size", WIDTH, ASSUMED_HIDDEN),
        vocabulary=sizes("vocab_size", VOCABULARY, ASSUMED_VOCABULARY),
        layers=(first, *(layer,) * (layers - 1)) * stated.pipeline,
        weights=tuple(
            replace(even, storage=stored, layer=index) for index in range(layers * stated.pipeline)
        ),
        dtype=seen.dtype.name,
        quantization=seen.quantization.method if seen.quantization else None,
        max_context_tokens=sizes("max_position_embeddings", CONTEXT, stated.longest),
        tied_embeddings=False,
        stated=True,
    )


def _even_share(stated: StatedBytes, layers: int, dtype: WeightFormat) -> Weight:
    """Return the weights of one layer, a byte an element, of equally many on each rank."""
    share = ASSUMED_SHARE * stated.weight_bytes / (layers * stated.pipeline * stated.tensor)
    return Weight(
        name="mlp.down_proj",
        part=PipelineRole.LAYER,
        outputs=math.ceil(share / _CELLS) * stated.tensor,
        inputs=_CELLS,
        split=Split.COLUMN,
        storage=dtype,
        quantizable=True,
    )


def _size(values: Mapping[str, object], name: str, bounds: Bounds, assumed: int) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return assumed
    return value if bounds[0] <= value <= bounds[1] else assumed
