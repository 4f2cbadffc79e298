"""What speaks against a candidate, and how far does it miss? No check stops another."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from shardwright.costs.estimates import Estimate, Performance, StageMemory
from shardwright.costs.memory import ReplicaMemory
from shardwright.errors import Problem
from shardwright.hardware.inventory import Pool
from shardwright.hardware.suitability import whole_resource
from shardwright.layouts.enumerate import Barred, withheld_from
from shardwright.layouts.layout import (
    Candidate,
    EngineTraits,
    Layout,
    Placement,
    SearchSpace,
    Withheld,
)
from shardwright.layouts.placing import Shelf
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.arrivals import Prices, estimator_of
from shardwright.planning.attention import attention_problems
from shardwright.planning.claim_rules import claim_problems
from shardwright.planning.engine_limits import dtype_problems
from shardwright.planning.node_storage import disk_problems, host_problems, too_little, too_small
from shardwright.planning.phrases import gpus_of, rate_of
from shardwright.planning.request import (
    ALL_OF_A_RATE,
    Request,
    Statistic,
    tpot_seconds,
    ttft_seconds,
)
from shardwright.planning.shapes import shape_problems
from shardwright.units import format_bytes, to_milliseconds

MODEL_LENGTH: Final = "spec.engine.maxModelLen"
KV_BYTES_PATH: Final = "spec.engine.args.kv-cache-memory-bytes"
SEQUENCES_PATH: Final = "spec.engine.args.max-num-seqs"

LIMITS: Final = frozenset({"TtftLimitExceeded", "TpotLimitExceeded"})
MEMORY: Final = frozenset(
    {"WeightsExceedMemory", "KvCacheTooSmall", "KvCachePinTooLarge", "SequencesExceedBlocks"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A problem of one candidate.

    ``miss`` is the gap as a share of the limit (infinite: no matter of degree). ``absent_nodes`` is
    how many nodes even the idle pool lacks, ``replicas_possible`` how many replicas it holds.
    """

    problem: Problem
    miss: float = float("inf")
    absent_nodes: int = 0
    replicas_possible: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A candidate with all its violations, and its estimator (None: the degrees do not divide the
    model).

    Most candidates that do not stand are never priced, so the estimate is made on demand.
    """

    candidate: Candidate
    violations: tuple[Violation, ...]
    prices: Prices | None

    @property
    def estimate(self) -> Estimate | None:
        """Return the estimate, None if the degrees do not divide the model."""
        return self.prices.estimate(self.candidate) if self.prices else None

    @property
    def codes(self) -> frozenset[str]:
        """Return the codes of all violations."""
        return frozenset(violation.problem.code for violation in self.violations)


def beside_gpus(model: ModelSpec, request: Request, traits: EngineTraits) -> tuple[Barred, ...]:
    """Return which GPUs are of no use to pods for what their nodes lack beside them."""
    over_ray = traits.options.over_ray
    kept = too_small(request.workload.kv_offload, model, over_ray=over_ray)
    return (kept, too_little(request.disk_bytes))


class Judge:
    """Judges candidates of one request; a check of degrees or pool alone is made once."""

    def __init__(
        self, model: ModelSpec, request: Request, traits: EngineTraits, prices: Prices | None = None
    ) -> None:
        self._model, self._request, self._traits = model, request, traits
        self.prices = prices or estimator_of(model, request, traits)
        # The same layout is judged on each pool, and each pool with hundreds of layouts.
        self._shapes: dict[Layout, tuple[Violation, ...]] = {}
        self._of_pool: dict[str, tuple[tuple[Violation, ...], tuple[Violation, ...]]] = {}
        self._empty: dict[str, Shelf] = {}
        self._idle: dict[str, Pool] = {}
        self._admitted: dict[tuple[str, Withheld], Shelf] = {}
        self._beside = beside_gpus(model, request, traits)

    def verdict(self, candidate: Candidate) -> Verdict:
        """Return everything that speaks against a candidate."""
        checks: tuple[Callable[[Candidate], Iterable[Violation]], ...] = (
            self._degrees,
            self._number_formats,
            self._budget,
            self._image,
            self._memory,
            self._latency,
            self._network,
            self._ray,
            self._slices,
            self._host,
            self._claims,
            self._room,
        )
        return Verdict(
            candidate=candidate,
            violations=tuple(violation for check in checks for violation in check(candidate)),
            prices=self._prices(candidate),
        )

    def runs(self, candidate: Candidate) -> bool:
        """Return whether a candidate would run, however many requests come and whatever is free."""
        checks = (self._degrees, self._number_formats, self._image, self._memory)
        return not any(violation for check in checks for violation in check(candidate))

    def in_time(self, candidate: Candidate) -> bool:
        """Return whether a candidate that runs meets the limits on latency."""
        request = self._request
        if not request.objective.limited:
            return True
        return not any(limit_violations(self.prices.speed(candidate), request))

    def _prices(self, candidate: Candidate) -> Prices | None:
        # Degrees that do not divide the model have no memory.
        # A slice of a head has no size, so neither memory nor speed can be counted.
        return None if self._shape(candidate.layout) else self.prices

    def _degrees(self, candidate: Candidate) -> Iterable[Violation]:
        return self._shape(candidate.layout)

    def _number_formats(self, candidate: Candidate) -> Iterable[Violation]:
        return self._pool(candidate.pool)[0]

    def _budget(self, candidate: Candidate) -> Iterable[Violation]:
        return budget_violations(candidate, self._request.space)

    def _image(self, candidate: Candidate) -> Iterable[Violation]:
        return self._pool(candidate.pool)[1]

    def _memory(self, candidate: Candidate) -> Iterable[Violation]:
        prices = self._prices(candidate)
        if prices is None:
            return ()
        fixed = self._traits.options.kv_cache_bytes
        return memory_violations(candidate, prices.memory(candidate), fixed)

    def _latency(self, candidate: Candidate) -> Iterable[Violation]:
        request, prices = self._request, self._prices(candidate)
        if prices is None or not request.objective.limited:
            return ()
        late = tuple(limit_violations(prices.speed(candidate), request))
        if late and falls_behind(served := prices.estimate(candidate).capacity, request):
            return tuple(_endless(item, served, request) for item in late)
        return late

    def _network(self, candidate: Candidate) -> Iterable[Violation]:
        return network_violations(candidate.pool) if candidate.uses_network else ()

    def _ray(self, candidate: Candidate) -> Iterable[Violation]:
        return ray_violations(candidate, self._traits)

    def _slices(self, candidate: Candidate) -> Iterable[Violation]:
        return slice_violations(candidate)

    def _host(self, candidate: Candidate) -> Iterable[Violation]:
        wanted = self._request.workload.kv_offload
        over_ray = self._traits.options.over_ray
        barred = self._barred(candidate)
        for problem in host_problems(
            candidate, wanted, self._model, over_ray=over_ray, barred=barred
        ):
            yield Violation(problem=problem)
        for problem in disk_problems(candidate, self._request.disk_bytes) if barred else ():
            yield Violation(problem=problem)

    def _claims(self, candidate: Candidate) -> Iterable[Violation]:
        problems = claim_problems(candidate, self._request)
        return (Violation(problem=problem) for problem in problems)

    def _room(self, candidate: Candidate) -> Iterable[Violation]:
        if not candidate.placement.missing_nodes:
            return
        # Waiting, or nodes that are like those, help only where nothing else is lacking.
        if not self._barred(candidate) or self._in_idle(candidate).missing_nodes:
            yield self._capacity(candidate)

    def _shape(self, layout: Layout) -> tuple[Violation, ...]:
        if layout not in self._shapes:
            problems = shape_problems(self._model, layout, self._traits)
            pathed = (
                problem.under("spec.parallelism") if problem.path else problem
                for problem in problems
            )
            self._shapes[layout] = tuple(Violation(problem=problem) for problem in pathed)
        return self._shapes[layout]

    def _pool(self, pool: Pool) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
        if pool.name not in self._of_pool:
            asked = (self._model, pool.gpu, self._request.workload.kv_cache_dtype, self._traits)
            # Of a GPU that is too old everything else would only repeat it.
            problems = tuple(dtype_problems(*asked)) or tuple(attention_problems(*asked))
            images = image_violations(pool, self._traits)
            self._of_pool[pool.name] = (
                tuple(Violation(problem=problem) for problem in problems),
                tuple(images),
            )
        return self._of_pool[pool.name]

    def _barred(self, candidate: Candidate) -> bool:
        """Return whether the idle pool has less room for what its nodes lack beside GPUs.

        Spreading replicas over a label does not change that: as many have room.
        """
        pool, layout = candidate.pool, candidate.layout
        if not candidate.placement.missing_nodes:
            return False
        if pool.name not in self._idle:
            self._idle[pool.name] = pool.idle()
        idle = self._idle[pool.name]
        withheld = withheld_from(idle, layout, self._beside)
        if not withheld:
            return False
        if (pool.name, withheld) not in self._admitted:
            self._admitted[pool.name, withheld] = Shelf(idle.without(dict(sorted(withheld))))
        admitted = self._admitted[pool.name, withheld].place(layout)
        return admitted.missing_nodes > self._in_idle(candidate).missing_nodes

    def _in_idle(self, candidate: Candidate) -> Placement:
        pool = candidate.pool
        if pool.name not in self._empty:
            self._empty[pool.name] = Shelf(pool, free=False)
        return self._empty[pool.name].place(candidate.layout)

    def _capacity(self, candidate: Candidate) -> Violation:
        return capacity_violation(candidate, self._in_idle(candidate))


def capacity_violation(candidate: Candidate, empty: Placement) -> Violation:
    """Return that room is missing: for now (GPUs are busy), or for good (not even ``empty``, the
    idle pool, has it).
    """
    absent, replicas = empty.missing_nodes, candidate.layout.replicas
    if candidate.placement.nodes_per_replica == 1 and replicas > 1:
        # By replicas: of replicas inside nodes several may share a node, so missing nodes would say
        # too many.
        what, gap, miss = _missing_replicas(
            candidate, empty if absent else candidate.placement, idle=bool(absent)
        )
    else:
        what, gap, miss = _missing_nodes(candidate, absent)
    room = f", or lower replicas: there is room for {len(empty.groups)}" if empty.groups else ""
    problem = Problem(
        code="PoolTooSmall" if absent else "InsufficientCapacity",
        what=what,
        gap=gap,
        remedy=f"add nodes{room}"
        if absent
        else "free GPUs or add nodes; it goes on by itself then",
    )
    return Violation(
        problem=problem, miss=miss, absent_nodes=absent, replicas_possible=len(empty.groups)
    )


def _missing_replicas(
    candidate: Candidate, placement: Placement, *, idle: bool
) -> tuple[str, str, float]:
    replicas, fit = candidate.layout.replicas, len(placement.groups)
    now = min(fit, len(candidate.placement.groups))
    room = gpus_of(placement.gpus_per_node, "healthy" if idle else "free")
    what = f"needs room for {replicas} replicas with {room} each on {candidate.pool.name}"
    gap = f"{fit} {'fits' if fit == 1 else 'fit'}{_not_free(fit - now)}, {replicas - now} short"
    return what, gap, (replicas - fit) / replicas


def _not_free(count: int) -> str:
    return f", {count} of them not free" if count > 0 else ""


def _missing_nodes(candidate: Candidate, absent: int) -> tuple[str, str, float]:
    placement, pool = candidate.placement, candidate.pool
    wanted, short = (
        placement.nodes_per_replica * candidate.layout.replicas,
        absent or placement.missing_nodes,
    )
    s, each = ("s", " each") if wanted > 1 else ("", "")
    room = gpus_of(placement.gpus_per_node, "healthy" if absent else "free")
    what = f"needs {wanted} node{s} of {pool.name} with {room}{each}"
    if absent:
        now = max(absent, placement.missing_nodes)
        gap = f"{max(0, wanted - absent)} there{_not_free(now - absent)}, {now} short"
        return what, gap, absent / wanted
    free = sum(node.free >= placement.gpus_per_node for node in pool.nodes)
    return what, f"{free} free of {len(pool.nodes)}, {short} short", short / wanted


def ray_violations(candidate: Candidate, traits: EngineTraits) -> Iterator[Violation]:
    """Return that Ray would have to join attention replicas of several nodes: there each is an
    engine of its own.
    """
    replicas, nodes = (candidate.layout.attention_data, candidate.placement.nodes_per_replica)
    if traits.options.over_ray and replicas > 1 and nodes > 1:
        problem = Problem(
            code="AttentionDataOverRay",
            path="spec.parallelism.dataParallelAttention",
            what=f"attention data {replicas} over {nodes} nodes",
            limit="is not joined by Ray",
            remedy="use spec.engine.executor Native, or attention data 1",
        )
        yield Violation(problem=problem)


def slice_violations(candidate: Candidate) -> Iterator[Violation]:
    """Return that MIG slices would have to work together: CUDA shows a process one, NCCL joins none
    of the same GPU.
    """
    ranks, profile = candidate.layout.gpus_per_replica, candidate.pool.gpu.mig_profile
    if profile and ranks > 1:
        problem = Problem(
            code="MigSlicesJoined",
            path="spec.placement.migProfile",
            what=f"{ranks} slices of {profile} for one replica",
            limit="are not joined by MIG: a replica has one slice",
            remedy="unpin the degrees, or use a larger profile or whole GPUs",
        )
        yield Violation(problem=problem)


def image_violations(pool: Pool, traits: EngineTraits) -> Iterator[Violation]:
    """Return that the engine's image is built for other GPUs."""
    if (
        traits.support.runs_on is not None
        and whole_resource(pool.resource) not in traits.support.runs_on
    ):
        problem = Problem(
            code="EngineImageMissing",
            what=f"the image {traits.options.image}"
            if traits.options.image
            else f"the default image of {traits.name}",
            limit=f"is built for {', '.join(sorted(traits.support.runs_on))}"
            # Empty, not None: the administrator admits no image of this engine.
            if traits.support.runs_on
            else "is not admitted",
            gap=f"{pool.product} is {pool.resource}",
            remedy=f"name an image of {traits.name} {traits.version} for these GPUs",
            path="spec.engine.image",
        )
        yield Violation(problem=problem)


