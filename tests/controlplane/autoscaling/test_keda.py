"""KEDA scales ShardedModels by the object that is rendered for them: its own operator and metrics
server, the real HPA controller, and a real Prometheus that scrapes an engine's requests and the
operator.

Collected with ``--autoscaling`` alone: building KEDA takes 22 minutes of CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.prometheus import Prometheus
from tests.harness.waiting import wait_for
from tests.support.autoscalers import Queue, served_queue
from tests.support.models import Models
from tests.support.operator import OperatorProcess

H100 = "h100-8x-dell-xe9680"
HELD = "shardwright_plan_replica_requests"


@pytest.fixture
def queue() -> Iterator[Queue]:
    with served_queue() as served:
        yield served


@pytest.fixture
def prometheus(
    queue: Queue, models: Models, operator: OperatorProcess, prometheus_port: int
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the requests of the model llama, and the operator."""
    job = {
        "job_name": "shardwright",
        "honor_labels": True,
        "static_configs": [{"targets": [operator.scraped_at()]}],
    }
    with Prometheus(queue.job(models.namespace, "llama"), job, port=prometheus_port) as running:
        wait_for(lambda: running.ask("vllm:num_requests_waiting"), 30, "the queue's series")
        yield running


def wait_for_groups(models: Models, count: int) -> None:
    """Wait until so many groups are wanted and ready."""

    def reached() -> bool:
        found = models.get("ShardedModel", "llama")
        ready = (found.get("status") or {}).get("readyReplicas", 0)
        return (found["spec"].get("replicas"), ready) == (count, count)

    wait_for(reached, 120, f"{count} ready groups")


def test_keda_adds_and_removes_groups_by_what_the_plan_says_that_one_holds(
    models: Models, fleet: Fleet, queue: Queue, prometheus: Prometheus, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama", scaling={"maxReplicas": 2, "idleSeconds": 1})
    wait_for_groups(models, 1)
    (pod,) = models.all("Pod")
    wait_for(lambda: prometheus.ask(HELD), 60, "what the plan says that a group holds")
    held = int(float(prometheus.ask(HELD)[0]["value"][1]))

    queue.running, queue.waiting = held // 2, held - held // 2
    wait_for_groups(models, 2)
    queue.running, queue.waiting = held // 4, 0
    wait_for_groups(models, 1)

    said = control_plane.kubectl("events", "-n", models.namespace, "--for", "hpa/keda-hpa-llama")
    assert "New size: 2; reason: external metric s0-prometheus" in said
    assert "New size: 1; reason: All metrics below target" in said
    assert [item["metadata"]["uid"] for item in models.all("Pod")] == [pod["metadata"]["uid"]]
    types = {item["type"] for item in models.get("ShardedModel", "llama")["status"]["conditions"]}
    assert "NotScaled" not in types


def test_a_model_goes_to_zero_while_nobody_asks_and_comes_back_by_what_its_router_holds(
    models: Models, fleet: Fleet, queue: Queue, prometheus: Prometheus, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    control_plane.kubectl(
        *("create", "serviceaccount", "shardwright-router", "-n", models.namespace)
    )
    queue.known = 1
    scaling = {"minReplicas": 0, "maxReplicas": 2, "idleSeconds": 1}
    models.create("llama", scaling=scaling, routing={"mode": "Router"})
    wait_for_groups(models, 1)
    wait_for(lambda: prometheus.ask(HELD), 60, "what the plan says that a group holds")

    wait_for_groups(models, 0)
    queue.known = 0
    wait_for(lambda: _sleeps(models), 60, "a model that sleeps and may be woken")
    what = '-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    keda = control_plane.kubectl("get", "scaledobject", "llama", "-n", models.namespace, what)
    queue.holding = 3
    wait_for_groups(models, 1)

    assert keda == "True"


def _sleeps(models: Models) -> bool:
    said = models.get("ShardedModel", "llama")["status"]["conditions"]
    ready = next(item for item in said if item["type"] == "Ready")
    return (ready["reason"], ready["status"]) == ("Asleep", "True")
