"""What does a ``config.json`` say of a model? A :class:`ModelSpec`, or every problem found.

No code that a checkpoint brings is run.

Which decoders that are unknown by name can be read, as they state the usual fields and no others
of weight?

How long a context does an engine accept for a model, and take by itself?
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.computed import UNCOUNTED_TOWERS
from shardwright.modelspec.config_json import (
    CONFIG_FILE,
    CONTEXT,
    INDEX_FILE,
    QUANTIZATION_FILE,
    STREAMS,
    VOCABULARY,
    Fields,
    check_depth,
)
from shardwright.modelspec.families import FAMILIES, LANGUAGE_MODELS, MODEL_TYPES
from shardwright.modelspec.families.family import Family, Shape, read_shape
from shardwright.modelspec.families.llama import dense_blocks
from shardwright.modelspec.families.vision import tower_weights, wrapper
from shardwright.modelspec.model_spec import (
    BF16,
    FP16,
    Blocks,
    Layer,
    ModelSpec,
    PipelineRole,
    Split,
    Weight,
    WeightFormat,
    interned,
)
from shardwright.modelspec.quantization import Quantization
from shardwright.modelspec.quantized import quantized, read_quantization
from shardwright.modelspec.toolkits import with_quantization_file

_NEEDED: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)

_TELLING: Final = (
    "attention_window",
    "attn_config",
    "audio",
    "block_configs",
    "chunk",
    "conv",
    "cross_",
    "cycles",
    "embed_proj",
    "embedding_size",
    "encoder",
    "expert",
    "ffn_config",
    "full_attn",
    "hc_",
    "hybrid",
    "kv_shared",
    "layers_block_type",
    "linear",
    "loop",
    "lora_rank",
    "mamba",
    "moe",
    "multi_query",
    "ngram",
    "num_kv_heads",
    "per_stack",
    "query_group",
    "recurrent",
    "rwkv",
    "share_",
    "shared_",
    "sparse",
    "ssm",
    "state_size",
    "text_config",
    "ut_steps",
    "v_head_dim",
    "vision",
    "window_size",
)
"""Parts of field names that belong to layers that are not plain attention and a gated feed-forward
block.
"""

_GATED: Final = frozenset({"silu", "swish", "swiglu"})
"""Activations of gated feed-forward blocks: among the causal decoders of transformers 5 whose
config names one of them there is none without a gate, among those with another (gelu, relu2, ...)
hardly any with one.
"""

_KINDS: Final = frozenset({"full_attention", "sliding_attention"})


def is_plain(architecture: str, top: Fields) -> bool:
    """Return whether the generic reading is safe: a causal decoder with the usual fields, and no
    others of weight.
    """
    if not architecture.endswith("ForCausalLM") or any(
        top.values.get(name) is None for name in _NEEDED
    ):
        return False
    if top.values.get("hidden_act") not in _GATED or not _KINDS.issuperset(
        top.strings("layer_types")
    ):
        return False
    stated = (name for name, value in top.values.items() if value not in (None, False, 0, [], {}))
    return not any(part in name for name in stated for part in _TELLING)


FAMILY: Final = Family(
    blocks=dense_blocks,
    warnings=(
        (
            "{architecture} is not known: read as a plain "
            "decoder (gated feed-forward, two norms a layer)"
        ),
    ),
)
"""How such a config is read: as Llama's, with sliding windows where they are stated."""


_LENGTHS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)