def network_violations(pool: Pool) -> Iterator[Violation]:
    """Return that pods of a group on several nodes would request RDMA devices that no node has."""
    if pool.reach.lacking:
        problem = Problem(
            code="NetworkResourceMissing",
            what=f"the network resource {pool.reach.lacking}",
            limit="is requested by every pod of a group over several nodes",
            gap=f"but not offered in that number by the nodes of {pool.name}",
            remedy="correct the name or the count, set rdma to Auto, or install the device plugin",
            path="spec.pod.network.resources",
        )
        yield Violation(problem=problem)


def memory_violations(
    candidate: Candidate, memory: ReplicaMemory, pinned_bytes: int | None = None
) -> Iterator[Violation]:
    """Return that the fullest rank cannot hold the weights, or not one request of the longest
    length.

    ``pinned_bytes``: the user states the K/V of every rank, which may be too much or too little.
    """
    if memory.starts:
        return
    # vLLM gives all ranks as many blocks as the poorest has.
    worst = min(memory.stages, key=lambda stage: stage.kv_cache_bytes)
    if memory.holds_longest and memory.sequences is not None:
        yield _sequences_violation(memory.limits.sequences, *memory.sequences)
    elif worst.kv_cache_bytes > 0:
        yield _cache_violation(candidate, memory, pinned_bytes)
    elif pinned_bytes is not None and pinned_bytes + worst.kv_cache_bytes > 0:
        yield _pin_violation(worst, pinned_bytes)
    else:
        yield _weights_violation(candidate, worst)


