"""A scheduler with the plugin Coscheduling places groups all or nothing: its own programs, of
Kubernetes 1.33.

Collected with ``--queues`` alone: building them takes minutes.
"""

from __future__ import annotations

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.gangs import as_another_has_it, gives_way_as_a_whole, waits_for_a_taken_node
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.usefixtures("coscheduling")

H100 = "h100-8x-dell-xe9680"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
TOGETHER = {"scheduler": "Coscheduling"}


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
    waits_for_a_taken_node(models, first, TOGETHER)


def test_of_two_groups_that_fit_one_at_a_time_none_is_ever_half_placed(
    control_plane: ControlPlane, models: Models, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models.create("first", LARGE, placement=TOGETHER)
    models.wait_ready("first")
    path = POD_GROUPS.format(models.namespace)
    (group,) = control_plane.api.get(path)["items"]
    renamed = {"first": "second"}
    control_plane.api.create(path, {**group, **as_another_has_it(group, "second-0", renamed)})
    running = models.get("StatefulSet", "first-0")
    models.post("StatefulSet", as_another_has_it(running, "second-0", renamed))
    gives_way_as_a_whole(models)
