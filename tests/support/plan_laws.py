"""What holds for every question to the planner, and every layout that it lists; a finding says
where it does not.

Exceptions are named where they are made, each with its cause.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.hardware.gpus import Gpu, Link, relative_price
from shardwright.hardware.inventory import Node, Pool
from shardwright.layouts.enumerate import SearchScope, enumerate_candidates
from shardwright.layouts.layout import MOST_REPLICAS, Candidate
from shardwright.modelspec.computed import stored_as
from shardwright.modelspec.model_spec import ExpertFeedForward, ModelSpec, Weight
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.choice import HALVED, NEAR_TIE
from shardwright.planning.numbers import layout_on_pool
from shardwright.planning.planner import Considered, consider, decided, make_plan
from shardwright.planning.report import Plan
from shardwright.planning.request import OptimizeFor
from shardwright.planning.select import (
    BALANCED_SHARE,
    FeasibleCandidate,
    Scale,
    answer_seconds,
    breaks_rack,
    select,
)
from tests.support.questions import Question

ROUNDING: Final = 1e-6

SLACK: Final = (1 + NEAR_TIE) ** 2 - 1
"""What two near ties, one before and one after, may cost together."""

_MOST_NUMBERS: Final = 32
"""Instances of a layout up to which every number is tried."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A law that does not hold for a question."""

    law: str
    question: Question
    what: str

    def __str__(self) -> str:
        return f"{self.law}: {self.what} [{self.question}]"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A question with the layouts that stand, the plan first; none where nothing stands."""

    question: Question
    considered: Considered
    ranked: Sequence[FeasibleCandidate]
    scale: Scale

    @property
    def plan(self) -> FeasibleCandidate:
        return self.ranked[0]


def reconcile(question: Question) -> Snapshot:
    """Return what the planner makes of a question, before it becomes words."""
    model, inventory, request, traits = (
        question.model,
        question.inventory,
        question.request,
        question.traits,
    )
    considered = consider(model, inventory, request, traits)
    return Snapshot(
        question=question, considered=considered, ranked=decided(considered), scale=considered.scale
    )


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A question, whether there is a plan, and the laws that it breaks."""

    planned: bool
    findings: Sequence[Finding]


def examine(question: Question) -> Examined:
    """Return what a question breaks: laws of its own, and of one question beside it that its seed
    picks.
    """
    snapshot = reconcile(question)
    if not snapshot.ranked:
        return Examined(planned=False, findings=[*_refused(snapshot)])
    laws = (
        _little,
        _data_sheet,
        _requests,
        _undominated,
        _inside_nodes,
        _BESIDE[question.seed % len(_BESIDE)],
    )
    return Examined(planned=True, findings=[finding for law in laws for finding in law(snapshot)])


def _little(snapshot: Snapshot) -> Iterator[Finding]:
    """No more tokens than the requests in flight can bring in the time that each takes, nor than
    are offered.
    """
    load = snapshot.question.request.workload
    for feasible in snapshot.ranked:
        speed = feasible.estimate.performance
        most = (
            load.concurrency
            * load.output_tokens
            / answer_seconds(feasible.estimate, snapshot.question.request)
        )
        if load.requests_per_second is not None:
            most = load.requests_per_second * load.output_tokens
        if speed.output_tokens_per_second > most * (1 + ROUNDING):
            yield _found(
                "Little",
                snapshot,
                feasible,
                f"{speed.output_tokens_per_second:.1f} tok/s of at most {most:.1f}",
            )


