"""Groups that kube-scheduler itself places all or nothing: the real scheduler with the feature gates
on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.gangs import (
    HALF,
    as_another_has_it,
    bound,
    gives_way_as_a_whole,
    place_theirs,
    waits_for_a_taken_node,
)
from tests.support.models import LARGE, Models
from tests.support.operator import OPERATOR_USER

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
NATIVE = {"scheduler": "Native"}
GANG_OF_TWO = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"


def pod_groups(gated: ControlPlane, namespace: str) -> list[Manifest]:
    return list(gated.api.get(POD_GROUPS.format(namespace))["items"])


def test_a_group_has_its_pod_group_before_its_pods_and_restarts_through_zero_with_it(
    gated: ControlPlane, gangs: Models, nodes: Fleet
) -> None:
    nodes(H100, 2)
    gangs.create("large", LARGE, placement=NATIVE)
    gangs.wait_ready("large")
    (group,) = pod_groups(gated, gangs.namespace)
    name = group["metadata"]["name"]
    assert name.startswith("large-0-2-")
    assert group["spec"] | GANG_OF_TWO == group["spec"]
    assert [pod["spec"]["schedulingGroup"] for pod in gangs.pods()] == [{"podGroupName": name}] * 2
    before = gangs.uids()

    gated.pods.crash(gangs.namespace, "large-0-1", exit_code=1)
    wait_for(lambda: before.isdisjoint(gangs.uids()) and len(gangs.pods()) == 2, 60, "two new pods")
    assert gangs.wait_ready("large")["status"]["groups"][0]["restarts"] == 1
    (after,) = pod_groups(gated, gangs.namespace)
    assert after["metadata"]["uid"] == group["metadata"]["uid"]


def test_a_group_of_which_one_node_is_taken_waits_as_a_whole_and_holds_nothing(
    gangs: Models, nodes: Fleet
) -> None:
    first, _ = nodes(H100, 2)
    waits_for_a_taken_node(gangs, first, NATIVE)


@pytest.fixture
def classes(gated: ControlPlane) -> Iterator[tuple[str, str]]:
    """Return the names of two priority classes, the lower one first."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("low", 10), ("high", 1000)):
        gated.api.create(path, {"metadata": {"name": name}, "value": value})
    yield "low", "high"
    for name in ("low", "high"):
        gated.api.delete(f"{path}/{name}")


def test_a_group_is_preempted_as_a_whole_and_comes_back_as_a_whole(
    gated: ControlPlane, gangs: Models, nodes: Fleet, classes: tuple[str, str]
) -> None:
    """Somebody else's pod needs the CPUs of one node; the pod on the other must go, too."""
    low, high = classes
    first, _ = nodes(H100, 2)
    gangs.create("large", LARGE, placement=NATIVE, pod={**HALF, "priorityClassName": low})
    gangs.wait_ready("large")
    (group,) = pod_groups(gated, gangs.namespace)
    assert group["spec"]["priorityClassName"] == low
    before = gangs.uids()

    place_theirs(gangs, first, high)
    wait_for(lambda: before.isdisjoint(gangs.uids()), 60, "both pods to be preempted")
    gangs.wait_reason("large", "Unschedulable", timeout=60)
    wait_for(lambda: bound(gangs) == {"large-0": 0}, 60, "the whole group to wait")

    gangs.delete("Pod", "theirs")
    gangs.wait_ready("large", timeout=90)
    assert bound(gangs) == {"large-0": 2}


def test_of_two_groups_that_fit_one_at_a_time_none_is_ever_half_placed(
    gated: ControlPlane, gangs: Models, nodes: Fleet
) -> None:
    nodes(H100, 2)
    gangs.create("first", LARGE, placement=NATIVE)
    gangs.wait_ready("first")
    (first,) = pod_groups(gated, gangs.namespace)
    gated.api.create(
        POD_GROUPS.format(gangs.namespace),
        {"metadata": {"name": "second-0-2"}, "spec": GANG_OF_TWO},
    )
    renamed = {first["metadata"]["name"]: "second-0-2", "first-0": "second-0"}
    running = gangs.get("StatefulSet", "first-0")
    gangs.post("StatefulSet", as_another_has_it(running, "second-0", renamed))
    gives_way_as_a_whole(gangs)


def test_without_a_scheduler_to_tell_the_pod_groups_go(
    gated: ControlPlane, gangs: Models, nodes: Fleet
) -> None:
    nodes(H100, 2)
    gangs.create("large", LARGE, placement=NATIVE)
    gangs.wait_ready("large")
    before = gangs.uids()

    gangs.change("large", placement={"scheduler": "None"})
    wait_for(lambda: before.isdisjoint(gangs.uids()) and len(gangs.pods()) == 2, 90, "two new pods")
    gangs.wait_ready("large")
    wait_for(lambda: pod_groups(gated, gangs.namespace) == [], 30, "the PodGroup to be deleted")
    assert all("schedulingGroup" not in pod["spec"] for pod in gangs.pods())


def test_the_operator_used_no_right_that_the_chart_does_not_give(
    gated: ControlPlane, gangs: Models
) -> None:
    """What it used here, and of the whole cluster: others attack with its token in other
    namespaces.
    """
    here = {None, gangs.namespace}
    events = [
        event
        for event in gated.audit_events(OPERATOR_USER)
        if event.get("objectRef", {}).get("namespace") in here
    ]
    verbs = {
        event["verb"]
        for event in events
        if event.get("objectRef", {}).get("resource") == "podgroups"
    }
    refused = [
        event["responseStatus"]["message"]
        for event in events
        if event["responseStatus"]["code"] == 403
    ]

    assert verbs <= {"get", "list", "create", "patch", "delete"}
    assert [message for message in refused if "because it is being terminated" not in message] == []
