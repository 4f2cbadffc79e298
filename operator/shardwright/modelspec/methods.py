"""What do readers of quantization configs share: the method, integers in groups, rules for modules?

Rules that are more than globs are not followed, and warned of.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.modelspec.fields import WIDTH, Fields
from shardwright.modelspec.formats import FP8_PER_TENSOR
from shardwright.modelspec.modules import MAX_PATTERNS, canonical, globs_of, is_pattern, modules_of
from shardwright.modelspec.spec import Weight, WeightFormat

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
    beyond, patterns = patterns[MAX_PATTERNS:], patterns[:MAX_PATTERNS]
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
