"""What speaks against a candidate: every problem of every candidate, each with how far it misses."""

from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.costs.estimate import Estimator
from shardwright.costs.estimates import Estimate, StageMemory
from shardwright.errors import Problem
from shardwright.hardware.gpus import Gpu
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Candidate, Layout, SearchSpace
from shardwright.layouts.placement import Shelf
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.phrases import nodes_of
from shardwright.planning.request import Objective, Request
from shardwright.planning.shapes import shape_problems
from shardwright.units import format_bytes, to_milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A problem of one candidate.

    ``miss`` is the gap as a share of the limit (infinite: no matter of degree). ``absent_nodes`` are
    nodes that the pool would lack even when empty.
    """

    problem: Problem
    miss: float = float("inf")
    absent_nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A candidate with its estimate (None where its degrees do not divide the model) and all that speaks against it."""

    candidate: Candidate
    estimate: Estimate | None
    violations: tuple[Violation, ...]

    @property
    def codes(self) -> frozenset[str]:
        """Return the codes of all violations."""
        return frozenset(violation.problem.code for violation in self.violations)


class Judge:
    """Judges candidates of one request; what depends on degrees or pool alone is looked at once."""

    def __init__(self, model: ModelSpec, request: Request, traits: EngineTraits) -> None:
        self._model, self._request, self._traits = model, request, traits
        self._estimator = Estimator(model, request.workload, traits)
        self._shapes: dict[Layout, tuple[Violation, ...]] = {}
        self._dtypes: dict[Gpu, tuple[Violation, ...]] = {}
        self._empty: dict[str, Shelf] = {}

    def verdict(self, candidate: Candidate) -> Verdict:
        """Return everything that speaks against a candidate."""
        shape = self._shape(candidate.layout)
        estimate = None if shape else self._estimator.estimate(candidate)
        found = [*shape, *self._dtype(candidate.pool.gpu), *budget_violations(candidate, self._request.space)]
        if estimate is not None:
            found += memory_violations(candidate, estimate)
            found += limit_violations(estimate, self._request.objective)
        found += self._capacity(candidate)
        return Verdict(candidate=candidate, estimate=estimate, violations=tuple(found))

    def _shape(self, layout: Layout) -> tuple[Violation, ...]:
        if layout not in self._shapes:
            problems = shape_problems(self._model, layout, self._traits)
            self._shapes[layout] = tuple(Violation(problem=problem) for problem in problems)
        return self._shapes[layout]

    def _dtype(self, gpu: Gpu) -> tuple[Violation, ...]:
        if gpu not in self._dtypes:
            found = dtype_problems(self._model, gpu, self._request.workload.kv_cache_dtype)
            self._dtypes[gpu] = tuple(Violation(problem=problem) for problem in found)
        return self._dtypes[gpu]

    def _capacity(self, candidate: Candidate) -> Iterator[Violation]:
        if not candidate.placement.missing_nodes:
            return
        pool = candidate.pool
        if pool.name not in self._empty:
            self._empty[pool.name] = Shelf(pool, free=False)
        ever_missing = self._empty[pool.name].place(candidate.layout).missing_nodes
        yield capacity_violation(candidate, ever_missing)


