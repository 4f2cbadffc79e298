"""Which of the load and limits asked for does a plan miss? Such a plan is shown all the same, so
its first line has to say so.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from shardwright.costs.workload import requests_per_replica
from shardwright.planning.phrases import rate_of, rate_offered
from shardwright.planning.report import Plan
from shardwright.planning.request import (
    ALL_OF_A_RATE,
    Request,
    running_requests,
    tpot_seconds,
    ttft_seconds,
)
from shardwright.reporting.figures import format_count


class Missed(StrEnum):
    """What a plan misses, in the words that follow it."""

    LOAD = "does not carry the load"
    HEADROOM = "has too little headroom for the load"
    TTFT = "misses the limit on the time to first token"
    TPOT = "misses the limit on the time per token"


def missed(plan: Plan, request: Request | None) -> tuple[Missed, ...]:
    """Return what a plan misses; limits only if the request is known."""
    if not plan.groups:
        return ()
    load: tuple[Missed, ...] = ()
    if not plan.carries_load:
        load = (Missed.HEADROOM if serves_rate(plan, request) else Missed.LOAD,)
    if request is None or Missed.LOAD in load:
        return load
    return (*load, *_limits(plan, request))


def serves_rate(plan: Plan, request: Request | None) -> bool:
    """Return whether a plan serves an offered rate in full, headroom aside."""
    rate = request.workload.requests_per_second if request else None
    if rate is None:
        return False
    return plan.performance.requests_per_second >= rate * ALL_OF_A_RATE


def behind(plan: Plan, request: Request) -> str:
    """Return how much of its load a plan serves that does not carry all of it."""
    rate = request.workload.requests_per_second
    if rate is not None:
        if serves_rate(plan, request):
            return f"just reaches {rate_of(rate)}, without enough headroom"
        return f"serves {_below(plan.performance.requests_per_second, rate)} of {rate_of(rate)}"
    one = replace(plan.layout, replicas=max(plan.layout.replicas, 1))
    offered = requests_per_replica(request.workload, one)
    running = running_requests(plan.performance, offered, carries_load=plan.carries_load)
    return f"requests queue: {running:,} of {offered:,} run at once"


def _below(served: float, rate: float) -> str:
    """Return a rate with as many digits as show that it is below another.

    >>> _below(1.234567, 20), _below(19.9712, 20)
    ('1.23', '19.97')
    """
    texts = (format_count(served, digits=digits) for digits in range(3, 7))
    return next(
        (text for text in texts if float(text.replace(",", "")) < rate),
        f"less than {rate_offered(rate)}",
    )


def _limits(plan: Plan, request: Request) -> Iterator[Missed]:
    objective, speed = request.objective, plan.performance
    first = objective.ttft_seconds
    if first is not None and ttft_seconds(speed, objective.statistic) > first:
        yield Missed.TTFT
    each = objective.tpot_seconds
    if each is not None and tpot_seconds(speed, objective.statistic) > each:
        yield Missed.TPOT
