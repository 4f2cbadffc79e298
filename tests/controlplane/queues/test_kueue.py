"""Kueue lets groups start by quota: its own manager and webhooks, and the real scheduler.

Collected with ``--queues`` alone: building Kueue takes minutes.
"""

from __future__ import annotations

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.stages import STOP_AFTER
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.quotas import Quotas

H100 = "h100-8x-dell-xe9680"
SERVING = {"scheduler": "Kueue", "queue": "serving"}
ONE_GROUP = 16
"""GPUs of a group of two pods."""


def serve_in_a_queue(quotas: Quotas, models: Models, fleet: Fleet, nodes: int = 2) -> None:
    """Let a model serve from a queue that has quota for its one group."""
    quotas.queue("serving", gpus=ONE_GROUP)
    fleet(H100, nodes)
    models.create("large", LARGE, placement=SERVING)
    models.wait_ready("large", timeout=90)


def last(models: Models, name: str) -> None:
    """Let the pods of a model take a moment to end, as those of a kubelet do.

    Else they are gone at once, and Kueue 0.17 may keep the workload of pods that it never saw end.
    """
    for rank in (0, 1):
        models.patch("Pod", f"{name}-0-{rank}", {"metadata": {"annotations": {STOP_AFTER: "3s"}}})


def placed(models: Models, name: str) -> int:
    """Return how many pods of a model have a node."""
    return sum(
        pod["metadata"]["labels"].get("shardwright.io/model") == name
        and bool(pod["spec"].get("nodeName"))
        for pod in models.pods()
    )


def uids_of(models: Models, name: str) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in models.pods()
        if pod["metadata"]["labels"].get("shardwright.io/model") == name
    }


def test_a_group_with_quota_is_admitted_as_one_workload_and_serves(
    quotas: Quotas, models: Models, fleet: Fleet
) -> None:
    serve_in_a_queue(quotas, models, fleet)
    (workload,) = quotas.workloads()
    assert [pods["count"] for pods in workload["spec"]["podSets"]] == [2]
    wait_for(lambda: quotas.gpus_used("serving") == ONE_GROUP, 15, "the quota in use")


def test_of_two_models_with_quota_for_one_the_second_waits_as_a_whole_until_the_first_goes(
    quotas: Quotas, models: Models, fleet: Fleet
) -> None:
    quotas.queue("serving", gpus=ONE_GROUP + 8)
    fleet(H100, 4)
    models.create("first", LARGE, placement=SERVING)
    models.wait_ready("first", timeout=90)
    models.create("second", LARGE, placement=SERVING)
    said = models.wait_reason("second", "WaitingForQuota")
    assert "kueue.x-k8s.io/admission" in said["message"]
    seen: set[tuple[int, int]] = set()

    def second_is_placed() -> bool:
        seen.add((placed(models, "first"), placed(models, "second")))
        return placed(models, "second") == 2

    models.delete("ShardedModel", "first")
    wait_for(second_is_placed, 90, "the second model to be placed")
    models.wait_ready("second", timeout=90)
    assert [one for one in seen if one[0] and one[1]] == []


def test_a_broken_group_gives_its_quota_back_and_takes_it_again(
    quotas: Quotas, models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    serve_in_a_queue(quotas, models, fleet)
    last(models, "large")
    before, (workload,) = models.uids(), quotas.workloads()

    control_plane.pods.crash(models.namespace, "large-0-1", exit_code=1)
    wait_for(
        lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2, 90, "two new pods"
    )
    assert models.wait_ready("large", timeout=90)["status"]["groups"][0]["restarts"] == 1
    (after,) = quotas.workloads()
    assert after["metadata"]["uid"] != workload["metadata"]["uid"]


def test_a_model_of_a_higher_class_preempts_a_whole_group_which_comes_back_after_it(
    quotas: Quotas, models: Models, fleet: Fleet
) -> None:
    quotas.queue("serving", gpus=ONE_GROUP, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = quotas.priority("low", 10), quotas.priority("high", 1000)
    fleet(H100, 4)
    models.create("cheap", LARGE, placement=SERVING, pod={"priorityClassName": low})
    models.wait_ready("cheap", timeout=90)
    last(models, "cheap")
    before = uids_of(models, "cheap")

    models.create("dear", LARGE, placement=SERVING, pod={"priorityClassName": high})
    models.wait_ready("dear", timeout=120)
    models.wait_reason("cheap", "WaitingForQuota", timeout=90)
    assert placed(models, "cheap") == 0
    assert before.isdisjoint(uids_of(models, "cheap"))
    assert quotas.gpus_used("serving") == ONE_GROUP

    models.delete("ShardedModel", "dear")
    (group,) = models.wait_ready("cheap", timeout=120)["status"]["groups"]
    assert group["restarts"] == 0, group


def names(models: Models) -> set[str]:
    return {item["metadata"]["name"] for item in models.all("StatefulSet")}


def test_requests_that_kueue_fixes_make_the_group_anew(
    quotas: Quotas, models: Models, fleet: Fleet
) -> None:
    serve_in_a_queue(quotas, models, fleet)
    last(models, "large")

    models.change("large", pod={"resources": {"cpu": "20"}})
    models.wait_ready("large", timeout=120)
    requests = {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in models.pods()
    }
    assert (requests, names(models)) == ({"20"}, {"large-0-g1"})
    wait_for(lambda: len(quotas.workloads()) == 1, 30, "one workload to be left")


def test_a_group_takes_another_queue_whether_it_serves_or_waits(
    quotas: Quotas, models: Models, fleet: Fleet
) -> None:
    quotas.queue("serving", gpus=ONE_GROUP)
    quotas.queue("other", gpus=2 * ONE_GROUP)
    fleet(H100, 4)
    models.create("first", LARGE, placement=SERVING)
    models.wait_ready("first", timeout=90)
    last(models, "first")
    models.create("second", LARGE, placement=SERVING)
    models.wait_reason("second", "WaitingForQuota")

    models.change("second", placement={"queue": "other"})
    models.wait_ready("second", timeout=120)
    models.change("first", placement={"queue": "other"})
    models.wait_ready("first", timeout=120)
    wait_for(
        lambda: (quotas.gpus_used("serving"), quotas.gpus_used("other")) == (0, 2 * ONE_GROUP),
        30,
        "the quota to be that of the other queue",
    )
    assert names(models) == {"first-0-g1", "second-0-g1"}


def test_a_group_leaves_kueue_and_comes_to_it(quotas: Quotas, models: Models, fleet: Fleet) -> None:
    serve_in_a_queue(quotas, models, fleet)
    last(models, "large")
    models.change("large", placement={"scheduler": "None", "queue": None})
    models.wait_ready("large", timeout=120)
    wait_for(lambda: quotas.workloads() == [], 30, "no workload to be left")

    models.change("large", placement=SERVING)
    models.wait_ready("large", timeout=120)
    wait_for(lambda: quotas.gpus_used("serving") == ONE_GROUP, 30, "the quota in use")


def test_a_group_whose_node_is_gone_starts_on_another_one(
    quotas: Quotas, models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    serve_in_a_queue(quotas, models, fleet, nodes=3)
    last(models, "large")
    node = models.pods()[1]["spec"]["nodeName"]
    control_plane.nodes.delete(node)
    wait_for(
        lambda: (
            {pod["spec"].get("nodeName") for pod in models.pods()}.isdisjoint({node})
            and len(models.pods()) == 2
        ),
        120,
        "the group to be elsewhere",
    )
    models.wait_ready("large", timeout=120)
    wait_for(lambda: len(quotas.workloads()) == 1, 30, "one workload to be left")
