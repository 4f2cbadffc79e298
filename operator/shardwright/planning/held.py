"""What does one instance of a layout just hold?"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from shardwright.costs.estimates import Estimate
from shardwright.layouts.layout import Candidate
from shardwright.planning.arrivals import Prices
from shardwright.planning.checks import limit_violations
from shardwright.planning.numbers import of, smallest
from shardwright.planning.request import Request
from shardwright.planning.select import KV_ERROR, UTILISATION, FeasibleCandidate, Scale, assess

MOST_IN_FLIGHT: Final = 4096
"""Unit: requests of one instance, up to which it is asked how many it holds. Basis: assumed; the
batches of engines are smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoad:
    """What one instance of a layout just holds: ``requests`` in flight, all of them running and
    within the limits (0: not even one); ``rate`` are the requests a second that it carries with
    headroom.
    """

    requests: int
    rate: float


def instance_load(best: FeasibleCandidate, prices: Prices, request: Request) -> InstanceLoad:
    """Return what one instance of a candidate holds."""
    one = of(best.candidate, 1)

    @cache
    def under(number: int) -> Estimate:
        return prices.under(_in_flight(request, number).workload).estimate(one)

    def holds(number: int) -> bool:
        asked = _in_flight(request, number)
        alone = assess(one, under(number), Scale(request=asked, by_price=False))
        return alone.carries_load and not any(limit_violations(under(number).performance, asked))

    requests = _most_that(holds, _room(one, under(MOST_IN_FLIGHT)))
    if requests == 0:
        return InstanceLoad(requests=0, rate=0.0)
    rate = _rate(best, under(requests).performance.requests_per_second, request)
    return InstanceLoad(requests=requests, rate=rate)


def _room(one: Candidate, filled: Estimate) -> int:
    """Return how many requests have room at once, about: the memory for them is that of a full
    batch.
    """
    room = min(filled.kv_requests, filled.max_sequences) * one.layout.attention_data
    return min(MOST_IN_FLIGHT, max(1, math.floor(room / (1 - KV_ERROR))))


def _most_that(holds: Callable[[int], bool], guess: int) -> int:
    if not holds(guess):
        return bisect_left(range(1, guess), 1, key=lambda number: not holds(number))
    if guess == MOST_IN_FLIGHT:
        return guess
    beyond = smallest(lambda number: not holds(number), guess + 1, MOST_IN_FLIGHT)
    return MOST_IN_FLIGHT if beyond is None else beyond - 1


def _rate(best: FeasibleCandidate, served: float, request: Request) -> float:
    """Return what an instance carries of a rate: what it serves within the limits, and no more
    than leaves headroom; the part that is planned for it is carried by definition.
    """
    capacity, replicas = best.estimate.capacity, best.candidate.layout.replicas
    most = math.inf if capacity is None else UTILISATION * capacity / replicas
    offered = (request.workload.requests_per_second or 0.0) if best.carries_load else 0.0
    return max(min(most, served), offered / replicas)


def _in_flight(request: Request, number: int) -> Request:
    load = replace(request.workload, concurrency=number, requests_per_second=None)
    return replace(request, workload=load)