def _sequences_violation(told: int, most: int, surely: int) -> Violation:
    problem = Problem(
        code="SequencesExceedBlocks",
        what=f"{told:,} sequences",
        limit=f"must be at most {most:,}, the blocks that hold K/V and states of recurrent layers",
        gap=f"{told - most:,} too many",
        remedy=f"lower it to {max(1, surely):,} or less, or leave it out: the plan then fits it",
        path=SEQUENCES_PATH,
    )
    return Violation(problem=problem, miss=(told - most) / max(1, most))


def _pin_violation(stage: StageMemory, pinned_bytes: int) -> Violation:
    room, missing = pinned_bytes + stage.kv_cache_bytes, -stage.kv_cache_bytes
    problem = Problem(
        code="KvCachePinTooLarge",
        what=f"{format_bytes(pinned_bytes)} of K/V per GPU",
        limit=f"must be at most {format_bytes(room)}: weights, buffers and their margin of "
        "error take the rest",
        gap=f"{format_bytes(missing)} short",
        remedy=f"lower it to {room:,} or less, or leave "
        "it out: the plan then says how much there is",
        path=KV_BYTES_PATH,
    )
    return Violation(problem=problem, miss=missing / pinned_bytes)


def _weights_violation(candidate: Candidate, stage: StageMemory) -> Violation:
    held = stage.weights_bytes + stage.activations_bytes + stage.overhead_bytes
    beside = ((stage.adapter_bytes, "slots of adapters"), (stage.draft_bytes, "to draft with"))
    named = " and ".join(f"{format_bytes(size)} of them {name}" for size, name in beside if size)
    fewer = "fewer adapters, " if stage.adapter_bytes else ""
    problem = Problem(
        code="WeightsExceedMemory",
        what=f"{format_bytes(stage.weights_bytes)} of weights{f' ({named})' if named else ''} and "
        f"{format_bytes(held - stage.weights_bytes)} of buffers per GPU",
        limit=f"must be less than {format_bytes(stage.budget_bytes)}",
        gap=f"{format_bytes(held - stage.budget_bytes)} short",
        remedy=f"use {_more_room(candidate.pool)}, GPUs with more memory, {fewer}or quantized "
        "weights",
        path="spec.model",
    )
    return Violation(problem=problem, miss=(held - stage.budget_bytes) / stage.budget_bytes)


