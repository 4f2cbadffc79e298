"""kwok plays kubelets faithfully enough that the real controllers do what they do in a real
cluster.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import ControlPlane, stages, wait_for
from tests.harness import fleet as fleets
from tests.harness.api import Manifest
from tests.harness.plugin import Fleet

H100 = "h100-8x-dell-xe9680"


def stateful_set(
    name: str, replicas: int = 2, annotations: dict[str, str] | None = None, **pod: Any
) -> Manifest:
    """A group as shardwright makes them: Parallel, one pod a node, all GPUs of it."""
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    engine = {"name": "engine", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
        "spec": {
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
            },
            "initContainers": [{"name": "weights", "image": "none"}],
            "containers": [engine, {"name": "sidecar", "image": "none"}],
            **pod,
        },
    }
    spec = {
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": spec,
    }


def create(cp: ControlPlane, namespace: str, manifest: Manifest) -> None:
    cp.api.create(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", manifest)


def is_ready(pod: Manifest) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
    )


def engine(cp: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    """The status of the engine container."""
    status: dict[str, Any] = cp.pods.get(namespace, name)["status"]["containerStatuses"][0]
    assert status["name"] == "engine"
    return status


def summary(status: dict[str, Any]) -> dict[str, Any]:
    """What of a container's status does not change from run to run."""
    last = status["lastState"].get("terminated", {})
    return {
        "ready": status["ready"],
        "restartCount": status["restartCount"],
        "state": next(iter(status["state"])),
        "last": {key: last[key] for key in ("exitCode", "reason", "message") if key in last},
    }


@pytest.fixture
def group(control_plane: ControlPlane, namespace: str, fleet: Fleet) -> str:
    """A namespace with a ready group of two pods, g-0 and g-1, on two nodes with nothing else."""
    fleet(H100, count=2, prefix=f"{namespace}-n")
    create(control_plane, namespace, stateful_set("g"))
    wait_until_ready(control_plane, namespace, 2)
    return namespace


def wait_until_ready(cp: ControlPlane, namespace: str, count: int) -> None:
    wait_for(
        lambda: [is_ready(pod) for pod in cp.pods.list(namespace)] == [True] * count,
        what=f"{count} ready pods",
    )


def test_parallel_group_with_anti_affinity_is_ready_on_both_gpu_nodes(
    group: str, control_plane: ControlPlane, fleet: Fleet
) -> None:
    pods = control_plane.pods.list(group)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(fleet.names)
    assert len({pod["status"]["podIP"] for pod in pods}) == 2
    assert [
        pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] for pod in pods
    ] == ["Completed"] * 2
    wait_for(
        lambda: (
            control_plane.api.get(f"/apis/apps/v1/namespaces/{group}/statefulsets/g")["status"].get(
                "readyReplicas"
            )
            == 2
        ),
        what="the StatefulSet controller to count both",
    )


def test_a_deleted_pod_is_replaced(group: str, control_plane: ControlPlane) -> None:
    before = control_plane.pods.get(group, "g-0")["metadata"]["uid"]
    control_plane.api.delete(f"/api/v1/namespaces/{group}/pods/g-0")
    wait_for(
        lambda: control_plane.pods.get(group, "g-0")["metadata"]["uid"] != before, what="a new g-0"
    )
    wait_until_ready(control_plane, group, 2)


def test_crash_restarts_the_container_and_keeps_its_exit_code(
    group: str, control_plane: ControlPlane
) -> None:
    control_plane.pods.crash(group, "g-1", exit_code=3, message="CUDA error")
    expected = {
        "ready": True,
        "restartCount": 1,
        "state": "running",
        "last": {"exitCode": 3, "reason": "Error", "message": "CUDA error"},
    }
    wait_for(lambda: summary(engine(control_plane, group, "g-1")) == expected, what=f"{expected}")
    assert engine(control_plane, group, "g-0")["restartCount"] == 0
    assert (
        control_plane.pods.get(group, "g-1")["status"]["containerStatuses"][1]["restartCount"] == 0
    )

    control_plane.pods.crash(group, "g-1", exit_code=0)
    expected = {
        "ready": True,
        "restartCount": 2,
        "state": "running",
        "last": {"exitCode": 0, "reason": "Completed"},
    }
    wait_for(lambda: summary(engine(control_plane, group, "g-1")) == expected, what=f"{expected}")


