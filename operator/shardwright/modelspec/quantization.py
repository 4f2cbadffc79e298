"""What do readers of quantization configs share: the method, integers in groups, rules for modules?

Rules that are more than globs are not followed, and warned of.

How quantized weights are stored, by the names that tools have for it.

Which modules does a quantization config mean: by name, part of a name, or pattern, never by an
arbitrary expression?
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import WIDTH, Fields
from shardwright.modelspec.model_spec import PipelineRole, Weight, WeightFormat

FP8_PER_TENSOR: Final = WeightFormat(name="fp8", bits=8, block=(0, 0), scale_bits=32)
"""What vLLM makes of BF16 weights with ``--quantization fp8``: one FP32 scale per matrix."""

FP8_BLOCKS: Final = WeightFormat(name="fp8", bits=8, block=(128, 128), scale_bits=32)
"""FP8 with an FP32 scale per square of 128 outputs and inputs, as DeepSeek publishes it."""

MXFP4: Final = WeightFormat(name="mxfp4", bits=4, block=(1, 32), scale_bits=8)
"""OCP MXFP4: 32 elements share an E8M0 exponent."""

NVFP4: Final = WeightFormat(name="nvfp4", bits=4, block=(1, 16), scale_bits=8, matrix_bits=64)
"""NVIDIA's FP4: 16 elements share an FP8 scale, and each matrix has an FP32 scale for itself and
one for its inputs.
"""

NF4: Final = WeightFormat(name="nf4", bits=4, block=(1, 64), scale_bits=32)
"""bitsandbytes' 4 bits: 64 elements share an FP32 scale (a little less where scales are quantized
too).
"""

INT8_PER_CHANNEL: Final = WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=32)
"""bitsandbytes' 8 bits: one FP32 scale per output."""

_INT8_ALONE: Final = WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=16, alone=True)
_INT4_GROUPS: Final = WeightFormat(
    name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=16
)

_INT4_ZERO_POINTS: Final = WeightFormat(
    name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=4
)

QUARK: Final[Mapping[tuple[str, str, bool], WeightFormat]] = MappingProxyType(
    {
        ("fp8_e4m3", "per_tensor", True): FP8_PER_TENSOR,
        ("fp8_e4m3", "per_channel", True): replace(FP8_PER_TENSOR, block=(1, 0)),
        ("fp8_e4m3", "per_block", True): FP8_BLOCKS,
        ("int8", "per_tensor", True): replace(INT8_PER_CHANNEL, block=(0, 0)),
        ("int8", "per_channel", True): INT8_PER_CHANNEL,
        ("int4", "per_group", False): _INT4_ZERO_POINTS,
        ("uint4", "per_group", False): _INT4_ZERO_POINTS,
        ("fp4", "per_group", True): MXFP4,
        ("fp4", "per_group", False): MXFP4,
    }
)
"""Quark's types of weights by their values, by what shares a scale, and by whether activations are
quantized too. Source: vLLM 0.32 ``quantization/quark/quark.py:_get_scheme_cls_from_config``.
"""

TORCHAO: Final = {
    "Float8DynamicActivationFloat8WeightConfig": replace(FP8_PER_TENSOR, block=(1, 0)),
    "Float8WeightOnlyConfig": replace(FP8_PER_TENSOR, block=(1, 0), alone=True),
    "Int8WeightOnlyConfig": _INT8_ALONE,
    "Int8DynamicActivationInt8WeightConfig": INT8_PER_CHANNEL,
    "Int4WeightOnlyConfig": _INT4_GROUPS,
}
"""TorchAO's configurations by name. Source: torchao ``quantization/quant_api.py``."""

MXFP8: Final = WeightFormat(name="fp8", bits=8, block=(1, 32), scale_bits=8)
"""OCP MXFP8: 32 elements share an E8M0 exponent."""