def _cache_violation(
    candidate: Candidate, memory: ReplicaMemory, pinned_bytes: int | None
) -> Violation:
    longest = memory.limits.model_len
    missing = longest - memory.kv_tokens
    more = (
        _more_room(candidate.pool)
        if pinned_bytes is None
        else f"more than {pinned_bytes:,} bytes of K/V ({KV_BYTES_PATH})"
    )
    problem = Problem(
        code="KvCacheTooSmall",
        what=f"the K/V cache of {memory.kv_tokens:,} tokens",
        limit=f"must hold one request of {longest:,}",
        gap=f"{missing:,} tokens short on {candidate.pool.product}",
        remedy=f"plan for shorter requests (maxModelLen, inputTokens, outputTokens) or use {more}",
        path=MODEL_LENGTH,
    )
    return Violation(problem=problem, miss=missing / longest)


def _more_room(pool: Pool) -> str:
    """Slices are never joined, so there only a larger slice helps."""
    return "a larger migProfile" if pool.gpu.mig_profile else "more GPUs per replica"


def limit_violations(speed: Performance, request: Request) -> Iterator[Violation]:
    """Return the latency limits that the predicted mean, or the percentile derived from it,
    exceeds.
    """
    objective = request.objective
    of = objective.statistic
    which = "" if of is Statistic.MEAN else f"an assumed {of} of the "
    limits = (
        (
            "TtftLimitExceeded",
            "time to first token",
            ttft_seconds(speed, of),
            objective.ttft_seconds,
            "ttftMilliseconds",
        ),
        (
            "TpotLimitExceeded",
            "time per output token",
            tpot_seconds(speed, of),
            objective.tpot_seconds,
            "tpotMilliseconds",
        ),
    )
    for code, name, predicted, limit, field in limits:
        if limit is not None and predicted > limit:
            problem = Problem(
                code=code,
                what=f"{which}{name} of {_time(predicted, limit)}",
                limit=f"must be at most {_time(limit, limit)}",
                gap=_excess(predicted / limit),
                path=f"spec.objective.{field}",
            )
            yield Violation(problem=problem, miss=predicted / limit - 1)


