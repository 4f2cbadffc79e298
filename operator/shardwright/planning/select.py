"""Which feasible layouts are best, by the objectives of docs/planner-choice.md?"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.costs.coefficients import BAND_MODELLED
from shardwright.costs.estimates import Estimate, Performance
from shardwright.costs.workload import requests_per_replica
from shardwright.hardware.gpus import GpuPrice, relative_price
from shardwright.hardware.inventory import Inventory, Node, Pool
from shardwright.hardware.suitability import whole_resource
from shardwright.layouts.layout import Candidate, Layout
from shardwright.planning.checks import Verdict
from shardwright.planning.request import ALL_OF_A_RATE, OptimizeFor, Request

THROUGHPUT_WEIGHT: Final = 0.8
"""Exponent of throughput per GPU in Balanced; speed per request has the rest. Source: the
definition of Balanced in docs/planner-choice.md.
"""

SECONDS_PER_HOUR: Final = 3600
TOKENS_PER_MILLION: Final = 10**6

UTILISATION: Final = 0.8
"""Share of the requests a second that a layout serves at most which it is planned for. Basis:
assumed: arrivals vary, and at four fifths of the capacity the mean wait of random arrivals is still
a few services long.
"""

MORE_GPUS: Final = 4
"""Kinds of GPU that are shown at most beside the runners-up that are asked for, each with its best
layout. Basis: chosen, so that a report stays small on a cluster with many kinds.
"""

KV_ERROR: Final = 0.05
"""Share of the requests in flight that may lack room for K/V in a layout that carries them.
Basis: the error of the K/V figures (docs/benchmarks/accuracy.md), rounded up.
"""

BALANCED_SHARE: Final = 1.5
"""Times the least cost that carries the load which Balanced may pay for speed. Source: the
definition of Balanced in docs/planner-choice.md.
"""

UNPROVEN: Final = 1 - BAND_MODELLED / 2
"""Share of its predicted speed that counts of a layout whose like nobody serves. Basis: assumed:
half of the lower band of what is modelled.
"""

DOUBLING_GAIN: Final = 0.10
"""What doubling the GPUs of an NVLink domain must bring under Latency, share of the time per
request. Source: the definition of Latency in docs/planner-choice.md.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The measure that layouts are compared by: the objective, and how much a GPU counts.

    If every pool has a price a GPU counts as its price; else as one or, with several kinds, in
    hours of an H100. With a budget to fill the GPUs are given: their price counts, not their
    number. ``takes_first`` is the resource of the GPUs that go first (empty: none).
    """

    request: Request
    by_price: bool
    takes_first: str = ""
    relative: bool = False

    @classmethod
    def of(cls, request: Request, inventory: Inventory, *, takes_first: str = "") -> "Scale":
        """Return the scale of a request on an inventory."""
        priced = bool(inventory.pools) and all(
            pool.gpu_hour_price is not None for pool in inventory.pools
        )
        several = len({pool.gpu.id for pool in inventory.pools}) > 1
        return cls(
            request=request,
            by_price=priced,
            relative=several and not priced,
            takes_first=takes_first,
        )

    def cost(self, candidate: Candidate) -> float:
        """Return the cost of a candidate's GPUs; of one GPU if the GPUs are given."""
        return self.cost_on(candidate.layout, candidate.pool)

    def cost_on(self, layout: Layout, pool: Pool) -> float:
        """Return the cost of a layout's GPUs on a pool; of one GPU if the GPUs are given."""
        # Given GPUs cost the same whether a layout uses them or not.
        return self._each(pool) * (1 if self.request.space.fill else layout.gpus)

    def total(self, candidate: Candidate) -> float:
        """Return the cost of all of a candidate's GPUs."""
        return self._each(candidate.pool) * candidate.layout.gpus

    def price(self, pool: Pool) -> GpuPrice | None:
        """Return the price of a pool's GPU, None if each counts as one."""
        if self.by_price:
            return pool.price
        return relative_price(pool.gpu) if self.relative else None

    def domain_cost(self, pool: Pool) -> float:
        """Return the cost of the GPUs that an NVLink domain joins, else of those of a node."""
        return self._each(pool) * max(pool.domain_gpus, pool.gpus_per_node)

    def stranded(self, candidate: Candidate) -> float:
        """Return the cost of the GPUs that a candidate leaves on boards where nobody else can join
        them: instances on more than half of a board take it whole.
        """
        if self.request.space.fill:
            return 0.0
        each = candidate.placement.gpus_per_node
        boards = _boards(candidate).items()
        left = sum((board - each) * pods for board, pods in boards if each > board / 2)
        return self._each(candidate.pool) * left

    def opened(self, candidate: Candidate) -> float:
        """Return the cost of the GPUs that a candidate leaves idle in trays that nobody used
        before.
        """
        return self._each(candidate.pool) * _opened_gpus(candidate)

    def _each(self, pool: Pool) -> float:
        if self.by_price:
            return pool.gpu_hour_price or 1.0
        if self.relative:
            return relative_price(pool.gpu).per_hour
        return 1.0


