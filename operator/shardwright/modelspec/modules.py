"""Which modules a quantization config speaks of: by name, by part of a name, by pattern; never by an arbitrary expression."""

import re
from fnmatch import translate
from typing import Final

from shardwright.modelspec.spec import Part, Weight

MAX_PATTERNS: Final = 64
"""Most patterns in a list of modules that stay unquantized; published configs have fewer than ten."""

MAX_ENTRIES: Final = 4096
"""Most entries of a list that are looked for in every name; published lists stay below a thousand."""

_MERGED: Final = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
_ALTERNATIVES: Final = re.compile(r"\((?:\?:)?([\w|]+)\)", re.ASCII)
_GLOB: Final = re.compile(r"[\w.*\\$^/-]+", re.ASCII)


def full_name(weight: Weight) -> str:
    """Return a weight's module as checkpoints and quantization configs name it."""
    return f"model.layers.{weight.layer}.{weight.name}" if weight.part is Part.LAYER else weight.name


def engine_name(weight: Weight) -> str:
    """Return the module that the engine makes of a weight: queries, keys and values are one, so are gate and up."""
    above, _, last = full_name(weight).rpartition(".")
    if weight.experts:
        return above
    return f"{above}.{_MERGED.get(last, last)}"


def is_named_in_part(weight: Weight, listed: frozenset[str]) -> bool:
    """Return whether an entry is part of a module's name, its own or that of what the engine merges it into.

    Source: vLLM 0.32 ``quantization/utils/quant_utils.py:is_layer_skipped``, match mode substring.
    """
    names = {engine_name(weight), engine_name(weight) if weight.experts else full_name(weight)}
    return any(entry in name for entry in listed for name in names)


def is_pattern(entry: str) -> bool:
    """Return whether an entry speaks of modules by pattern, not by name."""
    return entry.startswith("re:") or "*" in entry


def not_followed(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return a warning where patterns are more than globs."""
    odd = [pattern for pattern in patterns if not globs_of(pattern)]
    if not odd:
        return ()
    return (f"{len(odd)} patterns of unquantized modules are taken as matching none, for example {odd[0]:.60}",)


def is_listed(name: str, exact: frozenset[str], globs: list[re.Pattern[str]]) -> bool:
    """Return whether a module is listed: by itself, under a listed one, by one of its parts, or by pattern."""
    parts = name.split(".")
    above = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return (
        any(module in exact for module in above)
        or any(part in exact for part in parts[3:])
        or any(glob.match(name) for glob in globs)
    )


def globs_of(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return a pattern as globs, one for each way through its groups of alternatives; nothing where it is more than that."""
    parts = _ALTERNATIVES.split(pattern)  # text, group, text, ..., text
    texts = [""]
    for index, part in enumerate(parts):
        choices = part.split("|") if index % 2 else [part]
        texts = [text + choice for text in texts for choice in choices][: MAX_PATTERNS + 1]
    globs = tuple(glob for glob in map(_glob, texts) if glob is not None)
    return globs if len(globs) == len(texts) <= MAX_PATTERNS else ()


def _glob(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern as a glob; None for expressions that are more than that.

    Only globs are followed: an arbitrary expression of a user could take for ever.
    """
    text = pattern.removeprefix("re:")
    if not _GLOB.fullmatch(text):
        return None
    if pattern.startswith("re:"):
        text = text.removeprefix("^").replace(".*", "*").replace("\\.", ".")
        text = text.removesuffix("$") if text.endswith("$") else f"{text}*"
    return None if "\\" in text else re.compile(translate(text))