def falls_behind(capacity: float | None, request: Request) -> TypeGuard[float]:
    """Return whether more arrives than is served at most, so that no limit is ever met."""
    rate = request.workload.requests_per_second
    return rate is not None and capacity is not None and capacity < rate * ALL_OF_A_RATE


def _endless(late: Violation, capacity: float, request: Request) -> Violation:
    """Return a violation by the rate that is served: the time that is waited has no end."""
    rate, problem = request.workload.requests_per_second or 0, late.problem
    name = problem.what.rpartition(" of ")[0]
    said = replace(
        problem,
        what=f"{name}, which grows without end,",
        gap=f"{capacity:.3g} of {rate_of(rate)} are served",
    )
    return Violation(problem=said, miss=FAR + rate / capacity)


FAR: Final = 10
"""From how many times a limit on it is far exceeded: no percentage says anything. Basis: chosen."""


def _time(seconds: float, limit: float) -> str:
    """Return a time in its unit, unless it is far beyond the limit.

    >>> _time(0.0416, 0.001), _time(30.3, 30), _time(30, 30), _time(716.8, 2)
    ('42 ms', '30.3 s', '30.0 s', '12 min')
    """
    near = seconds < FAR * limit
    if seconds < 10 or (near and limit < 10):  # noqa: PLR2004 - limits that people set
        return f"{to_milliseconds(seconds):,} ms"
    if near:
        return f"{seconds:,.1f} s"
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"  # noqa: PLR2004 - nobody counts seconds


