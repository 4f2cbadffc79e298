"""Why this layout, what the others lose and where, and what to keep an eye on: sentences worth reading."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.costs.estimates import Performance, TimeShare
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.checks import Verdict
from shardwright.planning.phrases import copies, degrees, duration, per_second, price, requests_of
from shardwright.planning.report import Alternative
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import Scale, Standing, million_tokens_price
from shardwright.units import format_bytes

_GOALS: Final[Mapping[OptimizeFor, str]] = MappingProxyType(
    {
        OptimizeFor.BALANCED: "the best balance of throughput per GPU and speed per request",
        OptimizeFor.LATENCY: "the least time per request that its GPUs are worth",
        OptimizeFor.THROUGHPUT: "the most output tokens per second per GPU",
    }
)

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Weights": "reading weights",
        "KvCache": "reading K/V",
        "Compute": "computing",
        "TensorCommunication": "tensor communication",
        "PipelineCommunication": "sending between stages",
        "ExpertCommunication": "sending to experts",
        "ContextCommunication": "joining shared K/V",
        "Bubble": "waiting for other stages",
        "Prefill": "other requests' prompts",
        "Queue": "queueing",
        "Overhead": "fixed overhead",
    }
)


_NOTICEABLE_SECONDS: Final = 50e-6  # rounds to a tenth of a millisecond


def reasons(ranked: Sequence[Standing], verdicts: Sequence[Verdict], scale: Scale, *, standing: int) -> tuple[str, ...]:
    """Return why the first one was chosen; ``standing`` is how many layouts can run."""
    best, request = ranked[0], scale.request
    parts = (
        _chosen(best, standing, scale),
        _memory(best),
        _load(best, request),
        _time(best),
        *_price(best),
        *_uneven(best, ranked),
        *_smaller(ranked, verdicts, request),
    )
    return tuple(part for part in parts if part)


def alternative(*, best: Standing, other: Standing, request: Request) -> Alternative:
    """Return a runner-up with what it loses."""
    return Alternative(
        layout=other.candidate.layout,
        pool=other.candidate.pool.name,
        performance=other.estimate.performance,
        loses=_loses(best, other, request),
        million_tokens_price=million_tokens_price(other),
    )


def warnings(inventory: Inventory, best: Standing, request: Request, model: ModelSpec, traits: EngineTraits) -> tuple[str, ...]:
    """Return what was lowered, what is slow or uncertain, and what the model and the nodes warned of."""
    unknown = "no pods are known: every allocatable GPU counts as free, the planned ones may be taken"
    return (
        *_tight(best),
        *_lowered(best, request, traits),
        *_lighter(best, model),
        *_slow_links(best.candidate),
        *(() if inventory.free_capacity_known else (unknown,)),
        *model.warnings,
        *best.candidate.pool.warnings,
    )


def _chosen(best: Standing, standing: int, scale: Scale) -> str:
    layout, pool = best.candidate.layout, best.candidate.pool
    if standing == 1:
        return f"{copies(layout)} on {pool.product} ({pool.name}) is the only layout that can run."
    goal = _goal(scale)
    return f"{copies(layout)} on {pool.product} ({pool.name}) gives {goal} of the {standing} layouts that can run."


def _goal(scale: Scale) -> str:
    goal = _GOALS[scale.request.objective.optimize_for]
    if scale.request.space.fill:
        return goal.removesuffix(" per GPU").replace(" per GPU", "").replace("that its GPUs are worth", "the budget allows")
    return goal.replace("per GPU", "for the price of its GPUs") if scale.by_price else goal


def _memory(best: Standing) -> str:
    worst = min(best.estimate.stages, key=lambda stage: stage.kv_cache_bytes)
    return (
        f"The fullest GPU holds {format_bytes(worst.weights_bytes)} of weights of its {format_bytes(worst.budget_bytes)} "
        f"budget and keeps {format_bytes(worst.kv_cache_bytes)} for K/V: {best.estimate.kv_tokens:,} tokens per replica."
    )


def _load(best: Standing, request: Request) -> str:
    load = request.workload
    offered = requests_of(load.concurrency)
    if load.requests_per_second is not None:
        offered = f"{load.requests_per_second:g} requests a second"
    shape = f"{offered} of {load.input_tokens:,} + {load.output_tokens:,} tokens"
    if best.carries_load:
        return f"It carries {shape} without queueing."
    running = best.estimate.performance.running_requests
    if load.requests_per_second is not None:
        served = best.estimate.performance.requests_per_second
        return f"No layout serves {load.requests_per_second:g} requests a second; this one comes closest with {served:.3g}."
    return (
        f"No layout carries {shape}; this one queues least: {running:,} of {_offered(best, request):,} run at once per replica."
    )


def _time(best: Standing) -> str:
    speed = best.estimate.performance
    return (
        f"Predicted: first token after {duration(speed.ttft_seconds)}, then one every "
        f"{duration(speed.tpot_seconds)}, {per_second(speed.output_tokens_per_second)} in all "
        f"({speed.low:,.0f} to {speed.high:,.0f}, {speed.basis}); a token's time goes to {split(speed.decode_shares)}."
    )


def split(shares: Sequence[TimeShare]) -> str:
    """Return where time goes, the three largest parts."""
    total = sum(share.seconds for share in shares)
    largest = sorted(shares, key=lambda share: (-share.seconds, share.name))[:3]
    return ", ".join(f"{WORDS[share.name]} {share.seconds / total:.0%}" for share in largest)


def _price(best: Standing) -> Iterator[str]:
    cost, pool = million_tokens_price(best), best.candidate.pool
    if cost is not None:
        gpus = best.candidate.layout.gpus
        yield f"A million output tokens cost {price(cost)}: {gpus} x {pool.gpu_hour_price:g} an hour."


def _uneven(best: Standing, ranked: Sequence[Standing]) -> Iterator[str]:
    """Yield what uneven stages are good for."""
    layout = best.candidate.layout
    if not layout.partition:
        return
    even = replace(layout, partition=())
    own = next(
        (other for other in ranked if other.candidate.layout == even and other.candidate.pool == best.candidate.pool), None
    )
    if own is None:
        yield f"Stages of {_layers(layout)} layers are uneven on purpose: the engine's own cut does not do."
        return
    more = format_bytes(_heaviest(own) - _heaviest(best))
    yield f"Stages of {_layers(layout)} layers are uneven on purpose: the engine's own cut has {more} more on one GPU."


def _layers(layout: Layout) -> str:
    return "+".join(map(str, layout.partition))


def _heaviest(standing: Standing) -> int:
    return max(stage.weights_bytes for stage in standing.estimate.stages)


def _smaller(ranked: Sequence[Standing], verdicts: Sequence[Verdict], request: Request) -> Iterator[str]:
    """Yield why no layout with fewer GPUs does on the same pool: requests would queue, else the nearest does not fit."""
    best = ranked[0]
    layout, pool = best.candidate.layout, best.candidate.pool.name
    smaller = [item for item in ranked if item.candidate.pool.name == pool and item.candidate.layout.gpus < layout.gpus]
    if any(other.carries_load for other in smaller) or (smaller and not best.carries_load):
        return
    if smaller:
        nearest = max(smaller, key=lambda other: (other.served_share, other.score))
        running, offered = nearest.estimate.performance.running_requests, _offered(nearest, request)
        yield f"On fewer GPUs requests would queue: {degrees(nearest.candidate.layout)} runs {running:,} of {offered:,} at once."
        return
    fewer = [
        (violation.miss, verdict.candidate.layout, violation.problem.gap)
        for verdict in verdicts
        if verdict.candidate.pool.name == pool and verdict.candidate.layout.gpus < layout.gpus
        for violation in verdict.violations
        if violation.problem.code in {"WeightsExceedMemory", "KvCacheTooSmall"}
    ]
    if fewer:
        _, nearest_layout, gap = min(fewer)
        yield f"No layout on fewer GPUs that was tried holds it: the nearest, {degrees(nearest_layout)}, is {gap}."


def _offered(standing: Standing, request: Request) -> int:
    return -(-request.workload.concurrency // standing.candidate.layout.replicas)


def _loses(best: Standing, other: Standing, request: Request) -> str:
    if best.carries_load and not other.carries_load:
        running = other.estimate.performance.running_requests
        return f"queues: only {requests_of(running)} at once per replica"
    here, there = best.estimate.performance, other.estimate.performance
    gpus = other.candidate.layout.gpus
    mine, yours = here.output_tokens_per_second / best.candidate.layout.gpus, there.output_tokens_per_second / gpus
    parts = [f"{_more(yours / mine)} throughput per GPU", f"{_more(there.tpot_seconds / here.tpot_seconds)} time per token"]
    if request.objective.optimize_for is OptimizeFor.LATENCY:
        parts.append(f"{_more(there.ttft_seconds / here.ttft_seconds)} time to first token")
    return f"{', '.join(parts)} on {gpus} GPU{'s' if gpus > 1 else ''}{_where(here, there)}"


def _more(ratio: float) -> str:
    change = ratio - 1
    if abs(change) < 0.005:  # noqa: PLR2004 - rounds to no percent
        return "the same"
    return f"{abs(change):.0%} {'more' if change > 0 else 'less'}"


def _where(here: Performance, there: Performance) -> str:
    """Return the part of a token's time that grows most."""
    before = {share.name: share.seconds for share in here.decode_shares}
    grown = [(share.seconds - before.get(share.name, 0.0), share.name) for share in there.decode_shares]
    most, name = max(grown)
    return f"; {duration(most)} more per token for {WORDS[name]}" if most > _NOTICEABLE_SECONDS else ""


