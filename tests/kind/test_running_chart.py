"""The operator in its pod on real kubelets: installed by its chart, from its image."""

from typing import Any

import pytest

from tests.harness.waiting import wait_for
from tests.kind import release
from tests.kind.cluster import GPUS_PER_NODE, RUNTIME_CLASS, WORKERS, Cluster

pytestmark = pytest.mark.timeout(600)


def test_the_operators_pods_are_ready_and_have_never_been_restarted(kind: Cluster) -> None:
    statuses = [status for pod in _pods(kind) for status in pod["status"]["containerStatuses"]]

    assert [(status["ready"], status["restartCount"]) for status in statuses] == [(True, 0)] * 2


def test_the_kubelets_offer_the_gpus_that_the_labels_pretend(kind: Cluster) -> None:
    offered = [node["status"]["allocatable"].get("nvidia.com/gpu") for node in kind.nodes()]

    assert sorted(filter(None, offered)) == [str(GPUS_PER_NODE)] * WORKERS


def test_helm_test_passes(kind: Cluster) -> None:
    assert release.tested(kind) == release.TESTED


def test_the_operator_in_its_pod_plans_on_the_nodes_of_the_cluster(kind: Cluster) -> None:
    kind.apply(release.plan_only("planned", "default"))
    try:
        plan = wait_for(lambda: kind.get("smodel", "planned")["status"]["plan"], 120, "the plan", 1)
        assert (plan["layout"]["tensor"], plan["layout"]["pipeline"]) == (1, 1)
        assert plan["product"] == "Tesla-T4"
    finally:
        kind.kubectl("delete", "smodel", "planned")


def test_only_pods_of_the_engines_runtime_class_see_the_engines_folder(kind: Cluster) -> None:
    (name, *_) = (pod["metadata"]["name"] for pod in _pods(kind))

    assert kind.get("runtimeclass", RUNTIME_CLASS)["handler"]
    assert kind.kubectl("-n", release.NAMESPACE, "exec", name, "--", "ls", "/opt").split() == [
        "shardwright"
    ]


def _pods(kind: Cluster) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = kind.get("pods", "-n", release.NAMESPACE)["items"]
    return pods
