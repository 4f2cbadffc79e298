"""Numbers of a document, each with its path, so that a reader of the page can find it there.

A number that is not in the document cannot be shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.reporting.figures import format_count, format_seconds
from shardwright.units import GIB, MEGA

Document = Mapping[str, Any]

NONE: Final = "\N{EN DASH}"
"""Stands for a missing number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number: its path in the document, its value, and the text that shows it."""

    path: str
    value: Any
    text: str


def at(document: Document, path: str) -> Any:
    """Return the value at a path of keys and indices.

    >>> at({"plan": {"stages": [{"layers": 63}]}}, "plan.stages.0.layers")
    63
    """
    value: Any = document
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def figure(document: Document, path: str, show: Callable[[Any], str]) -> Figure:
    """Return the number at a path."""
    value = at(document, path)
    return Figure(path=path, value=value, text=show(value))


def whole(value: float) -> str:
    """Return a number with thousands separators.

    >>> whole(665536)
    '665,536'
    """
    return f"{value:,}"


def gib(value: float) -> str:
    """Return bytes in GiB, as tables of memory show them."""
    return f"{value / GIB:,.1f}"


def percent(share: float) -> str:
    """Return a share as text, a small one never rounded to 0%.

    >>> percent(0.17), percent(0.036), percent(0.0007)
    ('17%', '3.6%', '< 0.1%')
    """
    if share >= 0.1:  # noqa: PLR2004 - ten percent: no digit behind the point tells more
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.001 else "< 0.1%"  # noqa: PLR2004 - rounds to a tenth of a percent


def rate(bytes_per_second: float) -> str:
    """Return the rate of a link as text.

    >>> rate(450e9)
    '450 GB/s'
    """
    return f"{bytes_per_second / 1e9:,.4g} GB/s"


def range_text(first: object, last: object) -> str:
    """Return a range, or one value if both ends are equal.

    >>> range_text(3, 3), len(range_text(0, 15))
    ('3', 4)
    """
    return str(first) if first == last else f"{first}{NONE}{last}"


COUNT = format_count
SECONDS = format_seconds


def from_milliseconds(value: float) -> str:
    """Return milliseconds as readable text."""
    return format_seconds(value / 1000)


def from_microseconds(value: float) -> str:
    """Return microseconds as readable text."""
    return format_seconds(value / MEGA)
