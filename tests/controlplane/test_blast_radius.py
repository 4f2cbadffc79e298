"""A fault of one node, pod, object or namespace changes only what stands on it. The operator's
clock runs faster here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.webhooks import dead_webhook

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
PACE = 30
WHOLE_NODE = {"parallelism": {"tensor": 8}}
KEPT = "example.com/kept"

Fault = Callable[[ControlPlane, str], None]


def drain(control_plane: ControlPlane, node: str) -> None:
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    control_plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})


def relabel(control_plane: ControlPlane, node: str) -> None:
    control_plane.api.patch(
        f"/api/v1/nodes/{node}", {"metadata": {"labels": {"nvidia.com/gpu.product": "another"}}}
    )


FAULTS: dict[str, Fault] = {
    "deleted": lambda control_plane, node: control_plane.nodes.delete(node),
    "drained by Karpenter": drain,
}


def is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def group_of(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"]["shardwright.io/group"])


def uids_by_group(models: Models) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pod in models.pods():
        found.setdefault(group_of(pod), set()).add(pod["metadata"]["uid"])
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_node_moves_the_group_that_stands_on_it_and_no_other(
    models: Models, fleet: Fleet, control_plane: ControlPlane, fault: str
) -> None:
    fleet(H100, 4)
    models.create("llama", replicas=3, **WHOLE_NODE)
    models.wait_ready("llama")
    before, least = uids_by_group(models), 3
    (victim,) = (pod for pod in models.pods() if group_of(pod) == "llama-1")
    node, name = victim["spec"]["nodeName"], victim["metadata"]["name"]

    FAULTS[fault](control_plane, node)
    control_plane.api.delete(
        f"/api/v1/namespaces/{models.namespace}/pods/{name}", grace_period_seconds=0
    )

    def moved() -> bool:
        nonlocal least
        pods = models.pods()
        least = min(least, sum(is_ready(pod) for pod in pods))
        placed = {group_of(pod): pod["spec"].get("nodeName") for pod in pods if is_ready(pod)}
        return bool(placed.get("llama-1", node) != node)

    wait_for(moved, 90, "the group to serve elsewhere")
    after = uids_by_group(models)
    assert least == 2
    assert (after["llama-0"], after["llama-2"]) == (before["llama-0"], before["llama-2"])
    assert models.wait_ready("llama")["status"]["readyReplicas"] == 3


def test_a_node_that_is_relabelled_under_running_groups_moves_none(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 4)
    models.create("llama", replicas=3, **WHOLE_NODE)
    nodes = models.wait_ready("llama")["status"]["plan"]["placement"]["nodes"]
    before = uids_by_group(models)

    relabel(control_plane, nodes[1])
    wait_for(lambda: models.condition("llama", "PlanStale")["status"] == "True", 60, "PlanStale")
    models.change("llama", replicas=2)
    wait_for(lambda: len(models.pods()) == 2, 60, "the third group to go")
    assert uids_by_group(models) == {group: before[group] for group in ("llama-0", "llama-1")}


def restarted(models: Models, before: dict[str, set[str]], group: str) -> bool:
    """Return whether a group of two pods has others than before, and they serve."""
    pods = [pod for pod in models.pods() if group_of(pod) == group]
    new = before[group].isdisjoint(pod["metadata"]["uid"] for pod in pods)
    return new and len(pods) == 2 and all(is_ready(pod) for pod in pods)


def test_pods_of_a_model_that_runs_which_a_quota_keeps_out_are_said_in_its_words_until_it_goes(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("kept-out", **WHOLE_NODE)
    models.wait_ready("kept-out")
    control_plane.kubectl("create", "quota", "none", "-n", models.namespace, "--hard=pods=0")
    pod = models.pods()[0]["metadata"]["name"]
    control_plane.api.delete(
        f"/api/v1/namespaces/{models.namespace}/pods/{pod}", grace_period_seconds=0
    )
    assert (
        "exceeded quota: none"
        in models.wait_reason("kept-out", "PodsRefused", timeout=60)["message"]
    )

    control_plane.kubectl("delete", "quota", "none", "-n", models.namespace)
    models.wait_ready("kept-out", timeout=90)


_numbers = itertools.count(1)


@contextmanager
def another_namespace(control_plane: ControlPlane, name: str) -> Iterator[Models]:
    namespace = control_plane.create_namespace(f"{name}-{next(_numbers)}")
    try:
        yield Models(control_plane, namespace)
    finally:
        control_plane.api.delete(f"/api/v1/namespaces/{namespace}")


def test_a_silent_webhook_shows_in_the_status_and_delays_no_repair_in_another_namespace(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 3)
    with another_namespace(control_plane, "well") as others:
        others.create("large", LARGE)
        others.wait_ready("large")
        before = uids_by_group(others)
        with dead_webhook(control_plane, models.namespace, seconds=3):
            wait_for(
                lambda: is_refused(control_plane, models.namespace),
                30,
                "the webhook to be in force",
            )
            for number in range(8):
                models.create(f"small-{number}")
            assert (
                "dead.example.com"
                in models.wait_reason("small-0", "ApiUnavailable", timeout=60)["message"]
            )

            control_plane.pods.crash(others.namespace, "large-0-1", exit_code=1)
            wait_for(lambda: restarted(others, before, "large-0"), 60, "two new pods that serve")
            assert models.all("StatefulSet") == []
        models.wait_ready("small-0", timeout=90)


def test_in_a_namespace_that_ends_nothing_is_made_again_and_another_one_is_mended(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 3)
    models.create("large", LARGE)
    models.wait_ready("large")
    before = uids_by_group(models)
    ending = Models(control_plane, control_plane.create_namespace(f"ending-{next(_numbers)}"))
    ending.create("llama")
    ending.wait_ready("llama")
    ending.patch("ShardedModel", "llama", {"metadata": {"finalizers": [KEPT]}})

    control_plane.api.delete(f"/api/v1/namespaces/{ending.namespace}")
    kinds = ("StatefulSet", "Service", "ConfigMap", "Pod")
    wait_for(
        lambda: not any(ours(ending, kind) for kind in kinds), 60, "all but the model to be gone"
    )
    control_plane.pods.crash(models.namespace, "large-0-1", exit_code=1)
    wait_for(lambda: restarted(models, before, "large-0"), 60, "two new pods that serve")
    assert [ours(ending, kind) for kind in kinds] == [[], [], [], []]
    assert "deletionTimestamp" in ending.get("ShardedModel", "llama")["metadata"]

    ending.patch("ShardedModel", "llama", {"metadata": {"finalizers": None}})
    wait_for(lambda: ending.find("ShardedModel", "llama") is None, 30, "the model to be gone")


def ours(models: Models, kind: str) -> list[str]:
    """Return the names of what is there of a kind, but for what Kubernetes puts into every
    namespace.
    """
    return [
        name
        for item in models.all(kind)
        if (name := item["metadata"]["name"]) != "kube-root-ca.crt"
    ]


def is_refused(control_plane: ControlPlane, namespace: str) -> bool:
    try:
        control_plane.api.create(
            f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"generateName": "probe-"}}
        )
    except ApiError as error:
        return "dead.example.com" in error.message
    return False


def test_somebody_who_keeps_setting_a_field_back_ends_in_a_condition(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")
    stop = threading.Event()

    def fight() -> None:
        while not stop.wait(0.1):
            models.patch(
                "Service", "llama", {"metadata": {"labels": {"app.kubernetes.io/name": "somebody"}}}
            )

    fighter = threading.Thread(target=fight)
    fighter.start()
    try:
        wait_for(
            lambda: models.condition("llama", "FieldConflict")["status"] == "True",
            60,
            "FieldConflict",
        )
    finally:
        stop.set()
        fighter.join()
    condition = models.condition("llama", "FieldConflict")
    assert condition["reason"] == "FieldContested"
    assert "Service llama" in condition["message"]
    assert models.condition("llama")["status"] == "True"
    wait_for(
        lambda: models.condition("llama", "FieldConflict")["status"] == "False",
        60,
        "it to be set right, and left",
    )
    assert (
        models.get("Service", "llama")["metadata"]["labels"]["app.kubernetes.io/name"] != "somebody"
    )
