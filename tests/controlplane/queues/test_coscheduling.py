"""A scheduler with the plugin Coscheduling places groups all or none: its own programs, of
Kubernetes 1.33.

Collected with ``--queues`` alone: building them takes minutes.
"""

from __future__ import annotations

import json

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.usefixtures("coscheduling")

H100 = "h100-8x-dell-xe9680"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
TOGETHER = {"scheduler": "Coscheduling"}
HALF = {"resources": {"cpu": "100"}}
"""CPUs of a pod, of 192 of its node: two of them fit none."""


def bound(models: Models) -> dict[str, int]:
    """Return how many pods of each model have a node."""
    found: dict[str, int] = {}
    for pod in models.pods():
        name = pod["metadata"].get("labels", {}).get("shardwright.io/model")
        if name is not None:
            found[name] = found.get(name, 0) + bool(pod["spec"].get("nodeName"))
    return found


def theirs(name: str, node: str) -> Manifest:
    """Return a pod of somebody else that holds most CPUs of a node."""
    container = {
        "name": "theirs",
        "image": "theirs",
        "resources": {"requests": {"cpu": "150"}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }


def test_a_group_is_placed_by_the_second_scheduler_and_its_pod_group_says_so(
    control_plane: ControlPlane, models: Models, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models.create("large", LARGE, placement=TOGETHER)
    models.wait_ready("large")
    path = POD_GROUPS.format(models.namespace)

    def phase() -> bool:
        (group,) = control_plane.api.get(path)["items"]
        assert group["status"]["phase"] == "Running", group["status"]
        return True

    wait_for(phase, 30, "the PodGroup to be Running")
    assert {pod["spec"]["schedulerName"] for pod in models.pods()} == {
        "scheduler-plugins-scheduler"
    }


def test_a_group_of_which_one_node_is_taken_waits_as_a_whole_and_holds_nothing(
    models: Models, fleet: Fleet
) -> None:
    first, _ = fleet(H100, 2)
    models.create("large", LARGE, placement=TOGETHER, mode="PlanOnly", pod=HALF)
    models.wait_reason("large", "PlanOnly")
    models.post("Pod", theirs("theirs", first))
    wait_for(
        lambda: models.get("Pod", "theirs")["spec"].get("nodeName") == first,
        30,
        "somebody else's pod to be placed",
    )

    models.change("large", mode="Deploy")
    models.wait_reason("large", "Unschedulable", timeout=60)
    assert bound(models) == {"large": 0}

    models.delete("Pod", "theirs")
    models.wait_ready("large", timeout=90)
    assert bound(models) == {"large": 2}


def a_copy_of(found: Manifest) -> Manifest:
    """Return a group or its PodGroup for the same nodes, as another tenant would have it."""
    spec = json.loads(json.dumps(found["spec"]).replace("first", "second"))
    return {"metadata": {"name": "second-0"}, "spec": spec}


def test_of_two_groups_that_fit_one_at_a_time_none_is_ever_half_placed(
    control_plane: ControlPlane, models: Models, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models.create("first", LARGE, placement=TOGETHER)
    models.wait_ready("first")
    path = POD_GROUPS.format(models.namespace)
    (group,) = control_plane.api.get(path)["items"]
    control_plane.api.create(path, {**group, **a_copy_of(group)})
    models.post("StatefulSet", a_copy_of(models.get("StatefulSet", "first-0")))
    wait_for(
        lambda: bound(models) == {"first": 2, "second": 0}, 30, "the second to wait"
    )
    seen: list[dict[str, int]] = []

    def second_runs() -> bool:
        seen.append(bound(models))
        return seen[-1].get("second") == 2

    models.delete("ShardedModel", "first")
    wait_for(second_runs, 120, "the second group to be placed")
    assert {one.get("second", 0) for one in seen} <= {0, 2}
    assert [one for one in seen if one.get("second") and one.get("first")] == []