def _data_sheet(snapshot: Snapshot) -> Iterator[Finding]:
    """No step is faster than reading the weights that it cannot do without, no prompt than its
    products on the fastest unit.
    """
    load = snapshot.question.request.workload
    dense, experts, active = _sizes(snapshot.question.model)
    for feasible in snapshot.ranked:
        layout, gpu, speed = (
            feasible.candidate.layout,
            feasible.candidate.pool.gpu,
            feasible.estimate.performance,
        )
        ranks = layout.tensor * layout.attention_data
        read = (dense / layout.tensor + experts / ranks) / gpu.memory_bytes_per_second
        if speed.tpot_seconds * load.tokens_per_step < read * (1 - ROUNDING):
            yield _found(
                "Data sheet",
                snapshot,
                feasible,
                f"{speed.tpot_seconds:.5f} s per token, reading takes {read:.5f} s",
            )
        prompt = (
            load.input_tokens
            * (1 - load.prefix_cache_hit_rate)
            * 2
            * active
            / (layout.gpus_per_replica * _fastest(gpu))
        )
        if speed.ttft_seconds < prompt * (1 - ROUNDING):
            yield _found(
                "Data sheet",
                snapshot,
                feasible,
                f"first token after {speed.ttft_seconds:.4f} s, its products take {prompt:.4f}",
            )


def _sizes(model: ModelSpec) -> tuple[float, float, float]:
    """Return bytes that every step reads, bytes of the experts of one token, and elements that one
    token is multiplied with.
    """
    blocks = [
        layer.feed_forward
        for layer in model.layers
        if isinstance(layer.feed_forward, ExpertFeedForward)
    ]
    hot = max((block.experts_per_token / block.experts for block in blocks), default=0.0)
    inner = [
        weight
        for weight in model.weights
        if weight.layer is not None and weight.layer < len(model.layers)
    ]
    dense = [weight for weight in inner if weight.inputs > 1 and not weight.experts]
    routed = [weight for weight in inner if weight.inputs > 1 and weight.experts]
    active = sum(weight.elements for weight in dense) + hot * sum(
        weight.elements for weight in routed
    )
    return _bytes(dense), hot * _bytes(routed), active


def _bytes(weights: Sequence[Weight]) -> float:
    return sum(weight.elements * weight.storage.bits / 8 for weight in weights)


def _fastest(gpu: Gpu) -> float:
    return max((*gpu.flops.values(), *gpu.matmul_flops.values()))