def _excess(ratio: float) -> str:
    """Return by how much a limit is exceeded.

    >>> _excess(1.003), _excess(1.25), _excess(358.4)
    ('< 1% over', '25% over', '358 times as long')
    """
    if ratio < 1.01:  # noqa: PLR2004 - rounds to nothing
        return "< 1% over"
    return f"{ratio - 1:.0%} over" if ratio < FAR else f"{ratio:,.0f} times as long"


def budget_violations(candidate: Candidate, space: SearchSpace) -> Iterator[Violation]:
    """Return the budgets, of the user and of quotas, that a candidate exceeds."""
    yield from _quota_violations(candidate, space)
    if space.max_gpus is None and space.max_nodes is None:
        return
    nodes = candidate.placement.nodes_per_replica * candidate.layout.replicas
    nodes += len(space.held_nodes)
    if candidate.placement.nodes_per_replica == 1:
        # Replicas that fit a node share nodes, as they are placed.
        there = {group[0] for group in candidate.placement.groups}
        nodes = max(1, len(there | space.held_nodes))
    for name, used, limit in (
        ("GPUs", candidate.layout.gpus + space.held_gpus, space.max_gpus),
        ("nodes", nodes, space.max_nodes),
    ):
        if limit is not None and used > limit:
            problem = Problem(
                code="BudgetExceeded",
                what=f"{used} {name}",
                limit=f"must be at most {limit}",
                gap=f"{used - limit} over",
                remedy="raise the budget or use fewer replicas"
                if candidate.layout.replicas > 1
                else "raise the budget",
                path=f"spec.budget.{name.lower()}",
            )
            yield Violation(problem=problem, miss=used / limit - 1)


def _quota_violations(candidate: Candidate, space: SearchSpace) -> Iterator[Violation]:
    used = candidate.layout.gpus
    for quota in space.quotas:
        if quota.counts(candidate.pool.resource) and used > quota.gpus:
            problem = Problem(
                code="QuotaExceeded",
                what=f"{used} GPUs",
                limit=f"must be at most {quota.gpus}, which {quota.name} leaves",
                gap=f"{used - quota.gpus} over",
                remedy="have the quota raised, or delete what uses it",
            )
            yield Violation(problem=problem, miss=used / max(quota.gpus, 1) - 1)
