"""Who waits for GPUs on a real API server: classes and their order, small ones that pass, and pods
that Kubernetes preempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, SMALL, Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
A_NODE: dict[str, Any] = {
    "model": SMALL,
    "parallelism": {"tensor": 8, "pipeline": 1},
}  # all 8 GPUs of one node


def a_class(name: str, value: int) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


@pytest.fixture
def classes(control_plane: ControlPlane) -> Iterator[None]:
    """Two PriorityClasses, gone after the test."""
    found = [a_class("chat", 1000), a_class("urgent", 100_000)]
    for item in found:
        control_plane.api.create(CLASSES, item)
    yield
    for item in [*found, a_class("late", 1)]:
        control_plane.api.delete(f"{CLASSES}/{item['metadata']['name']}", missing_ok=True)


def foreign(node: str, gpus: int, **spec: Any) -> Manifest:
    """Return a pod of nobody's model that holds GPUs of a node."""
    name = f"foreign-{node}"
    container = {
        "name": "job",
        "image": "job",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    selector = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container], **selector, **spec}}


def hold(models: Models, node: str, gpus: int = 8, **spec: Any) -> None:
    models.post("Pod", foreign(node, gpus, **spec))
    wait_for(
        lambda: models.get("Pod", f"foreign-{node}")["spec"].get("nodeName") == node,
        60,
        "the foreign pod to be bound",
    )


def release(models: Models, control_plane: ControlPlane, node: str) -> None:
    path = f"/api/v1/namespaces/{models.namespace}/pods/foreign-{node}"
    control_plane.api.delete(path, grace_period_seconds=0)


def test_a_preempted_group_stops_as_a_whole_and_comes_back_when_there_is_room(
    models: Models, fleet: Fleet, control_plane: ControlPlane, classes: None
) -> None:
    del classes
    first, second = fleet(H100, 2)
    models.create("large", LARGE, pod={"priorityClassName": "chat"})
    models.wait_ready("large", timeout=90)

    hold(models, second, priorityClassName="urgent")
    wait_for(
        lambda: [pod["metadata"]["name"] for pod in models.pods()] == [f"foreign-{second}"],
        90,
        "the group to be gone",
    )
    condition = models.wait_reason("large", "InsufficientCapacity", timeout=60)
    assert condition["status"] == "False"

    models.create("small", **A_NODE)  # what the group does not have is free for others
    models.wait_ready("small", timeout=90)
    assert models.get("Pod", "small-0-0")["spec"]["nodeName"] == first

    models.delete("ShardedModel", "small")
    release(models, control_plane, second)
    group = models.wait_ready("large", timeout=120)["status"]["groups"][0]
    assert (sorted(group["nodes"]), group["restarts"]) == (sorted((first, second)), 1)
