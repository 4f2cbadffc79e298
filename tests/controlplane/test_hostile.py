"""A corpus of objects that mean harm in one namespace, and the models of another one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwright.units import MIB
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.hostile import corpus, reason_of, send, unanswered
from tests.support.models import LARGE, Models
from tests.support.operator import SYSTEM, OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
OBJECTS = 207  # 23 of each sort; benchmarks/neighbours.py has 2,000
LIMIT_BYTES = 512 * MIB  # of the chart
LARGE_MODEL = {
    "id": "evil/model",
    "config": {"k": [{}] * 400_000},
}  # 1.2 MB, which is 30 MB as Python values
LABELS = {"app.kubernetes.io/managed-by": "shardwright", "shardwright.io/model": "good"}
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/shardwright"


@pytest.fixture
def hostile(control_plane: ControlPlane, namespace: str) -> Iterator[Models]:
    """A namespace that may use no GPU: what is planned there takes nobody's."""
    found = Models(
        control_plane, control_plane.create_namespace(f"hostile-{namespace}"[:60].rstrip("-"))
    )
    found.post(
        "ResourceQuota",
        {"metadata": {"name": "none"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}},
    )
    yield found
    found.delete_all("ShardedModel")
    control_plane.api.delete(f"/api/v1/namespaces/{found.namespace}")


def test_each_hostile_object_is_refused_or_answered_and_hurts_nobody_else(
    models: Models, hostile: Models, operator: OperatorProcess, fleet: Fleet
) -> None:
    fleet(H100, 3)
    models.create("good", LARGE)
    models.wait_ready("good", 120)
    before, pid = models.uids(), operator.running()

    with ThreadPoolExecutor(4) as pool:
        sent = pool.map(lambda one: send(hostile, one), corpus(OBJECTS))
        models.delete("Pod", models.pods()[0]["metadata"]["name"])
        models.create("late")
        stored = set(filter(None, sent))

    models.wait_ready("late", 60)
    wait_for(lambda: not models.uids() & before, 60, "all pods of the group to be others")
    models.wait_ready("good", 60)
    wait_for(lambda: unanswered(hostile) == [], 90, "each of them to be answered")
    assert len(stored) > OBJECTS // 2
    assert "a fault of ours" not in operator.logs()
    assert (operator.running(), operator.get("/healthz")) == (pid, (200, "ok"))

    operator.kill()
    operator.start()
    models.create("later")
    models.wait_ready("later", 60)
    wait_for(lambda: unanswered(hostile) == [], 60, "each of them to be answered")
    assert operator.peak_bytes() < LIMIT_BYTES


def test_objects_of_the_largest_size_cost_neither_the_lease_nor_more_memory_than_the_limit(
    control_plane: ControlPlane,
    models: Models,
    hostile: Models,
    operator: OperatorProcess,
    fleet: Fleet,
) -> None:
    fleet(H100, 1)
    models.create("good", mode="PlanOnly")
    models.wait_reason("good", "PlanOnly", 60)
    before, pid = transitions(control_plane), operator.running()

    texts = [
        {"metadata": {"name": f"m-{number}-plan", "labels": LABELS}, "data": {"a": "x" * 900_000}}
        for number in range(100)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda item: hostile.post("ConfigMap", item), texts))
        list(pool.map(lambda number: hostile.create(f"large-{number}", LARGE_MODEL), range(9)))
    wait_for(
        lambda: unanswered(hostile) == [],
        90,
        "each of them to be answered, as an event tells of it",
    )
    peaks = [operator.peak_bytes()]
    assert (operator.running(), transitions(control_plane)) == (pid, before)
    operator.kill()
    pid = operator.start().running()
    models.change("good", workload={"inputTokens": 1000})
    wait_for(
        lambda: models.condition("good")["reason"] == "PlanOnly", 60, "the change to be planned"
    )
    peaks.append(operator.peak_bytes())

    assert {reason_of(item) for item in hostile.all("ShardedModel")} == {"InvalidSpec"}
    assert max(peaks) < LIMIT_BYTES
    assert (operator.running(), transitions(control_plane)) == (pid, before)


def transitions(control_plane: ControlPlane) -> int:
    """Return how often the Lease has changed hands."""
    return int(control_plane.api.get(LEASE)["spec"].get("leaseTransitions") or 0)