def test_out_of_memory_shows_oomkilled(group: str, control_plane: ControlPlane) -> None:
    control_plane.pods.oom(group, "g-0")
    expected = {
        "ready": True,
        "restartCount": 1,
        "state": "running",
        "last": {"exitCode": 137, "reason": "OOMKilled"},
    }
    wait_for(lambda: summary(engine(control_plane, group, "g-0")) == expected, what=f"{expected}")


def test_crash_loop_backs_off_until_it_recovers(group: str, control_plane: ControlPlane) -> None:
    control_plane.pods.crash_loop(group, "g-0", exit_code=2)
    wait_for(
        lambda: (
            engine(control_plane, group, "g-0")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        ),
        what="CrashLoopBackOff",
    )
    assert summary(engine(control_plane, group, "g-0")) == {
        "ready": False,
        "restartCount": 0,
        "state": "waiting",
        "last": {"exitCode": 2, "reason": "Error"},
    }
    control_plane.pods.recover(group, "g-0")
    wait_until_ready(control_plane, group, 2)
    assert engine(control_plane, group, "g-0")["restartCount"] == 1


def test_a_hanging_pod_runs_and_is_not_ready_until_it_recovers(
    group: str, control_plane: ControlPlane
) -> None:
    control_plane.pods.hang(group, "g-0")
    wait_for(lambda: not is_ready(control_plane.pods.get(group, "g-0")), what="g-0 not ready")
    assert control_plane.pods.get(group, "g-0")["status"]["phase"] == "Running"
    assert summary(engine(control_plane, group, "g-0")) == {
        "ready": False,
        "restartCount": 0,
        "state": "running",
        "last": {},
    }
    control_plane.pods.recover(group, "g-0")
    wait_until_ready(control_plane, group, 2)


@pytest.mark.parametrize("how", ["evict", "fail"])
def test_a_pod_that_ends_for_good_is_replaced_after(
    how: str, group: str, control_plane: ControlPlane
) -> None:
    before = control_plane.pods.get(group, "g-1")["metadata"]["uid"]
    if how == "evict":
        control_plane.pods.evict_by_kubelet(group, "g-1")
    else:
        control_plane.pods.fail(group, "g-1", exit_code=9)
    wait_for(
        lambda: control_plane.pods.get(group, "g-1")["metadata"]["uid"] != before,
        what="the StatefulSet's new g-1",
    )
    wait_until_ready(control_plane, group, 2)


def test_an_evicted_pod_says_so(control_plane: ControlPlane, namespace: str, fleet: Fleet) -> None:
    """A pod of its own: a StatefulSet would replace it before anybody could look."""
    (node,) = fleet(H100, count=1, prefix=f"{namespace}-n")
    control_plane.api.create(f"/api/v1/namespaces/{namespace}/pods", bare_pod("alone", node))
    wait_until_ready(control_plane, namespace, 1)
    control_plane.pods.evict_by_kubelet(namespace, "alone")
    wait_for(
        lambda: control_plane.pods.get(namespace, "alone")["status"]["phase"] == "Failed",
        what="phase Failed",
    )
    status = control_plane.pods.get(namespace, "alone")["status"]
    assert (status["reason"], status["message"]) == (
        "Evicted",
        "The node was low on resource: memory.",
    )
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert {
        c["type"]: c["status"]
        for c in status["conditions"]
        if c["type"] in ("Ready", "DisruptionTarget")
    } == {"Ready": "False", "DisruptionTarget": "True"}


