"""What does KEDA ask, and when does it add or take away a group?

One query is right for every model: its load is divided by what the plan says that a group holds.
"""

from collections.abc import Iterable
from typing import Any, Final

from shardwright.rendering.deployment import Autoscaling, Owner
from shardwright.rendering.labels import API_VERSION, KIND

THRESHOLD: Final = "0.8"
"""Unit: the requests that a group holds within its limits, as the plan says. Basis: assumed. A
HorizontalPodAutoscaler leaves a tenth beside its target alone (Kubernetes,
``horizontal-pod-autoscaler-tolerance``), so at 1 a group would be added too late, beyond that.
"""

POLLING_SECONDS: Final = 15
"""Basis: chosen, how often the HorizontalPodAutoscaler looks by default."""

ASKED_SECONDS: Final = 120
"""How long a model that sleeps counts as asked for after its router last had nobody to bring a
request to. Basis: chosen: it holds two looks at metrics that are read once a minute.
"""

_WORKERS: Final = "vllm_router_active_workers"
"""How many groups a router knows. Source: vllm-router 0.1.17."""


def scaled_spec(
    owner: Owner, scaling: Autoscaling, gauges: Iterable[str], *, routed: bool
) -> dict[str, Any]:
    """Return the ``spec`` of a model's ScaledObject: up at once, down after its idle time.

    ``routed``: a router holds requests. Without one the last group stays, whatever was asked for.
    """
    down = {"stabilizationWindowSeconds": scaling.idle_seconds}
    load, least = load_query(owner, gauges), scaling.least
    triggers = [_trigger(scaling, load, THRESHOLD)]
    if routed and least == 0:
        asleep = f"{load} or max({_WORKERS}{_of(owner)}) == 0"
        triggers = [_trigger(scaling, asleep, THRESHOLD), _trigger(scaling, held_query(owner), "1")]
    return {
        "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": owner.name},
        "pollingInterval": POLLING_SECONDS,
        "cooldownPeriod": scaling.idle_seconds,
        "minReplicaCount": least if routed else max(1, least),
        "maxReplicaCount": scaling.most,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}},
        "triggers": triggers,
    }


def _trigger(scaling: Autoscaling, query: str, threshold: str) -> dict[str, Any]:
    asked = {
        "serverAddress": scaling.prometheus,
        "query": query,
        "threshold": threshold,
        # A load that nobody has measured is no load of zero: the groups stay.
        "ignoreNullValues": "false",
    }
    return {"type": "prometheus", "metadata": asked}


def load_query(owner: Owner, gauges: Iterable[str]) -> str:
    """Return the requests in flight of a model, as how many groups the plan says hold them.

    >>> load_query(Owner(name="llama", namespace="models", uid=""), ["vllm:num_requests_running"])
    '(sum(vllm:num_requests_running{namespace="models", name="llama"})) / \
max(shardwright_plan_replica_requests{namespace="models", name="llama"})'
    """
    of_model = _of(owner)
    load = " + ".join(f"sum({gauge}{of_model})" for gauge in gauges)
    return f"({load}) / max(shardwright_plan_replica_requests{of_model})"


def held_query(owner: Owner) -> str:
    """Return 1 if a router of a model had nobody to bring a request to lately, else 0, and nothing
    if nobody reads the metrics of its router. It counts each second of each request that it holds.
    """
    met = f'error_type="no_available_workers", {_of(owner)[1:]}'
    held = f"sum(increase(vllm_router_request_errors_total{{{met}[{ASKED_SECONDS}s]))"
    return f"{held} > bool 0 or max({_WORKERS}{_of(owner)}) * 0"


def _of(owner: Owner) -> str:
    return f'{{namespace="{owner.namespace}", name="{owner.name}"}}'
