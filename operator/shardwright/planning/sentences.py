"""The planner's sentences: why a layout was chosen, what others lose, and what to watch out for.

No sentence changes the choice, and none is read back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.costs.estimates import TimeShare
from shardwright.costs.loading import Storage
from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.prices import relative_price
from shardwright.hardware.rdma import RdmaMode
from shardwright.layouts.layout import Candidate
from shardwright.layouts.placing import Over
from shardwright.layouts.traits import DraftMethod, EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.checks import LIMITS, MEMORY, Verdict
from shardwright.planning.choice import keeps_up, near_tie
from shardwright.planning.deployability import not_yet
from shardwright.planning.drafts import NOUNS
from shardwright.planning.losses import offered, rate_served, running
from shardwright.planning.offload import host_cache
from shardwright.planning.phrases import (
    PHRASES,
    UNKNOWN_PODS,
    WORDS,
    copies,
    degrees,
    duration,
    format_plural,
    on_gpus,
    rate,
    rate_of,
    rate_offered,
    relative_price_words,
    spell,
)
from shardwright.planning.report import Exclusion, Loss, LossKind, WaysOut
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import (
    UTILISATION,
    FeasibleCandidate,
    Scale,
    answer_seconds,
    assess,
    breaks_rack,
    rank,
)
from shardwright.planning.speculation import loses_from
from shardwright.units import format_bytes

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
    LossKind.NO_HEADROOM: "has no headroom: serves {rate} requests a second at most, "
    "{wanted} are offered",
    LossKind.QUEUES: "queues{more}: only {requests} at once per replica",
    LossKind.PART_OF_TPOT: "{seconds} more per token for {part}",
}
_SINGULAR: Final = {"do": "does", "have": "has", "cannot": "cannot"}

_NOTICEABLE_SHARE: Final = 0.05
"""By how much drafts must slow a token down to be warned of, a share; assumed: half the median
error of what is predicted.
"""

_PRICES_SHOWN: Final = 6


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
        *_network(best.candidate),
        *_smaller(ranked, verdicts, request),
    )


def _chosen(best: FeasibleCandidate, feasible: int, scale: Scale) -> str:
    cut = f"{_on_product(best)} ({best.candidate.pool.name})"
    if feasible == 1:
        return f"{cut} is the only layout that can run."
    verb, what = "give", _goal(scale)
    if best.estimate.capacity is not None and not best.carries_load:
        verb, what = "come", "closest to carrying the load"
    s = "" if best.candidate.layout.replicas > 1 else "s"
    return f"{cut} {verb}{s} {what} of the {feasible} layouts that can run."


def _on_product(feasible: FeasibleCandidate) -> str:
    candidate = feasible.candidate
    return f"{copies(candidate.layout)} on {candidate.pool.product}"


def _goal(scale: Scale) -> str:
    goal = _GOALS[scale.request.objective.optimize_for]
    if scale.request.space.fill:
        return goal.format(each="", worth="the budget allows")
    each = "per GPU"
    if scale.by_price or scale.relative:
        price = "price" if scale.by_price else "relative price"
        each = f"for the {price} of its GPUs"
    return goal.format(each=f" {each}", worth="that its GPUs are worth")


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
        yield (
            f"{_on_product(other)} would be better; those GPUs are used only if no others "
            "will do, or if spec.engine.image names an image for them."
        )


def _passed_over(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Iterator[str]:
    best, other, request = ranked[0], rank(ranked)[0], scale.request
    if other is best:
        return
    here, there, cut = best.estimate, other.estimate, on_gpus(other.candidate.layout)
    less = (
        here.performance.output_tokens_per_second
        >= there.performance.output_tokens_per_second
    )
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
    else:
        yield (
            f"{cut} answers sooner, but on as many GPUs replicas inside nodes would "
            "answer sooner still."
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
    asked = (
        format_plural(load.concurrency, "request")
        if wanted is None
        else rate_of(wanted)
    )
    return f"{asked} of {load.input_tokens:,} + {load.output_tokens:,} tokens"


def _share(feasible: FeasibleCandidate, request: Request) -> str:
    return f"{running(feasible, request):,} of {offered(feasible, request):,}"


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
        f"It serves {shape}, but that is {share} of the {most} that it serves at most: "
        "where arrivals vary, requests wait."
    )


def _not_free(
    best: FeasibleCandidate, verdicts: Sequence[Verdict], scale: Scale
) -> Iterator[str]:
    if best.carries_load:
        return
    # Only layouts that nothing but room speaks against: any other would not run with all GPUs free.
    busy = {
        id(item.candidate): (item, assess(item.candidate, item.estimate, scale))
        for item in verdicts
        if item.estimate is not None and item.codes == {"InsufficientCapacity"}
    }
    carrying = [feasible for _, feasible in busy.values() if feasible.carries_load]
    if carrying:
        first = rank(carrying)[0].candidate
        problem = busy[id(first)][0].violations[0].problem
        yield f"{copies(first.layout)} would carry it, but {problem.what}, {problem.gap}."


def _time(best: FeasibleCandidate) -> str:
    queue = "The queue grows without end. " if best.falls_behind else ""
    shares = time_shares(best.estimate.performance.decode_shares)
    return f"{queue}A token's time goes to {shares}."


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
    layout, pool = best.candidate.layout, best.candidate.pool
    if not layout.partition:
        return
    even = replace(layout, partition=())
    alike = (
        other
        for other in ranked
        if (other.candidate.layout, other.candidate.pool) == (even, pool)
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
    """Yield why no layout with fewer GPUs does on the same pool: a limit is not met, requests would
    queue, it does not fit.
    """
    best = ranked[0]

    def is_smaller(item: Candidate) -> bool:
        same = item.pool.name == best.candidate.pool.name
        return same and item.layout.gpus < best.candidate.layout.gpus

    smaller = [item for item in ranked if is_smaller(item.candidate)]
    if any(other.carries_load for other in smaller) or (
        smaller and not best.carries_load
    ):
        return
    fewer = [item for item in verdicts if is_smaller(item.candidate)]
    if late := _nearest(fewer, LIMITS):
        cut, problem = late
        yield f"On fewer GPUs a limit is not met: {cut}: {problem.what} {problem.limit}."
    elif smaller:
        most = max(smaller, key=lambda other: (other.served_share, other.score))
        yield _queueing(most, request)
    elif short := _nearest(fewer, MEMORY):
        cut, problem = short
        yield (
            f"No layout on fewer GPUs that was tried holds it: the nearest, {cut}, is "
            f"{problem.gap}."
        )


def _nearest(
    verdicts: Sequence[Verdict], codes: frozenset[str]
) -> tuple[str, Problem] | None:
    """Return the layout that nothing but these codes speaks against and that misses by least, with
    its worst problem.
    """
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
        return (
            f"Fewer GPUs would fall behind: {cut} serves {rate(rate_served(smaller))} requests "
            f"a second at most, {rate_offered(wanted)} are offered."
        )
    share = _share(smaller, request)
    return f"On fewer GPUs requests would queue: {cut} runs {share} at once."


def losses_sentence(
    losses: Sequence[Loss],
    best: FeasibleCandidate,
    other: FeasibleCandidate,
    request: Request,
) -> str:
    """Return in words what a layout loses against the best one."""
    parts = [_loss(loss, best, request) for loss in losses if loss.kind in _LOSSES]
    ratios = [
        f"{_more(loss.amount)} {_RATIOS[loss.kind]}"
        for loss in losses
        if loss.kind in _RATIOS
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
    """Return in words the ways to make room, empty if none is known.

    >>> ways_sentence(WaysOut(pool="h100-8x-400g", more_nodes=2, moved="models/small"))
    'it would fit with 2 more nodes of h100-8x-400g, or if models/small went'
    >>> ways_sentence(WaysOut(moved="models/small")), ways_sentence(WaysOut())
    ('it would fit if models/small went', '')
    """
    said = []
    if ways and ways.more_nodes:
        s = "s" if ways.more_nodes > 1 else ""
        said.append(f"with {ways.more_nodes} more node{s} of {ways.pool}")
    if ways and ways.moved:
        said.append(f"if {ways.moved} went")
    return f"it would fit {', or '.join(said)}" if said else ""


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

    A layout may break several rules, so the counts may add up to more than the total.

    >>> exclusion = Exclusion(
    ...     code="HeadsNotDivisible", count=1, example="", nearest_miss=""
    ... )
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
    said = "no layout was tried"
    if considered:
        several = " (a layout can break several rules)" if layouts[1:] else ""
        tried = format_plural(considered, "layout")
        said = f"of {tried} tried: {', '.join(layouts) or 'none'}{several}"
    return f"{said}; nodes not used: {', '.join(nodes)}" if nodes else said


def warnings(
    inventory: Inventory,
    shown: Sequence[FeasibleCandidate],
    request: Request,
    model: ModelSpec,
    traits: EngineTraits,
) -> tuple[str, ...]:
    """Return the warnings: lowered values, slow or uncertain speeds, and the warnings of the model
    and the nodes.

    Args:
        inventory: The nodes, with those that are free.
        shown: The chosen layout and the runners-up beside it.
        request: The load and the objective.
        model: The model to serve.
        traits: The engine.
    """
    # Of the best alone; only the unknown network is a warning also where a runner-up depends on it.
    best = shown[0]
    return (
        *_tight(best),
        *_lowered(best, request, traits),
        *_lighter(best, model, traits),
        *_slow_links(best.candidate),
        *_adapters(best, traits),
        *_gated(request),
        *_downloads(request),
        *_commits(best, request),
        *_executor(best, traits),
        *_unevenly_spread(best.candidate, request),
        *_uncounted(traits),
        *_draft(best, request, traits),
        *_speculation(best, request, model, traits),
        *_beside_the_gpus(best, request, model, traits),
        *_slowed_by_drafts(best, request, model, traits),
        *_unpriced(inventory),
        *_unknown_pods(inventory),
        *model.warnings,
        *traits.warnings,
        *best.candidate.pool.warnings,
        *_missed_network(best.candidate),
        *_unknown_network(shown),
    )


def _unknown_pods(inventory: Inventory) -> Iterator[str]:
    if said := UNKNOWN_PODS.get(inventory.known_pods):
        yield f"{said}, the planned ones may be taken"


def more_replicas(
    ranked: Sequence[FeasibleCandidate], smaller: FeasibleCandidate | None, scale: Scale
) -> Iterator[str]:
    """Yield how many replicas would serve the rest of the load, and the gain of smaller replicas on
    the same GPUs.

    Args:
        ranked: The feasible candidates, the plan first.
        smaller: Replicas of a smaller layout that bring more, and sooner, on as many GPUs; None if
            there are none.
        scale: The measure by which layouts are compared.
    """
    best, request = ranked[0], scale.request
    # With a budget to fill, the plan has chosen the number of replicas already.
    if request.space.fill:
        return
    if best.estimate.capacity is not None:
        yield from _keeps_up(best, keeps_up(ranked, scale))
    if smaller is not None:
        here, there = best.estimate, smaller.estimate
        sooner = 1 - answer_seconds(there, request) / answer_seconds(here, request)
        layout, brings = smaller.candidate.layout, "answer"
        if here.capacity is None:
            more = (
                there.performance.output_tokens_per_second
                / here.performance.output_tokens_per_second
                - 1
            )
            brings = f"bring {more:.0%} more output tokens per second and answer"
        yield (
            f"replicas would use its GPUs better: {layout.replicas} of {degrees(layout)} "
            f"{brings} in {sooner:.0%} less time (replicas: {layout.replicas}, or budget.fill)"
        )


def _keeps_up(best: FeasibleCandidate, wanted: Candidate) -> Iterator[str]:
    gpus, free = wanted.layout.gpus, sum(node.free for node in wanted.pool.nodes)
    replicas = wanted.layout.replicas
    if not best.carries_load:
        how = "requests arrive faster than they are served"
        if not best.falls_behind:
            most = f"{UTILISATION:.0%} of what is served at most"
            how = f"requests arrive at more than {most}"
    elif gpus < best.candidate.layout.gpus and replicas > 1:
        how = "fewer GPUs would serve the rate"
    else:
        return
    room = "which are free" if gpus <= free else f"of which {free:,} are free"
    yield (
        f"{how}: {copies(wanted.layout)} would serve it on {gpus:,} GPUs of "
        f"{wanted.pool.name}, {room} (replicas: {replicas:,})"
    )


def _tight(best: FeasibleCandidate) -> Iterator[str]:
    tight = [stage for stage in best.estimate.stages if stage.tight]
    if tight:
        # The stage with the least left: the engine starts on all stages or on none.
        worst = min(tight, key=lambda stage: stage.kv_cache_bytes - stage.request_bytes)
        margin = format_bytes(worst.kv_cache_bytes - worst.request_bytes)
        yield (
            f"tight: beside one longest request {margin} are left per GPU, less than the "
            f"{format_bytes(worst.band_bytes)} by which the memory may be off; it may not start"
        )


def _lowered(
    best: FeasibleCandidate, request: Request, traits: EngineTraits
) -> Iterator[str]:
    estimate, asked = best.estimate, request.workload.max_model_len
    if estimate.max_model_len < asked:
        yield (
            f"the longest request is lowered from {asked:,} to {estimate.max_model_len:,} "
            "tokens: that is what K/V holds"
        )
    # A limit that the user has told is not ours, so it was not lowered by us.
    told, ours = traits.options.told, traits.batching
    if (told.sequences is None and estimate.max_sequences < ours.max_sequences) or (
        told.batched_tokens is None
        and estimate.max_batched_tokens < ours.max_batched_tokens
    ):
        yield (
            f"batch limits lowered to {estimate.max_sequences:,} sequences and "
            f"{estimate.max_batched_tokens:,} tokens to leave room for K/V"
        )


def _adapters(best: FeasibleCandidate, traits: EngineTraits) -> Iterator[str]:
    if slots := traits.options.adapters:
        most = format_bytes(max(stage.adapter_bytes for stage in best.estimate.stages))
        yield (
            f"adapters: {slots.count} up to rank {slots.rank} take {most} of the weights' "
            "memory per GPU; the predicted speed is that of the model without them"
        )


def _gated(request: Request) -> Iterator[str]:
    if request.gated:
        named = "spec: {model: {weights: {huggingFace: {tokenSecretRef: {name: hub-token}}}}}"
        are = "are" if len(request.gated) > 1 else "is"
        namespace, name = request.owner
        kubectl = f"kubectl -n {namespace}" if namespace else "kubectl"
        secret = "create secret generic hub-token --from-literal=token=hf_..."  # noqa: S105 - no token
        patch = f"{kubectl} patch smodel {name} --type merge -p '{named}'"
        yield (
            f"{' and '.join(request.gated)} {are} gated, and no token is named: the hub refuses "
            "pods (401, 403) until its terms are accepted there and "
            f"you run `{kubectl} {secret}` and `{patch}`"
        )


def _downloads(request: Request) -> Iterator[str]:
    """Yield that a pod's claim is too small for its download, or that every new pod repeats it if
    no claim keeps it. A plan that is only shown says so, too: it is read before it is deployed.
    """
    if request.cache_bytes is not None and request.cache_bytes < request.file_bytes:
        yield (
            "spec.model.weights.huggingFace.cache.storage is "
            f"{format_bytes(request.cache_bytes)}, the weights alone are "
            f"{format_bytes(request.file_bytes)}: the download will not end"
        )
    if request.storage is Storage.HUB:
        yield (
            "every new pod downloads the weights from the hub: "
            "spec.model.weights.huggingFace.cache keeps them on a claim"
        )


def _commits(best: FeasibleCandidate, request: Request) -> Iterator[str]:
    """Yield that the administrator wants a commit to be named, and that every pod of a group
    resolves the newest one by itself, if no claim is shared that holds one of them.
    """
    if request.commit_missed:
        yield (
            "no commit of the model is named: its publisher can change what the hub gives "
            "tomorrow; spec.model.revision pins one"
        )
    apart = request.storage is Storage.HUB or request.cache_bytes is not None
    if apart and not request.pinned and best.candidate.placement.nodes_per_replica > 1:
        yield (
            "the ranks of a group may load different commits, each the newest when it "
            "downloads: spec.model.revision pins one, a shared claim "
            "(spec.model.weights.huggingFace.cache.claimName) keeps one"
        )


def _executor(best: FeasibleCandidate, traits: EngineTraits) -> Iterator[str]:
    if traits.options.over_ray and best.candidate.placement.nodes_per_replica == 1:
        yield (
            "spec.engine.executor Ray changes nothing here: a group is one pod, whose ranks the "
            "engine starts by itself"
        )


def _unevenly_spread(candidate: Candidate, request: Request) -> Iterator[str]:
    """Yield the uneven spread of replicas: some value of the label has at least two more than
    another.
    """
    over, nodes = Over.of(request.space), candidate.pool.nodes
    if over is None or candidate.layout.replicas == 1:
        return
    there = over.count(candidate.placement.groups, nodes) + Counter(over.standing)
    counts = {
        value: there[value] for value in sorted({over.value(node) for node in nodes})
    }
    if len(counts) == 1 or max(counts.values()) - min(counts.values()) > 1:
        said = ", ".join(
            f"{count} in {value or 'nodes without it'}"
            for value, count in counts.items()
        )
        yield f"replicas are not spread evenly over {over.label}: {said}, as far as there is room"


def _uncounted(traits: EngineTraits) -> Iterator[str]:
    if names := traits.options.told.uncounted:
        yield uncounted_sentence(names)


def _draft(
    best: FeasibleCandidate, request: Request, traits: EngineTraits
) -> Iterator[str]:
    drafter, load = traits.options.drafter, request.workload
    if drafter is None:
        return
    most = format_bytes(max(stage.draft_bytes for stage in best.estimate.stages))
    whose = "that of " if drafter.method is DraftMethod.MTP else ""
    accepted = "is what the spec says"
    if load.draft_acceptance_band:
        accepted = (
            f"is assumed ({load.draft_acceptance:.0%} of them, "
            f"{load.draft_acceptance_band:.0%} more or less: measure it)"
        )
    yield (
        f"{NOUNS[drafter.method]}: {whose}{drafter.model.source} takes {most} of the weights' "
        f"memory per GPU and K/V beside it; how many drafts are accepted {accepted}, and no "
        "plan with one has been measured"
    )
    yield from drafter.model.warnings


def _speculation(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    drafted = best.estimate.draft_tokens
    if drafted == 0:
        return
    brings = replace(request.workload, draft_tokens=drafted).tokens_per_step
    most = loses_from(best, request, model, traits)
    if most is None:
        until = "a token takes no longer than without at any load that fits"
    elif most == 1:
        until = "a token takes longer than without at every load"
    else:
        until = f"from {most:,} requests in flight on a token takes longer than without"
    yield (
        f"speculation: {drafted} drafted token{'s' if drafted > 1 else ''} a step, of which "
        f"{brings - 1:.2g} are accepted; {until}"
    )


def _beside_the_gpus(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    candidate, wanted = best.candidate, request.workload.kv_offload
    if wanted is None:
        return
    over_ray = traits.options.over_ray
    found = host_cache(candidate, best.estimate, wanted, model, over_ray=over_ray)
    if found is None:
        why = "they have none left for a pod"
        if candidate.pool.host_bytes is None:
            why = "nodes do not say what they have"
        yield (
            f"no K/V is kept in the memory of the nodes: {why} "
            "(spec.workload.kvOffload.hostMemory states a number)"
        )
        return
    kept = best.estimate.kv_tokens * candidate.layout.attention_data
    yield (
        f"K/V offload: {format_bytes(found.pod_bytes)} of memory per pod keep about "
        f"{found.tokens:,} tokens beside the {kept:,} on the GPUs; how many prompts find "
        "theirs is what spec.workload.prefixCacheHitPercent says, copying them back is not "
        "counted, and no plan with it has been measured"
    )


def _slowed_by_drafts(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    load = request.workload
    if load.draft_tokens == 0:
        return
    alone = replace(load, draft_tokens=0, draft_acceptance=0.0, draft_choices=())
    undrafted = replace(traits, options=replace(traits.options, drafter=None))
    # At the same layout: without drafts another one might be best, which says nothing of drafts.
    estimator = estimator_of(model, replace(request, workload=alone), undrafted)
    plain = estimator.estimate(best.candidate).performance.tpot_seconds
    drafting = best.estimate.performance.tpot_seconds
    if plain < drafting * (1 - _NOTICEABLE_SHARE):
        yield (
            f"drafts make serving slower: {drafting * 1e3:,.1f} ms per output token are "
            f"predicted with them, {plain * 1e3:,.1f} ms without"
        )


def _lighter(
    best: FeasibleCandidate, model: ModelSpec, traits: EngineTraits
) -> Iterator[str]:
    """Yield how to make room if requests queue for K/V. Lighter weights make none if the user has
    fixed the bytes of the K/V cache. An offered rate that is not carried needs more replicas, which
    ``more_replicas`` says.
    """
    if best.carries_load or best.estimate.capacity is not None:
        return
    if traits.options.kv_cache_bytes is not None:
        yield (
            "requests queue for K/V: "
            "spec.engine.args.kv-cache-memory-bytes says how much there is"
        )
    # Lighter weights on a GPU without an FP8 unit would be widened at each product.
    elif model.quantization is None and "fp8" in best.candidate.pool.gpu.flops:
        worst = min(best.estimate.stages, key=lambda stage: stage.kv_cache_bytes)
        half = format_bytes(worst.weights_bytes / 2)
        yield (
            f"requests queue for K/V: spec.model.quantization FP8 would free up to {half} per "
            "GPU for it, spec.workload.kvCacheQuantization FP8 would double what it holds"
        )


def _unpriced(inventory: Inventory) -> Iterator[str]:
    stated = [pool.gpu_hour_price is not None for pool in inventory.pools]
    found = {pool.gpu.id: relative_price(pool.gpu) for pool in inventory.pools}
    if all(stated) or len(found) == 1:
        return
    dearest = sorted(found.items(), key=lambda item: (-item[1].per_hour, item[0]))
    each = ", ".join(
        f"{name} {relative_price_words(price)}"
        for name, price in dearest[:_PRICES_SHOWN]
    )
    others = len(found) - _PRICES_SHOWN
    more = f" and {others} others" if others > 0 else ""
    who = "some nodes state no price" if any(stated) else "no node states a price"
    yield (
        f"GPUs are compared by relative prices, an H100 as 1: {each}{more}; {who} "
        "(gpuHourPrices, shardwright.io/gpu-hour-price)"
    )


def _missed_network(candidate: Candidate) -> Iterator[str]:
    pool, missed = candidate.pool, candidate.pool.reach.missed
    if missed is None or not candidate.uses_network:
        return
    why = "the nodes offer no RDMA resource (docs/howto/network.md)"
    if pool.reach.mode is RdmaMode.NONE:
        why = "spec.pod.network.rdma is None"
    yield (
        f"pods do not reach the nodes' {missed.name}: {why}; planned over TCP, "
        f"{pool.network.name} per GPU assumed"
    )


def _unknown_network(shown: Sequence[FeasibleCandidate]) -> Iterator[str]:
    pools = (item.candidate.pool for item in shown if item.candidate.uses_network)
    crossing = [pool.network for pool in pools if pool.reach.missed is None]
    assumed = next((link.name for link in crossing if link.basis == "assumed"), None)
    if assumed is not None:
        yield (
            f"the network between nodes is unknown: {assumed} per GPU assumed; set the node "
            "label shardwright.io/network-gbps-per-gpu to state it"
        )


def _slow_links(candidate: Candidate) -> Iterator[str]:
    placement, link = candidate.placement, candidate.placement.tensor_link
    if link is None or link == candidate.pool.gpu.scale_up:
        return
    if candidate.layout.tensor > placement.gpus_per_node:
        yield (
            f"tensor parallelism crosses nodes over {link.name}: every layer waits for the "
            "network twice"
        )
