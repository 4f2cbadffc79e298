"""Which ranked layout is taken? A near tie goes to the simpler cut, and no layout is taken that
another beats in everything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from shardwright.costs.coefficients import BAND_MODELLED
from shardwright.layouts.layout import Candidate
from shardwright.planning.arrivals import Prices
from shardwright.planning.deployability import not_yet
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import (
    FeasibleCandidate,
    Scale,
    answer_seconds,
    assess,
    breaks_rack,
)

NEAR_TIE: Final = 0.03
"""Share by which a layout must be better to be better. Basis: assumed, a third of the median error
of throughput.
"""

NEAR_TIE_OVER_NETWORK: Final = BAND_MODELLED / 2
"""The same for traffic over the network between nodes against traffic inside one. Basis: assumed,
half of the band that such predictions have: hardly one has been measured.
"""

NOTEWORTHY: Final = 0.10
"""Share by which replicas must be better on the same GPUs to be named. Basis: assumed, the median
error of throughput.
"""

_SMALLER_TRIED: Final = 12
"""Smaller layouts whose replicas are looked at, the best first. Basis: assumed."""


def settled(
    ranked: Sequence[FeasibleCandidate], scale: Scale, prices: Prices
) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates with the chosen one first.

    Args:
        ranked: The candidates that stand, the best by the objective first.
        scale: The measure of the rank.
        prices: Its estimator.
    """
    if not ranked:
        return ()
    spared = _sparing_racks(ranked, scale)
    # Layouts that are better in everything come last: they may take back the choice of a near tie,
    # never the reverse.
    best = _unbeaten(_simplest(_paying(spared, scale, prices), scale), spared, scale)
    return (best, *(other for other in ranked if other is not best))


