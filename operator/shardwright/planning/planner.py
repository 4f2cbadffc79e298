"""Model, inventory and request in; out comes the plan or why there is none, with runners-up and
exclusions.

Which layouts need no price, because they also stand on a pool that differs only in a faster
network?

Faster links never slow anything (``tests/property``), so a slower twin is never the best.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from shardwright.costs.workload import Workload
from shardwright.hardware.gpus import Link
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.enumerate import SearchScope, enumerate_candidates
from shardwright.layouts.layout import MOST_REPLICAS, Candidate, EngineTraits
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning import node_storage
from shardwright.planning.arrivals import Prices
from shardwright.planning.checks import Judge, Verdict, beside_gpus
from shardwright.planning.choice import in_reach, keeps_up, losses_of, not_yet, settled
from shardwright.planning.drain import drain_seconds
from shardwright.planning.held import instance_load
from shardwright.planning.long_prompts import long_prompt_reasons
from shardwright.planning.missed import (
    Answered,
    MissedPlan,
    brought_by,
    exclusion,
    may_bring,
    sentence,
    with_capability,
)
from shardwright.planning.no_plan import PlannerQuestion, count_exclusions, no_plan
from shardwright.planning.node_storage import HostCache, barred_nodes, host_cache
from shardwright.planning.numbers import Fewest, More
from shardwright.planning.prefixes import prefix_reasons
from shardwright.planning.report import Alternative, Enough, Plan, Report
from shardwright.planning.request import Request
from shardwright.planning.select import (
    FeasibleCandidate,
    Scale,
    million_tokens_price,
    rank,
    runners_up,
    select,
)
from shardwright.planning.sentences import losses_sentence, reasons
from shardwright.planning.sizing import front
from shardwright.planning.warnings import warnings

NOTICEABLE: Final = 0.001
"""Share by which a network must be faster to be better whatever else; else a tie is decided as any
other. Basis: assumed, far above what rounding hides.
"""

LONG_ANSWER_STEPS: Final = 16
"""Decode steps from which an answer's time is not that of its first tokens, in which a faster link
may count as a later start. Basis: assumed, several times the fitted ``answer_steps`` of every
engine.
"""


def without_slower_twins(feasible: Sequence[Verdict], load: Workload) -> Sequence[Verdict]:
    """Return the verdicts without those that have a twin on a faster network.

    Where links may count otherwise all are returned: a rate is searched in steps, and short answers
    are mostly their first tokens.
    """
    steps = load.output_tokens / load.tokens_per_step
    # A rate settles at another number in flight on each network, and in short answers a faster link
    # may count as a later start.
    if load.requests_per_second is not None or steps < LONG_ANSWER_STEPS:
        return feasible
    twins: dict[object, list[Verdict]] = defaultdict(list)
    for verdict in feasible:
        twins[_but_network(verdict)].append(verdict)
    return [verdict for alike in twins.values() for verdict in _unbeaten(alike)]


def _but_network(verdict: Verdict) -> tuple[object, ...]:
    layout, pool, placement = (
        verdict.candidate.layout,
        verdict.candidate.pool,
        verdict.candidate.placement,
    )
    links = (
        None if link == pool.network else link
        for link in (placement.tensor_link, placement.pipeline_link)
    )
    # Of a board that an instance takes most of, the rest counts as its cost.
    boards = pool.domain_gpus, pool.gpus_per_node
    spread = placement.gpus_per_node, placement.nodes_per_replica, placement.one_domain
    return layout, pool.gpu, pool.gpu_hour_price, *boards, *spread, *links


def _unbeaten(twins: Sequence[Verdict]) -> Sequence[Verdict]:
    if twins[0].candidate.placement.nodes_per_replica == 1:
        # No network is crossed: which one is kept is decided as select would.
        return [min(twins, key=_tie)]
    kept: list[Verdict] = []
    # Fastest first: a verdict can then be beaten by those before it alone.
    for verdict in sorted(twins, key=_by_network):
        if not any(_beats(faster, verdict) for faster in kept):
            kept.append(verdict)
    return kept


def _by_network(verdict: Verdict) -> tuple[object, ...]:
    network = verdict.candidate.pool.network
    return -network.bytes_per_second, network.latency_seconds, _tie(verdict)


def _beats(one: Verdict, other: Verdict) -> bool:
    mine = one.candidate.pool.network
    its = other.candidate.pool.network
    if _slower(mine, its):
        return False
    faster = _crosses_network(one) and mine.bytes_per_second > its.bytes_per_second * (
        1 + NOTICEABLE
    )
    return faster or _tie(one) < _tie(other)


def _crosses_network(verdict: Verdict) -> bool:
    """Return whether traffic surely crosses the network: nodes of one replica may share a scale-up
    link.
    """
    placement = verdict.candidate.placement
    return verdict.candidate.pool.network in (placement.tensor_link, placement.pipeline_link)


def _slower(mine: Link, its: Link) -> bool:
    return (
        mine.bytes_per_second < its.bytes_per_second or mine.latency_seconds > its.latency_seconds
    )


def _tie(verdict: Verdict) -> tuple[int, int, str]:
    """Return the key that orders equally good candidates, as in ``select``."""
    placement = verdict.candidate.placement
    return (
        placement.nodes_per_replica * len(placement.groups),
        placement.leftover_gpus,
        verdict.candidate.pool.name,
    )


STATED: Final = "the degrees are those of spec.parallelism, and the stated bytes fit"
"""Why a plan of a stated model looks as it does."""

ALTERNATIVES: Final = 4
"""Runners-up that a report shows, beside the best on each kind of GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """One question: every candidate with its verdict, and the prices they were judged by.

    If nothing stands the candidates go beyond the free GPUs, so the closest miss is among them.
    ``verdicts`` has each layout once; if their number is open, in the fewest instances that do.
    """

    model: ModelSpec
    inventory: Inventory
    request: Request
    traits: EngineTraits
    judge: Judge
    scale: Scale
    verdicts: tuple[Verdict, ...]

    @property
    def feasible(self) -> list[Verdict]:
        """Return the verdicts without violations."""
        return [verdict for verdict in self.verdicts if not verdict.violations]


