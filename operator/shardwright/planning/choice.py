"""Which ranked layout is taken? A near tie goes to the simpler cut, and no layout is taken that
another beats in everything.

Which plans can be shown, but not run yet?

What does a layout lose against the chosen one? No loss changes the choice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.costs.workload import requests_per_replica
from shardwright.errors import Problem
from shardwright.hardware.topology import CLIQUE_LABEL
from shardwright.layouts.layout import Candidate
from shardwright.planning.phrases import degrees
from shardwright.planning.report import Loss, LossKind
from shardwright.planning.request import OptimizeFor, Request, running_requests
from shardwright.planning.select import (
    BALANCED_SHARE,
    FeasibleCandidate,
    Scale,
    assess,
    breaks_rack,
    most_served,
)

_SHOWN_ONLY = "mode: Deploy takes the best layout that can be run"


def in_reach(ranked: Sequence[FeasibleCandidate], *, deploy: bool) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates, runnable layouts first if something is to be run."""
    # Mode PlanOnly shows what cannot be run, and that is better than no answer.
    return tuple(
        # False sorts first, and the sort is stable.
        sorted(ranked, key=lambda item: deploy and not_yet(item.candidate) is not None)
    )


def not_yet(candidate: Candidate, *, deploy: bool = True) -> Problem | None:
    """Return why a plan cannot run yet: attention replicas cut by nodes, or NVLink that pods cannot
    share.

    Args:
        candidate: The planned layout.
        deploy: Whether it is to be run; the remedy depends on it.
    """
    layout, placement, link = (
        candidate.layout,
        candidate.placement,
        candidate.placement.tensor_link,
    )
    replica = layout.tensor * layout.pipeline
    # Each pod is told its first attention replica and how many it has: half a replica cannot be
    # said.
    if layout.attention_data > 1 and placement.gpus_per_node % replica:
        what = (
            f"{degrees(layout)} puts attention replicas of {replica} GPUs each on nodes with "
            f"{placement.gpus_per_node}"
        )
        return _problem(what, "dataParallelAttention", "1", deploy=deploy)
    over_trays = (
        layout.tensor > placement.gpus_per_node
        and link is not None
        and link == candidate.pool.gpu.scale_up
    )
    if not over_trays or candidate.needs_compute_domain:
        return None
    nodes = layout.tensor // placement.gpus_per_node
    what = (
        f"{degrees(layout)} puts one tensor group on {nodes} nodes, which have no label "
        f"{CLIQUE_LABEL}"
    )
    return _problem(what, "tensor", f"{placement.gpus_per_node} or less", deploy=deploy)


def _problem(what: str, degree: str, most: str, *, deploy: bool) -> Problem:
    return Problem(
        code="NotYetDeployable",
        what=what,
        gap="which is planned and shown but not deployed yet",
        remedy=f"set mode: PlanOnly, or pin parallelism.{degree} to {most}"
        if deploy
        else _SHOWN_ONLY,
        path=f"spec.parallelism.{degree}",
    )


NEAR_TIE: Final = 0.03
"""Share by which a layout must be better to be better. Basis: assumed, a third of the median error
of throughput.
"""

_ROUNDING: Final = 1e-9

HALVED: Final = 0.5
"""Share of the time inside a node, or an NVLink domain, to which Latency must come over a network.
Source: the definition of Latency in docs/planner-choice.md.
"""


