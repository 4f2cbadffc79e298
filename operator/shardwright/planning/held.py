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
    """Return what one instance of a candidate holds; the part of a rate that is planned for it is
    carried by definition.
    """
    held = held_within(best.candidate, best.estimate.capacity, prices, request)
    offered = (request.workload.requests_per_second or 0.0) if best.carries_load else 0.0
    if held.requests == 0:
        return held
    return replace(held, rate=max(held.rate, offered / best.candidate.layout.replicas))


def held_within(
    candidate: Candidate, capacity: float | None, prices: Prices, request: Request
) -> InstanceLoad:
    """Return what one instance of a candidate holds, all of which serves at most a ``capacity`` in
    requests a second.
    """
    one, load = of(candidate, 1), request.workload.among(candidate.layout.replicas)
    request = replace(request, workload=load)

    @cache
    def under(number: int) -> Estimate:
        return prices.under(with_in_flight(request, number).workload).estimate(one)

    def holds(number: int) -> bool:
        asked = with_in_flight(request, number)
        alone = assess(one, under(number), Scale(request=asked, by_price=False))
        return alone.carries_load and not any(limit_violations(under(number).performance, asked))

    requests = _most_that(holds, _room(one, under(MOST_IN_FLIGHT)))
    if requests == 0:
        return InstanceLoad(requests=0, rate=0.0)
    most = math.inf if capacity is None else UTILISATION * capacity / candidate.layout.replicas
    served = under(requests).performance.requests_per_second
    return InstanceLoad(requests=requests, rate=min(most, served))


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


def with_in_flight(request: Request, number: int) -> Request:
    """Return a request with so many requests in flight instead of its load."""
    load = replace(request.workload, concurrency=number, requests_per_second=None)
    return replace(request, workload=load)