def consider(
    model: ModelSpec,
    inventory: Inventory,
    request: Request,
    traits: EngineTraits,
    prices: Prices | None = None,
) -> Considered:
    """Return every candidate for a model on an inventory, judged.

    ``prices`` saves work if the same model under the same load was asked about before, on other
    inventories or budgets.
    """
    judge = Judge(model, request, traits, prices)
    scale = Scale.of(request, inventory, takes_first=traits.support.takes_first)
    candidates = partial(enumerate_candidates, model, inventory, request.space, traits)
    scope = SearchScope(
        withheld=beside_gpus(model, request, traits),
        numbers=Fewest(judge=judge, scale=scale),
        most=most_instances(request),
    )
    verdicts = [judge.verdict(candidate) for candidate in candidates(scope)]
    # Most questions have an answer, and a plan beyond the free GPUs would cost as much again.
    if all(verdict.violations for verdict in verdicts):
        larger = candidates(replace(scope, beyond=True))
        verdicts = [judge.verdict(candidate) for candidate in larger]
    return Considered(
        model=model,
        inventory=inventory,
        request=request,
        traits=traits,
        judge=judge,
        scale=scale,
        verdicts=tuple(verdicts),
    )


def most_instances(request: Request) -> int:
    """Return how many instances there may be: one for each request in flight, if that number is
    known.
    """
    load = request.workload
    return MOST_REPLICAS if load.requests_per_second else min(MOST_REPLICAS, load.concurrency)


def make_plan(
    model: ModelSpec,
    inventory: Inventory,
    request: Request,
    traits: EngineTraits,
    prices: Prices | None = None,
) -> Report:
    """Return the best plan for a model on an inventory, or why there is none; equal input, equal
    report.

    ``prices`` are as for :func:`consider`.
    """
    return choose(consider(model, inventory, request, traits, prices))


