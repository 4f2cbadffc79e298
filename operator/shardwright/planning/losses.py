"""The losses of a layout against the chosen one: facts first, and the sentence that says them.

No loss changes the choice.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.costs.limits import requests_per_replica
from shardwright.planning.deployability import not_yet
from shardwright.planning.limits import running_requests
from shardwright.planning.phrases import (
    WORDS,
    duration,
    rate,
    rate_offered,
    requests_of,
)
from shardwright.planning.report import Loss, LossKind
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import FeasibleCandidate, Scale

_NOTICEABLE_SECONDS: Final = 50e-6  # rounds to a tenth of a millisecond

_RATIOS: Final = {
    LossKind.THROUGHPUT_PER_GPU: "throughput per GPU",
    LossKind.THROUGHPUT_FOR_PRICE: "throughput for its price",
    LossKind.TPOT: "time per token",
    LossKind.TTFT: "time to first token",
}
_FACTS: Final = {
    LossKind.NOT_DEPLOYABLE: "not deployable yet",
    LossKind.TIGHT: "tight, may not start",
}
_LATE: Final = {
    LossKind.FALLS_BEHIND: "falls behind",
    LossKind.NO_HEADROOM: "has no headroom",
}


def losses_of(
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    scale: Scale,
) -> tuple[Loss, ...]:
    """Return what a layout loses against the best one, in the order in which it is said. Figures
    of one that queues are left out where the best does not: they are of fewer requests.
    """
    queues = tuple(_queues(best, other, scale.request))
    told = queues and best.carries_load
    return (
        *_doubts(best, other, scale.request),
        *queues,
        *(() if told else _figures(best, other, scale)),
    )


def sentence_of(
    losses: Sequence[Loss],
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    request: Request,
) -> str:
    """Return losses in words."""
    parts = [_said(loss, best, request) for loss in losses if loss.kind not in _RATIOS]
    ratios = [
        f"{_more(loss.amount)} {_RATIOS[loss.kind]}"
        for loss in losses
        if loss.kind in _RATIOS
    ]
    if not ratios:
        return "; ".join(parts)
    gpus = other.candidate.layout.gpus
    figures = f"{', '.join(ratios)} on {gpus} GPU{'s' if gpus > 1 else ''}"
    grown = 1 if losses[-1].kind is LossKind.PART_OF_TPOT else 0
    parts.insert(len(parts) - grown, figures)
    return "; ".join(parts)


def rate_served(feasible: FeasibleCandidate) -> float:
    """Return the requests a second that a layout serves at most."""
    return (
        feasible.estimate.capacity or feasible.estimate.performance.requests_per_second
    )


def running(feasible: FeasibleCandidate, request: Request) -> int:
    """Return the requests that run at once in one replica, over all its attention ranks: not all,
    where K/V is short for them.
    """
    return running_requests(
        feasible.estimate.performance,
        offered(feasible, request),
        carries_load=feasible.carries_load,
    )


def offered(feasible: FeasibleCandidate, request: Request) -> int:
    """Return the requests in flight of one replica."""
    return requests_per_replica(request.workload, feasible.candidate.layout)


def _doubts(
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    request: Request,
) -> Iterator[Loss]:
    if request.deploy and not_yet(other.candidate):
        yield Loss(kind=LossKind.NOT_DEPLOYABLE)
    if other.tight and not best.tight:
        yield Loss(kind=LossKind.TIGHT)


def _queues(
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    request: Request,
) -> Iterator[Loss]:
    """Yield that fewer requests run at once or are served than under the chosen layout."""
    if other.served_share >= best.served_share:
        return
    if request.workload.requests_per_second is None:
        yield Loss(
            kind=LossKind.QUEUES,
            amount=running(other, request),
        )
        return
    yield Loss(
        kind=LossKind.FALLS_BEHIND if other.falls_behind else LossKind.NO_HEADROOM,
        amount=rate_served(other),
    )


def _figures(
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    scale: Scale,
) -> Iterator[Loss]:
    here, there = best.estimate.performance, other.estimate.performance
    mine, yours = (
        item.estimate.performance.output_tokens_per_second / scale.total(item.candidate)
        for item in (best, other)
    )
    same = other.candidate.pool.gpu.id == best.candidate.pool.gpu.id
    yield Loss(
        kind=LossKind.THROUGHPUT_PER_GPU if same else LossKind.THROUGHPUT_FOR_PRICE,
        amount=yours / mine,
    )
    yield Loss(
        kind=LossKind.TPOT,
        amount=there.tpot_seconds / here.tpot_seconds,
    )
    if scale.request.objective.optimize_for is OptimizeFor.LATENCY:
        yield Loss(
            kind=LossKind.TTFT,
            amount=there.ttft_seconds / here.ttft_seconds,
        )
    yield from _grown(here, there)


def _grown(here: Performance, there: Performance) -> Iterator[Loss]:
    """Yield the part of a token's time that grows most."""
    before = {share.name: share.seconds for share in here.decode_shares}
    grown = [
        (share.seconds - before.get(share.name, 0.0), share.name)
        for share in there.decode_shares
    ]
    most, name = max(grown)
    if most > _NOTICEABLE_SECONDS:
        yield Loss(
            kind=LossKind.PART_OF_TPOT,
            amount=most,
            part=name,
        )


def _said(
    loss: Loss,
    best: FeasibleCandidate,
    request: Request,
) -> str:
    if loss.kind in _FACTS:
        return _FACTS[loss.kind]
    if loss.kind is LossKind.PART_OF_TPOT:
        return f"{duration(loss.amount)} more per token for {WORDS[loss.part]}"
    if loss.kind is LossKind.QUEUES:
        more = "" if best.carries_load else " more"
        return f"queues{more}: only {requests_of(int(loss.amount))} at once per replica"
    wanted = request.workload.requests_per_second or 0.0
    return (
        f"{_LATE[loss.kind]}: serves {rate(loss.amount)} requests a second at most, "
        f"{rate_offered(wanted)} are offered"
    )


def _more(ratio: float) -> str:
    change = ratio - 1
    if abs(change) < 0.005:  # noqa: PLR2004 - rounds to no percent
        return "the same"
    return f"{abs(change):.0%} {'more' if change > 0 else 'less'}"
