"""Which of the layouts that stand is best, by the objectives of docs/planner.md; ties end at the name."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.costs.estimates import Estimate
from shardwright.layouts.layout import Candidate
from shardwright.planning.checks import Verdict
from shardwright.planning.request import OptimizeFor, Request

THROUGHPUT_WEIGHT: Final = 0.8
"""Exponent of throughput per GPU in Balanced; speed per request has the rest. Source: the definition of Balanced."""

DOUBLING_GAIN: Final = 0.10
"""What doubling the GPUs must bring under Latency, share of the time per request. Source: the definition of Latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A candidate that nothing speaks against."""

    candidate: Candidate
    estimate: Estimate
    served_share: float  # of the offered requests that run at once; 1 carries the load
    score: float  # the objective, greater is better

    @property
    def carries_load(self) -> bool:
        """Return whether no request waits for K/V space."""
        return self.served_share >= 1


def select(verdicts: Iterable[Verdict], request: Request) -> tuple[Standing, ...]:
    """Return the candidates that nothing speaks against, best first; empty when there is none.

    What carries the load goes before what queues; among those that queue, what queues least.
    """
    standing = [
        assess(verdict.candidate, verdict.estimate, request)
        for verdict in verdicts
        if verdict.estimate is not None and not verdict.violations
    ]
    return rank(standing)


def rank(standing: Iterable[Standing]) -> tuple[Standing, ...]:
    """Return the same, best first, in an order that does not depend on the order given."""
    return tuple(sorted(standing, key=_order))


def assess(candidate: Candidate, estimate: Estimate, request: Request) -> Standing:
    """Return a candidate with its score under the request's objective."""
    offered = math.ceil(request.workload.concurrency / candidate.layout.replicas)
    room = min(estimate.kv_requests, estimate.max_sequences)
    return Standing(
        candidate=candidate,
        estimate=estimate,
        served_share=min(1.0, room / offered),
        score=score(candidate, estimate, request),
    )


def score(candidate: Candidate, estimate: Estimate, request: Request) -> float:
    """Return the objective, greater is better.

    Latency is the negative time per request, times a price for GPUs at which a doubling breaks even when
    it brings ``DOUBLING_GAIN``: comparing any two layouts that way gives one best, whatever the order.
    """
    speed, gpus = estimate.performance, candidate.layout.gpus
    per_gpu = speed.output_tokens_per_second / gpus
    match request.objective.optimize_for:
        case OptimizeFor.THROUGHPUT:
            return per_gpu
        case OptimizeFor.BALANCED:
            return float(per_gpu**THROUGHPUT_WEIGHT * (1 / speed.tpot_seconds) ** (1 - THROUGHPUT_WEIGHT))
        case OptimizeFor.LATENCY:
            seconds = speed.ttft_seconds + request.workload.output_tokens * speed.tpot_seconds
            return float(-seconds * gpus ** -math.log2(1 - DOUBLING_GAIN))


def runners_up(ranked: Sequence[Standing], count: int) -> tuple[Standing, ...]:
    """Return the best others, each with degrees of its own."""
    seen = {ranked[0].candidate.layout} if ranked else set()
    others = []
    for standing in ranked[1:]:
        if standing.candidate.layout not in seen:
            seen.add(standing.candidate.layout)
            others.append(standing)
    return tuple(others[:count])


def _order(standing: Standing) -> tuple[object, ...]:
    candidate = standing.candidate
    queues = 0.0 if standing.carries_load else -standing.served_share
    return (
        not standing.carries_load,
        queues,
        -standing.score,
        candidate.layout.gpus,
        candidate.pool.gpu.memory_bytes,
        candidate.placement.leftover_gpus,
        candidate.pool.name,
        candidate.layout,
    )