def capacity_violation(candidate: Candidate, missing_when_empty: int) -> Violation:
    """Return that nodes are missing: for now (they are busy) or for good (the pool is too small)."""
    placement, pool = candidate.placement, candidate.pool
    wanted = placement.nodes_per_replica * candidate.layout.replicas
    if placement.nodes_per_replica == 1:
        wanted = -(-candidate.layout.replicas // max(1, pool.gpus_per_node // placement.gpus_per_node))
    short = missing_when_empty or placement.missing_nodes
    gap = f"{max(0, wanted - short)} there, {short} short" if missing_when_empty else _free_gap(pool, candidate, short)
    problem = Problem(
        code="PoolTooSmall" if missing_when_empty else "InsufficientCapacity",
        what=f"needs {nodes_of(wanted, pool)} with {placement.gpus_per_node} "
        f"{'healthy' if missing_when_empty else 'free'} GPU{'s' if placement.gpus_per_node > 1 else ''} each",
        gap=gap,
        remedy="add nodes" if missing_when_empty else "free GPUs or add nodes; it goes on by itself then",
    )
    return Violation(problem=problem, miss=short / wanted, absent_nodes=missing_when_empty)


def _free_gap(pool: Pool, candidate: Candidate, short: int) -> str:
    free = sum(node.free >= candidate.placement.gpus_per_node for node in pool.nodes)
    return f"{free} free of {len(pool.nodes)}, {short} short"


def memory_violations(candidate: Candidate, estimate: Estimate) -> Iterator[Violation]:
    """Yield that the fullest rank cannot hold the weights, or no request of the longest length beside them."""
    worst = min(estimate.stages, key=lambda stage: stage.kv_cache_bytes)
    if worst.kv_cache_bytes <= 0:
        yield _weights_violation(worst)
    elif estimate.kv_tokens < estimate.max_model_len:
        yield _cache_violation(candidate, estimate)


def _weights_violation(stage: StageMemory) -> Violation:
    held = stage.weights_bytes + stage.activations_bytes + stage.overhead_bytes
    problem = Problem(
        code="WeightsExceedMemory",
        what=f"{format_bytes(stage.weights_bytes)} of weights and {format_bytes(held - stage.weights_bytes)} of buffers per GPU",
        limit=f"must be less than {format_bytes(stage.budget_bytes)}",
        gap=f"{format_bytes(held - stage.budget_bytes)} short",
        remedy="use more GPUs per replica, GPUs with more memory, or quantized weights",
        path="spec.model",
    )
    return Violation(problem=problem, miss=(held - stage.budget_bytes) / stage.budget_bytes)


def _cache_violation(candidate: Candidate, estimate: Estimate) -> Violation:
    missing = estimate.max_model_len - estimate.kv_tokens
    problem = Problem(
        code="KvCacheTooSmall",
        what=f"the K/V cache of {estimate.kv_tokens:,} tokens",
        limit=f"must hold one request of {estimate.max_model_len:,}",
        gap=f"{missing:,} tokens short on {candidate.pool.product}",
        remedy="shorten workload.maxModelLen or use more GPUs per replica",
        path="spec.workload.maxModelLen",
    )
    return Violation(problem=problem, miss=missing / estimate.max_model_len)


def limit_violations(estimate: Estimate, objective: Objective) -> Iterator[Violation]:
    """Yield the limits on latency that the predicted means exceed."""
    speed = estimate.performance
    limits = (
        ("TtftLimitExceeded", "time to first token", speed.ttft_seconds, objective.ttft_seconds, "ttftMilliseconds"),
        ("TpotLimitExceeded", "time per output token", speed.tpot_seconds, objective.tpot_seconds, "tpotMilliseconds"),
    )
    for code, name, predicted, limit, field in limits:
        if limit is not None and predicted > limit:
            problem = Problem(
                code=code,
                what=f"{name} of {to_milliseconds(predicted):,} ms",
                limit=f"must be at most {to_milliseconds(limit):,} ms",
                gap=f"{predicted / limit - 1:.0%} over",
                remedy="relax the limit, lower the concurrency or use more replicas",
                path=f"spec.objective.{field}",
            )
            yield Violation(problem=problem, miss=predicted / limit - 1)


def budget_violations(candidate: Candidate, space: SearchSpace) -> Iterator[Violation]:
    """Yield the budgets that a candidate exceeds."""
    nodes = candidate.placement.nodes_per_replica * candidate.layout.replicas
    if candidate.placement.nodes_per_replica == 1:
        nodes = max(1, len({group[0] for group in candidate.placement.groups}))
    for name, used, limit in (("GPUs", candidate.layout.gpus, space.max_gpus), ("nodes", nodes, space.max_nodes)):
        if limit is not None and used > limit:
            problem = Problem(
                code="BudgetExceeded",
                what=f"{used} {name}",
                limit=f"must be at most {limit}",
                gap=f"{used - limit} over",
                remedy="raise the budget or use fewer replicas",
                path=f"spec.budget.{name.lower()}",
            )
            yield Violation(problem=problem, miss=used / limit - 1)


def dtype_problems(model: ModelSpec, gpu: Gpu, kv_cache_dtype: str) -> Iterator[Problem]:
    """Yield the number formats that a model needs and a GPU has no unit for."""
    needed = [(model.dtype, f"the model computes in {model.dtype}", "spec.model")] if model.dtype == "bf16" else []
    if any(weight.storage.name == "fp8" for weight in model.weights):
        needed.append(("fp8", "the weights are stored in fp8", "spec.model.quantization"))
    if kv_cache_dtype == "fp8":
        needed.append(("fp8", "the K/V cache is kept in fp8", "spec.workload.kvCacheQuantization"))
    for unit, what, path in needed:
        if unit not in gpu.flops:
            yield Problem(
                code="DtypeNotSupported",
                what=what,
                limit=f"but {gpu.id} has no {unit} unit",
                gap=f"it has {', '.join(sorted(gpu.flops))}",
                remedy="select other GPUs or other weights",
                path=path,
            )
