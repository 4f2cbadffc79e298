"""Who brings requests to a model's groups: the router's pods, or what gateways ask.

Source of the router's arguments: vllm-router 0.1.17 (docs/howto/routing.md).
"""

import math
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final

from shardwright.costs.workload import Phase
from shardwright.planning.report import Plan
from shardwright.rendering import halves, names
from shardwright.rendering.bundle import KubernetesObject, digest
from shardwright.rendering.deployment import Deployment, RouterOptions
from shardwright.rendering.labels import (
    MANAGED_BY,
    MODEL_ANNOTATION,
    leader_selector,
    owned_metadata,
)
from shardwright.rendering.pod import start_budget
from shardwright.rendering.scripts import HTTP_PORT, SCRIPTS_DIR
from shardwright.rendering.ssh import USER_ID

ROUTER: Final = "shardwright.io/router"
"""Label of a router's pods: the model whose requests they route. They are no pods of the model."""

METRICS_PORT: Final = 29000
"""Port of the router's own metrics; its default."""

LEAST_APART: Final = 8
"""Unit: requests. The least by which one replica may have more running than another. Basis:
measured: at 2 to 4 chance alone drove requests from their prefixes (docs/howto/routing.md).
"""

PROMPTS_APART: Final = 2
"""The same of groups that compute prompts alone. Unit: requests. Basis: chosen: few are there at
once, and one that waits does so for a whole prompt of another.
"""

BALANCE_SHARE: Final = 4
"""A replica may have a quarter of its planned requests more than another. Basis: chosen: with the
default of 64 all requests of a small load may go to one of two.
"""

BALANCE_RATIO: Final = "1.5"
"""Times the requests of the least busy replica. Basis: the router's own default."""

TRIES: Final = 1
"""How often a request is sent. Basis: chosen: one that kills an engine must not kill the next."""

HEALTH_SECONDS: Final = 5
HEALTH_FAILURES: Final = 2
"""After ten seconds without an answer a group gets no requests. Basis: chosen: its default is a
minute each, and a watch that broke comes back after one.
"""

KEY: Final = "VLLM_API_KEY"
"""The variable with the key that clients show, as in the pods of engines."""

HOLD_MILLISECONDS: Final = 1000
"""How long a router whose model may sleep waits until it tries a request again. Basis: chosen: in
all as long as a group may take to serve. The router does the same with what an engine refuses.
"""

ENGINES_KEY: Final = "OPENAI_API_KEY"
"""Where the router of a pair looks for the key of the engines. Source: vllm-router 0.1.17."""

_PROGRAM: Final = ("python", f"{SCRIPTS_DIR}/router.py")

_TERM_SECONDS: Final = 5
"""How long a router that ends is still asked, until all know that it goes. Basis: assumed."""


def balance_threshold(plan: Plan) -> int:
    """Return by how many running requests one replica may be ahead before prefixes are left.

    Formula: max(8, ceil(planned running requests of one replica / 4)).
    Unit: requests.
    Error: none: it is set, not predicted.
    Source: chosen; ``BALANCE_SHARE``.
    """
    return max(LEAST_APART, math.ceil(plan.performance.running_requests / BALANCE_SHARE))


def router_selector(base: str) -> dict[str, str]:
    """Return the selector of a router's pods."""
    return {ROUTER: base}


def scripts_of(deployment: Deployment) -> KubernetesObject:
    """Return the ConfigMap with the program that starts the router."""
    data = {"router.py": _program()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_of(deployment, _scripts_name(deployment)),
        "immutable": True,
        "data": data,
    }


def router(plan: Plan, deployment: Deployment, options: RouterOptions) -> KubernetesObject:
    """Return the Deployment of a model's router; it is no StatefulSet, as those are groups."""
    selector = router_selector(deployment.base)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata_of(deployment, names.router(deployment.base)),
        "spec": {
            "replicas": options.replicas,
            "revisionHistoryLimit": 1,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {
                    "labels": {
                        **_labels(deployment),
                        **selector,
                        **halves.member_labels(deployment.half),
                    },
                    "annotations": {MODEL_ANNOTATION: deployment.owner.name},
                },
                "spec": _pod(plan, deployment, options),
            },
        },
    }


def _pod(plan: Plan, deployment: Deployment, options: RouterOptions) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "serviceAccountName": options.account,
        # It lists and watches the pods of its namespace.
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(plan, deployment, options)],
        "volumes": [{"name": "scripts", "configMap": {"name": _scripts_name(deployment)}}],
    }
    if deployment.pods.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in deployment.pods.image_pull_secrets]
    return spec


