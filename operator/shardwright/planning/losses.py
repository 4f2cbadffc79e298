"""What does a layout lose against the chosen one? No loss changes the choice."""

from collections.abc import Iterator
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.costs.limits import requests_per_replica
from shardwright.planning.deployability import not_yet
from shardwright.planning.limits import running_requests
from shardwright.planning.report import Loss, LossKind
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import FeasibleCandidate, Scale, most_served

_NOTICEABLE_SECONDS: Final = 50e-6  # rounds to a tenth of a millisecond


def losses_of(best: FeasibleCandidate, other: FeasibleCandidate, scale: Scale) -> tuple[Loss, ...]:
    """Return what a layout loses against the best one, in the order in which it is said.

    If only it queues its figures are left out: they are of fewer requests.
    """
    queues = tuple(_queues(best, other, scale.request))
    figures = () if queues and best.carries_load else _figures(best, other, scale)
    return (*_doubts(best, other, scale.request), *queues, *figures)


def rate_served(feasible: FeasibleCandidate) -> float:
    """Return the most requests a second that a layout serves."""
    estimate = feasible.estimate
    return estimate.capacity or estimate.performance.requests_per_second


def running(feasible: FeasibleCandidate, request: Request) -> int:
    """Return the requests that run at once in one replica, over all its attention ranks."""
    return running_requests(
        feasible.estimate.performance,
        offered(feasible, request),
        carries_load=feasible.carries_load,
    )


def offered(feasible: FeasibleCandidate, request: Request) -> int:
    """Return the requests in flight of one replica."""
    return requests_per_replica(request.workload, feasible.candidate.layout)


def _doubts(best: FeasibleCandidate, other: FeasibleCandidate, request: Request) -> Iterator[Loss]:
    if request.deploy and not_yet(other.candidate):
        yield Loss(kind=LossKind.NOT_DEPLOYABLE)
    if other.tight and not best.tight:
        yield Loss(kind=LossKind.TIGHT)


def _queues(best: FeasibleCandidate, other: FeasibleCandidate, request: Request) -> Iterator[Loss]:
    if other.served_share >= best.served_share:
        return
    if request.workload.requests_per_second is None:
        yield Loss(kind=LossKind.QUEUES, amount=running(other, request))
        return
    late = LossKind.FALLS_BEHIND if other.falls_behind else LossKind.NO_HEADROOM
    yield Loss(kind=late, amount=rate_served(other))


def _figures(best: FeasibleCandidate, other: FeasibleCandidate, scale: Scale) -> Iterator[Loss]:
    here, there = best.estimate.performance, other.estimate.performance
    mine, yours = (
        most_served(item.estimate.performance, item.estimate.capacity) / scale.total(item.candidate)
        for item in (best, other)
    )
    same = other.candidate.pool.gpu.id == best.candidate.pool.gpu.id
    served = LossKind.THROUGHPUT_PER_GPU if same else LossKind.THROUGHPUT_FOR_PRICE
    yield Loss(kind=served, amount=yours / mine)
    yield Loss(kind=LossKind.TPOT, amount=there.tpot_seconds / here.tpot_seconds)
    if scale.request.objective.optimize_for is OptimizeFor.LATENCY:
        yield Loss(kind=LossKind.TTFT, amount=there.ttft_seconds / here.ttft_seconds)
    yield from _grown(here, there)


def _grown(here: Performance, there: Performance) -> Iterator[Loss]:
    before = {share.name: share.seconds for share in here.decode_shares}
    grown = [
        (share.seconds - before.get(share.name, 0.0), share.name) for share in there.decode_shares
    ]
    most, name = max(grown)
    if most > _NOTICEABLE_SECONDS:
        yield Loss(kind=LossKind.PART_OF_TPOT, amount=most, part=name)
