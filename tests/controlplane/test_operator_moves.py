"""A group that needs a place leaves a node that is away for long, closed or full; with `replan:
Never` it waits for it.

The operator's clock runs faster here. What must not happen before some minutes are over is in
test_operator_patience.py.
"""

import json
from datetime import datetime, timedelta

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.places import lose, nodes_of, wait_stale, wait_stays

pytestmark = pytest.mark.controlplane

EIGHT = "meta-llama/Llama-3.1-8B-Instruct"
"""Large enough that two and four GPUs are each worth it for speed."""

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


def test_with_replan_never_what_is_evicted_from_a_cordoned_node_waits_for_it(
    spare: Models, control_plane: ControlPlane
) -> None:
    spare.create("large", LARGE, replan="Never")
    before = nodes_of(spare)
    wait_for(
        lambda: spare.get("PodDisruptionBudget", "large")["status"]["disruptionsAllowed"] == 1,
        30,
        "one disruption",
    )

    control_plane.nodes.cordon(before[1])
    spare.evict("large-0-1")
    wait_stays(spare, before[1])
    wait_stale(spare, before[1])

    control_plane.nodes.uncordon(before[1])
    assert sorted(nodes_of(spare)) == sorted(before)


def test_a_group_whose_node_has_been_away_for_six_minutes_goes_elsewhere(
    spare: Models, control_plane: ControlPlane
) -> None:
    spare.create("large", LARGE)
    before, uids = nodes_of(spare), spare.uids()

    lose(spare, control_plane, before[1])
    wait_for(lambda: uids.isdisjoint(spare.uids()) and len(spare.pods()) == 2, 60, "two new pods")

    after = nodes_of(spare)
    assert (len(set(after)), before[1] in after) == (2, False)


def test_with_replan_never_a_group_waits_for_a_node_however_long_it_is_away(
    spare: Models, control_plane: ControlPlane
) -> None:
    spare.create("large", LARGE, replan="Never")
    before = nodes_of(spare)

    lose(spare, control_plane, before[1])
    wait_stays(spare, before[1])
    wait_stale(spare, before[1])

    control_plane.nodes.set_ready(before[1])
    assert sorted(nodes_of(spare)) == sorted(before)


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


def incident_of(models: Models) -> Manifest:
    """Return what is remembered of the last failure of the group."""
    annotations = models.get("StatefulSet", "large-0")["metadata"]["annotations"]
    return dict(json.loads(annotations["shardwright.io/incident"]))


def test_a_group_half_placed_for_five_minutes_gives_its_gpus_back_without_spending_its_budget(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 2)
    half_placed(models, delaySeconds=600, maxDelaySeconds=600)

    wait_for(lambda: bound(models) == [], 60, "the group to give back what it has")
    incident = incident_of(models)
    assert (incident["restarts"], incident["attempt"], incident["counted"]) == (1, 1, 0)
    restart = datetime.fromisoformat(incident["time"]) + timedelta(seconds=600)
    wait_for(
        lambda: (
            f"large-0: restarts at {restart.isoformat()}" in models.condition("large")["message"]
        ),
        15,
        "the pause",
    )
    assert "Unschedulable" in models.condition("large")["message"]
    group = models.get("ShardedModel", "large")["status"]["groups"][0]
    assert (
        group["lastFailure"]["reason"],
        "Insufficient cpu" in group["lastFailure"]["message"],
    ) == ("Unschedulable", True)

    models.delete("Pod", "theirs")
    models.wait_ready("large", timeout=90)


def test_a_group_that_finds_no_place_for_five_minutes_goes_where_gpus_are_free(
    spare: Models,
) -> None:
    full = half_placed(spare)
    take(spare, "theirs-too", full, "nvidia.com/gpu", 8)

    wait_for(lambda: bound(spare) == [True, True], 90, "both pods to be placed")
    after = nodes_of(spare)
    assert (len(set(after)), full in after) == (2, False)
    assert spare.get("ShardedModel", "large")["status"]["groups"][0]["restarts"] == 0


def test_replan_always_takes_one_better_plan_an_hour_and_only_names_the_second(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    for name in ("first", "second"):
        models.create(name, parallelism={"tensor": 2, "pipeline": 1})
        models.wait_ready(name)
    models.create("hog", parallelism={"tensor": 2, "pipeline": 1})
    models.wait_ready("hog")
    models.create("llama", EIGHT, replicas=1, replan="Always", objective={"optimizeFor": "Latency"})
    assert models.wait_ready("llama")["status"]["plan"]["layout"]["tensor"] == 2

    for name in ("first", "second"):
        models.delete("ShardedModel", name)
    wait_for(
        lambda: layout_of(models, reconcile=True)["tensor"] == 4, 60, "the better plan", interval=1
    )
    models.wait_ready("llama")
    models.delete("ShardedModel", "hog")
    wait_for(
        lambda: layout_of(models, reconcile=True) and stale(models)["reason"] == "BetterPlan",
        60,
        "PlanStale",
        interval=1,
    )
    assert stale(models)["message"].startswith("TP8 on ")
    assert layout_of(models)["tensor"] == 4


def stale(models: Models) -> Manifest:
    return models.condition("llama", "PlanStale")


def layout_of(models: Models, *, reconcile: bool = False) -> Manifest:
    """Return the layout of the plan; with ``reconcile`` the operator is made to look at the model again,
    at what has come free.
    """
    if reconcile:
        models.annotate("llama", restart="")
        models.patch(
            "ShardedModel", "llama", {"metadata": {"annotations": {"shardwright.io/restart": None}}}
        )
    layout: Manifest = models.get("ShardedModel", "llama")["status"]["plan"]["layout"]
    return layout
