"""A group that needs a place leaves a node that is away for long, closed or full; with `replan: Never` it waits for it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


@pytest.fixture
def spare(models: Models, fleet: Fleet) -> Models:
    """The models of a cluster with one node more than LARGE needs."""
    fleet(H100, 3)
    return models


def nodes_of(models: Models) -> list[str]:
    """Return the nodes of the only group, by rank."""
    (group,) = models.wait_ready("large")["status"]["groups"]
    assert group["name"] == "large-0"
    return list(group["nodes"])


def wait_stays(models: Models, node: str) -> None:
    """Wait until the group stands again where it was planned, all but the pod for a node that takes none."""

    def waits() -> bool:
        assert models.condition("large")["status"] == "False"
        assert [pod["spec"].get("nodeName") for pod in models.pods()].count(None) == 1
        return True

    wait_for(waits, 60, "the group to wait for its node")
    assert node in models.get("ShardedModel", "large")["status"]["plan"]["placement"]["nodes"]


def wait_stale(models: Models, node: str) -> None:
    """Wait until the status says that the plan stays although this node cannot be used."""

    def stale() -> bool:
        condition = models.condition("large", "PlanStale")
        assert (condition["status"], condition["reason"]) == ("True", "NodesChanged"), condition
        return node in condition["message"]

    wait_for(stale, 30, "PlanStale")


def test_what_is_evicted_from_a_cordoned_node_goes_elsewhere(spare: Models, control_plane: ControlPlane) -> None:
    spare.create("large", LARGE)
    before, uids = nodes_of(spare), spare.uids()
    wait_for(lambda: spare.get("PodDisruptionBudget", "large")["status"]["disruptionsAllowed"] == 1, 30, "one disruption")

    control_plane.nodes.cordon(before[1])
    spare.evict("large-0-1")
    wait_for(lambda: uids.isdisjoint(spare.uids()) and len(spare.pods()) == 2, 60, "two new pods")

    after = nodes_of(spare)
    assert (len(set(after)), before[1] in after) == (2, False)
    assert spare.condition("large", "PlanStale")["status"] == "False"


def test_with_replan_never_what_is_evicted_from_a_cordoned_node_waits_for_it(spare: Models, control_plane: ControlPlane) -> None:
    spare.create("large", LARGE, replan="Never")
    before = nodes_of(spare)
    wait_for(lambda: spare.get("PodDisruptionBudget", "large")["status"]["disruptionsAllowed"] == 1, 30, "one disruption")

    control_plane.nodes.cordon(before[1])
    spare.evict("large-0-1")
    wait_stays(spare, before[1])
    wait_stale(spare, before[1])

    control_plane.nodes.uncordon(before[1])
    assert sorted(nodes_of(spare)) == sorted(before)


def lose(models: Models, control_plane: ControlPlane, node: str, seconds: int) -> None:
    """Let a node have been away for some seconds already, and its pod be gone by force."""
    control_plane.nodes.set_not_ready(node)
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    away = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    control_plane.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [away]}}, "strategic")
    (pod,) = (pod["metadata"]["name"] for pod in models.pods() if pod["spec"]["nodeName"] == node)
    control_plane.api.delete(f"/api/v1/namespaces/{models.namespace}/pods/{pod}", grace_period_seconds=0)


def test_a_group_whose_node_has_been_away_for_six_minutes_goes_elsewhere(spare: Models, control_plane: ControlPlane) -> None:
    spare.create("large", LARGE)
    before, uids = nodes_of(spare), spare.uids()

    lose(spare, control_plane, before[1], seconds=370)
    wait_for(lambda: uids.isdisjoint(spare.uids()) and len(spare.pods()) == 2, 60, "two new pods")

    after = nodes_of(spare)
    assert (len(set(after)), before[1] in after) == (2, False)


def test_a_group_waits_for_a_node_that_has_been_away_for_a_minute(spare: Models, control_plane: ControlPlane) -> None:
    spare.create("large", LARGE)
    before = nodes_of(spare)

    lose(spare, control_plane, before[1], seconds=60)
    wait_stays(spare, before[1])
    assert spare.condition("large", "PlanStale")["status"] == "False"

    control_plane.nodes.set_ready(before[1])
    assert sorted(nodes_of(spare)) == sorted(before)


def test_with_replan_never_a_group_waits_for_a_node_however_long_it_is_away(spare: Models, control_plane: ControlPlane) -> None:
    spare.create("large", LARGE, replan="Never")
    before = nodes_of(spare)

    lose(spare, control_plane, before[1], seconds=370)
    wait_stays(spare, before[1])
    wait_stale(spare, before[1])

    control_plane.nodes.set_ready(before[1])
    assert sorted(nodes_of(spare)) == sorted(before)


def test_a_planned_node_that_is_deleted_and_comes_back_within_the_grace_moves_nothing(
    spare: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    spare.create("large", LARGE)
    before = nodes_of(spare)
    (pod,) = (pod["metadata"]["name"] for pod in spare.pods() if pod["spec"]["nodeName"] == before[1])

    control_plane.nodes.delete(before[1])
    control_plane.api.delete(f"/api/v1/namespaces/{spare.namespace}/pods/{pod}", grace_period_seconds=0)  # as its collection does
    wait_stays(spare, before[1])
    wait_stale(spare, before[1])

    fleet(H100, 1, first=int(before[1].rpartition("-")[2]))
    assert sorted(nodes_of(spare)) == sorted(before)


def a_pod_on(node: str, resource: str, count: int) -> Manifest:
    """Return a pod of somebody else that takes so much of a node that none of ours fits beside it."""
    amount = {resource: str(count)}
    container = {"name": "theirs", "image": "theirs", "resources": {"requests": amount, "limits": amount}}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    return {"metadata": {"name": "theirs"}, "spec": spec}


def half_placed(models: Models, resource: str, count: int) -> str:
    """Deploy a model of which one pod finds no place, and return the planned node that somebody else has filled meanwhile."""
    models.create("large", LARGE, mode="PlanOnly", pod={"resources": {"cpu": "100"}})
    models.wait_reason("large", "PlanOnly")
    node = str(models.get("ShardedModel", "large")["status"]["plan"]["placement"]["nodes"][1])
    models.post("Pod", a_pod_on(node, resource, count))
    wait_for(lambda: models.get("Pod", "theirs")["spec"].get("nodeName") == node, 30, "somebody else's pod to be placed")
    models.change("large", mode="Deploy")
    models.wait_reason("large", "Unschedulable", timeout=60)
    wait_for(lambda: bound(models) == [False, True], 30, "one of two pods to be placed")
    return node


def bound(models: Models) -> list[bool]:
    """Return, sorted, of each pod of the group whether it has a node."""
    return sorted("nodeName" in pod["spec"] for pod in models.pods() if pod["metadata"]["name"] != "theirs")


def wait_in_vain(models: Models, control_plane: ControlPlane, minutes: int) -> None:
    """Let the pod that finds no place have waited for so long: the scheduler keeps the time of its first no."""
    (waiting,) = (pod["metadata"]["name"] for pod in models.pods() if "nodeName" not in pod["spec"])
    since = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "PodScheduled", "lastTransitionTime": since}
    path = f"/api/v1/namespaces/{models.namespace}/pods/{waiting}/status"
    control_plane.api.patch(path, {"status": {"conditions": [condition]}}, "strategic")


def incident_of(models: Models) -> Manifest:
    """Return what is remembered of the last failure of the group."""
    annotations = models.get("StatefulSet", "large-0")["metadata"]["annotations"]
    return dict(json.loads(annotations["shardwright.io/incident"]))


def test_a_group_of_which_one_pod_finds_no_place_for_five_minutes_gives_its_gpus_back_which_is_not_counted(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    half_placed(models, "cpu", 150)  # of 192: the planner sees free GPUs

    wait_in_vain(models, control_plane, minutes=6)
    wait_for(lambda: bound(models) == [], 30, "the group to give back what it has")
    incident = incident_of(models)
    assert (incident["restarts"], incident["attempt"], incident["counted"]) == (1, 1, 0)
    restart = datetime.fromisoformat(incident["time"]) + timedelta(seconds=30)
    wait_for(lambda: f"large-0: restarts at {restart.isoformat()}" in models.condition("large")["message"], 15, "the pause")
    assert "Unschedulable" in models.condition("large")["message"]
    group = models.get("ShardedModel", "large")["status"]["groups"][0]
    assert (group["lastFailure"]["reason"], "Insufficient cpu" in group["lastFailure"]["message"]) == ("Unschedulable", True)

    models.delete("Pod", "theirs")
    models.wait_ready("large", timeout=90)


def test_a_group_that_finds_no_place_for_five_minutes_goes_where_gpus_are_free(
    spare: Models, control_plane: ControlPlane
) -> None:
    full = half_placed(spare, "nvidia.com/gpu", 8)

    wait_in_vain(spare, control_plane, minutes=6)

    wait_for(lambda: bound(spare) == [True, True], 90, "both pods to be placed")
    after = nodes_of(spare)
    assert (len(set(after)), full in after) == (2, False)
    assert spare.get("ShardedModel", "large")["status"]["groups"][0]["restarts"] == 0
