"""KEDA scales ShardedModels by the queue of their engine: its own operator and metrics server, the
real HPA controller, and a real Prometheus that scrapes the queue.

Collected with ``--autoscaling`` alone: building KEDA takes 22 minutes of CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.prometheus import Prometheus
from tests.harness.waiting import wait_for
from tests.support.autoscalers import Queue, served_queue, shown
from tests.support.models import Models

pytestmark = pytest.mark.usefixtures("keda")

H100 = "h100-8x-dell-xe9680"
AT_ONCE = {"stabilizationWindowSeconds": 0}
HURRIED = {
    "pollingInterval": 1,
    "cooldownPeriod": 3,
    "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": AT_ONCE}}},
}
"""What differs from the page: a test need not wait half an hour."""


@pytest.fixture
def queue() -> Iterator[Queue]:
    with served_queue() as served:
        yield served


@pytest.fixture
def prometheus(queue: Queue, models: Models) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the queue of the model llama."""
    with Prometheus(queue.job(models.namespace, "llama")) as running:
        wait_for(lambda: running.ask("vllm:num_requests_waiting"), 30, "the queue's series")
        yield running


def scaled(prometheus: Prometheus, models: Models, **changed: Any) -> dict[str, Any]:
    """Return the ScaledObject of the page for the model llama, which asks this Prometheus."""
    found = shown("ScaledObject")
    (trigger,) = found["spec"]["triggers"]
    query = trigger["metadata"]["query"].replace('"models"', f'"{models.namespace}"')
    trigger["metadata"] |= {"serverAddress": prometheus.url, "query": query}
    return {**found, "spec": found["spec"] | HURRIED | changed}


def wait_for_groups(models: Models, count: int) -> None:
    """Wait until so many groups are wanted and ready."""

    def reached() -> bool:
        found = models.get("ShardedModel", "llama")
        ready = found["status"].get("readyReplicas", 0)
        return (found["spec"].get("replicas"), ready) == (count, count)

    wait_for(reached, 120, f"{count} ready groups")


def test_keda_starts_a_group_where_requests_wait_and_stops_it_where_none_do(
    models: Models, fleet: Fleet, queue: Queue, prometheus: Prometheus, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama", replicas=0)
    path = f"/apis/keda.sh/v1alpha1/namespaces/{models.namespace}/scaledobjects"

    control_plane.api.create(path, scaled(prometheus, models, minReplicaCount=0))
    wait_for_groups(models, 0)
    queue.waiting = 3
    wait_for_groups(models, 1)
    queue.waiting = 0
    wait_for_groups(models, 0)


def test_the_autoscaler_that_keda_makes_adds_and_removes_groups_by_the_queue(
    models: Models, fleet: Fleet, queue: Queue, prometheus: Prometheus, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama", replicas=1)
    models.wait_ready("llama")
    path = f"/apis/keda.sh/v1alpha1/namespaces/{models.namespace}/scaledobjects"

    control_plane.api.create(path, scaled(prometheus, models))
    queue.waiting = 16
    wait_for_groups(models, 2)
    queue.waiting = 4
    wait_for_groups(models, 1)

    said = control_plane.kubectl("events", "-n", models.namespace, "--for", "hpa/keda-hpa-llama")
    assert "New size: 2; reason: external metric s0-prometheus" in said
    assert "New size: 1; reason: All metrics below target" in said