MODELOPT: Final[Mapping[str, WeightFormat]] = MappingProxyType(
    {
        "W4A16_NVFP4": NVFP4,
        "NVFP4": NVFP4,
        "MXFP4": MXFP4,
        "MXFP8": MXFP8,
        "FP8_PER_CHANNEL_PER_TOKEN": replace(FP8_PER_TENSOR, block=(1, 0)),
        "FP8_BLOCK_SCALES": FP8_BLOCKS,
        "FP8_PB": FP8_BLOCKS,
        "FP8": replace(FP8_PER_TENSOR, scale_bits=64),
    }
)
"""NVIDIA's algorithms by the start of their names: weights' storage, with the static scale of the
inputs beside. Source: vLLM 0.33 ``quantization/modelopt.py:LINEAR_ALGOS``.
"""


MAX_PATTERNS: Final = 64
"""Most rules by pattern that say how single modules are stored, and most ways through the
alternatives of one pattern.
"""

MAX_GLOB_BYTES: Final = 8192
"""Most bytes of patterns with a star before their end, in all lists: each is tried on every name.
Names, and patterns that end in their only star, cost one look-up however many there are. Basis:
assumed; published lists have fewer than 500 bytes of them.
"""

MAX_ENTRIES: Final = 4096
"""Most entries of a list that are looked for in every name; published lists stay below a thousand.
"""

