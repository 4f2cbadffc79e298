"""What of a prefix cache do several groups lose, and what would requests that follow their prefixes
bring?
"""

from collections.abc import Iterator
from dataclasses import replace

from shardwright.costs.estimates import Estimate
from shardwright.layouts.layout import EngineTraits
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.phrases import duration, rate
from shardwright.planning.request import Request
from shardwright.planning.select import FeasibleCandidate


def prefix_reasons(
    best: FeasibleCandidate, model: ModelSpec, request: Request, traits: EngineTraits
) -> Iterator[str]:
    """Return how much of the prefix cache is left to several groups that requests reach at random;
    nothing where all of it is.
    """
    load, replicas = request.workload, best.candidate.layout.replicas
    left = load.among(replicas)
    if left is load:
        return
    followed = replace(request, workload=replace(load, follows_prefixes=True))
    there = estimator_of(model, followed, traits).estimate(best.candidate)
    yield (
        f"A Service spreads requests over {replicas} groups at random, so that "
        f"{left.prefix_cache_hit_rate:.0%} of the input is cached where a request comes, not "
        f"{load.prefix_cache_hit_rate:.0%}: it serves {_served(best.estimate)}. With "
        f"spec.routing.mode Router, by which requests follow their prefixes, these groups would "
        f"serve {_served(there)}."
    )


def _served(found: Estimate) -> str:
    speed = found.performance
    # Behind a queue that grows without end no first token has a time.
    if found.capacity is not None:
        return f"{rate(found.capacity)} requests a second at most"
    return (
        f"{rate(speed.output_tokens_per_second)} output tokens a second, the first token after "
        f"{duration(speed.ttft_seconds)}"
    )