def _container(plan: Plan, deployment: Deployment, options: RouterOptions) -> dict[str, Any]:
    return {
        "name": "router",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(_PROGRAM),
        "args": list(arguments(plan, deployment)),
        "env": list(_environment(deployment)),
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # Without a group that it knows the Service leads past it. Its addresses want the key, which
        # no probe has.
        "readinessProbe": {
            "exec": {"command": [*_PROGRAM, *_asks_if_ready(deployment)]},
            "periodSeconds": 5,
            "timeoutSeconds": 3,
        },
        "livenessProbe": {"tcpSocket": {"port": HTTP_PORT}, "periodSeconds": 10},
        "lifecycle": {"preStop": {"sleep": {"seconds": _TERM_SECONDS}}},
        "volumeMounts": [{"name": "scripts", "mountPath": SCRIPTS_DIR, "readOnly": True}],
    }


def arguments(plan: Plan, deployment: Deployment) -> Iterator[str]:
    """Yield the router's arguments; every number is the plan's, or chosen above."""
    yield from ("--host", "0.0.0.0", "--port", str(HTTP_PORT))  # noqa: S104 - in a pod
    yield from ("--prometheus-host", "0.0.0.0", "--prometheus-port", str(METRICS_PORT))  # noqa: S104
    yield from ("--service-discovery", "--service-discovery-port", str(HTTP_PORT))
    yield from ("--service-discovery-namespace", deployment.owner.namespace)
    yield from _workers(deployment)
    apart = PROMPTS_APART if deployment.half else balance_threshold(plan)
    yield from ("--balance-abs-threshold", str(apart))
    yield from ("--balance-rel-threshold", BALANCE_RATIO)
    yield from _held(plan, deployment)
    yield from ("--health-check-interval-secs", str(HEALTH_SECONDS))
    yield from ("--health-failure-threshold", str(HEALTH_FAILURES))


def _held(plan: Plan, deployment: Deployment) -> Iterator[str]:
    if deployment.autoscaling is None or deployment.autoscaling.least:
        yield from ("--retry-max-retries", str(TRIES))
        return
    seconds, wait = start_budget(plan, deployment).load_seconds, str(HOLD_MILLISECONDS)
    yield from ("--retry-max-retries", str(seconds * 1000 // HOLD_MILLISECONDS))
    yield from ("--retry-initial-backoff-ms", wait, "--retry-max-backoff-ms", wait)


def _workers(deployment: Deployment) -> Iterator[str]:
    half = deployment.half
    if half is None:
        yield from _selected("--selector", leader_selector(deployment.base))
        yield from ("--policy", "cache_aware")
        return
    yield "--vllm-pd-disaggregation"
    for phase in (Phase.PREFILL, Phase.DECODE):
        told = f"--{phase.lower()}-selector"
        yield from _selected(told, halves.leaders_of(deployment, half, phase))
    # Of a pair it asks for the tokens of prompts without a key, and engines with one refuse.
    follows = deployment.serving.api_key is None
    yield from ("--prefill-policy", "cache_aware" if follows else "consistent_hash")
    yield from ("--decode-policy", "power_of_two")


def _selected(option: str, labels: Mapping[str, str]) -> Iterator[str]:
    yield from (option, *(f"{name}={value}" for name, value in labels.items()))


def _asks_if_ready(deployment: Deployment) -> tuple[str, ...]:
    # Of a pair it counts nobody in its metrics, and says itself whether it has both halves.
    if deployment.half:
        return ("paired", str(HTTP_PORT))
    leaders = leader_selector(deployment.base).items()
    return ("ready", str(METRICS_PORT), ",".join(f"{name}={value}" for name, value in leaders))


def _environment(deployment: Deployment) -> Iterator[dict[str, Any]]:
    if (key := deployment.serving.api_key) is None:
        return
    secret = {"secretKeyRef": {"name": key.name, "key": key.key}}
    yield {"name": KEY, "valueFrom": secret}
    if deployment.half:
        # Of a pair it sends engines this key in place of the caller's.
        yield {"name": ENGINES_KEY, "valueFrom": secret}


def inference_pool(deployment: Deployment, picker: tuple[str, int]) -> KubernetesObject:
    """Return the InferencePool of a model's leaders; ``picker`` is a Service and its port."""
    name, port = picker
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": metadata_of(deployment, deployment.base),
        "spec": {
            "selector": {"matchLabels": leader_selector(deployment.base)},
            "targetPorts": [{"number": HTTP_PORT}],
            "endpointPickerRef": {
                "name": name,
                "port": {"number": port},
                # Without its picker a gateway still reaches the groups.
                "failureMode": "FailOpen",
            },
        },
    }


def _labels(deployment: Deployment) -> dict[str, str]:
    return {
        "app.kubernetes.io/component": "router",
        "app.kubernetes.io/instance": deployment.base,
        MANAGED_BY[0]: MANAGED_BY[1],
        "app.kubernetes.io/name": "vllm-router",
    }


def metadata_of(deployment: Deployment, name: str) -> dict[str, Any]:
    """Return the metadata of an object of a model's routing."""
    return owned_metadata(name, deployment.owner, _labels(deployment), {})


def _scripts_name(deployment: Deployment) -> str:
    return names.scripts_configmap(names.router(deployment.base), digest(_program()))


def _program() -> str:
    path = resources.files("shardwright.rendering").joinpath("programs/router.py")
    return path.read_text(encoding="utf-8")