_MERGED: Final = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
_STORED_AS: Final = {
    "q_gate": ("q_proj",),
    "in_proj_ba": ("in_proj_a", "in_proj_b"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
}
"""What checkpoints call the modules that are one here, or a part of one there."""

_ALTERNATIVES: Final = re.compile(r"\((?:\?:)?([\w|]+)\)", re.ASCII)
_GLOB: Final = re.compile(r"[\w.*\\$^/-]+", re.ASCII)
_STARS: Final = re.compile(r"\*+")
_WRAPPERS: Final = re.compile(r"(?:(?:model|language_model|backbone)\.)+", re.ASCII)
_ONE_EXPERT: Final = re.compile(r"\.experts\.\d+\..*\Z", re.ASCII | re.DOTALL)
"""Matches wherever its head does, so it is tried once: a tail that a line break could end would be
tried at every head.
"""


def canonical(entry: str) -> str:
    """Return a module, or a pattern, by its name here, whatever a checkpoint wraps its layers in.

    All experts of a layer are one module, also if one of them is named.

    >>> (
    ...     canonical("language_model.model.layers.0*"),
    ...     canonical("backbone.layers.1.mixer.experts.7.up_proj"),
    ... )
    ('model.layers.0*', 'model.layers.1.mixer.experts')
    """
    wrapped = _WRAPPERS.match(entry)
    inner = entry[wrapped.end() :] if wrapped else entry
    known = (wrapped and not inner.startswith("lm_head")) or inner.startswith("layers.")
    return _ONE_EXPERT.sub(".experts", f"model.{inner}" if known else inner)


def full_name(weight: Weight) -> str:
    """Return a weight's module as checkpoints and quantization configs name it."""
    return (
        f"model.layers.{weight.layer}.{weight.name}"
        if weight.part is PipelineRole.LAYER
        else weight.name
    )


def engine_name(weight: Weight) -> str:
    """Return the engine's module of a weight: queries, keys and values are one, so are gate
    and up.
    """
    above, _, last = full_name(weight).rpartition(".")
    if weight.experts:
        return above
    return f"{above}.{_MERGED.get(last, last)}"


def is_named_in_part(weight: Weight, listed: frozenset[str]) -> bool:
    """Return whether an entry is part of a module's name, or of the module that the engine merges
    it into.

    Source: vLLM 0.32 ``quantization/utils/quant_utils.py:is_layer_skipped``, match mode substring.
    """
    names = {engine_name(weight), engine_name(weight) if weight.experts else full_name(weight)}
    return any(entry in name for entry in listed for name in names)


def names_of(weight: Weight) -> tuple[str, ...]:
    """Return a checkpoint's possible names of a weight's module, its own first, the merged one
    last.
    """
    name = full_name(weight)
    above, _, last = name.rpartition(".")
    merged = () if weight.experts or last not in _MERGED else (engine_name(weight),)
    return (name, *(f"{above}.{other}" for other in _STORED_AS.get(last, ())), *merged)


def is_pattern(entry: str) -> bool:
    """Return whether an entry names modules by pattern."""
    return entry.startswith("re:") or "*" in entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """The modules that a list names: by name with all below, by one part of a name, or by pattern.

    ``starts`` are patterns that end in their only star, ``exact`` those without one, ``globs`` all
    others that are followed; ``odd`` are more than globs and match nothing.
    """

    names: frozenset[str]
    exact: frozenset[str]
    starts: frozenset[str]
    globs: tuple[re.Pattern[str], ...]
    odd: tuple[str, ...]

    @property
    def glob_bytes(self) -> int:
        """Return the bytes of the patterns that are tried on every name."""
        return sum(len(glob.pattern) for glob in self.globs)

    def include(self, weight: Weight) -> bool:
        """Return whether a weight's module is among them."""
        return any(self._named(name) or self._matched(name) for name in names_of(weight))

    def _named(self, name: str) -> bool:
        parts = name.split(".")
        above = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        return any(module in self.names for module in above) or any(
            # Behind model.layers.N, which is alike in all weights of a layer.
            part in self.names
            for part in parts[3:]
        )

    def _matched(self, name: str) -> bool:
        starts = bool(self.starts) and any(
            name[:length] in self.starts for length in range(len(name) + 1)
        )
        return starts or name in self.exact or any(glob.match(name) for glob in self.globs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning if patterns are more than globs."""
        if not self.odd:
            return ()
        return (
            (
                f"{len(self.odd)} patterns of unquantized modules are taken as matching none, for "
                f"example {self.odd[0]:.60}"
            ),
        )


def modules_of(fields: Fields, *lists: str) -> Modules:
    """Return the modules listed under these fields; patterns that cost too much are a problem of
    the first.
    """
    entries = tuple(entry for name in lists for entry in fields.strings(name))
    patterns = [(entry, _texts(entry)) for entry in entries if is_pattern(entry)]
    texts = [text for _, found in patterns for text in found]
    inner = [text for text in texts if "*" in text[:-1]]
    size = sum(map(len, inner))
    if size > MAX_GLOB_BYTES:
        limit = f"must be at most {MAX_GLOB_BYTES} bytes"
        fields.refuse(
            lists[0],
            f"patterns with a star before their end: {size} bytes",
            limit,
            "name modules, or use fewer patterns",
        )
        inner = []
    return Modules(
        names=frozenset(map(canonical, entries)),
        exact=frozenset(text for text in texts if "*" not in text),
        starts=frozenset(text[:-1] for text in texts if "*" in text and "*" not in text[:-1]),
        globs=tuple(re.compile(translate(text)) for text in inner),
        odd=tuple(entry for entry, found in patterns if not found),
    )


def globs_of(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return a pattern as globs, one for each way through its alternatives; nothing if it is more
    than that.
    """
    return tuple(re.compile(translate(text)) for text in _texts(pattern))


def _texts(pattern: str) -> tuple[str, ...]:
    """Nothing if it is more than globs, or has too many ways."""
    parts = _ALTERNATIVES.split(pattern)  # text, group, text, ..., text
    texts = [""]
    for index, part in enumerate(parts):
        choices = part.split("|") if index % 2 else [part]
        texts = [text + choice for text in texts for choice in choices][: MAX_PATTERNS + 1]
    globs = tuple(glob for glob in map(_glob, texts) if glob is not None)
    return globs if len(globs) == len(texts) <= MAX_PATTERNS else ()


def _glob(pattern: str) -> str | None:
    """Return a pattern as a glob; None for expressions that are more than that.

    An arbitrary expression of a user could take for ever.
    """
    text = pattern.removeprefix("re:")
    if not _GLOB.fullmatch(text):
        return None
    if pattern.startswith("re:"):
        text = text.removeprefix("^").replace(".*", "*").replace("\\.", ".")
        text = text.removesuffix("$") if text.endswith("$") else f"{text}*"
    return None if "\\" in text else canonical(_STARS.sub("*", text))


BITS: Final = (1, 16)

Stores = Callable[[Weight], WeightFormat | None]
"""How a weight is stored; None: left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A method by name, how it stores a weight (None: leaves it alone), and warnings of odd rules.

    ``head``: it quantizes the output head too; ``cache_dtype`` is the type it asks for the K/V
    cache.
    """

    method: str
    storage: Stores
    warnings: tuple[str, ...] = ()
    head: bool = False
    cache_dtype: str | None = None


def unless_listed(method: str, storage: WeightFormat, fields: Fields, *lists: str) -> Quantization:
    """Return a method that stores everything in one way except the modules listed by name or
    pattern.
    """
    modules = modules_of(fields, *lists)
    return Quantization(
        method=method,
        storage=lambda weight: None if modules.include(weight) else storage,
        warnings=modules.warnings,
    )


def by_rules(
    base: Quantization,
    stored: Mapping[str, WeightFormat | None],
    names_of: Callable[[Weight], tuple[str, ...]],
) -> Quantization:
    """Return the method with storages of its own for some modules: by name, then by the first
    pattern.

    Args:
        base: The method for all others; a module that it leaves alone stays alone.
        stored: The storage by name or pattern, in order (None: left alone).
        names_of: The names that rules may have for a weight's module, the patterns' one first.
    """
    stored = {
        rule if is_pattern(rule) else canonical(rule): storage for rule, storage in stored.items()
    }
    patterns = tuple(rule for rule in stored if is_pattern(rule))
    # Each pattern is tried on every module: a stranger's config must not make that long.
    sizes = accumulate(sum(map(len, _texts(pattern))) for pattern in patterns)
    few = min(MAX_PATTERNS, sum(size <= MAX_GLOB_BYTES for size in sizes))
    beyond, patterns = patterns[few:], patterns[:few]
    read = [(globs_of(pattern), stored[pattern]) for pattern in patterns]

    def by_rule(weight: Weight) -> WeightFormat | None:
        usual, names = base.storage(weight), names_of(weight)
        if usual is None:
            return None
        named = next((name for name in names if name in stored), None)
        if named is not None:
            return stored[named]
        return next(
            (each for globs, each in read if any(glob.match(names[0]) for glob in globs)), usual
        )

    odd = tuple(
        pattern for pattern in (*patterns, *beyond) if pattern in beyond or not globs_of(pattern)
    )
    return replace(base, storage=by_rule, warnings=(*base.warnings, *_not_followed(odd)))


def _not_followed(odd: Sequence[str]) -> Iterator[str]:
    if odd:
        yield (
            f"{len(odd)} rules for single modules are not followed, for example {odd[0]:.60}: "
            "bytes may be off"
        )


def integers(fields: Fields) -> WeightFormat:
    """Return integers of ``bits`` with scale and zero point per ``group_size`` inputs, as in
    GPTQ.
    """
    bits = fields.integer("bits", BITS)
    return WeightFormat(
        name=f"int{bits}",
        bits=bits,
        block=(1, scale_group(fields, "group_size")),
        scale_bits=16,
        zero_point_bits=bits,
        alone=bits == FP8_PER_TENSOR.bits,
    )


def changed(storage: WeightFormat, rule: Fields | None) -> WeightFormat:
    """Return integers with a rule's own bits and group."""
    if rule is None:
        return storage
    bits = rule.integer("bits", BITS, default=storage.bits)
    size = (
        scale_group(rule, "group_size")
        if "group_size" in rule.values
        else (storage.block or (1, 0))[1]
    )
    alone = bits == FP8_PER_TENSOR.bits
    return replace(
        storage, name=f"int{bits}", bits=bits, block=(1, size), zero_point_bits=bits, alone=alone
    )


def scale_group(fields: Fields, *names: str) -> int:
    """Return elements per scale along the inputs; 0 for all of them (-1 in the configs)."""
    name = next((name for name in names if name in fields.values), names[0])
    return max(0, fields.integer(name, (-1, WIDTH[1]), default=128))
