"""What ruled a candidate out, as the verb of a sentence: "31 exceed GPU memory"."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shardwright.planning.report import Exclusion
from shardwright.reporting.figures import format_plural

PHRASES: Final[Mapping[str, str]] = MappingProxyType({})
"""Code of a check to its phrase in the plural; a code without one is spelled out in small letters."""


def phrase(code: str) -> str:
    """Return the phrase of a code.

    >>> phrase("SomethingNew")
    'fail for something new'
    """
    spelled = re.sub(r"(?<!^)(?=[A-Z])", " ", code).lower()
    return PHRASES.get(code, f"fail for {spelled}")


def sort_exclusions(excluded: tuple[Exclusion, ...]) -> tuple[Exclusion, ...]:
    """Return the exclusions, most frequent first."""
    return tuple(sorted(excluded, key=lambda item: (-item.count, item.code)))


def summarise_exclusions(considered: int, excluded: tuple[Exclusion, ...]) -> str:
    """Return what was ruled out, counted, most frequent first, with the nearest miss of all.

    A layout may break several rules, so the counts may add up to more than the total.
    """
    if not excluded:
        return f"{format_plural(considered, 'layout')}, none ruled out" if considered else ""
    ordered = sort_exclusions(excluded)
    counted = ", ".join(f"{item.count:,} {phrase(item.code)}" for item in ordered)
    nearest = next((item.nearest_miss for item in ordered if item.nearest_miss), "")
    sentence = f"{format_plural(considered, 'layout')}: {counted}"
    return f"{sentence}; nearest miss: {nearest}" if nearest else sentence
