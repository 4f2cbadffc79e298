"""How many requests in flight does one instance just hold, and which rate does it carry?"""

import math
from dataclasses import replace
from typing import Final

from shardwright.layouts.layout import Candidate
from shardwright.planning.arrivals import Prices
from shardwright.planning.checks import limit_violations
from shardwright.planning.numbers import of, smallest
from shardwright.planning.request import Request
from shardwright.planning.select import UTILISATION, Scale, assess

MOST_IN_FLIGHT: Final = 4096
"""Unit: requests of one instance, up to which it is asked how many it holds. Basis: assumed; the
batches of engines are smaller.
"""


def held_requests(candidate: Candidate, prices: Prices, request: Request) -> int:
    """Return how many requests one instance of a candidate holds, all of them running and within
    the limits; 0 if not even one.
    """
    one = of(candidate, 1)
    beyond = smallest(
        lambda number: not _holds(one, number, prices, request), 1, MOST_IN_FLIGHT + 1
    )
    return (beyond or MOST_IN_FLIGHT + 1) - 1


def carried_rate(candidate: Candidate, prices: Prices, request: Request, requests: int) -> float:
    """Return the requests a second that one instance of a candidate carries with headroom, if it
    just holds so many ``requests``.
    """
    held = prices.under(with_in_flight(request, requests).workload).estimate(of(candidate, 1))
    capacity = prices.estimate(candidate).capacity
    most = math.inf if capacity is None else capacity / candidate.layout.replicas
    return min(UTILISATION * most, held.performance.requests_per_second)


def with_in_flight(request: Request, number: int) -> Request:
    """Return a request with so many requests in flight instead of its load."""
    load = replace(request.workload, concurrency=number, requests_per_second=None)
    return replace(request, workload=load)


def _holds(one: Candidate, number: int, prices: Prices, request: Request) -> bool:
    asked = with_in_flight(request, number)
    estimate = prices.under(asked.workload).estimate(one)
    carries = assess(one, estimate, Scale(request=asked, by_price=False)).carries_load
    return carries and not any(limit_violations(estimate.performance, asked))
