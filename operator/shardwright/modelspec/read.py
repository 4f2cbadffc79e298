"""A ``config.json`` to a :class:`ModelSpec`: facts that are there and within bounds, or every problem found."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.context import max_context_tokens
from shardwright.modelspec.families import FAMILIES
from shardwright.modelspec.families.family import Family, Shape, read_shape
from shardwright.modelspec.fields import VOCABULARY, Fields
from shardwright.modelspec.parse import check_depth
from shardwright.modelspec.quantization import Quantization, quantized, read_quantization
from shardwright.modelspec.spec import Layer, ModelSpec, Part, Split, Storage, Weight
from shardwright.modelspec.tensors import BF16, FP16, Blocks

_DTYPES: Final[Mapping[str, Storage]] = {
    "bfloat16": BF16,
    "float16": FP16,
    # vLLM 0.32 ``config/model.py:_resolve_auto_dtype`` runs float32 checkpoints in the platform's dtype.
    "float32": BF16,
}


def read_model(config: Mapping[str, object], *, source: str) -> ModelSpec:
    """Read the facts of a model.

    Args:
        config: The content of the ``config.json``.
        source: Where it comes from, for messages: a catalogue id, a file, a manifest field.

    Raises:
        InputError: an architecture that cannot be read, or fields that are missing, of the wrong type or
            out of bounds; all of them, each with its path.
    """
    check_depth(config, source=source)
    config_hash = _hash(config, source)
    top = Fields(config)
    architecture = _architecture(top)
    family = FAMILIES[architecture]
    fields = _text_fields(top, family)
    shape = read_shape(fields)
    blocks = family.blocks(fields, shape)
    quantization = _quantization(top, fields)
    vocabulary = fields.integer("vocab_size", VOCABULARY)
    tied = _tied(top, fields, family)
    dtype = _dtype(top, fields)
    context = max_context_tokens(fields)
    if fields.problems:
        raise InputError(fields.problems)
    layers, layer_weights = _layers(blocks, shape, dtype)
    weights = (*_ends(shape, vocabulary, dtype, tied=tied), *layer_weights)
    return ModelSpec(
        source=source,
        architecture=architecture,
        model_type=fields.string("model_type") or "",
        config_hash=config_hash,
        hidden_size=shape.hidden,
        vocabulary=vocabulary,
        layers=layers,
        weights=quantized(weights, quantization) if quantization else weights,
        dtype=dtype.name,
        quantization=quantization.method if quantization else None,
        max_context_tokens=context,
        tied_embeddings=tied,
        warnings=(*family.warnings, *(quantization.warnings if quantization else ())),
    )


def _hash(config: Mapping[str, object], source: str) -> str:
    try:
        canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        problem = Problem(code="ConfigInvalid", what=f"{source} is not a JSON object", gap=str(error)[:200])
        raise InputError([problem]) from error
    return hashlib.sha256(canonical.encode()).hexdigest()


def _architecture(top: Fields) -> str:
    """Return the first architecture that is named, when it is one that can be read."""
    named = top.strings("architectures")
    if named and named[0] in FAMILIES:
        return named[0]
    if not top.problems:
        what = f"{named[0]!r:.80}" if named else "missing,"
        top.problems.append(
            Problem(
                code="ArchitectureUnknown",
                path="architectures",
                what=what,
                limit=f"must be one of {', '.join(sorted(FAMILIES))}",
                remedy="serve a model of one of these architectures",
            )
        )
    raise InputError(top.problems)


def _text_fields(top: Fields, family: Family) -> Fields:
    """Return the fields of the language model: its own section where the config wraps one."""
    section = top.section("text_config") or top
    return Fields({**family.defaults, **_present(section.values)}, section.path, top.problems)


def _present(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _quantization(top: Fields, fields: Fields) -> Quantization | None:
    section = fields.section("quantization_config") or top.section("quantization_config")
    return read_quantization(section) if section else None


def _tied(top: Fields, fields: Fields, family: Family) -> bool:
    outer = top.boolean("tie_word_embeddings", default=family.tied)
    return outer if fields.path == "" else fields.boolean("tie_word_embeddings", default=outer)


def _dtype(top: Fields, fields: Fields) -> Storage:
    for owner in (fields, top):
        for name in ("torch_dtype", "dtype"):
            value = owner.string(name)
            if value is None:
                continue
            if value.removeprefix("torch.") in _DTYPES:
                return _DTYPES[value.removeprefix("torch.")]
            owner.refuse(name, f"{value!r:.60}", f"must be one of {', '.join(_DTYPES)}")
    return BF16


def _layers(blocks: Blocks, shape: Shape, dtype: Storage) -> tuple[tuple[Layer, ...], tuple[Weight, ...]]:
    stack = [blocks(index) for index in range(shape.layers)]
    weights = tuple(tensor.placed(index, dtype) for index, block in enumerate(stack) for tensor in block.tensors)
    return tuple(block.layer for block in stack), weights


def _ends(shape: Shape, vocabulary: int, dtype: Storage, *, tied: bool) -> tuple[Weight, ...]:
    """Return what stands before the first layer and after the last one."""

    def end(name: str, part: Part, outputs: int, inputs: int, split: Split) -> Weight:
        return Weight(name=name, part=part, outputs=outputs, inputs=inputs, split=split, storage=dtype)

    embedding = end("model.embed_tokens", Part.EMBEDDING, vocabulary, shape.hidden, Split.VOCABULARY)
    norm = end("model.norm", Part.FINAL, shape.hidden, 1, Split.REPLICATED)
    head = end("lm_head", Part.HEAD, vocabulary, shape.hidden, Split.VOCABULARY)
    return (embedding, norm) if tied else (embedding, norm, head)
