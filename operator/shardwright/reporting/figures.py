"""Figures as a person reads them: rounded to the digits they are worth, with band and basis.
Programs get them unrounded.

How sure are the figures of a plan? Each has a band and a basis, which the plan brings.

Latencies have no band: by the errors on held-out measurements (docs/benchmarks/accuracy.md) the
time per output token is off by as much as the throughput (10% of served loads), the time to first
token by 27 to 29%.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import floor, log10
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import letters
from shardwright.planning.report import Plan
from shardwright.planning.request import Request, Statistic
from shardwright.units import format_bytes

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


def format_limit(seconds: float) -> str:
    """Return a duration that somebody stated, to the last digit.

    >>> format_limit(1.05), format_limit(2), format_limit(0.0125), format_limit(1234.567)
    ('1.05 s', '2.0 s', '12.5 ms', '1,234.567 s')
    """
    unit, name = (1, "s") if seconds >= 1 else (MILLISECOND, "ms")
    stated = f"{seconds / unit:,.9g}"
    return f"{max(stated, format_count(seconds / unit, digits=2), key=len)} {name}"


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


def served_at_most(performance: Performance, capacity: float | None) -> Performance:
    """Return the most that is served: ``capacity`` requests a second, with the tokens and the band
    of that rate (None: the requests in flight keep it full already).
    """
    if capacity is None:
        return performance
    share = capacity / performance.requests_per_second
    return replace(
        performance,
        output_tokens_per_second=performance.output_tokens_per_second * share,
        requests_per_second=capacity,
        low=performance.low * share,
        high=performance.high * share,
    )


def format_output(performance: Performance) -> str:
    """Return the output tokens per second with their 80% band and its basis."""
    low, high = (format_count(edge, digits=2) for edge in (performance.low, performance.high))
    output = format_count(performance.output_tokens_per_second)
    return f"{output} tok/s ({low}\N{EN DASH}{high}, {performance.basis})"


def format_served(performance: Performance, capacity: float | None) -> str:
    """Return the most that is served: requests a second of an offered rate, else tokens."""
    if capacity is None:
        return f"{format_count(performance.output_tokens_per_second)} tok/s"
    return f"{format_count(capacity)}/s"


def half_band(performance: Performance) -> float:
    """Return half the 80% band of the output, as a share of it."""
    return (performance.high - performance.low) / 2 / performance.output_tokens_per_second


def format_band(performance: Performance) -> str:
    """Return half the 80% band of the output in percent."""
    return f"\N{PLUS-MINUS SIGN}{half_band(performance):.0%}"


def short_layout(layout: Layout) -> str:
    """Return a layout with its replicas, without the layers of its stages.

    >>> short_layout(Layout(tensor=8)), short_layout(Layout(tensor=8, replicas=2))
    ('TP8', '2 x TP8')
    """
    short = letters(layout)
    return f"{layout.replicas} x {short}" if layout.replicas > 1 else short


_BASES: Final = {
    "fitted": "fitted to published measurements of one node",
    "modelled": "modelled: hardly any public measurement is like it",
}


def how_sure(plan: Plan, request: Request | None) -> tuple[str, ...]:
    """Return a sentence for each kind of figure."""
    speed = (_speed(plan),) if plan.performance.promised else ()
    return (*speed, *_memory(plan), *_start(plan), *_percentile(request))


def _speed(plan: Plan) -> str:
    speed = plan.performance
    below, above = (edge / speed.output_tokens_per_second - 1 for edge in (speed.low, speed.high))
    low, high = (format_count(edge, digits=2) for edge in (speed.low, speed.high))
    basis = _BASES.get(speed.basis, speed.basis)
    return (
        f"Speed: {low} to {high} tok/s is the 80% band ({below:+.0%} to {above:+.0%}), {basis}. "
        "The time per output token is about as uncertain, the time to first token about three "
        "times. All are means."
    )


def _memory(plan: Plan) -> Iterator[str]:
    band = max((stage.band_bytes for stage in plan.stages), default=0)
    if band:
        how = "counted exactly" if plan.performance.promised else "stated"
        yield (
            f"Memory: weights are {how}; what is left for K/V may be off by "
            f"{format_bytes(band)} per GPU."
        )


def _start(plan: Plan) -> Iterator[str]:
    if plan.load:
        span = format_seconds_between(plan.load.low, plan.load.high)
        yield (
            f"Start: reading weights takes {span}; the bandwidth of the storage is "
            f"{plan.load.basis}."
        )


def _percentile(request: Request | None) -> Iterator[str]:
    if request and request.objective.statistic is Statistic.P95 and request.objective.limited:
        yield (
            "Limits: P95 is derived from the predicted means by an assumption about waiting "
            "times; it is not predicted."
        )
