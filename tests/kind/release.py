"""The operator, installed by its chart from its image, and running in its pod."""

from __future__ import annotations

from typing import Any

from tests.kind import cache
from tests.kind.cluster import RUNTIME_CLASS, Cluster
from tests.kind.shell import step

NAMESPACE = "shardwright-system"
_CHART = cache.ROOT / "charts" / "shardwright"
_START = "180s"


def install(cluster: Cluster, image: str) -> None:
    """Install the chart, or upgrade what is there, and return when the operator's pods are ready."""
    repository, _, tag = image.rpartition(":")
    with step("installing the chart and waiting for the operator's pod", 30):
        values = ["--set", f"image.repository={repository}", "--set", f"image.tag={tag}", "--set", "image.pullPolicy=Never"]
        cluster.helm("upgrade", "--install", "shardwright", str(_CHART), "-n", NAMESPACE, "--create-namespace", *values)
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/shardwright", f"--timeout={_START}")


def runtime_class() -> dict[str, Any]:
    """The RuntimeClass whose pods see the engine's folder."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS},
        "handler": RUNTIME_CLASS,
    }


def logs(cluster: Cluster) -> str:
    """What the operator's pods have written."""
    return cluster.kubectl("-n", NAMESPACE, "logs", "deployment/shardwright", "--all-pods", "--tail=-1")


def image(cluster: Cluster) -> str:
    """The image that the operator runs from."""
    deployment = cluster.get("deployment", "shardwright", "-n", NAMESPACE)
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])