_INCLUDED: Final = frozenset(
    {"default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
)
"""RoPE scalings whose factor ``max_position_embeddings`` has in it already."""

_TWO_SETS: Final = frozenset({"longrope", "su"})
_TRAINED: Final = "original_max_position_embeddings"

_MAX_FACTOR: Final = 1024.0
"""Largest RoPE factor that is read; published configs stay below 64."""


def max_context_tokens(fields: Fields) -> int:
    """Return the longest context in tokens.

    Source: vLLM 0.32 ``derive_max_model_len_and_key`` and ``_get_and_verify_max_len``: the smallest
    length in the config, times the factor of linear and dynamic RoPE scaling.
    """
    given = [name for name in _LENGTHS if fields.values.get(name) is not None]
    length = min(fields.integer(name, CONTEXT) for name in given or _LENGTHS[:1])
    # Its length has the factor in it already; vLLM leaves it as it is, too (same source).
    if "gemma3" in (fields.string("model_type") or ""):
        return length
    return int(length * _factor(fields))


def own_context_tokens(fields: Fields) -> int | None:
    """Return the context in tokens that the engine takes by itself, None if it takes the longest.

    LongRoPE has one set of factors for requests as long as those of the training and another for
    longer ones, and an engine applies one to all. Source: vLLM 0.32 ``_get_and_verify_max_len``.
    """
    rope = fields.section("rope_scaling") or fields.section("rope_parameters")
    two = rope is not None and (rope.string("rope_type") or rope.string("type")) in _TWO_SETS
    if not two or fields.values.get(_TRAINED) is None:
        return None
    return fields.integer(_TRAINED, CONTEXT)


def _factor(fields: Fields) -> float:
    rope = fields.section("rope_scaling") or fields.section("rope_parameters")
    if rope is None or (rope.string("rope_type") or rope.string("type") or "default") in _INCLUDED:
        return 1.0
    factor = 1.0 if rope.values.get("factor") is None else rope.values["factor"]
    if (
        isinstance(factor, bool)
        or not isinstance(factor, int | float)
        or not 1 <= factor <= _MAX_FACTOR
    ):
        rope.refuse("factor", f"{factor!r:.60}", f"must be a number, 1 to {_MAX_FACTOR:.0f}")
        return 1.0
    return float(factor)


_DTYPES: Final[Mapping[str, WeightFormat]] = {
    "bfloat16": BF16,
    "float16": FP16,
    # vLLM 0.32 ``config/model.py:_resolve_auto_dtype`` runs float32 checkpoints in the platform's
    # dtype.
    "float32": BF16,
}

_PREDICTED: Final = (0, 64)

_LANGUAGE_SECTIONS: Final = ("text_config", "llm_config", "language_config")
"""Where configs of several modalities have their language model."""

_HEARING: Final = ("audio_config", "sound_config", "speech_config", "audio_encoder_config")
"""Where they have a tower for audio, which is not counted."""

_KINDS_OF_LAYERS: Final = ("layers_block_type", "hybrid_override_pattern", "layer_types")
"""Lists with an entry for each layer: they say how many there are where nothing else does."""


def read_model(config: Mapping[str, object], *, source: str) -> ModelSpec:
    """Return the facts of a model.

    Args:
        config: The content of the ``config.json``, or of several files by name.
        source: Its origin, for messages: a catalogue id, a file, a manifest field.

    Raises:
        InputError: every problem with its path: an architecture that cannot be read, fields
            that are missing, of the wrong type or out of bounds.
    """
    check_depth(config, source=source)
    config_file, config = _files(config, source)
    config_hash, file_hash = _hashes(config, config_file, source)
    top = Fields(config)
    architecture, family = _family(top)
    fields = _text_fields(top, family)
    shape = read_shape(fields)
    blocks = family.blocks(fields, shape)
    quantization = _quantization(top, fields)
    vocabulary = fields.integer("vocab_size", VOCABULARY)
    tied = _tied(top, fields, family)
    dtype = _dtype(top, fields)
    contexts = max_context_tokens(fields), own_context_tokens(fields)
    streams = fields.integer("hc_mult", STREAMS, default=1)
    tower, ends = _tower(top, family, shape, dtype), _further_ends(family, fields, shape, dtype)
    if fields.problems:
        raise InputError(fields.problems)
    layers, layer_weights = _layers(blocks, shape, dtype)
    model = ModelSpec(
        source=source,
        architecture=architecture,
        model_type=fields.string("model_type") or "",
        config_hash=config_hash,
        config_file_hash=file_hash,
        hidden_size=shape.hidden,
        vocabulary=vocabulary,
        layers=layers,
        weights=(*_ends(shape, vocabulary, dtype, tied=tied), *tower, *ends, *layer_weights),
        dtype=dtype.name,
        quantization=None,
        max_context_tokens=contexts[0],
        tied_embeddings=tied,
        warnings=tuple(_warnings(top, architecture, family, tower)),
        residual_streams=streams,
        own_context_tokens=contexts[1],
    )
    return interned(_quantized(model, quantization) if quantization else model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a config says though its layers cannot be counted; None and empty: it does not say."""

    architecture: str
    fields: Fields
    dtype: WeightFormat
    quantization: Quantization | None
    config_hash: str
    config_file_hash: str


def read_outline(config: Mapping[str, object], *, source: str) -> Outline:
    """Return the outline of a model; what in it cannot be read is left out.

    Raises:
        InputError: It is no object of JSON, or nested too deeply.
    """
    check_depth(config, source=source)
    config_file, joined = _files(config, source)
    config_hash, file_hash = _hashes(config, config_file, source)
    top = Fields(joined)
    section = _text_section(top)
    fields = Fields({**top.values, **(section.values if section else {})})
    return Outline(
        architecture=_architecture(top) or "",
        fields=fields,
        dtype=_dtype(top, fields),
        quantization=_quantization(top, fields),
        config_hash=config_hash,
        config_file_hash=file_hash,
    )


def _quantized(model: ModelSpec, by: Quantization) -> ModelSpec:
    return replace(
        model,
        weights=quantized(model.weights, by),
        quantization=by.method,
        warnings=(*model.warnings, *by.warnings),
        cache_dtype=by.cache_dtype,
    )


def read_predictor(config: Mapping[str, object], *, source: str) -> ModelSpec | None:
    """Return a model's layers for multi-token prediction; None if it has none, or they are not
    known.

    They have no embedding and no output head: those are the model's. Layers that the quantization
    leaves out by name are taken as quantized like the others if only this part has the name.

    Args:
        config: As in :func:`read_model`.
        source: Its origin.

    Raises:
        InputError: As :func:`read_model`.
    """
    whole = read_model(config, source=source)
    top = Fields(_files(config, source)[1])
    _, family = _family(top)
    predictor = family.predictor
    fields = _text_fields(top, family)
    stated = (
        fields.integer(predictor.counts, _PREDICTED, default=predictor.default) if predictor else 0
    )
    shape = read_shape(fields)
    blocks = family.blocks(fields, shape)
    quantization, dtype = _quantization(top, fields), _dtype(top, fields)
    if fields.problems:
        raise InputError(fields.problems)
    if predictor is None or not stated:
        return None
    block, first = predictor.block(blocks, shape.layers), shape.layers
    each = (*block.tensors, *predictor.beside(shape))
    weights = tuple(
        tensor.placed(first + index, dtype) for index in range(stated) for tensor in each
    )
    weights += tuple(tensor.placed(first, dtype) for tensor in predictor.shared(shape))
    stored = quantized(weights, quantization) if quantization else weights
    return replace(
        whole,
        layers=(block.layer,) * stated,
        weights=tuple(replace(weight, layer=(weight.layer or first) - first) for weight in stored),
        tied_embeddings=False,
        warnings=(),
    )


def _files(
    config: Mapping[str, object], source: str
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    if CONFIG_FILE not in config:
        return config, config
    own, quantization = config[CONFIG_FILE], config.get(QUANTIZATION_FILE, {})
    if not isinstance(own, Mapping) or not isinstance(quantization, Mapping):
        what = f"{source}: {CONFIG_FILE} and {QUANTIZATION_FILE}"
        raise InputError(
            [
                Problem(
                    code="ConfigInvalid",
                    what=what,
                    limit="must be objects",
                    remedy="give the files as they are",
                )
            ]
        )
    return own, with_quantization_file(own, quantization)


def _hashes(
    config: Mapping[str, object], config_file: Mapping[str, object], source: str
) -> tuple[str, str]:
    of_file = canonical_hash(config_file, source)
    # The index says nothing that a plan of a counted model is made of.
    files = {name: content for name, content in config.items() if name != INDEX_FILE}
    alone = config is config_file or files.keys() == {CONFIG_FILE}
    return of_file if alone else canonical_hash(files, source), of_file


def canonical_hash(config: Mapping[str, object], source: str) -> str:
    """Return the SHA-256 of a config whatever the order of its fields.

    Raises:
        InputError: It is no object of JSON.
    """
    try:
        canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        problem = Problem(
            code="ConfigInvalid", what=f"{source} is not a JSON object", gap=str(error)[:200]
        )
        raise InputError([problem]) from error
    return hashlib.sha256(canonical.encode()).hexdigest()


def _family(top: Fields) -> tuple[str, Family]:
    """Return the first architecture that is named and how it is read; a plain decoder may be
    unknown by name.
    """
    architecture = _architecture(top)
    if architecture and architecture in FAMILIES:
        return architecture, FAMILIES[architecture]
    if architecture and is_plain(architecture, top):
        return architecture, FAMILY
    if architecture and (inner := _language_model(top)):
        return architecture, wrapper(*inner)
    if not top.problems:
        top.problems.append(_unknown(architecture))
    raise InputError(top.problems)


def _language_model(top: Fields) -> tuple[Family, str] | None:
    section, outer = _text_section(top), _outer(top)
    if section is None or all(
        outer.values.get(name) is None for name in ("vision_config", *_HEARING)
    ):
        return None
    stated = section.strings("architectures")
    name = stated[0] if stated else LANGUAGE_MODELS.get(section.string("model_type") or "", "")
    if name in FAMILIES:
        return FAMILIES[name], name
    return (FAMILY, name) if is_plain(name, section) else None


def _outer(top: Fields) -> Fields:
    """Return the fields with the sections of language model and towers; in a model that speaks they
    are in its thinker.
    """
    return top.section("thinker_config") or top


def _text_section(top: Fields) -> Fields | None:
    outer = _outer(top)
    return next((section for name in _LANGUAGE_SECTIONS if (section := outer.section(name))), None)


def _architecture(top: Fields) -> str | None:
    named = top.strings("architectures")
    if named:
        return named[0]
    return top.string("architecture") or MODEL_TYPES.get(top.string("model_type") or "")


_MISTYPED: Final = 0.85
"""Share of its letters that a name has in common with the one that was meant. Basis: assumed; names
of other families reach 0.8, for all end alike (WhisperForConditionalGeneration and
KimiK3ForConditionalGeneration).
"""


def _unknown(architecture: str | None) -> Problem:
    near = get_close_matches(architecture or "", sorted(FAMILIES), n=1, cutoff=_MISTYPED)
    return Problem(
        code="ArchitectureUnknown",
        path="architectures",
        what=f"{architecture!r:.80}" if architecture else "missing,",
        limit=f"must be one of the {len(FAMILIES)} that can be counted "
        "(docs/reference/architectures.md), or a plain decoder (gated, hidden_act silu)",
        gap=f"did you mean {near[0]}?" if near else "",
        remedy="to serve it without a promise, state its bytes in spec.model.unproven and pin "
        "spec.parallelism (docs/howto/unknown-models-and-gpus.md)",
    )


def _text_fields(top: Fields, family: Family) -> Fields:
    section = _text_section(top) or top
    present = {
        name: value
        for name, value in _present(section.values).items()
        if name not in family.ignores
    }
    spelled = {
        name: next((n for n in names if _under(present, n) is not None), names[0])
        for name, names in family.names.items()
    }
    spelled = {name: theirs for name, theirs in spelled.items() if name not in present}
    renamed = _present({name: _under(present, theirs) for name, theirs in spelled.items()})
    left_out = {
        name: value for name, value in family.defaults.items() if name not in section.values
    }
    # Later entries win: stated values go before counted ones and defaults.
    return Fields(
        {**left_out, **_counted(present), **present, **renamed}, section.path, top.problems, spelled
    )


def _counted(present: Mapping[str, object]) -> dict[str, object]:
    listed = (present.get(name) for name in _KINDS_OF_LAYERS)
    return next(
        (
            {"num_hidden_layers": len(kinds)}
            for kinds in listed
            if isinstance(kinds, list | tuple | str)
        ),
        {},
    )


def _under(values: Mapping[str, object], path: str) -> object:
    first, _, rest = path.partition(".")
    value = values.get(first)
    if not rest:
        return value
    return _under(value, rest) if isinstance(value, Mapping) else None


def _present(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _quantization(top: Fields, fields: Fields) -> Quantization | None:
    section = fields.section("quantization_config") or top.section("quantization_config")
    return read_quantization(section) if section else None


def _tied(top: Fields, fields: Fields, family: Family) -> bool:
    outer = top.boolean("tie_word_embeddings", default=family.tied)
    return outer if fields.path == "" else fields.boolean("tie_word_embeddings", default=outer)


def _dtype(top: Fields, fields: Fields) -> WeightFormat:
    for owner in (fields, top):
        for name in ("torch_dtype", "dtype"):
            value = owner.string(name)
            if value is None:
                continue
            if value.removeprefix("torch.") in _DTYPES:
                return _DTYPES[value.removeprefix("torch.")]
            owner.refuse(name, f"{value!r:.60}", f"must be one of {', '.join(_DTYPES)}")
    return BF16


def _layers(
    blocks: Blocks, shape: Shape, dtype: WeightFormat
) -> tuple[tuple[Layer, ...], tuple[Weight, ...]]:
    stack = [blocks(index) for index in range(shape.layers)]
    weights = tuple(
        tensor.placed(index, dtype) for index, block in enumerate(stack) for tensor in block.tensors
    )
    return tuple(block.layer for block in stack), weights


def _tower(top: Fields, family: Family, shape: Shape, dtype: WeightFormat) -> tuple[Weight, ...]:
    section = _outer(top).section("vision_config") if family.tower else None
    return (
        tower_weights(section, shape.hidden, family.tower, dtype)
        if section and family.tower
        else ()
    )


def _warnings(
    top: Fields, architecture: str, family: Family, tower: tuple[Weight, ...]
) -> tuple[str, ...]:
    hears = any(_outer(top).values.get(name) is not None for name in _HEARING)
    no_sight, no_hearing = UNCOUNTED_TOWERS
    unseen = (no_sight,) if family.tower and not tower else ()
    unheard = (no_hearing,) if family.tower and hears else ()
    return (
        *(sentence.format(architecture=architecture) for sentence in family.warnings),
        *unseen,
        *unheard,
    )


def _further_ends(
    family: Family, fields: Fields, shape: Shape, dtype: WeightFormat
) -> tuple[Weight, ...]:
    return tuple(
        replace(tensor.placed(0, dtype), layer=None, part=part)
        for part, tensor in family.ends(fields, shape)
    )


def _ends(shape: Shape, vocabulary: int, dtype: WeightFormat, *, tied: bool) -> tuple[Weight, ...]:
    def end(name: str, part: PipelineRole, outputs: int, inputs: int, split: Split) -> Weight:
        return Weight(
            name=name, part=part, outputs=outputs, inputs=inputs, split=split, storage=dtype
        )

    embedding = end(
        "model.embed_tokens", PipelineRole.EMBEDDING, vocabulary, shape.hidden, Split.VOCABULARY
    )
    norm = end("model.norm", PipelineRole.FINAL, shape.hidden, 1, Split.REPLICATED)
    head = end("lm_head", PipelineRole.HEAD, vocabulary, shape.hidden, Split.VOCABULARY)
    return (embedding, norm) if tied else (embedding, norm, head)
