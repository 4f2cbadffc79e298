"""What helps where every layout was tried? A check knows one layout, and what would help that one;
what helps none of them is not said.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shardwright.costs.estimates import StageMemory
from shardwright.costs.memory import ReplicaMemory
from shardwright.costs.workload import Workload
from shardwright.errors import Problem
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import MOST_REPLICAS, Candidate, Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.arrivals import Prices, estimator_of
from shardwright.planning.checks import LIMITS, Judge, Verdict, falls_behind, limit_violations
from shardwright.planning.held import carried_rate, held_requests, with_in_flight
from shardwright.planning.numbers import Fewest, of
from shardwright.planning.phrases import copies
from shardwright.planning.request import Request
from shardwright.planning.select import Scale

_SAVED: Final = {8: 0.45, 4: 0.7}
"""Share of 16-bit weights that fewer bits save at least. Basis: assumed; half and three quarters of
the matrices, less scales, embedding and norms.
"""


_NEAR: Final = 12
"""Layouts that are asked what load they carry within a limit, those that miss it by least. Basis:
chosen, so that a refusal takes no longer than a plan.
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
    """A limit that one request alone exceeds is met at no load; none is met behind a queue that
    grows without end.
    """
    alone = with_in_flight(asked.request, 1)
    prices = estimator_of(asked.model, alone, asked.traits)
    late = [verdict for verdict in tried if verdict.codes and verdict.codes <= LIMITS]
    met = [each for each in late if not any(limit_violations(prices.speed(each.candidate), alone))]
    if not met:
        return "relax the limit: one request alone exceeds it, too"
    near = sorted(met, key=_miss)[:_NEAR]
    keeps_up = any(not falls_behind(_capacity(each), asked.request) for each in late)
    relax = "relax the limit" if keeps_up else ""
    return _either((relax, _lower_load(asked.request, near), _more_gpus(asked, near)))


def _miss(verdict: Verdict) -> tuple[float, Layout]:
    return max(violation.miss for violation in verdict.violations), verdict.candidate.layout


def _capacity(verdict: Verdict) -> float | None:
    return verdict.estimate.capacity if verdict.estimate else None


def _lower_load(request: Request, near: Iterable[Verdict]) -> str:
    """Return the greatest load that one of these layouts carries within the limits."""
    held = [
        (one.candidate, one.prices, held_requests(one.candidate, one.prices, request))
        for one in near
        if one.prices
    ]
    if request.workload.requests_per_second is None:
        most = max(each.layout.replicas * requests for each, _, requests in held)
        return f"lower the concurrency to {most:,}" if most else ""
    rates = (
        each.layout.replicas * carried_rate(each, prices, request, requests)
        for each, prices, requests in held
        if requests
    )
    rate = _rounded_down(max(rates, default=0.0))
    return f"lower the rate to {rate:g} requests a second" if rate else ""


def _rounded_down(rate: float) -> float:
    """Return a rate with two digits.

    >>> _rounded_down(5.19), _rounded_down(0.0787), _rounded_down(1234.0), _rounded_down(0.0)
    (5.1, 0.078, 1200.0, 0.0)
    """
    if rate <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return round(math.floor(rate / step) * step, 12)


def _more_gpus(asked: PlannerQuestion, near: Iterable[Verdict]) -> str:
    """Return the layout that carries the load within the limits on the fewest GPUs, whatever is
    free; empty if none does.
    """
    many = [
        wanted
        for one in near
        if one.prices and (wanted := _enough(asked, one.candidate, one.prices))
    ]
    if not many:
        return ""
    least = min(many, key=lambda each: (each.layout.gpus, each.layout, each.pool.name))
    product = least.pool.product.removeprefix("NVIDIA-")
    return f"use {copies(least.layout)} on {least.layout.gpus:,} {product}"


def _enough(asked: PlannerQuestion, candidate: Candidate, prices: Prices) -> Candidate | None:
    judge = Judge(asked.model, asked.request, asked.traits, prices)
    scale = Scale(request=asked.request, by_price=False)
    largest = of(candidate, MOST_REPLICAS)
    (number,) = Fewest(judge=judge, scale=scale)(largest)
    return of(candidate, number) if number < MOST_REPLICAS else None


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