def _boards(candidate: Candidate) -> Mapping[int, int]:
    """Return the number of pods on boards of so many GPUs; without a place, on the largest."""
    placement, pool, replicas = candidate.placement, candidate.pool, candidate.layout.replicas
    pods = placement.nodes_per_replica * replicas
    if not pool.only_inside_nodes:
        return {pool.gpus_per_node: pods}
    gpus = {node.name: node.gpus for node in pool.nodes}
    boards = Counter(gpus[name] for group in placement.groups[:replicas] for name in group)
    boards[pool.gpus_per_node] += pods - boards.total()
    return boards


def breaks_rack(candidate: Candidate) -> bool:
    """Return whether a candidate takes unused trays out of a rack without using its links."""
    return candidate.placement.nodes_per_replica == 1 and bool(_whole_trays(candidate))


def _opened_gpus(candidate: Candidate) -> int:
    used = Counter(name for group in candidate.placement.groups for name in group)
    each = candidate.placement.gpus_per_node
    return sum(max(0, node.gpus - used[node.name] * each) for node in _whole_trays(candidate))


def _whole_trays(candidate: Candidate) -> list[Node]:
    pool = candidate.pool
    if not pool.gpu.of_a_rack:
        return []
    used = {name for group in candidate.placement.groups for name in group}
    # Only trays that nobody is on: one that somebody has a part of is spared nothing (ADR 31).
    return [node for node in pool.nodes if node.name in used and node.free == node.gpus]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasibleCandidate:
    """A candidate that nothing speaks against.

    ``served_share`` is the share of the offered load that is served: of the requests in flight
    those that have room at once, of a rate what is served at most with headroom; 1 carries the
    load. ``cost`` is what counts of its GPUs, ``sure`` the share that counts of its predicted
    speed.
    """

    candidate: Candidate
    estimate: Estimate
    served_share: float
    score: float  # the objective, greater is better
    cost: float
    sure: float = 1.0
    # Other GPUs are taken before these, where they do as well.
    second_choice: bool = False
    # More requests arrive than are served at most: the queue grows without end.
    falls_behind: bool = False

    @property
    def carries_load(self) -> bool:
        """Return whether the load is carried: no request waits for room, or a rate has headroom."""
        return self.served_share >= 1

    @property
    def counted_cost(self) -> float:
        """Return the cost that it is compared by: what is less sure must cost less."""
        return self.cost / self.sure

    @property
    def served(self) -> float:
        """Return what is served at most, as far as it is sure: requests a second of a rate, else
        output tokens.
        """
        return self.sure * most_served(self.estimate.performance, self.estimate.capacity)

    @property
    def replicas_wanted(self) -> int:
        """Return the number of replicas that would carry the load."""
        return math.ceil(self.candidate.layout.replicas / self.served_share)

    @property
    def tight(self) -> bool:
        """Return whether one longest request fits some stage by less than its memory may be off."""
        return any(stage.tight for stage in self.estimate.stages)

    def goes_over_nodes(self, request: Request) -> bool:
        """Return whether an instance spans nodes that others need not: under Latency those of one
        NVLink domain count as one, and with a budget to fill all nodes are taken anyway.
        """
        placement, goal = self.candidate.placement, request.objective.optimize_for
        joined = goal is OptimizeFor.LATENCY and placement.one_domain
        return placement.nodes_per_replica > 1 and not (joined or request.space.fill)

    def seconds(self, request: Request) -> float:
        """Return the seconds of a request from its arrival to its last token, as far as they are
        sure.
        """
        return answer_seconds(self.estimate, request) / self.sure


