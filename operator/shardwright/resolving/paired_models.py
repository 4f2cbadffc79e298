"""Which two models are the halves of a pair that was planned for one?"""

from collections.abc import Iterator
from math import ceil
from typing import Any, Final

from shardwright.api.resource import ShardedModel
from shardwright.costs.workload import Phase
from shardwright.planning.report import Half, Pair
from shardwright.rendering.names import half_name

_OF_THE_PAIR: Final = frozenset({"budget", "disaggregation", "mode"})
"""Fields of the spec that the plan of the pair has answered."""


def halves_of(resource: ShardedModel, pair: Pair) -> Iterator[dict[str, Any]]:
    """Yield the manifests of both halves: the model's own, with the layouts of the pair's plan."""
    spec = resource.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_unset=True
    )
    kept = {name: value for name, value in spec.items() if name not in _OF_THE_PAIR}
    # Both take the same requests.
    longest = min(half.plan.max_model_len for half in (pair.prefill, pair.decode))
    for half in (pair.prefill, pair.decode):
        metadata = resource.metadata
        yield {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": half_name(metadata.name, half.phase),
                "namespace": metadata.namespace,
            },
            "spec": _spec_of(half, kept, longest),
        }


def _spec_of(half: Half, kept: dict[str, Any], longest: int) -> dict[str, Any]:
    layout, load = half.plan.layout, dict(kept.get("workload", {}))
    # As many as this half has at once, however they arrive at the pair.
    load.pop("requestsPerSecond", None)
    load["concurrency"] = max(1, ceil(half.in_flight * layout.replicas))
    own = {
        **kept,
        "phase": half.phase.value,
        "replicas": layout.replicas,
        "engine": {"maxModelLen": longest, **kept.get("engine", {})},
        "workload": load,
        "parallelism": {
            "tensor": layout.tensor,
            "pipeline": layout.pipeline,
            "expert": layout.expert,
            "dataParallelAttention": layout.attention_data,
            "context": layout.context,
        },
    }
    if half.phase is Phase.PREFILL:
        own.pop("routing", None)  # the half that answers has the router
    return own