def _requests(snapshot: Snapshot) -> Iterator[Finding]:
    """No replica runs more requests than its share of those that there are."""
    load = snapshot.question.request.workload
    if load.requests_per_second is not None:
        return
    for feasible in snapshot.ranked:
        share = -(-load.concurrency // feasible.candidate.layout.replicas)
        running = feasible.estimate.performance.running_requests
        if not 1 <= running <= share:
            yield _found("Requests", snapshot, feasible, f"{running} run of {share}")


def _undominated(snapshot: Snapshot) -> Iterator[Finding]:
    """Nothing that surely starts brings more, and sooner, for no more GPUs, in whatever number of
    instances if that is open; by a near tie, and by the doubt of what nobody measured, it may.

    But over nodes, where the plan stays inside them (law of nodes); and in fewer instances, of
    which each has more of the prefix hits, where a load is not carried.
    """
    plan, request = snapshot.plan, snapshot.question.request
    load = request.workload
    spread = load.prefix_cache_hit_rate > 0 and not load.follows_prefixes and not plan.carries_load
    for other in (*snapshot.ranked[1:], *_on_no_more_gpus(snapshot)):
        fewer = other.candidate.layout.replicas < plan.candidate.layout.replicas
        if other.goes_over_nodes(request) > plan.goes_over_nodes(request) or (spread and fewer):
            continue
        surely = (other.tight, not other.carries_load, other.second_choice) <= (
            plan.tight,
            not plan.carries_load,
            plan.second_choice,
        )
        more = other.served > plan.served * (1 + NEAR_TIE)
        # Behind a queue that grows without end there is no time to compare.
        sooner = plan.falls_behind or (
            other.seconds(request) * (1 + NEAR_TIE) < plan.seconds(request)
        )
        cheaper = other.cost <= plan.cost
        # A rack is broken only where what is sure pays for the whole trays.
        if breaks_rack(other.candidate):
            cheaper = _whole_cost(snapshot, other) <= plan.counted_cost
        if cheaper and surely and more and sooner:
            yield _found(
                "Dominated",
                snapshot,
                other,
                f"{other.served:.1f} served, and sooner; the plan is {_words(plan)}, "
                f"{plan.served:.1f}",
            )


def _on_no_more_gpus(snapshot: Snapshot) -> Iterator[FeasibleCandidate]:
    """Yield each layout in every number of instances on as many GPUs as the plan's, or fewer."""
    if snapshot.question.request.space.replicas is None:
        yield from _in_all_numbers(snapshot, snapshot.plan.candidate.layout.gpus)


def _in_all_numbers(snapshot: Snapshot, gpus: int | None = None) -> Iterator[FeasibleCandidate]:
    """Yield each layout that stands, in every number of instances on so many GPUs (None: on all
    that are free).
    """
    question, considered = snapshot.question, snapshot.considered
    load = question.request.workload

    def numbers(one: Candidate, most: Callable[[], int]) -> range:
        within = MOST_REPLICAS if gpus is None else gpus // one.layout.gpus_per_replica
        return range(1, min(most(), within) + 1)

    most = _MOST_NUMBERS if load.requests_per_second else min(_MOST_NUMBERS, load.concurrency)
    candidates = enumerate_candidates(
        question.model,
        question.inventory,
        question.request.space,
        question.traits,
        SearchScope(numbers=numbers, most=most),
    )
    yield from select(map(considered.judge.verdict, candidates), snapshot.scale)


def _inside_nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """No instance spans nodes where any number of instances inside them carries the load; but for
    Latency, where it takes half of the time.
    """
    plan, request = snapshot.plan, snapshot.question.request
    if not plan.goes_over_nodes(request):
        return
    bar = plan.seconds(request) / HALVED
    latency = request.objective.optimize_for is OptimizeFor.LATENCY
    beside = () if request.space.replicas is not None else _in_all_numbers(snapshot)
    for other in (*snapshot.ranked[1:], *beside):
        inside = other.carries_load and not other.goes_over_nodes(request)
        if inside and not other.tight and not (latency and bar <= other.seconds(request)):
            yield _found(
                "Nodes", snapshot, other, f"stays inside nodes; the plan is {_words(plan)}"
            )


def _refused(snapshot: Snapshot) -> Iterator[Finding]:
    """Nothing is refused where some number of instances on the given GPUs meets the limits."""
    if snapshot.question.request.space.replicas is not None:
        return
    for other in _in_all_numbers(snapshot):
        yield _found("Refused", snapshot, other, "stands, and there is no plan")
        return


def _best_by_objective(snapshot: Snapshot) -> Iterator[Finding]:
    """Nothing as sure is better by the objective, in whatever number of instances, by more than two
    near ties; where the objective pays for it, and no rack is broken.
    """
    plan, request = snapshot.plan, snapshot.question.request
    racks = any(pool.gpu.of_a_rack for pool in snapshot.question.inventory.pools)
    if request.space.replicas is not None or not plan.carries_load or racks:
        return
    others = [
        other
        for other in _in_all_numbers(snapshot)
        if other.carries_load and other.tight <= plan.tight
    ]
    others = [
        other for other in others if other.goes_over_nodes(request) <= plan.goes_over_nodes(request)
    ]
    if request.objective.optimize_for is OptimizeFor.BALANCED:
        least = min(each.counted_cost for each in (plan, *others))
        others = [other for other in others if other.counted_cost <= least * BALANCED_SHARE]
    for other in others:
        worth = other.score / plan.score if plan.score > 0 else plan.score / other.score
        # What brings more, and sooner, for no more is taken, though its tokens come more slowly.
        in_all = (
            plan.cost <= other.cost
            and plan.served > other.served * (1 + NEAR_TIE)
            and plan.seconds(request) * (1 + NEAR_TIE) < other.seconds(request)
        )
        if worth > 1 + SLACK and not in_all:
            yield _found("Objective", snapshot, other, f"is worth {worth:.3f} of {_words(plan)}")


def _one_more(snapshot: Snapshot) -> Iterator[Finding]:
    """One request more never halves what all get, nor doubles what each waits.

    Where a layout that carries the load is pinned down by its limits, the next that does is
    another: then only what is served counts. With a rate, concurrency says nothing.
    """
    load = snapshot.question.request.workload
    if (
        load.requests_per_second is not None
        or snapshot.question.request.space.fill
        or snapshot.question.request.objective.limited
    ):
        return
    more = replace(load, concurrency=load.concurrency + 1)
    after = _asked(snapshot, request=replace(snapshot.question.request, workload=more))
    if not after.ranked:
        yield _found("One more", snapshot, snapshot.plan, "one request more and nothing stands")
        return
    rates = [one.plan.served for one in (snapshot, after)]
    if rates[1] < rates[0] / 2:
        yield _found(
            "One more", snapshot, after.plan, f"{rates[0]:.1f} tok/s become {rates[1]:.1f}"
        )


def _more_load(snapshot: Snapshot) -> Iterator[Finding]:
    """Of a quarter more load no less is served; and where the fewest GPUs are the goal, it never
    costs less; but over nodes, which are taken only if no instances inside them carry the load.

    A limit on time may be met by no number of instances any more.
    """
    request = snapshot.question.request
    load = request.workload
    if request.space.replicas is not None:
        return
    rate = load.requests_per_second
    more = replace(
        load, concurrency=load.concurrency * 5 // 4 + 1, requests_per_second=rate and rate * 1.25
    )
    after = _asked(snapshot, request=replace(request, workload=more))
    if not after.ranked:
        if not request.objective.limited:
            yield _found("More load", snapshot, snapshot.plan, "a quarter more and nothing stands")
        return
    old, new = snapshot.plan, after.plan
    if old.tight != new.tight:
        return
    # Requests in flight that all run are served, however many tokens a cheaper layout brings.
    if rate is not None or not new.carries_load:
        before, then = (plan.estimate.performance.output_tokens_per_second for plan in (old, new))
        if then < before * (1 - SLACK):
            yield _found("More load", snapshot, new, f"{before:.1f} of {_words(old)}: {then:.1f}")
    # Batches shrink only for a load, and then a layout may surely start that was tight.
    sure_only_now = any(
        each.tight and layout_on_pool(each.candidate) == layout_on_pool(new.candidate)
        for each in snapshot.ranked
    )
    fewest = request.objective.optimize_for is OptimizeFor.THROUGHPUT and new.carries_load
    alike = new.goes_over_nodes(request) <= old.goes_over_nodes(request)
    cheaper = new.cost < old.cost * (1 - ROUNDING)
    if (
        fewest
        and not sure_only_now
        and alike
        and cheaper
        and _whole_cost(after, new) < _whole_cost(snapshot, old) * (1 - ROUNDING)
    ):
        yield _found("Price", snapshot, new, f"costs less than {_words(old)} at less load")


def _whole_cost(snapshot: Snapshot, feasible: FeasibleCandidate) -> float:
    """Return what is compared of a cost, with all of the trays that a rack loses."""
    opened = snapshot.scale.opened(feasible.candidate)
    return (feasible.cost + opened) / feasible.sure


def _more_nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """A node more never makes the plan worse."""
    pools = tuple(
        replace(pool, nodes=(*pool.nodes, _like(pool)))
        for pool in snapshot.question.inventory.pools
        if pool.domain_gpus <= 16
    )
    if len(pools) == len(snapshot.question.inventory.pools):
        yield from _no_worse(
            "More nodes",
            snapshot,
            _asked(snapshot, inventory=replace(snapshot.question.inventory, pools=pools)),
        )


def _like(pool: Pool) -> Node:
    last = pool.nodes[-1]
    return replace(
        last, name=f"{last.name}-more", domain=f"{last.domain}-more" if last.domain else ""
    )


def _faster_links(snapshot: Snapshot) -> Iterator[Finding]:
    """Links that are twice as fast never make the plan worse."""
    pools = tuple(
        replace(
            pool,
            gpu=replace(
                pool.gpu,
                host=_twice(pool.gpu.host),
                scale_up=pool.gpu.scale_up and _twice(pool.gpu.scale_up),
            ),
            network=_twice(pool.network),
        )
        for pool in snapshot.question.inventory.pools
    )
    yield from _no_worse(
        "Faster links",
        snapshot,
        _asked(snapshot, inventory=replace(snapshot.question.inventory, pools=pools)),
    )


def _twice(link: Link) -> Link:
    return replace(
        link, bytes_per_second=2 * link.bytes_per_second, latency_seconds=link.latency_seconds / 2
    )


def _more_memory(snapshot: Snapshot) -> Iterator[Finding]:
    """A quarter more memory never makes the plan worse.

    But where it crosses a size from which vLLM takes larger batches by itself: these slow single
    requests. And where no list has the price of the GPU, which follows its memory. And under a limit on the time per token: where more run at once every token takes
    longer, and a limit says nothing of waiting.
    """
    pools = tuple(
        replace(pool, gpu=_larger(pool.gpu)) for pool in snapshot.question.inventory.pools
    )
    sizes = [row.gpu_bytes for row in snapshot.question.traits.batching.batch_defaults]
    jumps = any(
        pool.gpu.memory_bytes < size <= _larger(pool.gpu).memory_bytes
        for pool in snapshot.question.inventory.pools
        for size in sizes
    )
    dearer = any(
        relative_price(_larger(pool.gpu)) != relative_price(pool.gpu)
        for pool in snapshot.question.inventory.pools
    )
    if not jumps and not dearer and not snapshot.question.request.objective.limited:
        yield from _no_worse(
            "More memory",
            snapshot,
            _asked(snapshot, inventory=replace(snapshot.question.inventory, pools=pools)),
        )


def _larger(gpu: Gpu) -> Gpu:
    return replace(gpu, memory_bytes=gpu.memory_bytes * 5 // 4)


def _fewer_bits(snapshot: Snapshot) -> Iterator[Finding]:
    """FP8 instead of 16 bits never makes the plan worse where the GPU multiplies FP8.

    With 4 bits it may: prompts are computed in 16 bits, after widening. And under a limit on the
    time per token, as with more memory: smaller weights leave room for more requests at once.
    """
    question = snapshot.question
    plain = {weight.storage.name for weight in question.model.weights if weight.quantizable} <= {
        "bf16",
        "fp16",
    }
    native = all("fp8" in pool.gpu.flops for pool in question.inventory.pools)
    if plain and native and question.request.objective.tpot_seconds is None:
        halved = replace(question, model=stored_as(question.model, "fp8"), stored="fp8")
        yield from _no_worse("Fewer bits", snapshot, reconcile(halved))


def _less_load(snapshot: Snapshot) -> Iterator[Finding]:
    """Half of the requests are answered no later."""
    load = snapshot.question.request.workload
    if (
        load.requests_per_second is not None
        or load.concurrency == 1
        or snapshot.question.request.space.fill
    ):
        return
    request = replace(
        snapshot.question.request, workload=replace(load, concurrency=load.concurrency // 2)
    )
    after = _asked(snapshot, request=request)
    if not after.ranked or (snapshot.plan.carries_load and not after.plan.carries_load):
        yield _found(
            "Less load",
            snapshot,
            snapshot.plan,
            "is not carried any more with half of the requests",
        )


def _agreed(snapshot: Snapshot) -> Iterator[Finding]:
    """The report says of the plan what its prediction says, and lists nothing that it did not
    price.
    """
    question = snapshot.question
    report = make_plan(question.model, question.inventory, question.request, question.traits)
    plan, chosen = report.outcome, snapshot.plan
    if not isinstance(plan, Plan) or (plan.layout, plan.pool) != (
        chosen.candidate.layout,
        chosen.candidate.pool.name,
    ):
        yield _found("Agree", snapshot, chosen, "is not what the report plans")
        return
    alone = estimator_of(question.model, question.request, question.traits).estimate(
        chosen.candidate
    )
    if (plan.performance, plan.carries_load) != (alone.performance, chosen.carries_load):
        yield _found("Agree", snapshot, chosen, "is predicted otherwise alone")


_BESIDE: Final[Sequence[Callable[[Snapshot], Iterator[Finding]]]] = (
    _one_more,
    _more_load,
    _more_nodes,
    _faster_links,
    _more_memory,
    _fewer_bits,
    _less_load,
    _agreed,
    _best_by_objective,
)


def _asked(snapshot: Snapshot, **changes: object) -> Snapshot:
    return reconcile(replace(snapshot.question, **changes))  # type: ignore[arg-type]


def _no_worse(law: str, before: Snapshot, after: Snapshot) -> Iterator[Finding]:
    """Yield that the plan got worse: it carries less, or by its objective is less good, by more
    than two near ties.

    What carries the load goes before what does not, so a plan that carries it now may be less good
    by the objective. So does, for Latency, what fits a node: it gets no second one where replicas
    do as well. And what brings as much as soon for no more is no worse, whatever the objective
    weighs.
    """
    if not after.ranked:
        yield _found(law, before, before.plan, "and nothing stands any more")
        return
    old, new = before.plan, after.plan
    if (new.tight, not new.carries_load) > (old.tight, not old.carries_load):
        yield _found(law, before, new, f"does not carry the load as {_words(old)} did")
    elif (new.tight, new.carries_load) == (old.tight, old.carries_load) and not new.falls_behind:
        if _kept_in_a_node(old, new) or _pays_less(before, after) or _as_good_in_all(before, after):
            return
        gained = new.score / old.score if old.score > 0 else old.score / new.score
        if gained < 1 / (1 + SLACK):
            yield _found(law, before, new, f"is worth {gained:.3f} of {_words(old)}")


def _pays_less(before: Snapshot, after: Snapshot) -> bool:
    """Balanced pays for speed a share of the least cost that carries the load: where that falls, so
    does what it pays.
    """
    balanced = before.question.request.objective.optimize_for is OptimizeFor.BALANCED
    return balanced and after.plan.counted_cost < before.plan.counted_cost


def _as_good_in_all(before: Snapshot, after: Snapshot) -> bool:
    old, new = before.plan, after.plan
    times = [
        answer_seconds(snapshot.plan.estimate, snapshot.question.request)
        for snapshot in (before, after)
    ]
    cheaper = after.scale.cost(new.candidate) <= before.scale.cost(old.candidate)
    return cheaper and new.served >= old.served * (1 - SLACK) and times[1] <= times[0] * (1 + SLACK)


def _kept_in_a_node(old: FeasibleCandidate, new: FeasibleCandidate) -> bool:
    nodes = [one.candidate.placement.nodes_per_replica for one in (old, new)]
    return nodes[0] > 1 == nodes[1]


def _words(feasible: FeasibleCandidate) -> str:
    layout = feasible.candidate.layout
    return (
        f"{layout.replicas} x t{layout.tensor} p{layout.pipeline} d{layout.attention_data} "
        f"e{layout.expert}"
        f" c{layout.context} "
        f"{layout.partition or ''} on {feasible.candidate.pool.name}"
    )


def _found(law: str, snapshot: Snapshot, feasible: FeasibleCandidate, what: str) -> Finding:
    return Finding(law=law, question=snapshot.question, what=f"{_words(feasible)}: {what}")