def settled(ranked: Sequence[FeasibleCandidate], scale: Scale) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates with the chosen one first.

    Args:
        ranked: The candidates that stand, the best by the objective first.
        scale: The measure of the rank.
    """
    if not ranked:
        return ()
    worth = _sparing_racks(_affordable(_halving(ranked, scale), scale), scale)
    # Layouts that are better in everything come last: they may take back the choice of a near tie,
    # never the reverse.
    best = _unbeaten(_simplest(worth, scale), worth, scale)
    return (best, *(other for other in ranked if other is not best))


def _halving(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Sequence[FeasibleCandidate]:
    """Return the rank from the first layout over a network that halves the time of all inside
    nodes, if there is one and the time is the goal.
    """
    first, request = ranked[0], scale.request
    goal = request.objective.optimize_for
    if goal is not OptimizeFor.LATENCY or not first.carries_load or first.goes_over_nodes(request):
        return ranked
    alike = [other for other in ranked if _sort(other, scale) == _sort(first, scale)]
    inside = (other for other in alike if not other.goes_over_nodes(request))
    bar = HALVED * min(other.seconds(request) for other in inside)
    for index, other in enumerate(ranked):
        over = _sort(other, scale) == _sort(first, scale) and other.goes_over_nodes(request)
        if over and other.seconds(request) <= bar and other.score > first.score:
            return ranked[index:]
    return ranked


def _affordable(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Sequence[FeasibleCandidate]:
    """Return the rank without layouts that cost more than the share of the least cost that Balanced
    pays for speed.
    """
    first = ranked[0]
    space, goal = scale.request.space, scale.request.objective.optimize_for
    if goal is not OptimizeFor.BALANCED or space.fill or not first.carries_load:
        return ranked
    alike = [other for other in ranked if _class(other, scale) == _class(first, scale)]
    most = min(other.counted_cost for other in alike) * BALANCED_SHARE
    return [other for other in alike if other.counted_cost <= most * (1 + _ROUNDING)]


def _sparing_racks(
    ranked: Sequence[FeasibleCandidate], scale: Scale
) -> Sequence[FeasibleCandidate]:
    """Return the rank without layouts that break a rack, if the best of them does not pay for that.

    It pays if, charged for all GPUs of the trays it opens, it beats the best on other GPUs. If the
    GPUs are given, nothing is spared.
    """
    first = ranked[0]
    if scale.request.space.fill or not breaks_rack(first.candidate):
        return ranked
    alike = [other for other in ranked if _class(other, scale) == _class(first, scale)]
    rival = next((other for other in alike if not other.candidate.pool.gpu.of_a_rack), None)
    breaking = (other for other in alike if breaks_rack(other.candidate))
    # With whole trays: whoever is first on a tray keeps others from a layout over several of them
    # (ADR 31).
    whole = max(
        (_with_whole_trays(other, scale) for other in breaking), key=lambda other: other.score
    )
    if rival is None or (whole.score > rival.score and _worth(whole, rival) > NEAR_TIE):
        return ranked
    return [other for other in ranked if not breaks_rack(other.candidate)]


def _with_whole_trays(feasible: FeasibleCandidate, scale: Scale) -> FeasibleCandidate:
    return assess(
        feasible.candidate, feasible.estimate, scale, besides=scale.opened(feasible.candidate)
    )


def _sort(feasible: FeasibleCandidate, scale: Scale) -> tuple[bool, ...]:
    return (
        # In the order of select's rank: a layout that may not start is worth less than one whose
        # requests wait.
        feasible.tight,
        _shown_only(feasible, scale),
        feasible.carries_load,
        feasible.second_choice,
    )


def _class(feasible: FeasibleCandidate, scale: Scale) -> tuple[bool, ...]:
    over = feasible.carries_load and feasible.goes_over_nodes(scale.request)
    return (*_sort(feasible, scale), over)


def _simplest(ranked: Sequence[FeasibleCandidate], scale: Scale) -> FeasibleCandidate:
    """Return the candidate as good as the first with the fewest GPUs, nodes and links over the
    network.
    """
    first = ranked[0]
    near = [
        other
        for other in ranked
        if other is first
        or (_class(other, scale) == _class(first, scale) and near_tie(first, other))
    ]
    # The rank decides last, so that equal efforts have one order in every run.
    return min(enumerate(near), key=lambda item: (*_effort(item[1]), item[0]))[1]


def _worth(first: FeasibleCandidate, other: FeasibleCandidate) -> float:
    better, worse = first.score, other.score
    # The score of a time is negative: the better one is nearer to zero, so the ratio is inverted.
    return better / worse - 1 if better > 0 else worse / better - 1


def _effort(feasible: FeasibleCandidate) -> tuple[float, ...]:
    candidate = feasible.candidate
    return (
        # Cost first: a near tie is no reason to take more GPUs.
        feasible.counted_cost,
        candidate.placement.nodes_per_replica,
        candidate.uses_network,
        candidate.pool.gpu.memory_bytes,
    )


def near_tie(first: FeasibleCandidate, other: FeasibleCandidate) -> bool:
    """Return whether one is better by less than predictions can resolve, and known no better."""
    same = (first.tight, first.carries_load, first.second_choice) == (
        other.tight,
        other.carries_load,
        other.second_choice,
    )
    # A guess takes no near tie from a layout whose like has been measured.
    as_sure = other.sure >= first.sure
    return other is first or (same and as_sure and _worth(first, other) <= NEAR_TIE)


def _unbeaten(
    best: FeasibleCandidate, ranked: Sequence[FeasibleCandidate], scale: Scale
) -> FeasibleCandidate:
    """Return the layout, or one that brings more and sooner for no more GPUs, the best by the
    objective.
    """
    # A layout that beats the first may be beaten in turn; each step is strictly better, so it ends.
    while True:
        better = [
            other
            for other in ranked
            if _comes_before(other, best, scale) and _dominates(other, best, scale)
        ]
        if not better:
            return best
        best = _simplest(better, scale)


def _comes_before(other: FeasibleCandidate, best: FeasibleCandidate, scale: Scale) -> bool:
    request = scale.request
    first = other.tight <= best.tight and other.second_choice <= best.second_choice
    inside = other.goes_over_nodes(request) <= best.goes_over_nodes(request)
    return first and inside and _shown_only(other, scale) <= _shown_only(best, scale)


def _dominates(other: FeasibleCandidate, best: FeasibleCandidate, scale: Scale) -> bool:
    """Return whether another brings more, and sooner, for no more GPUs, by more than a near tie.

    Of an offered rate that both carry neither brings more; one that falls behind beats nothing that
    serves it.
    """
    margin = 1 + NEAR_TIE
    if other.cost > best.cost:
        return False
    # Its queue grows without end, so its times say nothing; only its throughput counts.
    if best.falls_behind:
        return other.served > best.served * margin
    if other.falls_behind:
        return False
    carried = best.estimate.capacity is not None and best.carries_load
    more = carried or other.served > best.served * margin
    return (
        more
        and other.carries_load >= best.carries_load
        and other.seconds(scale.request) * margin < best.seconds(scale.request)
    )


def _shown_only(feasible: FeasibleCandidate, scale: Scale) -> bool:
    return scale.request.deploy and not_yet(feasible.candidate) is not None


def keeps_up(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Candidate:
    """Return the layout that carries the load at the least cost, in as many instances as it takes,
    whatever is free.
    """
    # A layout that may not start carries nothing, unless there is no other.
    served = [other for other in ranked if not other.tight] or ranked
    wanted = (
        replace(
            other.candidate, layout=replace(other.candidate.layout, replicas=other.replicas_wanted)
        )
        for other in served
    )
    return min(
        wanted,
        key=lambda candidate: (
            scale.total(candidate) + scale.stranded(candidate),
            candidate.pool.name,
            candidate.layout,
        ),
    )


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
