"""Which ranked layout is taken? A near tie goes to the simpler cut, and no layout is taken that
another beats in everything.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shardwright.layouts.layout import Candidate
from shardwright.planning.deployability import not_yet
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import (
    BALANCED_SHARE,
    FeasibleCandidate,
    Scale,
    assess,
    breaks_rack,
)

NEAR_TIE: Final = 0.03
"""Share by which a layout must be better to be better. Basis: assumed, a third of the median error
of throughput.
"""

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
    """Return the rank from the first layout over a network that halves the time of the first one,
    if there is one and the time is the goal.
    """
    first, request = ranked[0], scale.request
    goal = request.objective.optimize_for
    if goal is not OptimizeFor.LATENCY or not first.carries_load or first.goes_over_nodes(request):
        return ranked
    bar = first.seconds(request) * HALVED
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
    return [other for other in alike if other.counted_cost <= most]


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

    Of an offered rate that both serve neither brings more; one that falls behind beats nothing that
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
    more = best.estimate.capacity is not None or other.served > best.served * margin
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
