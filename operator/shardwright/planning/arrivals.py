"""How many requests does an offered rate keep in flight? A rate is priced as that number.

Arrivals are as even as their mean rate: no burst is priced.
"""

import math
from dataclasses import replace
from typing import Final, Protocol

from shardwright.costs.estimates import Estimate, Performance
from shardwright.costs.estimator import Estimator
from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.workload import Workload
from shardwright.layouts.layout import Candidate, EngineTraits
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.request import Request

_ROUNDS: Final = 3
"""Times that the number in flight is taken from how long requests stay at the last one; then it is
searched for. Basis: assumed, what it takes unless the rate is near what can be served.
"""

_STEPS_PER_DOUBLING: Final = 8
"""Numbers in flight that are told apart between one and its double: layouts share what is priced
for one number.
"""

_MOST_IN_FLIGHT: Final = 4096
"""Unit: requests per replica. Basis: assumed; a rate that needs more than an engine's batches hold
is not served.
"""


class Prices(Protocol):
    """The estimator of candidates."""

    def under(self, workload: Workload) -> "Prices":
        """Return the prices under so many requests in flight."""

    def memory(self, candidate: Candidate) -> ReplicaMemory:
        """Return the memory of a candidate."""

    def lengthened(self, candidate: Candidate) -> ReplicaMemory:
        """Return the memory of a candidate at the longest request that costs nothing."""

    def speed(self, candidate: Candidate) -> Performance:
        """Return the latencies of a candidate; its throughput may belong to a load that is not
        offered.
        """

    def estimate(self, candidate: Candidate) -> Estimate:
        """Return memory and speed of a candidate."""


def estimator_of(model: ModelSpec, request: Request, traits: EngineTraits) -> Prices:
    """Return the prices of a request's candidates."""
    closed = Estimator(
        model, request.workload, traits, request.storage, request.read_bytes_per_second
    )
    return (
        closed
        # A number in flight is priced as it is.
        if request.workload.requests_per_second is None
        else _Open(closed, request.workload)
    )


class _Open:
    """Prices an offered rate by Little's law: requests in flight are the rate times a request's
    stay.
    """

    def __init__(self, estimator: Estimator, workload: Workload) -> None:
        self._estimator, self._workload = estimator, workload
        self._under: dict[tuple[int, float], Estimator] = {}
        self._found: dict[tuple[object, ...], tuple[Estimator, Estimate]] = {}

    def under(self, workload: Workload) -> Estimator:
        return self._estimator.under(workload)

    def memory(self, candidate: Candidate) -> ReplicaMemory:
        return self._settled(candidate)[0].memory(candidate)

    def lengthened(self, candidate: Candidate) -> ReplicaMemory:
        return self._settled(candidate)[0].lengthened(candidate)

    def speed(self, candidate: Candidate) -> Performance:
        return self._settled(candidate)[1].performance

    def estimate(self, candidate: Candidate) -> Estimate:
        found = self._settled(candidate)[1]
        capacity = max(found.performance.requests_per_second, self._capacity(candidate))
        return replace(
            found, performance=self._as_offered(found.performance, capacity), capacity=capacity
        )

    def _capacity(self, candidate: Candidate) -> float:
        """Return the requests a second that are served at most: as many times those of one
        instance.
        """
        layout = candidate.layout
        among = self._workload.among(layout.replicas)
        one = replace(candidate, layout=replace(layout, replicas=1))
        full = self._at(_rounded_up(_MOST_IN_FLIGHT), among).estimate(one)
        # Larger batches leave less room for prompts, so the most in flight need not serve the most.
        filled = self._at(
            _rounded_up(min(_MOST_IN_FLIGHT, full.max_sequences * layout.attention_data)), among
        ).estimate(one)
        served = (each.performance.requests_per_second for each in (full, filled))
        return max(served) * layout.replicas

    def _settled(self, candidate: Candidate) -> tuple[Estimator, Estimate]:
        key = (candidate.layout, *candidate.hardware)
        if key not in self._found:
            at = self._at(self._in_flight(candidate))
            self._found[key] = at, at.estimate(candidate)
        return self._found[key]

    def _in_flight(self, candidate: Candidate) -> int:
        """Return the requests in flight at which the rate settles, or the most if it is not
        served.
        """
        replicas = candidate.layout.replicas
        most = _rounded_up(_MOST_IN_FLIGHT * replicas)
        if self._capacity(candidate) < (self._workload.requests_per_second or 0):
            return most
        # From below: the first number that serves the rate is the one at which the queue settles.
        in_flight = replicas
        for _ in range(_ROUNDS):
            needed = min(most, self._needed(candidate, in_flight))
            if needed <= in_flight:
                break
            in_flight = needed
        else:
            in_flight = self._searched(candidate, in_flight, most)
        return in_flight

    def _needed(self, candidate: Candidate, in_flight: int) -> int:
        """Return how many requests would be in flight if each stayed as long as beside
        ``in_flight`` others.
        """
        stay = self._stay(self._at(in_flight).estimate(candidate))
        return _rounded_up(stay * (self._workload.requests_per_second or 0))

    def _searched(self, candidate: Candidate, least: int, most: int) -> int:
        """Return the smallest number in flight that serves the rate, or the most; steps are short
        near it.
        """
        low, high = _step(least), _step(most)
        while low < high:
            middle = (low + high) // 2
            enough = self._needed(candidate, _number(middle)) <= _number(middle)
            low, high = (low, middle) if enough else (middle + 1, high)
        return _number(low)

    def _as_offered(self, speed: Performance, capacity: float) -> Performance:
        share = min(capacity, self._workload.requests_per_second or 0) / speed.requests_per_second
        return replace(
            speed,
            output_tokens_per_second=speed.output_tokens_per_second * share,
            requests_per_second=speed.requests_per_second * share,
            low=speed.low * share,
            high=speed.high * share,
        )

    def _at(self, in_flight: int, load: Workload | None = None) -> Estimator:
        load = load or self._workload
        # Kept by number: layouts settle at the same few numbers, and share the prices of each.
        key = in_flight, load.prefix_cache_hit_rate
        if key not in self._under:
            self._under[key] = self._estimator.under(replace(load, concurrency=in_flight))
        return self._under[key]

    def _stay(self, estimate: Estimate) -> float:
        speed = estimate.performance
        return speed.ttft_seconds + self._workload.output_tokens * speed.tpot_seconds


def _rounded_up(in_flight: float) -> int:
    """Return the next number of a grid in steps of some percent.

    >>> [_rounded_up(number) for number in (0.2, 7.5, 100.0)]
    [1, 8, 107]
    """
    if in_flight <= _STEPS_PER_DOUBLING:
        return max(1, math.ceil(in_flight))
    return _number(_step(in_flight))


def _step(in_flight: float) -> int:
    # Rounded up: a number in flight that is too small would promise a rate that is not served.
    return math.ceil(math.log2(in_flight) * _STEPS_PER_DOUBLING)


def _number(step: int) -> int:
    return math.floor(2 ** (step / _STEPS_PER_DOUBLING))