def _tight(best: Standing) -> Iterator[str]:
    tight = [stage for stage in best.estimate.stages if stage.tight]
    if tight:
        worst = min(tight, key=lambda stage: stage.kv_cache_bytes - stage.request_bytes)
        margin = format_bytes(worst.kv_cache_bytes - worst.request_bytes)
        yield (
            f"tight: beside one longest request {margin} are left per GPU, less than the {format_bytes(worst.band_bytes)} by "
            "which the memory may be off; it may not start"
        )


def _lowered(best: Standing, request: Request, traits: EngineTraits) -> Iterator[str]:
    estimate, asked = best.estimate, request.workload.max_model_len
    if estimate.max_model_len < asked:
        yield f"the longest request is lowered from {asked:,} to {estimate.max_model_len:,} tokens: that is what K/V holds"
    if estimate.max_sequences < traits.max_sequences or estimate.max_batched_tokens < traits.max_batched_tokens:
        yield (
            f"batch limits lowered to {estimate.max_sequences:,} sequences and {estimate.max_batched_tokens:,} tokens "
            "to leave room for K/V"
        )


def _lighter(best: Standing, model: ModelSpec) -> Iterator[str]:
    """Yield what would make room where requests queue for K/V."""
    if best.carries_load or model.quantization is not None or "fp8" not in best.candidate.pool.gpu.flops:
        return
    worst = min(best.estimate.stages, key=lambda stage: stage.kv_cache_bytes)
    half = format_bytes(worst.weights_bytes / 2)
    yield (
        f"requests queue for K/V: model.quantization FP8 would free up to {half} per GPU for it, "
        "workload.kvCacheQuantization FP8 would double what it holds"
    )


def _slow_links(candidate: Candidate) -> Iterator[str]:
    placement, link = candidate.placement, candidate.placement.tensor_link
    if link is None or link == candidate.pool.gpu.scale_up:
        return
    if candidate.layout.tensor > placement.gpus_per_node:
        yield f"tensor parallelism crosses nodes over {link.name}: every layer waits for the network twice"
