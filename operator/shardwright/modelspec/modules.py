"""Which modules does a quantization config mean: by name, part of a name, or pattern, never by an
arbitrary expression?
"""

import re
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from shardwright.modelspec.fields import Fields
from shardwright.modelspec.spec import PipelineRole, Weight

MAX_PATTERNS: Final = 64
"""Most rules by pattern that say how single modules are stored, and most ways through the
alternatives of one pattern.
"""

MAX_GLOB_BYTES: Final = 8192
"""Most bytes of patterns with a star before their end, in one list: each is tried on every name.
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