def select(verdicts: Iterable[Verdict], scale: Scale) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates that nothing speaks against, best first.

    Layouts that surely start go before tight ones, then those that carry the load before others,
    and those inside nodes before those over them. Within these the objective decides; of layouts
    that do not carry the load, the one that serves most.
    """
    feasible = (verdict for verdict in verdicts if not verdict.violations)
    return rank(
        (
            assess(verdict.candidate, estimate, scale)
            for verdict in feasible
            if (estimate := verdict.estimate)
        ),
        scale,
    )


def rank(feasible: Iterable[FeasibleCandidate], scale: Scale) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates, best first, whatever the order given."""
    return tuple(sorted(feasible, key=lambda each: _order(each, scale.request)))


def assess(
    candidate: Candidate, estimate: Estimate, scale: Scale, *, besides: float = 0.0
) -> FeasibleCandidate:
    """Return a candidate with its score; ``besides`` is a cost beside its own GPUs."""
    request = scale.request
    share = _served_share(candidate, estimate, request)
    cost = scale.cost(candidate) + scale.stranded(candidate) + besides
    sure = certainty(estimate.performance) * _proven(candidate, request)
    return FeasibleCandidate(
        candidate=candidate,
        estimate=estimate,
        served_share=share,
        cost=cost,
        sure=sure,
        second_choice=scale.takes_first not in ("", whole_resource(candidate.pool.resource)),
        score=score(
            estimate.performance, cost, request, sure, domain=scale.domain_cost(candidate.pool)
        )
        if share >= 1
        else sure * most_served(estimate.performance, estimate.capacity),
        falls_behind=share < UTILISATION and request.workload.requests_per_second is not None,
    )


def certainty(speed: Performance) -> float:
    """Return the share of a predicted speed that counts: without a measurement near it, as much as
    the middle of its lower half band.
    """
    if speed.basis != "modelled":
        return 1.0
    return (1 + speed.low / speed.output_tokens_per_second) / 2


def _proven(candidate: Candidate, request: Request) -> float:
    """Return the share that counts of layouts that nobody serves: stages that halve nothing, stages
    for speed inside an NVLink domain, tensor groups over a network.
    """
    layout, placement, pool = candidate.layout, candidate.placement, candidate.pool
    latency = request.objective.optimize_for is OptimizeFor.LATENCY
    joined = pool.gpu.scale_up is not None and pool.network != placement.pipeline_link
    odd = layout.pipeline.bit_count() > 1 or latency
    staged = layout.pipeline > 1 and joined and odd
    return UNPROVEN if staged or placement.tensor_link == pool.network else 1.0


def _served_share(candidate: Candidate, estimate: Estimate, request: Request) -> float:
    """Return the share of the offered load that is served without waiting.

    A rate wants headroom: arrivals are uneven, and at full capacity the queue grows without end.
    """
    rate = request.workload.requests_per_second
    if rate is not None:
        served = (
            (estimate.capacity or estimate.performance.requests_per_second) * UTILISATION / rate
        )
        # A layout whose replicas were counted to carry the rate must not miss it by rounding.
        return 1.0 if served > ALL_OF_A_RATE else served
    # Rounded up: of three requests on two replicas one has two.
    offered = math.ceil(
        requests_per_replica(request.workload, candidate.layout) / candidate.layout.attention_data
    )
    room = min(estimate.kv_requests, estimate.max_sequences)
    return min(1.0, room / (offered * (1 - KV_ERROR)))


def answer_seconds(estimate: Estimate, request: Request) -> float:
    """Return the seconds of a request from its arrival to its last token, waiting included."""
    speed = estimate.performance
    return speed.ttft_seconds + request.workload.output_tokens * speed.tpot_seconds


def score(
    speed: Performance, cost: float, request: Request, sure: float = 1.0, *, domain: float
) -> float:
    """Return the objective of a layout that carries the load, greater is better; its GPUs cost
    ``cost``, and of its speed the share ``sure`` counts.

    Latency is the negative time per request, times a price for GPUs at which a doubling breaks even
    when it brings ``DOUBLING_GAIN``, beyond the cost of an NVLink ``domain`` when it halves the
    time, so that comparing any two gives one best in any order.
    """
    match request.objective.optimize_for:
        case OptimizeFor.THROUGHPUT:
            return sure / cost
        case OptimizeFor.BALANCED:
            per_gpu = speed.output_tokens_per_second / cost
            return float(
                sure
                * per_gpu**THROUGHPUT_WEIGHT
                * (1 / speed.tpot_seconds) ** (1 - THROUGHPUT_WEIGHT)
            )
        case OptimizeFor.LATENCY:
            seconds = speed.ttft_seconds + request.workload.output_tokens * speed.tpot_seconds
            # Twice the cost weighs 1 / (1 - DOUBLING_GAIN) times as much: there a doubling breaks
            # even.
            weight = min(cost, domain) ** -math.log2(1 - DOUBLING_GAIN) * max(1, cost / domain)
            return float(-seconds / sure * weight)


