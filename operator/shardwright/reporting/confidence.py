"""How sure are the figures of a plan? Each has a band and a basis, which the plan brings.

Latencies have no band: by the errors on held-out measurements (docs/benchmarks/accuracy.md) the
time per output token is off by 13% where the throughput is off by 11 to 13%, and the time to first
token by 37 to 42%.
"""

from collections.abc import Iterator
from typing import Final

from shardwright.planning.report import Plan
from shardwright.planning.request import Request, Statistic
from shardwright.reporting.figures import format_count, format_seconds_between
from shardwright.units import format_bytes

_BASES: Final = {
    "fitted": "fitted to published measurements of one node",
    "modelled": "modelled: hardly any public measurement is like it",
}


def how_sure(plan: Plan, request: Request | None) -> tuple[str, ...]:
    """Return a sentence for each kind of figure."""
    return (_speed(plan), *_memory(plan), *_start(plan), *_percentile(request))


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
        yield (
            "Memory: weights are counted exactly; what is left for K/V may be off by "
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
