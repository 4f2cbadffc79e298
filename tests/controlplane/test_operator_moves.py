"""A group that needs a place leaves a node that is away for long, closed or full; with `replan:
Never` it waits for it.

The operator's clock runs faster here. What must not happen before some minutes are over is in
test_operator_patience.py.
"""

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.places import nodes_of

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
PACE = 30


@pytest.fixture
def spare(models: Models, fleet: Fleet) -> Models:
    """The models of a cluster with one node more than LARGE needs."""
    fleet(H100, 3)
    return models


def test_what_is_evicted_from_a_cordoned_node_goes_elsewhere(
    spare: Models, control_plane: ControlPlane
) -> None:
    spare.create("large", LARGE)
    before, uids = nodes_of(spare), spare.uids()
    wait_for(
        lambda: spare.get("PodDisruptionBudget", "large")["status"]["disruptionsAllowed"] == 1,
        30,
        "one disruption",
    )

    control_plane.nodes.cordon(before[1])
    spare.evict("large-0-1")
    wait_for(lambda: uids.isdisjoint(spare.uids()) and len(spare.pods()) == 2, 60, "two new pods")

    after = nodes_of(spare)
    assert (len(set(after)), before[1] in after) == (2, False)
    assert spare.condition("large", "PlanStale")["status"] == "False"


def take(models: Models, name: str, node: str, resource: str, count: int) -> None:
    """Let a pod of somebody else take so much of a node that none of ours fits beside it."""
    amount = {resource: str(count)}
    container = {
        "name": "theirs",
        "image": "theirs",
        "resources": {"requests": amount, "limits": amount},
    }
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    models.post("Pod", {"metadata": {"name": name}, "spec": spec})
    wait_for(
        lambda: models.get("Pod", name)["spec"].get("nodeName") == node,
        30,
        "somebody else's pod to be placed",
    )


def half_placed(models: Models, **restart: int) -> str:
    """Deploy a model of which one pod finds no place, and return the planned node whose CPUs
    somebody else has taken.

    The planner sees free GPUs there.
    """
    models.create(
        "large", LARGE, mode="PlanOnly", pod={"resources": {"cpu": "100"}}, restart=restart
    )
    models.wait_reason("large", "PlanOnly")
    node = str(models.get("ShardedModel", "large")["status"]["plan"]["placement"]["nodes"][1])
    take(models, "theirs", node, "cpu", 150)  # of 192
    models.change("large", mode="Deploy")
    models.wait_reason("large", "Unschedulable", timeout=60)
    wait_for(lambda: bound(models) == [False, True], 30, "one of two pods to be placed")
    return node


def bound(models: Models) -> list[bool]:
    """Return, sorted, of each pod of the group whether it has a node."""
    return sorted(
        "nodeName" in pod["spec"]
        for pod in models.pods()
        if "theirs" not in pod["metadata"]["name"]
    )


def test_a_group_that_finds_no_place_for_five_minutes_goes_where_gpus_are_free(
    spare: Models,
) -> None:
    full = half_placed(spare)
    take(spare, "theirs-too", full, "nvidia.com/gpu", 8)

    wait_for(lambda: bound(spare) == [True, True], 90, "both pods to be placed")
    after = nodes_of(spare)
    assert (len(set(after)), full in after) == (2, False)
    assert spare.get("ShardedModel", "large")["status"]["groups"][0]["restarts"] == 0