def most_served(speed: Performance, capacity: float | None) -> float:
    """Return what is served at most: requests a second of an offered rate, else output tokens a
    second.
    """
    return speed.output_tokens_per_second if capacity is None else capacity


def million_tokens_price(feasible: FeasibleCandidate) -> float | None:
    """Return the price of a million output tokens at the planned load, None if the pool has no
    price.
    """
    candidate, speed = feasible.candidate, feasible.estimate.performance
    if candidate.pool.gpu_hour_price is None:
        return None
    per_hour = candidate.pool.gpu_hour_price * candidate.layout.gpus
    return per_hour / (speed.output_tokens_per_second * SECONDS_PER_HOUR) * TOKENS_PER_MILLION


def runners_up(ranked: Sequence[FeasibleCandidate], count: int) -> tuple[FeasibleCandidate, ...]:
    """Return the runners-up: the next best, the best on other GPUs and of every other kind of cut.

    There are ``count``, and beside them the best on each kind of GPU that is missing. Each has
    degrees of its own, or runs on other GPUs.
    """
    others: dict[tuple[Layout, str], FeasibleCandidate] = {}
    for feasible in ranked:
        # The first of each cut is its best, as they are ranked.
        others.setdefault(_cut(feasible), feasible)
    if ranked:
        others.pop(_cut(ranked[0]))
    same = [feasible for feasible in others.values() if _gpu(feasible) == _gpu(ranked[0])]
    elsewhere = [feasible for feasible in others.values() if _gpu(feasible) != _gpu(ranked[0])]
    kinds: dict[tuple[bool, ...], FeasibleCandidate] = {}
    for feasible in same:
        kinds.setdefault(_kind(feasible.candidate.layout), feasible)
    if ranked:
        kinds.pop(_kind(ranked[0].candidate.layout), None)
    wanted = [*same[:1], *elsewhere[:1], *kinds.values(), *same, *elsewhere]
    # The same runner-up may be the best of several kinds; the first mention counts.
    chosen = list({id(feasible): feasible for feasible in wanted}.values())[:count]
    beside: dict[str, FeasibleCandidate] = {}
    for feasible in elsewhere:
        beside.setdefault(_gpu(feasible), feasible)
    shown = {_gpu(feasible) for feasible in chosen}
    more = [feasible for gpu, feasible in beside.items() if gpu not in shown]
    return tuple(sorted([*chosen, *more[:MORE_GPUS]], key=ranked.index))


def _cut(feasible: FeasibleCandidate) -> tuple[Layout, str]:
    """Return a key: stages cut elsewhere, a shared K/V or more instances are no other cut."""
    layout = replace(feasible.candidate.layout, partition=(), context=1, replicas=1)
    return layout, _gpu(feasible)


def _gpu(feasible: FeasibleCandidate) -> str:
    return feasible.candidate.pool.gpu.id


def _kind(layout: Layout) -> tuple[bool, ...]:
    return (layout.tensor > 1, layout.pipeline > 1, layout.attention_data > 1, layout.replicas > 1)


def _order(feasible: FeasibleCandidate, request: Request) -> tuple[object, ...]:
    candidate = feasible.candidate
    crossing = sum(
        share.seconds
        for share in feasible.estimate.performance.decode_shares
        if "Communication" in share.name
    )
    return (
        feasible.tight,
        not feasible.carries_load,
        feasible.second_choice,
        feasible.carries_load and feasible.goes_over_nodes(request),
        -feasible.score,
        -feasible.served,
        candidate.layout.gpus,
        candidate.pool.gpu.memory_bytes,
        # Predictions are least sure on the links.
        crossing,
        candidate.placement.nodes_per_replica * len(candidate.placement.groups),
        candidate.placement.leftover_gpus,
        candidate.pool.name,
        # The order must not depend on the order of the candidates.
        candidate.layout,
    )
