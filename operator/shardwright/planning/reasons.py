"""Why this layout, what the others lose and where, and what to keep an eye on: sentences worth reading."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright.costs.estimates import Performance
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import Candidate
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.checks import Verdict
from shardwright.planning.phrases import copies, degrees, duration, per_second, requests_of
from shardwright.planning.report import Alternative
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import Standing
from shardwright.units import format_bytes

_GOALS: Final[Mapping[OptimizeFor, str]] = MappingProxyType(
    {
        OptimizeFor.BALANCED: "the best balance of throughput per GPU and speed per request",
        OptimizeFor.LATENCY: "the least time per request that its GPUs are worth",
        OptimizeFor.THROUGHPUT: "the most output tokens per second per GPU",
    }
)

_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Weights": "reading weights",
        "KvCache": "reading K/V",
        "Compute": "computing",
        "TensorCommunication": "tensor communication",
        "PipelineCommunication": "sending between stages",
        "Bubble": "waiting for other stages",
        "Prefill": "other requests' prompts",
        "Queue": "queueing",
        "Overhead": "fixed overhead",
    }
)


_NOTICEABLE_SECONDS: Final = 50e-6  # rounds to a tenth of a millisecond


def reasons(ranked: Sequence[Standing], verdicts: Sequence[Verdict], request: Request) -> tuple[str, ...]:
    """Return why the first one was chosen."""
    best = ranked[0]
    parts = (
        _chosen(best, len(ranked), request),
        _memory(best),
        _load(best, request),
        _time(best),
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
    )


def warnings(model: ModelSpec, inventory: Inventory, best: Standing, traits: EngineTraits) -> tuple[str, ...]:
    """Return what was lowered, what is slow or uncertain, and what the model and the nodes warned of."""
    unknown = "no pods are known: every allocatable GPU counts as free, the planned ones may be taken"
    return (
        *_lowered(best, traits),
        *_slow_links(best.candidate),
        *(() if inventory.free_capacity_known else (unknown,)),
        *model.warnings,
        *best.candidate.pool.warnings,
    )


def _chosen(best: Standing, standing: int, request: Request) -> str:
    layout, pool = best.candidate.layout, best.candidate.pool
    if standing == 1:
        return f"{copies(layout)} on {pool.product} ({pool.name}) is the only layout that can run."
    goal = _GOALS[request.objective.optimize_for]
    return f"{copies(layout)} on {pool.product} ({pool.name}) gives {goal} of the {standing} layouts that can run."


def _memory(best: Standing) -> str:
    worst = min(best.estimate.stages, key=lambda stage: stage.kv_cache_bytes)
    return (
        f"The fullest GPU holds {format_bytes(worst.weights_bytes)} of weights of its {format_bytes(worst.budget_bytes)} "
        f"budget and keeps {format_bytes(worst.kv_cache_bytes)} for K/V: {best.estimate.kv_tokens:,} tokens per replica."
    )


def _load(best: Standing, request: Request) -> str:
    load = request.workload
    shape = f"{requests_of(load.concurrency)} of {load.input_tokens:,} + {load.output_tokens:,} tokens"
    if best.carries_load:
        return f"It carries {shape} without queueing."
    running = best.estimate.performance.running_requests
    return (
        f"No layout carries {shape}; this one queues least: {running:,} of {_offered(best, request):,} run at once per replica."
    )


def _time(best: Standing) -> str:
    speed = best.estimate.performance
    return (
        f"Predicted: first token after {duration(speed.ttft_seconds)}, then one every "
        f"{duration(speed.tpot_seconds)}, {per_second(speed.output_tokens_per_second)} in all "
        f"({speed.low:,.0f} to {speed.high:,.0f}, {speed.basis}); a token's time goes to {split(speed)}."
    )


def split(speed: Performance) -> str:
    """Return where the time of an output token goes, the three largest parts."""
    total = sum(share.seconds for share in speed.decode_shares)
    largest = sorted(speed.decode_shares, key=lambda share: (-share.seconds, share.name))[:3]
    return ", ".join(f"{_WORDS[share.name]} {share.seconds / total:.0%}" for share in largest)


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
    return f"; {duration(most)} more per token for {_WORDS[name]}" if most > _NOTICEABLE_SECONDS else ""


def _lowered(best: Standing, traits: EngineTraits) -> Iterator[str]:
    estimate = best.estimate
    if estimate.max_sequences < traits.max_sequences or estimate.max_batched_tokens < traits.max_batched_tokens:
        yield (
            f"batch limits lowered to {estimate.max_sequences:,} sequences and {estimate.max_batched_tokens:,} tokens "
            "to leave room for K/V"
        )


def _slow_links(candidate: Candidate) -> Iterator[str]:
    placement, link = candidate.placement, candidate.placement.tensor_link
    if link is None or link == candidate.pool.gpu.scale_up:
        return
    if candidate.layout.tensor > placement.gpus_per_node:
        yield f"tensor parallelism crosses nodes over {link.name}: every layer waits for the network twice"