def decided(considered: Considered) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates that stand, the chosen one first; empty if none does."""
    scale = considered.scale
    # Near ties are held against the whole rank.
    ranked = settled(best_first(considered.feasible, scale), scale)
    if not ranked or scale.request.space.replicas is not None:
        return ranked
    # A best one in more instances has others beside it, on as many GPUs as its own.
    while (wider := _beside_more(ranked, considered))[0] is not ranked[0]:
        ranked = wider
    return wider


def choose(considered: Considered) -> Report:
    """Return the best candidate, or why there is none; and what would be better if the cluster and
    the image had what they lack.
    """
    report = _chosen(considered)
    found = tuple(_missed(considered, report))
    if not found:
        return report
    outcome = report.outcome
    if isinstance(outcome, Plan):
        said = tuple(sentence(item) for item in found)
        outcome = replace(outcome, warnings=(*outcome.warnings, *said))
    ruled_out = (exclusion(item) for item in found)
    return replace(report, outcome=outcome, excluded=(*ruled_out, *report.excluded))


def _missed(considered: Considered, report: Report) -> Iterator[MissedPlan]:
    here = Answered(outcome=report.outcome, inventory=considered.inventory)
    model, request, traits = considered.model, considered.request, considered.traits
    for capability, inventory in with_capability(considered.inventory):
        if not may_bring(capability, report.outcome, request):
            continue
        other = consider(model, inventory, request, traits, considered.judge.prices)
        there = Answered(outcome=_chosen(other).outcome, inventory=inventory)
        found = brought_by(capability, there, here, other.verdicts, considered.scale)
        if found is not None:
            yield found


def _chosen(considered: Considered) -> Report:
    verdicts, ranked = considered.verdicts, decided(considered)
    if ranked:
        return _report(ranked, considered)
    asked = PlannerQuestion(
        model=considered.model, request=considered.request, traits=considered.traits
    )
    return Report(
        outcome=no_plan(verdicts, considered.inventory, asked),
        alternatives=(),
        excluded=count_exclusions(verdicts, considered.inventory),
        considered=len(verdicts),
    )


def _beside_more(
    ranked: tuple[FeasibleCandidate, ...], considered: Considered
) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates with the chosen one first, beside those in more instances that may
    pay.
    """
    judge, scale = considered.judge, considered.scale
    scope = SearchScope(
        withheld=beside_gpus(considered.model, considered.request, considered.traits),
        numbers=More.beside(ranked, judge, scale),
        most=most_instances(considered.request),
    )
    candidates = enumerate_candidates(
        considered.model, considered.inventory, considered.request.space, considered.traits, scope
    )
    beside = select(map(judge.verdict, candidates), scale)
    return settled(rank((*ranked, *beside), scale), scale) if beside else ranked


def _report(ranked: Sequence[FeasibleCandidate], considered: Considered) -> Report:
    best = ranked[0]
    scale = considered.scale
    request = considered.request
    verdicts = considered.verdicts
    # Nothing is said that follows from a speed which is not known.
    stated = considered.model.stated
    others = () if stated else runners_up(ranked, ALTERNATIVES)
    feasible = _reached(considered.feasible, deploy=request.deploy)
    why = (
        (STATED,)
        if stated
        else (
            *reasons(ranked, verdicts, scale, feasible=feasible),
            *long_prompt_reasons(ranked, verdicts, request, considered.traits),
            *prefix_reasons(best, considered.model, request, considered.traits),
        )
    )
    inventory = considered.inventory
    care = warnings(inventory, best, request, considered.model, considered.traits)
    instance = instance_load(best, considered.judge.prices, request)
    return Report(
        outcome=replace(
            _plan(best, considered, why),
            warnings=care,
            host_cache=_host_cache(best, considered),
            enough=_enough(ranked, scale),
            million_tokens_price=None if stated else million_tokens_price(best),
            replica_requests=instance.requests,
            replica_rate=instance.rate,
            missing=_without_room(best, request),
            disk_bytes=node_storage.request_bytes(best.candidate, request.disk_bytes),
        ),
        alternatives=tuple(_alternative(best, other, scale) for other in others),
        excluded=count_exclusions(verdicts, _beside(best, considered)),
        considered=len(verdicts),
        front=() if stated else front(ranked),
    )


def _alternative(best: FeasibleCandidate, other: FeasibleCandidate, scale: Scale) -> Alternative:
    losses, price = losses_of(best, other, scale), scale.price(other.candidate.pool)
    return Alternative(
        layout=other.candidate.layout,
        pool=other.candidate.pool.name,
        performance=other.estimate.performance,
        loses=losses_sentence(losses, best, other, scale.request),
        losses=losses,
        million_tokens_price=million_tokens_price(other),
        gpu_price=replace(price, source="") if price else None,
        product=other.candidate.pool.product,
        capacity=other.estimate.capacity,
    )


