"""Why this layout, and the losses of the others, with their causes: sentences worth reading.

No sentence changes the choice, and none is read back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.costs.estimates import TimeShare
from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.planning.cautions import rdma_devices
from shardwright.planning.checks import Verdict
from shardwright.planning.choice import near_tie
from shardwright.planning.deployability import not_yet
from shardwright.planning.losses import (
    losses_of,
    offered,
    rate_served,
    running,
    sentence_of,
)
from shardwright.planning.phrases import (
    WORDS,
    copies,
    degrees,
    on_gpus,
    rate,
    rate_of,
    rate_offered,
    requests_of,
)
from shardwright.planning.report import Alternative
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import (
    FeasibleCandidate,
    Scale,
    answer_seconds,
    assess,
    breaks_rack,
    million_tokens_price,
    rank,
)
from shardwright.units import format_bytes

_GOALS: Final[Mapping[OptimizeFor, str]] = MappingProxyType(
    {
        OptimizeFor.BALANCED: "the best balance of throughput per GPU and speed per request",
        OptimizeFor.LATENCY: "the least time per request that its GPUs are worth",
        OptimizeFor.THROUGHPUT: "the most output tokens per second per GPU",
    }
)

LIMITS: Final = frozenset({"TtftLimitExceeded", "TpotLimitExceeded"})
MEMORY: Final = frozenset(
    {"WeightsExceedMemory", "KvCacheTooSmall", "KvCachePinTooLarge"}
)


def reasons(
    ranked: Sequence[FeasibleCandidate],
    verdicts: Sequence[Verdict],
    scale: Scale,
    *,
    feasible: int,
) -> tuple[str, ...]:
    """Return why the first one was chosen; ``feasible`` is how many layouts can run."""
    best, request = ranked[0], scale.request
    return (
        _chosen(best, feasible, scale),
        *_second_choice(ranked),
        *_passed_over(ranked, scale),
        *_load(ranked, request),
        *_not_free(best, verdicts, scale),
        _time(best),
        *_uneven(best, ranked),
        *_network(best),
        *_smaller(ranked, verdicts, request),
    )


def _network(best: FeasibleCandidate) -> Iterator[str]:
    """Yield the network by which pods of several nodes reach each other: a ComputeDomain, RDMA
    devices.
    """
    if best.candidate.needs_compute_domain:
        yield "Pods share the NVLink domain of their nodes by a ComputeDomain."
    if devices := rdma_devices(best.candidate):
        named = ", ".join(f"{count} {name}" for name, count in devices)
        yield (
            f"Pods request {named} each, to reach the {best.candidate.pool.network.name} "
            "between nodes."
        )


def alternative(
    *,
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    scale: Scale,
) -> Alternative:
    """Return a runner-up with its losses."""
    losses = losses_of(best, other, scale)
    each = scale.price(other.candidate.pool)
    return Alternative(
        layout=other.candidate.layout,
        pool=other.candidate.pool.name,
        performance=other.estimate.performance,
        loses=sentence_of(losses, best, other, scale.request),
        losses=losses,
        million_tokens_price=million_tokens_price(other),
        gpu_price=replace(each, source="") if each else None,
    )


def _chosen(
    best: FeasibleCandidate,
    feasible: int,
    scale: Scale,
) -> str:
    layout, pool = best.candidate.layout, best.candidate.pool
    if feasible == 1:
        return f"{copies(layout)} on {pool.product} ({pool.name}) is the only layout that can run."
    several = layout.replicas > 1
    what = f"{'give' if several else 'gives'} {_goal(scale)}"
    if best.estimate.capacity is not None and not best.carries_load:
        what = f"{'come' if several else 'comes'} closest to carrying the load"
    return (
        f"{copies(layout)} on {pool.product} ({pool.name}) {what} of the {feasible} layouts "
        "that can run."
    )


def _reached(
    ranked: Sequence[FeasibleCandidate], request: Request
) -> Sequence[FeasibleCandidate]:
    """Return the candidates that can be run; all if nothing is to be run, or none can."""
    return [
        item for item in ranked if not (request.deploy and not_yet(item.candidate))
    ] or ranked


def _second_choice(ranked: Sequence[FeasibleCandidate]) -> Iterator[str]:
    """Yield that better GPUs are there, which are taken only if the engine is told to run there."""
    best = ranked[0]
    beaten = (
        other
        for other in ranked
        if other.second_choice > best.second_choice and other.score > best.score
    )
    other = max(beaten, key=lambda item: item.score, default=None)
    if other is not None and (other.tight, other.carries_load) == (
        best.tight,
        best.carries_load,
    ):
        cut = f"{copies(other.candidate.layout)} on {other.candidate.pool.product}"
        yield (
            f"{cut} would be better; those GPUs are used only if no others will do, or if "
            "spec.engine.image names an image for them."
        )


def _passed_over(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Iterator[str]:
    """Yield the layouts that are better but were not taken: it cannot be run yet, breaks a rack
    that it does not pay for, or is no better.
    """
    best, other, request = ranked[0], rank(ranked)[0], scale.request
    if other is best:
        return
    if breaks_rack(other.candidate) and not breaks_rack(best.candidate):
        cut, product = copies(other.candidate.layout), other.candidate.pool.product
        yield (
            f"{cut} on {product} would be better, but not by enough to take a whole tray out of "
            "a rack."
        )
        return
    if request.deploy and not_yet(other.candidate) and not not_yet(best.candidate):
        yield (
            f"{copies(other.candidate.layout)} would be better, but cannot be deployed yet: "
            "mode PlanOnly shows it."
        )
        return
    cut = on_gpus(other.candidate.layout)
    here, there = best.estimate.performance, other.estimate.performance
    sooner = answer_seconds(best.estimate, request) <= answer_seconds(
        other.estimate, request
    )
    if sooner and here.output_tokens_per_second >= there.output_tokens_per_second:
        yield f"{cut} {_why_first(other, best)}, but brings less and answers later."
    elif near_tie(other, best):
        yield (
            f"{cut} is better by less than predictions tell apart; this one is simpler."
        )
    else:
        yield (
            f"{cut} answers sooner, but on as many GPUs replicas inside nodes would "
            "answer sooner still."
        )


def _why_first(other: FeasibleCandidate, best: FeasibleCandidate) -> str:
    if other.carries_load and not best.carries_load:
        return "carries the load"
    return (
        "fits with more room"
        if best.tight and not other.tight
        else "is preferred by the objective"
    )


def _goal(scale: Scale) -> str:
    goal = _GOALS[scale.request.objective.optimize_for]
    if scale.request.space.fill:
        return (
            goal.removesuffix(" per GPU")
            .replace(" per GPU", "")
            .replace("that its GPUs are worth", "the budget allows")
        )
    counted = (
        "for the price of its GPUs"
        if scale.by_price
        else "for the relative price of its GPUs"
        if scale.relative
        else "per GPU"
    )
    return goal.replace("per GPU", counted)


def _load(ranked: Sequence[FeasibleCandidate], request: Request) -> Iterator[str]:
    """Yield the share of the load that waits, and the headroom of an offered rate."""
    best, load = ranked[0], request.workload
    asked = requests_of(load.concurrency)
    if load.requests_per_second is not None:
        asked = rate_of(load.requests_per_second)
    shape = f"{asked} of {load.input_tokens:,} + {load.output_tokens:,} tokens"
    if load.requests_per_second is not None:
        yield _rate(best, load.requests_per_second, shape)
        return
    if best.carries_load:
        return
    share = f"{running(best, request):,} of {offered(best, request):,} run at once per replica"
    if any(other.carries_load for other in ranked):
        yield f"It queues: of {shape} {share}."
    else:
        yield f"No layout carries {shape}: {share}, the others wait."


def _rate(best: FeasibleCandidate, wanted: float, shape: str) -> str:
    capacity = rate_served(best)
    share, most = f"{wanted / capacity:.0%}", rate(capacity)
    if best.carries_load:
        return f"It carries {shape}, {share} of the {most} that it serves at most."
    if best.falls_behind:
        return (
            f"No layout serves {rate_of(wanted)}; this one comes closest with {most}."
        )
    return (
        f"It serves {shape}, but that is {share} of the {most} that it "
        "serves at most: "
        "where arrivals vary, requests wait."
    )


def _not_free(
    best: FeasibleCandidate,
    verdicts: Sequence[Verdict],
    scale: Scale,
) -> Iterator[str]:
    """Yield the layout that would carry the load if its GPUs were free."""
    if best.carries_load:
        return
    busy = {
        id(item.candidate): item
        for item in verdicts
        # Only layouts that nothing but room speaks against: any other would not run with all GPUs
        # free.
        if item.estimate is not None and item.codes == {"InsufficientCapacity"}
    }
    carrying = [
        feasible
        for item in busy.values()
        if item.estimate is not None
        and (feasible := assess(item.candidate, item.estimate, scale)).carries_load
    ]
    if carrying:
        problem = busy[id(rank(carrying)[0].candidate)].violations[0].problem
        cut = copies(rank(carrying)[0].candidate.layout)
        yield f"{cut} would carry it, but {problem.what}, {problem.gap}."


def _time(best: FeasibleCandidate) -> str:
    speed = best.estimate.performance
    queue = "The queue grows without end. " if best.falls_behind else ""
    return f"{queue}A token's time goes to {time_shares(speed.decode_shares)}."


def time_shares(shares: Sequence[TimeShare]) -> str:
    """Return the three largest parts of the time."""
    total = sum(share.seconds for share in shares)
    largest = sorted(shares, key=lambda share: (-share.seconds, share.name))[:3]
    return ", ".join(
        f"{WORDS[share.name]} {share.seconds / total:.0%}" for share in largest
    )


def _uneven(
    best: FeasibleCandidate, ranked: Sequence[FeasibleCandidate]
) -> Iterator[str]:
    """Yield the gain of uneven stages."""
    layout = best.candidate.layout
    if not layout.partition:
        return
    even = replace(layout, partition=())
    own = next(
        (
            other
            for other in ranked
            if other.candidate.layout == even
            and other.candidate.pool == best.candidate.pool
        ),
        None,
    )
    if own is None:
        yield (
            f"Stages of {_layers(layout)} layers are uneven on purpose: the engine's own cut "
            "does not do."
        )
        return
    more = format_bytes(_heaviest(own) - _heaviest(best))
    yield (
        f"Stages of {_layers(layout)} layers are uneven on purpose: the engine's own cut has {more}"
        " more on one GPU."
    )


def _layers(layout: Layout) -> str:
    return "+".join(map(str, layout.partition))


def _heaviest(feasible: FeasibleCandidate) -> int:
    return max(stage.weights_bytes for stage in feasible.estimate.stages)


def _smaller(
    ranked: Sequence[FeasibleCandidate], verdicts: Sequence[Verdict], request: Request
) -> Iterator[str]:
    """Yield why no layout with fewer GPUs does on the same pool: a limit is not met, requests would
    queue, it does not fit.
    """
    best = ranked[0]
    layout, pool = best.candidate.layout, best.candidate.pool.name
    smaller = [
        item
        for item in ranked
        if item.candidate.pool.name == pool and item.candidate.layout.gpus < layout.gpus
    ]
    if any(other.carries_load for other in smaller) or (
        smaller and not best.carries_load
    ):
        return
    fewer = [
        item
        for item in verdicts
        if item.candidate.pool.name == pool and item.candidate.layout.gpus < layout.gpus
    ]
    late = _nearest(fewer, LIMITS)
    if late is not None:
        verdict, problem = late
        yield (
            f"On fewer GPUs a limit is not met: {degrees(verdict.candidate.layout)}: {problem.what}"
            f" {problem.limit}."
        )
    elif smaller:
        yield _queueing(
            max(smaller, key=lambda other: (other.served_share, other.score)), request
        )
    elif (short := _nearest(fewer, MEMORY)) is not None:
        verdict, problem = short
        nearest = degrees(verdict.candidate.layout)
        yield (
            f"No layout on fewer GPUs that was tried holds it: the nearest, {nearest}, is "
            f"{problem.gap}"
            "."
        )


def _nearest(
    verdicts: Sequence[Verdict], codes: frozenset[str]
) -> tuple[Verdict, Problem] | None:
    """Return the verdict that nothing but these codes speaks against and that misses by least, with
    its worst problem.
    """
    only = [
        (max(verdict.violations, key=lambda item: item.miss), verdict)
        for verdict in verdicts
        if verdict.codes and verdict.codes <= codes
    ]
    if not only:
        return None
    worst, verdict = min(
        only, key=lambda found: (found[0].miss, found[1].candidate.layout)
    )
    return verdict, worst.problem


def _queueing(smaller: FeasibleCandidate, request: Request) -> str:
    wanted, cut = (
        request.workload.requests_per_second,
        degrees(smaller.candidate.layout),
    )
    if wanted is not None:
        return (
            f"Fewer GPUs would fall behind: {cut} serves {rate(rate_served(smaller))} requests a "
            f"second at most, {rate_offered(wanted)} are offered."
        )
    share = f"{running(smaller, request):,} of {offered(smaller, request):,}"
    return f"On fewer GPUs requests would queue: {cut} runs {share} at once."
