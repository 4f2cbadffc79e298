"""Figures as a person reads them: rounded to the digits that they are worth, with their band and
their basis.

For people alone: figures for programs are not rounded by it.
"""

from math import floor, log10

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import degrees, letters


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
    """Return a duration with the unit that suits it, two to three digits.

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
    if seconds >= 600:  # noqa: PLR2004 - ten minutes: nobody counts seconds
        return (
            f"{seconds / 60:.0f} min"
            if seconds < 2 * 3600
            else f"{seconds / 3600:.1f} h"
        )
    if seconds < 0.995:  # noqa: PLR2004 - from here on two digits say one second
        return f"{format_count(seconds * 1000, digits=2)} ms"
    return (
        f"{seconds:,.0f} s"
        if seconds >= 100  # noqa: PLR2004 - from here two digits are not enough
        else f"{format_count(seconds, digits=2)} s"
    )


def format_output(performance: Performance) -> str:
    """Return the output tokens per second with the 80% band and its basis."""
    band = f"{format_count(performance.low, digits=2)}\N{EN DASH}{format_count(performance.high, digits=2)}"  # noqa: E501 - a format in one piece
    return (
        f"about {format_count(performance.output_tokens_per_second)} tok/s ({band}, {performance.basis}"  # noqa: E501 - a format in one piece
        ")"
    )


def format_layout(layout: Layout) -> str:
    """Return the degrees of one replica, and how many replicas there are.

    >>> format_layout(Layout(tensor=8, replicas=2))
    'tensor 8, 2 replicas'
    """
    copies = [f"{layout.replicas} replicas"] if layout.replicas > 1 else []
    return ", ".join([degrees(layout), *copies])


def short_layout(layout: Layout) -> str:
    """Return the same in the letters of kubectl's column.

    >>> short_layout(Layout(tensor=8)), short_layout(Layout(tensor=8, replicas=2))
    ('TP8', '2 x TP8')
    """
    short = letters(layout)
    return f"{layout.replicas} x {short}" if layout.replicas > 1 else short


def format_plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> format_plural(1, "node"), format_plural(1200, "node"), format_plural(2, "box")
    ('1 node', '1,200 nodes', '2 boxes')
    """
    plural = f"{noun}es" if noun.endswith(("x", "s")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