def test_without_restarts_a_crash_fails_the_pod(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    (node,) = fleet(H100, count=1, prefix=f"{namespace}-n")
    control_plane.api.create(
        f"/api/v1/namespaces/{namespace}/pods", bare_pod("once", node, restartPolicy="Never")
    )
    wait_until_ready(control_plane, namespace, 1)
    control_plane.pods.crash(namespace, "once", exit_code=4)
    wait_for(
        lambda: control_plane.pods.get(namespace, "once")["status"]["phase"] == "Failed",
        what="phase Failed",
    )
    assert (
        control_plane.pods.get(namespace, "once")["status"]["containerStatuses"][0]["state"][
            "terminated"
        ]["exitCode"]
        == 4
    )


def bare_pod(
    name: str, node: str, annotations: dict[str, str] | None = None, **spec: Any
) -> Manifest:
    pod = {"nodeName": node, "containers": [{"name": "engine", "image": "none"}], **spec}
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": pod}


def test_annotations_in_the_template_delay_and_withhold_readiness(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    (node,) = fleet(H100, count=1, prefix=f"{namespace}-n")
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.api.create(path, bare_pod("never", node, {stages.BEHAVIOUR: "never-ready"}))
    control_plane.api.create(
        path, bare_pod("unpulled", node, {stages.BEHAVIOUR: "image-pull-backoff"})
    )
    control_plane.api.create(
        path, bare_pod("slow", node, {stages.START_AFTER: "1s", stages.READY_AFTER: "1s"})
    )
    seen: list[str] = []

    def slow_is_ready() -> bool:
        pod = control_plane.pods.get(namespace, "slow")
        waiting = [
            c["state"]["waiting"]["reason"]
            for c in pod["status"].get("containerStatuses", [])
            if "waiting" in c["state"]
        ]
        state = "Ready" if is_ready(pod) else "/".join([pod["status"]["phase"], *waiting])
        if seen[-1:] != [state]:
            seen.append(state)
        return state == "Ready"

    wait_for(slow_is_ready, what="the slow pod")
    assert [state for state in seen if state != "Pending"] == [
        "Pending/ContainerCreating",
        "Running",
        "Ready",
    ]
    never = control_plane.pods.get(namespace, "never")
    assert (never["status"]["phase"], is_ready(never)) == ("Running", False)
    unpulled = control_plane.pods.get(namespace, "unpulled")["status"]
    assert (unpulled["phase"], unpulled["containerStatuses"][0]["state"]) == (
        "Pending",
        {"waiting": {"reason": "ImagePullBackOff"}},
    )


def test_pods_of_the_operators_namespace_never_look_ready(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    (node,) = fleet(H100, count=1, prefix=f"{namespace}-n")
    control_plane.create_namespace("shardwright-system")
    control_plane.api.create(
        "/api/v1/namespaces/shardwright-system/pods", bare_pod("operator", node)
    )
    control_plane.api.create(f"/api/v1/namespaces/{namespace}/pods", bare_pod("model", node))
    wait_until_ready(control_plane, namespace, 1)
    operator = control_plane.pods.get("shardwright-system", "operator")
    assert (operator["spec"]["nodeName"], operator["status"]["phase"], is_ready(operator)) == (
        node,
        "Pending",
        False,
    )
    control_plane.api.delete("/api/v1/namespaces/shardwright-system")


def test_a_node_that_is_not_ready_stays_so_and_its_pods_stay_terminating(
    group: str, control_plane: ControlPlane
) -> None:
    cp = control_plane
    node = cp.pods.get(group, "g-0")["spec"]["nodeName"]
    cp.nodes.set_not_ready(node)
    wait_for(
        lambda: (
            {(t["key"], t["effect"]) for t in cp.nodes.get(node)["spec"].get("taints", [])}
            == {
                ("node.kubernetes.io/unreachable", "NoSchedule"),
                ("node.kubernetes.io/unreachable", "NoExecute"),
            }
        ),
        what="the controller manager's taints",
    )
    assert not is_ready(cp.pods.get(group, "g-0"))
    cp.api.delete(f"/api/v1/namespaces/{group}/pods/g-0")
    cp.api.delete(f"/api/v1/namespaces/{group}/pods/g-1")
    wait_for(
        lambda: is_ready(cp.pods.get(group, "g-1")), what="the pod on the live node to be replaced"
    )
    assert "deletionTimestamp" in cp.pods.get(group, "g-0")["metadata"]
    # Kubelets report on what changes, and this one does not.
    cp.kubectl("annotate", "node", node, "touched=yes")
    cp.kubectl("annotate", "pod", "-n", group, "g-0", "touched=yes")
    cp.kubectl("wait", "--for=condition=Ready", "-n", group, "pod/g-1", "--timeout=5s")
    assert not cp.nodes.is_ready(node)
    assert "deletionTimestamp" in cp.pods.get(group, "g-0")["metadata"]

    cp.nodes.set_ready(node)
    wait_until_ready(cp, group, 2)
    assert cp.nodes.get(node)["spec"].get("taints") is None


def test_nodes_may_be_cordoned_or_not_ready_from_the_start(
    control_plane: ControlPlane, fleet: Fleet, namespace: str
) -> None:
    (cordoned,) = fleet(H100, count=1, prefix=f"{namespace}-cordoned", cordoned=True)
    (dead,) = fleet(H100, count=1, prefix=f"{namespace}-dead", ready=False)
    control_plane.kubectl("annotate", "node", dead, "touched=yes")
    assert control_plane.nodes.get(cordoned)["spec"]["unschedulable"] is True
    assert control_plane.nodes.is_ready(cordoned)
    assert not control_plane.nodes.is_ready(dead)


def test_a_node_of_an_earlier_name_works_at_once(
    control_plane: ControlPlane, fleet: Fleet, namespace: str
) -> None:
    for attempt in range(3):
        (node,) = fleet(H100, count=1, prefix=f"{namespace}-n")
        control_plane.api.create(
            f"/api/v1/namespaces/{namespace}/pods", bare_pod(f"p{attempt}", node)
        )
        wait_for(
            lambda: is_ready(control_plane.pods.get(namespace, f"p{attempt}")),  # noqa: B023
            8,
            "the pod",
        )
        control_plane.nodes.delete_with_pods(node)
    assert node not in control_plane.nodes.names()


@pytest.mark.parametrize("dump", fleets.names())
def test_each_dump_becomes_nodes_that_differ_in_name_only(dump: str) -> None:
    first, second = fleets.make(dump, count=2, prefix="n")
    assert [node["metadata"]["labels"]["kubernetes.io/hostname"] for node in (first, second)] == [
        "n-0",
        "n-1",
    ]
    for resource in ("cpu", "memory", "pods", "ephemeral-storage"):
        assert resource in first["status"]["allocatable"]
        assert resource in first["status"]["capacity"]
    original = fleets.load(dump)["metadata"].get("labels", {})
    own = {"kubernetes.io/hostname"}
    assert {
        k: v for k, v in first["metadata"]["labels"].items() if k in original and k not in own
    } == {k: v for k, v in original.items() if k not in own}


def test_gpus_come_from_the_dump_its_labels_or_the_caller() -> None:
    def offered(dump: str, **options: Any) -> dict[str, str]:
        (node,) = fleets.make(dump, count=1, **options)
        return {k: v for k, v in node["status"]["allocatable"].items() if k.endswith("/gpu")}

    assert offered("SYNTH-h100-8x-eks-p5") == {"nvidia.com/gpu": "8"}
    assert offered("mi300x-8x-azure-nd96isr-vf") == {"amd.com/gpu": "8"}
    assert offered(H100) == {"nvidia.com/gpu": "8"}
    assert offered(H100, gpus=4) == {"nvidia.com/gpu": "4"}
    assert offered("oci-rdma-locality-example", gpus=8) == {"nvidia.com/gpu": "8"}


def test_nvl72_racks_have_eighteen_trays_and_a_clique_each() -> None:
    nodes = fleets.make_nvl72(racks=2)
    cliques = [node["metadata"]["labels"][fleets.CLIQUE] for node in nodes]
    assert [cliques.count(clique) for clique in dict.fromkeys(cliques)] == [18, 18]
    assert len({node["metadata"]["name"] for node in nodes}) == 36
