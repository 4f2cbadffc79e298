"""What helps where every layout was tried? A check knows one layout, and what would help that one;
what helps none of them is not said.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from shardwright.costs.estimates import StageMemory
from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.workload import Workload
from shardwright.errors import Problem
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.checks import LIMITS, Verdict, limit_violations
from shardwright.planning.request import Request

_SAVED: Final = {8: 0.45, 4: 0.7}
"""Share of 16-bit weights that fewer bits save at least. Basis: assumed; half and three quarters of
the matrices, less scales, embedding and norms.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerQuestion:
    """What was asked of the planner, beside the inventory."""

    model: ModelSpec
    request: Request
    traits: EngineTraits


def remedy(
    asked: PlannerQuestion, problem: Problem, closest: Verdict, tried: Iterable[Verdict]
) -> str:
    """Return what would help against the problem of the layout that misses by least, of all that
    were ``tried``.
    """
    if problem.code in LIMITS:
        return _relief(asked, tried)
    # Where the K/V is pinned, the pin is to blame.
    if closest.prices is None or asked.traits.options.kv_cache_bytes is not None:
        return problem.remedy
    memory = closest.prices.memory(closest.candidate)
    larger = _larger(closest.candidate.pool, memory)
    if problem.code == "WeightsExceedMemory":
        return f"use {_either((larger, *_lighter(asked.model, memory)))}"
    if problem.code == "KvCacheTooSmall":
        return _either((_shorter(asked.request.workload, memory.kv_tokens), f"use {larger}"))
    return problem.remedy


def _relief(asked: PlannerQuestion, tried: Iterable[Verdict]) -> str:
    """A limit that one request alone exceeds is met at no load."""
    load = asked.request.workload
    alone = replace(asked.request, workload=replace(load, concurrency=1, requests_per_second=None))
    prices = estimator_of(asked.model, alone, asked.traits)
    late = (verdict.candidate for verdict in tried if verdict.codes and verdict.codes <= LIMITS)
    if all(any(limit_violations(prices.speed(candidate), alone)) for candidate in late):
        return "relax the limit: one request alone exceeds it, too"
    arrival = "concurrency" if load.requests_per_second is None else "rate"
    return f"relax the limit or lower the {arrival}"


def _lighter(model: ModelSpec, memory: ReplicaMemory) -> Iterator[str]:
    stage = _fullest(memory)
    short = _short(stage)
    if stage.adapter_bytes > short:
        yield "fewer adapters"
    stored = stage.weights_bytes - stage.adapter_bytes - stage.draft_bytes
    enough = (bits for bits, saved in _SAVED.items() if saved * stored > short)
    bits = None if model.quantization else next(enough, None)
    if bits:
        yield f"{bits}-bit weights"


def _shorter(load: Workload, kv_tokens: int) -> str:
    if load.open_model_len is None and load.input_tokens + load.output_tokens <= kv_tokens:
        return f"lower maxModelLen to {kv_tokens:,}"
    if kv_tokens < 2:  # noqa: PLR2004 - one token in and one out
        return ""
    return f"plan for inputTokens and outputTokens of {kv_tokens:,} together"


def _fullest(memory: ReplicaMemory) -> StageMemory:
    return min(memory.stages, key=lambda stage: stage.kv_cache_bytes)


def _short(stage: StageMemory) -> float:
    return stage.request_bytes - stage.kv_cache_bytes


def _larger(pool: Pool, memory: ReplicaMemory) -> str:
    """Slices are never joined, so there a larger slice helps, too; beyond the largest GPU only more
    of them do.
    """
    if pool.gpu.mig_profile:
        return "a larger migProfile"
    largest = max(gpu.memory_bytes for gpu in load_gpus().values())
    enough = pool.gpu.memory_bytes + _short(_fullest(memory)) <= largest
    return "GPUs with more memory" if enough else "more GPUs per replica"


def _either(ways: Iterable[str]) -> str:
    *first, last = filter(None, ways)
    return f"{', '.join(first)} or {last}" if first else last
