"""Restarts on purpose take turns; failures in a row have a budget; on the real control plane."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


def ready_pods(models: Models) -> int:
    return sum(_is_ready(pod) for pod in models.pods())


def samples(operator: OperatorProcess, models: Models) -> list[Sample]:
    """Return the series of the namespace that a scrape of the operator reads."""
    code, text = operator.get("/metrics")
    assert code == 200
    found = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return [sample for sample in found if sample.labels.get("namespace") == models.namespace]


def lives(operator: OperatorProcess, models: Models) -> dict[str, float]:
    """Return the series of the life of the one group of the namespace's one model, their prefixes
    left out.
    """
    prefixes = re.compile("shardwright_(group_|model_(?=groups))(.+)")
    named = ((prefixes.fullmatch(sample.name), sample) for sample in samples(operator, models))
    shown = [(match[2], sample) for match, sample in named if match]
    assert {sample.labels.get("group", "large-0") for _, sample in shown} <= {"large-0"}
    return {name: sample.value for name, sample in shown}


def ready_series(operator: OperatorProcess, models: Models) -> set[tuple[str, str]]:
    """Return status and reason of the condition Ready, of every series that there is."""
    shown = [one for one in samples(operator, models) if one.name == "shardwright_model_condition"]
    return {
        (one.labels["status"], one.labels["reason"])
        for one in shown
        if one.labels["type"] == "Ready"
    }


def _is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def test_a_changed_template_never_takes_down_two_of_three_groups(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama", replicas=3)
    models.wait_ready("llama")
    before, least = models.uids(), 3

    def rolled() -> bool:
        nonlocal least
        least = min(least, ready_pods(models))
        return before.isdisjoint(models.uids())

    models.change("llama", engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    wait_for(rolled, 90, "three new pods")
    status = models.wait_ready("llama")["status"]

    assert least == 2
    assert [group["ready"] for group in status["groups"]] == [True, True, True]


def test_a_spent_budget_stops_the_group_with_its_engines_last_words_until_a_restart(
    models: Models, fleet: Fleet, control_plane: ControlPlane, operator: OperatorProcess
) -> None:
    fleet(H100, 2)
    models.create("large", LARGE, restart={"budget": 0, "onBudgetSpent": "Stop"})
    models.wait_ready("large")
    served = {
        "groups_placed": 1,
        "groups_wanted": 1,
        "groups_serving": 1,
        "groups_updated": 1,
        "groups_rollout_pending": 0,
        "ready": 1,
        "restarts": 0,
        "restart_budget_spent": 0,
        "pods_wanted": 2,
        "pods_bound": 2,
    }
    assert lives(operator, models) == served
    assert ready_series(operator, models) == {("True", "Serving")}

    control_plane.pods.crash(
        models.namespace,
        "large-0-1",
        exit_code=1,
        message="torch.OutOfMemoryError: CUDA out of memory",
    )
    models.wait_reason("large", "RestartBudgetSpent")
    wait_for(
        lambda: models.condition("large", "Stalled")["status"] == "True",
        30,
        "the group to stay stopped",
    )
    assert models.pods() == []
    degraded = models.condition("large", "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "RestartBudgetSpent")
    assert "CUDA out of memory" in degraded["message"]
    failure = models.get("ShardedModel", "large")["status"]["groups"][0]["lastFailure"]
    assert failure["message"] == "torch.OutOfMemoryError: CUDA out of memory"
    stopped = {
        "groups_serving": 0,
        "groups_updated": 0,
        "ready": 0,
        "restarts": 1,
        "restart_budget_spent": 1,
        "pods_bound": 0,
        "last_failure": 1,
    }
    assert lives(operator, models) == served | stopped
    assert ready_series(operator, models) == {("False", "RestartBudgetSpent")}

    models.annotate("large", restart="2026-01-02T12:00:00Z")
    (group,) = models.wait_ready("large")["status"]["groups"]
    assert group["restarts"] == 1
    assert ready_series(operator, models) == {("True", "Serving")}
    assert lives(operator, models) == {
        **served,
        "restarts": 1,
        "last_failure": 1,
        "last_outage_seconds": group["lastOutageSeconds"],
    }

    models.delete("ShardedModel", "large")
    wait_for(
        lambda: not lives(operator, models) and not ready_series(operator, models),
        15,
        "the series to be gone",
    )


def test_a_group_whose_node_dies_goes_on_elsewhere_beside_the_pod_that_nobody_can_end(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 3, "mortal")  # where models of other tests hold nothing
    models.create("large", LARGE, restart={"budget": 0, "onBudgetSpent": "Stop"})
    models.wait_ready("large")
    dead = models.get("Pod", "large-0-1")["spec"]["nodeName"]
    control_plane.nodes.set_not_ready(dead)
    control_plane.pods.crash(
        models.namespace, "large-0-0", exit_code=78, message="no token for 60 s"
    )  # what its leader then says

    wait_for(lambda: models.find("StatefulSet", "large-0-g1"), 180, "the next generation")
    models.wait_ready("large")

    (group,) = models.get("ShardedModel", "large")["status"]["groups"]
    assert (group["name"], group["restarts"], dead in group["nodes"]) == ("large-0-g1", 1, False)
    said = "rank 0 ended with exit code 78: no token for 60 s"
    why = {
        "rank": 1,
        "container": "",
        "reason": "NodeNotReady",
        "message": f"{said}\nnode {dead} does not answer",
    }
    assert group["lastFailure"] == why
    assert [item["metadata"]["name"] for item in models.all("StatefulSet")] == ["large-0-g1"]
    assert {"large", "large-0-g1-peers"} <= {
        item["metadata"]["name"] for item in models.all("Service")
    }
    held = models.get("Pod", "large-0-1")
    assert (held["spec"]["nodeName"], "deletionTimestamp" in held["metadata"]) == (dead, True)

    control_plane.nodes.set_ready(dead)
    wait_for(
        lambda: models.find("Pod", "large-0-1") is None,
        60,
        "the node to end the pod that it still had",
    )
    assert models.wait_ready("large")["status"]["groups"] == [group]


def test_with_free_nodes_a_single_group_changes_without_an_outage(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 4, "spare")  # where models of other tests hold nothing
    models.create("large", LARGE, rollout={"maxSurge": 1})
    models.wait_ready("large")
    before, scripts, least = models.uids(), scripts_of(models), 2

    def rolled() -> bool:
        nonlocal least
        least = min(least, ready_pods(models))
        return before.isdisjoint(models.uids())

    models.change("large", readiness={"silenceSeconds": 90})
    wait_for(rolled, 90, "two new pods")

    (group,) = models.wait_ready("large")["status"]["groups"]
    assert (group["name"], group["lastOutageSeconds"]) == ("large-0-g1", 0)
    assert least == 2
    wait_for(
        lambda: models.find("Service", "large-0-peers") is None,
        30,
        "nothing of the former generation to be left",
    )
    assert [item["metadata"]["name"] for item in models.all("StatefulSet")] == ["large-0-g1"]
    models.wait_events("Surging")
    wait_for(
        lambda: len(scripts_of(models)) == 1, 30, "the scripts of the former generation to be gone"
    )
    (mounted,) = {pod["spec"]["volumes"][0]["configMap"]["name"] for pod in models.pods()}
    assert scripts_of(models) == {mounted} != scripts


def scripts_of(models: Models) -> set[str]:
    names = (item["metadata"]["name"] for item in models.all("ConfigMap"))
    return {name for name in names if name.startswith("large-scripts-")}
