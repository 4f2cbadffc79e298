"""The operator, installed by its chart from its image, and running in its pod."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tests.kind import cache, engine
from tests.kind.cluster import RUNTIME_CLASS, Cluster
from tests.kind.shell import step
from tests.kind.tiny_model import CONFIG, CONFIG_OF_EXPERTS

NAMESPACE = "shardwright-system"
MODEL_ID, EXPERTS_ID = "tests/tiny", "tests/experts"
KV_BYTES = 128 * 2**20
"""What every rank keeps for K/V: 32,768 tokens of the whole model, which is what makes the planner
cut it.
"""

_CHART = cache.ROOT / "charts" / "shardwright"
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
    values: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": pull}
    }
    values |= _settings(engine_image, engine_version) if engine_image else {}
    with step("installing the chart and waiting for the operator's pod", 30):
        words = ["-n", NAMESPACE, "--create-namespace", "--values", "-"]
        cluster.helm(
            "upgrade",
            "--install",
            "shardwright",
            str(_CHART),
            *words,
            text=yaml.safe_dump(values),
        )
        cluster.kubectl(
            "-n",
            NAMESPACE,
            "rollout",
            "status",
            "deployment/shardwright",
            f"--timeout={_START}",
        )


def _settings(engine_image: str, version: str) -> dict[str, Any]:
    """What an administrator says once for an engine that runs on the CPU; what it does to memory,
    the planner counts with.
    """
    arguments = {"dtype": "float32", "kv-cache-memory-bytes": KV_BYTES}
    variables = [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"}]
    return {
        "admittedEnvironment": ["HF_ENDPOINT"],
        "catalogue": {
            MODEL_ID: json.dumps(CONFIG),
            EXPERTS_ID: json.dumps(CONFIG_OF_EXPERTS),
        },
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