def _without_room(best: FeasibleCandidate, request: Request) -> int:
    """Return how many instances more would carry the load, within the budget, if their number is
    open: only room is missing for them.
    """
    space, candidate = request.space, best.candidate
    if space.replicas is not None:
        return 0
    most = most_instances(request)
    if space.max_nodes is not None:
        most = min(most, _most_on(space.max_nodes, candidate))
    # A quota of others may be raised: what it keeps out is missing.
    if space.max_gpus is not None:
        most = min(most, space.max_gpus // candidate.layout.gpus_per_replica)
    return max(0, min(most, best.replicas_wanted) - candidate.layout.replicas)


def _most_on(nodes: int, candidate: Candidate) -> int:
    """Return how many instances so many whole nodes of the pool have room for."""
    placement = candidate.placement
    if placement.nodes_per_replica > 1:
        return nodes // placement.nodes_per_replica
    return nodes * (candidate.pool.gpus_per_node // placement.gpus_per_node)


def _enough(ranked: Sequence[FeasibleCandidate], scale: Scale) -> Enough | None:
    if ranked[0].carries_load or ranked[0].estimate.capacity is None:
        return None
    wanted = keeps_up(ranked, scale)
    free = sum(node.free for node in wanted.pool.nodes)
    return Enough(layout=wanted.layout, pool=wanted.pool.name, free=free)


def _beside(best: FeasibleCandidate, considered: Considered) -> Inventory:
    inventory, wanted = (considered.inventory, considered.request.workload.kv_offload)
    more = barred_nodes(
        best.candidate, wanted, considered.model, over_ray=considered.traits.options.over_ray
    )
    fuller = node_storage.nodes_without_disk(best.candidate, considered.request.disk_bytes)
    return replace(inventory, excluded=(*inventory.excluded, *more, *fuller))


def best_first(feasible: Sequence[Verdict], scale: Scale) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates that stand and are worth a price, best first.

    These are the best of every layout among pools that are alike, and everything on the best one's
    pool with no more GPUs.
    """
    rivals = without_slower_twins(feasible, scale.request.workload)
    ranked = in_reach(select(rivals, scale), deploy=scale.request.deploy)
    if len(rivals) == len(feasible):
        return ranked
    best = ranked[0].candidate
    reconciled = {id(verdict) for verdict in rivals}
    beside = (
        verdict
        for verdict in feasible
        # A near tie may go to a slower twin on the best one's own pool.
        if verdict.candidate.pool is best.pool and id(verdict) not in reconciled
    )
    rest = select(
        (verdict for verdict in beside if verdict.candidate.layout.gpus <= best.layout.gpus), scale
    )
    return in_reach(rank((*ranked, *rest), scale), deploy=scale.request.deploy)


def _reached(feasible: Sequence[Verdict], *, deploy: bool) -> int:
    """Return how many candidates can be run; all, if none is to be or can be."""
    return sum(not (deploy and not_yet(verdict.candidate)) for verdict in feasible) or len(feasible)


def _host_cache(best: FeasibleCandidate, considered: Considered) -> HostCache | None:
    wanted, over_ray = (considered.request.workload.kv_offload, considered.traits.options.over_ray)
    return host_cache(best.candidate, best.estimate, wanted, considered.model, over_ray=over_ray)


def _plan(best: FeasibleCandidate, considered: Considered, why: tuple[str, ...]) -> Plan:
    """Only a chosen layout is lengthened: none is chosen for requests that nobody sends."""
    candidate, estimate, request = best.candidate, best.estimate, considered.request
    memory = considered.judge.prices.lengthened(candidate)
    pool, placement = candidate.pool, candidate.placement
    return Plan(
        layout=candidate.layout,
        pool=pool.name,
        product=pool.product,
        resource=pool.resource,
        architecture=pool.architecture,
        groups=placement.groups,
        nodes_per_replica=placement.nodes_per_replica,
        gpus_per_node=placement.gpus_per_node,
        tensor_link=placement.tensor_link.name if placement.tensor_link else "",
        pipeline_link=placement.pipeline_link.name if placement.pipeline_link else "",
        stages=memory.stages,
        kv_tokens=memory.kv_tokens * candidate.layout.attention_data,
        max_model_len=memory.limits.model_len,
        max_sequences=estimate.max_sequences,
        max_batched_tokens=estimate.max_batched_tokens,
        memory_utilization=considered.traits.memory.memory_utilization,
        load_bytes_per_node=estimate.load_bytes_per_node,
        performance=estimate.performance,
        carries_load=best.carries_load,
        reasons=why,
        undeployable=not_yet(candidate, deploy=request.deploy),
        tight=best.tight,
        load=estimate.load,
        rdma=candidate.rdma_devices,
        compute_domain=candidate.needs_compute_domain,
        uncounted=considered.traits.options.told.uncounted,
        gpu_price=considered.scale.price(pool),
        draft_tokens=estimate.draft_tokens if request.workload.draft_choices else 0,
        claimed=pool.claimed,
        capacity=estimate.capacity,
        drain_seconds=drain_seconds(estimate.performance, memory.limits.model_len),
    )
