"""Why was a layout chosen, in sentences, and what do the others lose? None is read back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.costs.estimates import TimeShare
from shardwright.errors import Problem
from shardwright.layouts.layout import Candidate
from shardwright.modelspec.stated import ASSUMED_SHARE
from shardwright.planning.checks import LIMITS, MEMORY, Verdict
from shardwright.planning.choice import near_tie, not_yet, offered, rate_served, running
from shardwright.planning.phrases import (
    PHRASES,
    WORDS,
    copies,
    degrees,
    duration,
    letters,
    on_gpus,
    rate,
    rate_of,
    rate_offered,
    spell,
)
from shardwright.planning.report import Benefit, Exclusion, Loss, LossKind, WaysOut, WithoutFields
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import (
    BALANCED_SHARE,
    FeasibleCandidate,
    Scale,
    answer_seconds,
    assess,
    breaks_rack,
    rank,
)
from shardwright.units import format_bytes, format_plural

_GOALS: Final[Mapping[OptimizeFor, str]] = MappingProxyType(
    {
        OptimizeFor.BALANCED: "the best balance of throughput{each} and speed per request",
        OptimizeFor.LATENCY: "the least time per request {worth}",
        OptimizeFor.THROUGHPUT: "the most output tokens per second{each}",
    }
)
_RATIOS: Final = {
    LossKind.THROUGHPUT_PER_GPU: "throughput per GPU",
    LossKind.THROUGHPUT_FOR_PRICE: "throughput for its price",
    LossKind.TPOT: "time per token",
    LossKind.TTFT: "time to first token",
}
_LOSSES: Final = {
    LossKind.NOT_DEPLOYABLE: "not deployable yet",
    LossKind.TIGHT: "tight, may not start",
    LossKind.FALLS_BEHIND: "falls behind: serves {rate} requests a second at most, "
    "{wanted} are offered",
    LossKind.NO_HEADROOM: "has too little headroom: serves {rate} requests a second at most, "
    "{wanted} are offered",
    LossKind.QUEUES: "queues{more}: only {requests} at once per replica",
    LossKind.PART_OF_TPOT: "{seconds} more per token for {part}",
}
_DEARER: Final = 0.10
"""Share of price or time by which the plan without a field must be worse for it to be said. Basis:
assumed, the median error of throughput.
"""
_SINGULAR: Final = {"do": "does", "have": "has", "cannot": "cannot"}


def reasons(
    ranked: Sequence[FeasibleCandidate], verdicts: Sequence[Verdict], scale: Scale, *, feasible: int
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
        *_network(best.candidate),
        *_smaller(ranked, verdicts, request),
    )


def _chosen(best: FeasibleCandidate, feasible: int, scale: Scale) -> str:
    cut = f"{_on_product(best)} ({best.candidate.pool.name})"
    if feasible == 1:
        is_ = "are" if best.candidate.layout.replicas > 1 else "is"
        return f"{cut} {is_} the only layout that can run."
    short = best.estimate.capacity is not None and not best.carries_load
    verb, what = ("come", "closest to carrying the load") if short else ("give", _goal(scale))
    s = "" if best.candidate.layout.replicas > 1 else "s"
    return f"{cut} {verb}{s} {what} of the {feasible} layouts that can run."


def _on_product(feasible: FeasibleCandidate) -> str:
    candidate = feasible.candidate
    return f"{copies(candidate.layout)} on {candidate.pool.product}"


def _goal(scale: Scale) -> str:
    goal = _GOALS[scale.request.objective.optimize_for]
    if scale.request.space.fill:
        return goal.format(each="", worth="the budget allows")
    price = "price" if scale.by_price else "relative price" if scale.relative else ""
    each = f" for the {price} of its GPUs" if price else " per GPU"
    return goal.format(each=each, worth="that its GPUs are worth")


def _second_choice(ranked: Sequence[FeasibleCandidate]) -> Iterator[str]:
    best = ranked[0]
    beaten = (
        other
        for other in ranked
        if other.second_choice > best.second_choice and other.score > best.score
    )
    other = max(beaten, key=lambda item: item.score, default=None)
    if other is not None and (other.tight, other.carries_load) == (best.tight, best.carries_load):
        yield (
            f"{_on_product(other)} would be better; with provenImagesFirst those GPUs are used "
            "only if no others will do, or if spec.engine.image names an image for them."
        )


def _passed_over(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Iterator[str]:
    best, other, request = ranked[0], rank(ranked, scale)[0], scale.request
    if other is best:
        return
    here, there, cut = best.estimate, other.estimate, on_gpus(other.candidate.layout)
    less = here.performance.output_tokens_per_second >= there.performance.output_tokens_per_second
    if breaks_rack(other.candidate) and not breaks_rack(best.candidate):
        yield (
            f"{_on_product(other)} would be better, but not by enough to take a whole tray "
            "out of a rack."
        )
    elif request.deploy and not_yet(other.candidate) and not not_yet(best.candidate):
        yield (
            f"{copies(other.candidate.layout)} would be better, but cannot be deployed yet: "
            "mode PlanOnly shows it."
        )
    elif less and answer_seconds(here, request) <= answer_seconds(there, request):
        yield f"{cut} {_why_first(other, best)}, but brings less and answers later."
    elif near_tie(other, best):
        yield f"{cut} is better by less than predictions tell apart; this one is simpler."
    elif other.cost > best.cost * BALANCED_SHARE:
        yield (
            f"{cut} answers sooner, but costs more than {BALANCED_SHARE - 1:.0%} more than the "
            "fewest GPUs that carry the load."
        )


def _why_first(other: FeasibleCandidate, best: FeasibleCandidate) -> str:
    if other.carries_load and not best.carries_load:
        return "carries the load"
    roomier = best.tight and not other.tight
    return "fits with more room" if roomier else "is preferred by the objective"


def _load(ranked: Sequence[FeasibleCandidate], request: Request) -> Iterator[str]:
    best, load = ranked[0], request.workload
    wanted, shape = load.requests_per_second, _shape(request)
    if wanted is not None:
        yield _rate(best, wanted, shape)
    elif not best.carries_load:
        share = f"{_share(best, request)} run at once per replica"
        yield (
            f"It queues: of {shape} {share}."
            if any(other.carries_load for other in ranked)
            else f"No layout carries {shape}: {share}, the others wait."
        )


def _shape(request: Request) -> str:
    load, wanted = request.workload, request.workload.requests_per_second
    asked = format_plural(load.concurrency, "request") if wanted is None else rate_of(wanted)
    return f"{asked} of {load.input_tokens:,} + {load.output_tokens:,} tokens"


def _share(feasible: FeasibleCandidate, request: Request) -> str:
    return f"{running(feasible, request):,} of {offered(feasible, request):,}"


def _rate(best: FeasibleCandidate, wanted: float, shape: str) -> str:
    capacity = rate_served(best)
    share, most = f"{wanted / capacity:.0%}", rate(capacity)
    if best.carries_load:
        return f"It carries {shape}, {share} of the {most} that it serves at most."
    if best.falls_behind:
        return f"No layout serves {rate_of(wanted)}; this one comes closest with {most}."
    return (
        f"It serves {shape}, but that is {share} of the {most} that it serves at most: "
        "where arrivals vary, requests wait."
    )


def _not_free(best: FeasibleCandidate, verdicts: Sequence[Verdict], scale: Scale) -> Iterator[str]:
    if best.carries_load:
        return
    # Any other layout would not run with all GPUs free either.
    busy = {
        id(item.candidate): (item, assess(item.candidate, item.estimate, scale))
        for item in verdicts
        if item.estimate is not None and item.codes == {"InsufficientCapacity"}
    }
    carrying = [feasible for _, feasible in busy.values() if feasible.carries_load]
    if carrying:
        first = rank(carrying, scale)[0].candidate
        problem = busy[id(first)][0].violations[0].problem
        yield f"{copies(first.layout)} would carry it, but {problem.what}, {problem.gap}."


def _time(best: FeasibleCandidate) -> str:
    queue = "The queue grows without end. " if best.falls_behind else ""
    shares = time_shares(best.estimate.performance.decode_shares)
    return f"{queue}A token's time goes to {shares}."


def time_shares(shares: Sequence[TimeShare]) -> str:
    """Return the three largest parts of the time, without those that round to nothing.

    >>> time_shares([TimeShare(name="Queue", seconds=9.0), TimeShare(name="Compute", seconds=0.01)])
    'queueing 100%'
    """
    total = sum(share.seconds for share in shares)
    felt = (share for share in shares if share.seconds >= 0.005 * total)
    largest = sorted(felt, key=lambda share: (-share.seconds, share.name))[:3]
    return ", ".join(f"{WORDS[share.name]} {share.seconds / total:.0%}" for share in largest)


def _uneven(best: FeasibleCandidate, ranked: Sequence[FeasibleCandidate]) -> Iterator[str]:
    layout, pool = best.candidate.layout, best.candidate.pool
    if not layout.partition:
        return
    even = replace(layout, partition=())
    alike = (
        other for other in ranked if (other.candidate.layout, other.candidate.pool) == (even, pool)
    )
    own, cut = next(alike, None), "does not do"
    if own is not None:
        more = _heaviest(own) - _heaviest(best)
        cut = f"has {format_bytes(more)} more on one GPU"
    yield (
        f"Stages of {'+'.join(map(str, layout.partition))} layers are uneven on purpose: "
        f"the engine's own cut {cut}."
    )


def _heaviest(feasible: FeasibleCandidate) -> int:
    return max(stage.weights_bytes for stage in feasible.estimate.stages)


def _network(candidate: Candidate) -> Iterator[str]:
    if candidate.needs_compute_domain:
        yield "Pods share the NVLink domain of their nodes by a ComputeDomain."
    if candidate.rdma_devices:
        named = ", ".join(f"{count} {name}" for name, count in candidate.rdma_devices)
        network = candidate.pool.network.name
        yield f"Pods request {named} each, to reach the {network} between nodes."


def _smaller(
    ranked: Sequence[FeasibleCandidate], verdicts: Sequence[Verdict], request: Request
) -> Iterator[str]:
    best = ranked[0]

    def is_smaller(item: Candidate) -> bool:
        same = item.pool.name == best.candidate.pool.name
        return same and item.layout.gpus < best.candidate.layout.gpus

    smaller = [item for item in ranked if is_smaller(item.candidate)]
    # In fewer instances some would stand too, which no candidate shows.
    fewer_do = any(_one(item) < best.candidate.layout.gpus for item in ranked)
    if any(other.carries_load for other in smaller) or (smaller and not best.carries_load):
        return
    fewer = [item for item in verdicts if is_smaller(item.candidate)]
    if late := _nearest(fewer, LIMITS):
        cut, problem = late
        yield f"On fewer GPUs a limit is not met: {cut}: {problem.what} {problem.limit}."
    elif smaller:
        most = max(smaller, key=lambda other: (other.served_share, other.score))
        yield _queueing(most, request)
    elif not fewer_do and (short := _nearest(fewer, MEMORY)):
        cut, problem = short
        yield (
            f"No layout on fewer GPUs that was tried holds it: the nearest, {cut}, is "
            f"{problem.gap}."
        )


def _one(feasible: FeasibleCandidate) -> int:
    return feasible.candidate.layout.gpus_per_replica


def _nearest(verdicts: Sequence[Verdict], codes: frozenset[str]) -> tuple[str, Problem] | None:
    only = [
        (max(verdict.violations, key=lambda item: item.miss), verdict.candidate.layout)
        for verdict in verdicts
        if verdict.codes and verdict.codes <= codes
    ]
    if not only:
        return None
    worst, layout = min(only, key=lambda found: (found[0].miss, found[1]))
    return degrees(layout), worst.problem


def _queueing(smaller: FeasibleCandidate, request: Request) -> str:
    wanted = request.workload.requests_per_second
    cut = degrees(smaller.candidate.layout)
    if wanted is not None:
        late = "fall behind" if smaller.falls_behind else "leave too little headroom"
        return (
            f"Fewer GPUs would {late}: {cut} serves {rate(rate_served(smaller))} requests "
            f"a second at most, {rate_offered(wanted)} are offered."
        )
    share = _share(smaller, request)
    return f"On fewer GPUs requests would queue: {cut} runs {share} at once."


def losses_sentence(
    losses: Sequence[Loss], best: FeasibleCandidate, other: FeasibleCandidate, request: Request
) -> str:
    """Return what a layout loses against the best one, in words."""
    parts = [_loss(loss, best, request) for loss in losses if loss.kind in _LOSSES]
    ratios = [
        f"{_more(loss.amount)} {_RATIOS[loss.kind]}" for loss in losses if loss.kind in _RATIOS
    ]
    if ratios:
        gpus = other.candidate.layout.gpus
        grown = losses[-1].kind is LossKind.PART_OF_TPOT
        figures = f"{', '.join(ratios)} on {gpus} GPU{'s' if gpus > 1 else ''}"
        parts.insert(len(parts) - grown, figures)
    return "; ".join(parts)


def _loss(loss: Loss, best: FeasibleCandidate, request: Request) -> str:
    return _LOSSES[loss.kind].format(
        rate=rate(loss.amount),
        wanted=rate_offered(request.workload.requests_per_second or 0.0),
        more="" if best.carries_load else " more",
        requests=format_plural(int(loss.amount), "request"),
        seconds=duration(loss.amount),
        part=WORDS.get(loss.part),
    )


def _more(ratio: float) -> str:
    change = ratio - 1
    if abs(change) < 0.005:  # noqa: PLR2004 - rounds to no percent
        return "the same"
    return f"{abs(change):.0%} {'more' if change > 0 else 'less'}"


def ways_sentence(ways: WaysOut | None) -> str:
    """Return the ways to a plan in words, empty if none is known.

    >>> ways_sentence(WaysOut(pool="h100-8x-400g", more_nodes=2, moved="models/small"))
    'it would fit with 2 more nodes of h100-8x-400g, or if models/small went'
    >>> ways_sentence(WaysOut(moved="models/small")), ways_sentence(WaysOut())
    ('it would fit if models/small went', '')
    >>> ways_sentence(WaysOut(claimed=8))
    '8 free GPUs are kept for models that have waited longer'
    """
    if ways is None:
        return ""
    s = "s" if ways.more_nodes > 1 else ""
    nodes = f"with {ways.more_nodes} more node{s} of {ways.pool}" if ways.more_nodes else ""
    gpus = ways.gpus and f"with {ways.gpus}"
    moved = ways.moved and f"if {ways.moved} went"
    parts = (*map(without_sentence, ways.without), nodes, gpus, moved)
    said = ", or ".join(filter(None, parts))
    claimed = ways.claimed
    kept = f"{claimed} free GPU{'s are' if claimed > 1 else ' is'} kept" if claimed else ""
    kept = kept and f"{kept} for models that have waited longer"
    return "; ".join(filter(None, (kept, f"it would fit {said}" if said else "")))


def without_sentence(found: WithoutFields) -> str:
    """Return what leaving out some of the user's own fields brings.

    >>> from shardwright.layouts.layout import Layout
    >>> fields, layout = ("spec.placement.nodeSelector",), Layout(tensor=4, replicas=2)
    >>> found = WithoutFields(
    ...     fields=fields, gain=Benefit.FITS, layout=layout, pool="gb200", product="NVIDIA-GB200"
    ... )
    >>> without_sentence(found)
    'without spec.placement.nodeSelector: 2 x TP4 on 8 GB200'
    >>> without_sentence(replace(found, gain=Benefit.CHEAPER, price=0.59, seconds=1.8))
    'without spec.placement.nodeSelector: 2 x TP4 on 8 GB200, 41% cheaper, answers in 80% more time'
    """
    layout = found.layout
    several = f"{layout.replicas:,} x " if layout.replicas > 1 else ""
    product = found.product.removeprefix("NVIDIA-")
    cut = f"{several}{letters(layout)} on {layout.gpus:,} {product}"
    return f"without {' and '.join(found.fields)}: {', '.join((cut, *_gains(found)))}"


def _gains(found: WithoutFields) -> Iterator[str]:
    match found.gain:
        case Benefit.FITS:
            if not found.carries_load:
                yield "which does not carry the load"
        case Benefit.DEPLOYABLE:
            yield "which can be deployed"
        case Benefit.CARRIES_LOAD:
            yield "carries the load"
        case Benefit.CHEAPER:
            yield f"{1 - found.price:.0%} cheaper"
        case Benefit.THROUGHPUT:
            yield f"{found.output - 1:.0%} more output"
        case Benefit.SOONER:
            yield f"answers in {1 - found.seconds:.0%} less time"
    if found.price > 1 + _DEARER:
        yield f"{found.price - 1:.0%} dearer"
    # Of requests that wait without end there is no time to compare.
    if found.seconds > 1 + _DEARER and found.gain is not Benefit.CARRIES_LOAD:
        yield f"answers in {found.seconds - 1:.0%} more time"


def unproven_sentence() -> str:
    """Return in words what is not known of a model that its user has stated."""
    return (
        "unproven: spec.model.unproven states the bytes of a model that is not counted; whether "
        "its sizes divide by the degrees, whether the engine loads it, and how fast it is, is not "
        f"known; weights are counted as {ASSUMED_SHARE:g} times an even share (assumed)"
    )


def uncounted_sentence(names: Sequence[str]) -> str:
    """Return in words that an engine has options that no plan counts.

    >>> uncounted_sentence(["enable-eplb"])
    'spec.engine.args.enable-eplb is not counted: its effect on memory and speed is not known, and the bands are twice as wide'
    """  # noqa: E501 - a sentence as it is said
    its, are = ("its", "is") if len(names) == 1 else ("their", "are")
    listed = ", ".join(f"spec.engine.args.{name}" for name in names)
    return (
        f"{listed} {are} not counted: {its} effect on memory and speed is not known, "
        "and the bands are twice as wide"
    )


def exclusions_sentence(considered: int, excluded: Sequence[Exclusion]) -> str:
    """Return the excluded candidates, counted, most frequent reason first: layouts, then nodes.

    >>> exclusion = Exclusion(code="HeadsNotDivisible", count=1, example="", nearest_miss="")
    >>> exclusions_sentence(48, [exclusion])
    'of 48 layouts tried: 1 does not divide the attention heads'
    """
    layouts, nodes = [], []
    for item in excluded:
        if phrase := PHRASES.get(item.code):
            verb, _, rest = phrase.partition(" ")
            if item.count == 1:
                verb = _SINGULAR.get(verb, f"{verb}s")
            layouts.append(f"{item.count:,} {verb} {rest}")
        else:
            nodes.append(f"{item.count:,} {spell(item.code)}")
    tried = f"{format_plural(considered, 'layout')} tried"
    said = f"of {tried}: {', '.join(layouts) or 'none'}" if considered else "no layout was tried"
    return f"{said}; nodes not used: {', '.join(nodes)}" if nodes else said
