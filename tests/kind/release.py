"""The operator, installed by its chart from its image, and running in its pod."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from tests.kind import cache, engine
from tests.kind.cluster import RUNTIME_CLASS, Cluster
from tests.kind.shell import step
from tests.kind.tiny_model import CONFIG, CONFIG_OF_EXPERTS

NAMESPACE = "shardwright-system"
TESTED = {("shardwright-test", "Succeeded")}
"""What `tested` returns where all is well."""

CLIENT, HUB, STORE = "client", "hub", "store"
"""Labels `app` of the pods that send requests to models, and from which models download or are
streamed.
"""

MODEL_ID, EXPERTS_ID = "tests/tiny", "tests/experts"
KV_BYTES = 128 * 2**20
"""What every rank keeps for K/V: 32,768 tokens of the whole model, which is what makes the planner
cut it.
"""

CHART = cache.ROOT / "charts" / "shardwright"
_START = "180s"


def install(
    cluster: Cluster,
    image: str,
    pull: str,
    engine_image: str | None = None,
    engine_version: str = engine.VERSION,
) -> None:
    """Install the chart, or upgrade what is there, and return when the operator's pods are ready.

    pull: the policy for the operator's image. engine_image: what the pods run, as a default for all
    models.
    """
    repository, _, tag = image.rpartition(":")
    values: dict[str, Any] = {"image": {"repository": repository, "tag": tag, "pullPolicy": pull}}
    values["networkPolicy"] = _network_policy(cluster)
    values |= _settings(engine_image, engine_version) if engine_image else {}
    with step("installing the chart and waiting for the operator's pod", 30):
        words = ["-n", NAMESPACE, "--create-namespace", "--values", "-"]
        cluster.helm(
            "upgrade", "--install", "shardwright", str(CHART), *words, text=yaml.safe_dump(values)
        )
        _wait_rolled_out(cluster)


def _wait_rolled_out(cluster: Cluster) -> None:
    cluster.kubectl(
        "-n", NAMESPACE, "rollout", "status", "deployment/shardwright", f"--timeout={_START}"
    )


def _network_policy(cluster: Cluster) -> dict[str, Any]:
    """Only the client sends requests, metrics are read through the API server alone, and pods of
    models reach nobody but each other, DNS, the hub and the object store.
    """
    nodes = [{"ipBlock": {"cidr": f"{address}/32"}} for address in cluster.addresses()]
    return {
        "clients": [{"podSelector": {"matchLabels": {"app": CLIENT}}}],
        "metrics": nodes,
        "egress": {
            "restricted": True,
            "rules": [
                {"to": [{"podSelector": {"matchLabels": {"app": name}}}]} for name in (HUB, STORE)
            ],
        },
    }


@contextmanager
def watching(cluster: Cluster, *namespaces: str) -> Iterator[None]:
    """Let the operator serve these namespaces alone."""
    watched = f"--set=watchNamespaces={{{','.join(namespaces)}}}"
    words = ["upgrade", "shardwright", str(CHART), "-n", NAMESPACE, "--reuse-values"]
    (served,) = json.loads(cluster.helm("list", "-n", NAMESPACE, "--output=json"))
    try:
        with step("installing the chart for some namespaces", 20):
            cluster.helm(*words, watched)
            _wait_rolled_out(cluster)
        yield
    finally:  # of an upgrade that fails a part is done
        cluster.helm("rollback", "shardwright", served["revision"], "-n", NAMESPACE)
        _wait_rolled_out(cluster)


def tested(cluster: Cluster) -> set[tuple[str, str]]:
    """Names and phases of what `helm test` has made, its pod among them."""
    words = ["test", "shardwright", "-n", NAMESPACE, f"--timeout={_START}"]
    said = cluster.helm(*words)
    return set(re.findall(r"TEST SUITE: +(\S+)\n.+\n.+\nPhase: +(\S+)", said))


def rendered(cluster: Cluster, template: str, *values: str) -> dict[str, Any]:
    """The objects that a template of the chart renders with these values, by kind."""
    words = [
        "template",
        "shardwright",
        str(CHART),
        "-n",
        NAMESPACE,
        f"--show-only=templates/{template}.yaml",
    ]
    text = cluster.helm(*words, *(f"--set={value}" for value in ("image.repository=any", *values)))
    return {item["kind"]: item for item in yaml.safe_load_all(text) if item}


def plan_only(name: str, namespace: str) -> dict[str, Any]:
    """A ShardedModel that is planned and not run."""
    return {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "Qwen/Qwen2.5-0.5B-Instruct", "quantization": "FP16"},
            "workload": {"concurrency": 1},
            "mode": "PlanOnly",
        },
    }


def _settings(engine_image: str, version: str) -> dict[str, Any]:
    """What an administrator says once for an engine that runs on the CPU; what it does to memory,
    the planner counts with.
    """
    arguments = {"dtype": "float32", "kv-cache-memory-bytes": KV_BYTES}
    variables = [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"}]
    return {
        "policy": {"admittedEnvironment": ["HF_ENDPOINT"]},
        "catalogue": {MODEL_ID: json.dumps(CONFIG), EXPERTS_ID: json.dumps(CONFIG_OF_EXPERTS)},
        "engineDefaults": {
            "engine": {
                "image": engine_image,
                "version": version,
                "args": arguments,
                "env": variables,
            },
            "pod": {
                "runtimeClassName": RUNTIME_CLASS,
                "resources": {"cpu": "200m", "memory": "8Gi"},
            },
        },
    }


def runtime_class(handler: str) -> Mapping[str, Any]:
    """The RuntimeClass of the engine's pods, and the runtime handler that it stands for."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS},
        "handler": handler,
    }


def image(cluster: Cluster) -> str:
    """The image that the operator runs from."""
    deployment = cluster.get("deployment", "shardwright", "-n", NAMESPACE)
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])
