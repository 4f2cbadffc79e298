"""Figures as a person reads them: rounded to the digits they are worth, with band and basis.
Programs get them unrounded.
"""

from math import floor, log10
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import degrees, letters

MILLISECOND: Final = 0.001  #: s
MINUTE: Final = 60  #: s
HOUR: Final = 3600  #: s


def format_count(value: float, *, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits and thousands separators.

    >>> format_count(2314.2)
    '2,310'
    >>> format_count(0.8431)
    '0.843'
    >>> format_count(0)
    '0'
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that suits it, with two to three digits.

    >>> (
    ...     format_seconds(0.00424),
    ...     format_seconds(0.0273),
    ...     format_seconds(0.31),
    ...     format_seconds(4.13),
    ...     format_seconds(312),
    ... )
    ('4.2 ms', '27 ms', '310 ms', '4.1 s', '312 s')
    >>> format_seconds(0.996), format_seconds(1020), format_seconds(16_200)
    ('1.0 s', '17 min', '4.5 h')
    """
    unit, name = _unit(seconds)
    if unit == MINUTE:
        return f"{seconds / unit:.0f} {name}"
    if unit == HOUR:
        return f"{seconds / unit:.1f} {name}"
    if seconds >= 100:  # noqa: PLR2004 - from here two digits are not enough
        return f"{seconds:,.0f} {name}"
    return f"{format_count(seconds / unit, digits=2)} {name}"


def format_seconds_between(low: float, high: float) -> str:
    """Return a range of durations, both ends in the unit of the upper one.

    >>> format_seconds_between(1020, 16_200), format_seconds_between(176, 2820)
    ('0.28 to 4.5 h', '2.9 to 47 min')
    >>> format_seconds_between(0.65, 1.2), format_seconds_between(0.02, 0.041)
    ('0.65 to 1.2 s', '20 to 41 ms')
    """
    unit, _ = _unit(high)
    return f"{format_count(low / unit, digits=2)} to {format_seconds(high)}"


def _unit(seconds: float) -> tuple[float, str]:
    """Return the unit that suits a duration, in seconds, and its name."""
    if seconds >= 2 * HOUR:
        return HOUR, "h"
    if seconds >= 10 * MINUTE:
        return MINUTE, "min"
    # From here on two digits round to one second.
    if seconds >= 0.995:  # noqa: PLR2004 - see above
        return 1, "s"
    return MILLISECOND, "ms"


def format_output(performance: Performance) -> str:
    """Return the output tokens per second with their 80% band and its basis."""
    band = f"{format_count(performance.low, digits=2)}\N{EN DASH}{format_count(performance.high, digits=2)}"  # noqa: E501 - a format in one piece
    return (
        f"about {format_count(performance.output_tokens_per_second)} tok/s ({band}, {performance.basis}"  # noqa: E501 - a format in one piece
        ")"
    )


def format_layout(layout: Layout) -> str:
    """Return the degrees of one replica and the number of replicas.

    >>> format_layout(Layout(tensor=8, replicas=2))
    'tensor 8, 2 replicas'
    """
    copies = [f"{layout.replicas} replicas"] if layout.replicas > 1 else []
    return ", ".join([degrees(layout), *copies])


def short_layout(layout: Layout) -> str:
    """Return a layout in the letters of kubectl's column.

    >>> short_layout(Layout(tensor=8)), short_layout(Layout(tensor=8, replicas=2))
    ('TP8', '2 x TP8')
    """
    short = letters(layout)
    return f"{layout.replicas} x {short}" if layout.replicas > 1 else short
