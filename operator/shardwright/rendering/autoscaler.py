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


def scaled_spec(owner: Owner, scaling: Autoscaling, gauges: Iterable[str]) -> dict[str, Any]:
    """Return the ``spec`` of a model's ScaledObject: up at once, down after its idle time."""
    down = {"stabilizationWindowSeconds": scaling.idle_seconds}
    return {
        "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": owner.name},
        "pollingInterval": POLLING_SECONDS,
        "cooldownPeriod": scaling.idle_seconds,
        "minReplicaCount": scaling.least,
        "maxReplicaCount": scaling.most,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}},
        "triggers": [{"type": "prometheus", "metadata": _asked(owner, scaling, gauges)}],
    }


def _asked(owner: Owner, scaling: Autoscaling, gauges: Iterable[str]) -> dict[str, str]:
    return {
        "serverAddress": scaling.prometheus,
        "query": load_query(owner, gauges),
        "threshold": THRESHOLD,
        # A load that nobody has measured is no load of zero: the groups stay.
        "ignoreNullValues": "false",
    }


def load_query(owner: Owner, gauges: Iterable[str]) -> str:
    """Return the requests in flight of a model, as how many groups the plan says hold them.

    >>> load_query(Owner(name="llama", namespace="models", uid=""), ["vllm:num_requests_running"])
    '(sum(vllm:num_requests_running{namespace="models", name="llama"})) / \
max(shardwright_plan_replica_requests{namespace="models", name="llama"})'
    """
    of_model = f'{{namespace="{owner.namespace}", name="{owner.name}"}}'
    load = " + ".join(f"sum({gauge}{of_model})" for gauge in gauges)
    return f"({load}) / max(shardwright_plan_replica_requests{of_model})"