def _sparing_racks(
    ranked: Sequence[FeasibleCandidate], scale: Scale
) -> Sequence[FeasibleCandidate]:
    """Return the rank without layouts that break a rack, if the best of them does not pay for that.

    It pays if, charged for all GPUs of the trays it opens, it beats the best on other GPUs by more
    than barely measured predictions can resolve. If the GPUs are given, nothing is spared.
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
    if rival is None or (
        whole.score > rival.score and _worth(whole, rival) > NEAR_TIE_OVER_NETWORK
    ):
        return ranked
    return [other for other in ranked if not breaks_rack(other.candidate)]


def _with_whole_trays(feasible: FeasibleCandidate, scale: Scale) -> FeasibleCandidate:
    return assess(
        feasible.candidate, feasible.estimate, scale, besides=scale.opened(feasible.candidate)
    )


def in_replicas(
    best: FeasibleCandidate, ranked: Sequence[FeasibleCandidate], scale: Scale, prices: Prices
) -> FeasibleCandidate | None:
    """Return the best replicas of a smaller layout that bring more, and sooner, on as many GPUs of
    the pool.
    """
    found = [
        copies
        for copies in _in_copies(best, ranked, scale, prices)
        if _dominates(copies, best, scale, NOTEWORTHY)
    ]
    return max(found, key=lambda copies: copies.score, default=None)


def _paying(
    ranked: Sequence[FeasibleCandidate], scale: Scale, prices: Prices
) -> Sequence[FeasibleCandidate]:
    """Return the rank from the first layout that is worth its nodes; all of it if none does as
    much.

    Latency, or a load that cannot be served, gets no layout over several nodes that replicas inside
    nodes beat: more of those can be had any time.
    """
    first, goal = ranked[0], scale.request.objective.optimize_for
    if scale.request.space.fill or not (
        # The other objectives count GPUs already; these two would take any number of nodes for a
        # little less time.
        goal is OptimizeFor.LATENCY or first.falls_behind
    ):
        return ranked
    for index, feasible in enumerate(ranked):
        if _class(feasible, scale) != _class(first, scale):
            break  # nobody waits for a place, or for a start that may fail, so that nodes are saved
        if not _spans(feasible) or not _copied(feasible, ranked, scale, prices):
            return ranked[index:]
    return ranked


def _class(feasible: FeasibleCandidate, scale: Scale) -> tuple[bool, ...]:
    return (
        # In the order of select's rank: a layout that may not start is worth less than one whose
        # requests wait.
        feasible.tight,
        _shown_only(feasible, scale),
        feasible.carries_load,
        feasible.second_choice,
    )


def _copied(
    feasible: FeasibleCandidate, ranked: Sequence[FeasibleCandidate], scale: Scale, prices: Prices
) -> bool:
    inside = [other for other in ranked if not _spans(other)]
    return any(
        (
            feasible.falls_behind
            or _seconds(copies, scale) <= _seconds(feasible, scale) * (1 + NEAR_TIE)
        )
        and _served(copies) >= _served(feasible) * (1 - NEAR_TIE)
        for copies in _in_copies(feasible, inside, scale, prices)
    )


def _in_copies(
    best: FeasibleCandidate, ranked: Sequence[FeasibleCandidate], scale: Scale, prices: Prices
) -> Iterator[FeasibleCandidate]:
    gpus, pool = best.candidate.layout.gpus, best.candidate.pool
    smaller = (
        other
        for other in ranked
        # At most half: two replicas at least must have room on the GPUs of the larger one.
        if other.candidate.pool is pool and 2 * other.candidate.layout.gpus <= gpus
    )
    likely = sorted((other for other in smaller if not other.tight), key=lambda other: -other.score)
    for other in likely[:_SMALLER_TRIED]:
        layout = other.candidate.layout
        replicas = layout.replicas * (gpus // layout.gpus)
        if (
            scale.request.workload.requests_per_second is None
            and replicas > scale.request.workload.concurrency
        ):
            continue
        copies = replace(other.candidate, layout=replace(layout, replicas=replicas))
        yield assess(copies, prices.estimate(copies), scale)


def _simplest(ranked: Sequence[FeasibleCandidate], scale: Scale) -> FeasibleCandidate:
    """Return the candidate as good as the first with the fewest GPUs, nodes and links over the
    network.

    The best layout inside a node first takes the place of a networked one that is not much better.
    """
    alike = [
        other for other in ranked if _shown_only(other, scale) == _shown_only(ranked[0], scale)
    ]
    # A layout inside a node goes before an equally good one over the network: hardly anything there
    # is measured (ADR 5).
    inside = (
        other for other in alike if _stays_inside(other, ranked[0]) and near_tie(ranked[0], other)
    )
    best = next(inside, ranked[0])
    near = [
        other
        for other in alike
        if other is best or (near_tie(best, other) and _worth(best, other) <= NEAR_TIE)
    ]
    # The rank decides last, so that equal efforts have one order in every run.
    return min(near, key=lambda other: (*_effort(other, scale), ranked.index(other)))


def _stays_inside(other: FeasibleCandidate, first: FeasibleCandidate) -> bool:
    return first.candidate.uses_network and not other.candidate.uses_network


def _worth(first: FeasibleCandidate, other: FeasibleCandidate) -> float:
    better, worse = first.score, other.score
    # The score of a time is negative: the better one is nearer to zero, so the ratio is inverted.
    return better / worse - 1 if better > 0 else worse / better - 1


def _effort(feasible: FeasibleCandidate, scale: Scale) -> tuple[float, ...]:
    candidate = feasible.candidate
    nodes = candidate.placement.nodes_per_replica
    return (
        # Cost first: a near tie is no reason to take more GPUs.
        scale.cost(candidate),
        nodes,
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
    as_sure = _measured(other) or not _measured(first)
    return other is first or (same and as_sure and _worth(first, other) <= _margin(first, other))


def _measured(feasible: FeasibleCandidate) -> bool:
    return feasible.estimate.performance.basis != "modelled"


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
    first = other.tight <= best.tight and other.second_choice <= best.second_choice
    return first and _shown_only(other, scale) <= _shown_only(best, scale)


def _dominates(
    other: FeasibleCandidate, best: FeasibleCandidate, scale: Scale, margin: float | None = None
) -> bool:
    """Return whether another brings more, and sooner, for no more GPUs, by more than a near tie.

    Of an offered rate that both serve neither brings more; one that falls behind beats nothing that
    serves it.
    """
    margin = 1 + (_margin(other, best) if margin is None else margin)
    if scale.cost(other.candidate) > scale.cost(best.candidate):
        return False
    # Its queue grows without end, so its times say nothing; only its throughput counts.
    if best.falls_behind:
        return _served(other) > _served(best) * margin
    if other.falls_behind:
        return False
    more = best.estimate.capacity is not None or _served(other) > _served(best) * margin
    return (
        more
        and other.carries_load >= best.carries_load
        and _seconds(other, scale) * margin < _seconds(best, scale)
    )


def _margin(better: FeasibleCandidate, other: FeasibleCandidate) -> float:
    # Half of the band of such predictions, which is 45% (ADR 5); inside a node an error of
    # throughput is 10%.
    crosses = better.candidate.uses_network and not other.candidate.uses_network
    return NEAR_TIE_OVER_NETWORK if crosses else NEAR_TIE


def _spans(feasible: FeasibleCandidate) -> bool:
    return feasible.candidate.placement.nodes_per_replica > 1


def _served(feasible: FeasibleCandidate) -> float:
    return feasible.estimate.capacity or feasible.estimate.performance.output_tokens_per_second


def _seconds(feasible: FeasibleCandidate, scale: Scale) -> float:
    return answer_seconds(feasible.estimate, scale.request)


def _shown_only(feasible: FeasibleCandidate, scale: Scale) -> bool:
    return scale.request.deploy and not_yet(feasible.candidate) is not None


def keeps_up(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Candidate:
    """Return the layout that carries the load on the fewest GPUs, with the replicas that takes."""
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
        key=lambda candidate: (scale.total(candidate), candidate.pool.name, candidate.layout),
    )
