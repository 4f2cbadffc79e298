"""Nodes whose GPUs are in ResourceSlices alone: read, planned, and given out by the real scheduler.

The slices are written by hand as NVIDIA's DRA driver writes them; the API server, the scheduler and
the controller manager are real, no devices are prepared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.fleet import make
from tests.harness.gpu_devices import (
    DRA,
    DRIVER,
    H100,
    a_device_class,
    a_mig_device,
    a_slice,
    gpu_devices,
    without_plugin,
)
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, SMALL, Models

pytestmark = pytest.mark.controlplane

RESOURCE, MIG_CLASS = "nvidia.com/gpu", "mig.nvidia.com"
SMALLEST = "Qwen/Qwen3-0.6B"
A_SLICE: dict[str, Any] = {
    "placement": {"migProfile": "1g.10gb"},
    "engine": {"maxModelLen": 2048},
    "workload": {"inputTokens": 512, "outputTokens": 256},
}
ONE_GPU: dict[str, Any] = {"parallelism": {"tensor": 1, "pipeline": 1}}
TWO_GPUS: dict[str, Any] = {"parallelism": {"tensor": 2, "pipeline": 1}}


@pytest.fixture
def nodes(fleet: Fleet) -> list[str]:
    return fleet.create(
        [without_plugin(node) for node in make("h100-8x-dell-xe9680", 2, prefix="dra")]
    )


@pytest.fixture
def extended(control_plane: ControlPlane, nodes: list[str]) -> Iterator[None]:
    """The DeviceClass stands for the extended resource."""
    with gpu_devices(control_plane, map(a_slice, nodes), a_device_class(RESOURCE)):
        yield


@pytest.fixture
def claimed(control_plane: ControlPlane, nodes: list[str]) -> Iterator[None]:
    """The DeviceClass stands for no extended resource: pods claim devices."""
    with gpu_devices(control_plane, map(a_slice, nodes), a_device_class()):
        yield


def allocated(models: Models) -> dict[str, set[str]]:
    """The devices of the claims of the namespace, by the node that they are of; no device is
    given out twice.
    """
    found: dict[str, set[str]] = {}
    for claim in models.all("ResourceClaim"):
        for result in claim["status"]["allocation"]["devices"]["results"]:
            assert result["driver"] == DRIVER
            assert result["device"] not in found.setdefault(result["pool"], set())
            found[result["pool"]].add(result["device"])
    return found


def engine(pod: Manifest) -> Manifest:
    (container,) = pod["spec"]["containers"]
    return dict(container["resources"])


@pytest.mark.usefixtures("extended")
def test_pods_ask_by_the_extended_resource_where_a_device_class_stands_for_it(
    models: Models, nodes: list[str]
) -> None:
    models.create("large", LARGE)
    plan = models.wait_ready("large")["status"]["plan"]

    assert (plan["resource"], plan["product"], plan["placement"]["nodes"]) == (
        RESOURCE,
        H100,
        sorted(nodes),
    )
    assert [engine(pod)["limits"][RESOURCE] for pod in models.pods()] == ["8", "8"]
    assert all("resourceClaims" not in pod["spec"] for pod in models.pods())
    assert all(
        pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] for pod in models.pods()
    )
    assert {node: len(devices) for node, devices in allocated(models).items()} == dict.fromkeys(
        nodes, 8
    )
    assert models.all("ResourceClaimTemplate") == []


@pytest.mark.usefixtures("claimed")
def test_pods_claim_devices_of_the_planned_product_where_none_does(
    models: Models, nodes: list[str]
) -> None:
    models.create("large", LARGE)
    plan = models.wait_ready("large")["status"]["plan"]

    assert (plan["resource"], plan["product"], plan["placement"]["nodes"]) == (
        RESOURCE,
        H100,
        sorted(nodes),
    )
    (template,) = models.all("ResourceClaimTemplate")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].productName == '{H100}'"}}
    assert request["exactly"] == {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": 8,
        "selectors": [selector],
    }
    assert [owner["name"] for owner in template["metadata"]["ownerReferences"]] == ["large"]
    for pod in models.pods():
        assert RESOURCE not in engine(pod)["limits"]
        assert pod["spec"]["resourceClaims"] == [
            {"name": "gpus", "resourceClaimTemplateName": template["metadata"]["name"]}
        ]
        assert engine(pod)["claims"] == [{"name": "gpus"}]
    assert {node: len(devices) for node, devices in allocated(models).items()} == dict.fromkeys(
        nodes, 8
    )


@pytest.mark.usefixtures("claimed")
def test_claim_templates_are_restored_replaced_and_deleted_with_their_model(models: Models) -> None:
    models.create("small", SMALL, **ONE_GPU)
    models.wait_ready("small")
    (before,) = models.all("ResourceClaimTemplate")
    name, label = before["metadata"]["name"], "app.kubernetes.io/instance"
    models.patch("ResourceClaimTemplate", name, {"metadata": {"labels": {label: "other"}}})
    wait_for(
        lambda: models.get("ResourceClaimTemplate", name)["metadata"]["labels"][label] == "small",
        30,
        "the label to be put right",
    )

    models.change("small", **TWO_GPUS)
    wait_for(
        lambda: models.find("ResourceClaimTemplate", name) is None,
        60,
        "the template of one GPU to go",
    )
    models.wait_ready("small")
    (after,) = models.all("ResourceClaimTemplate")
    assert after["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    wait_for(
        lambda: [len(devices) for devices in allocated(models).values()] == [2],
        30,
        "two devices to be claimed",
    )

    models.delete("ShardedModel", "small")
    wait_for(
        lambda: not models.all("ResourceClaimTemplate"),
        90,
        "the garbage collector to take the last template",
    )


@contextmanager
def holding(control_plane: ControlPlane, namespace: str, node: str) -> Iterator[None]:
    """With it a pod of somebody else has all GPUs of a node by a claim."""
    api, path = control_plane.api, f"{DRA}/namespaces/{namespace}/resourceclaims"
    exactly = {"deviceClassName": DRIVER, "allocationMode": "All"}
    claim = {
        "metadata": {"name": "theirs"},
        "spec": {"devices": {"requests": [{"name": "all", "exactly": exactly}]}},
    }
    pod = {
        "metadata": {"name": "theirs"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [{"name": "all", "resourceClaimName": "theirs"}],
            "containers": [{"name": "a", "image": "a", "resources": {"claims": [{"name": "all"}]}}],
        },
    }
    api.create(path, claim)
    api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    wait_for(
        lambda: api.get(f"{path}/theirs")["status"].get("allocation"),
        30,
        "the claim to be allocated",
    )
    try:
        yield
    finally:
        api.delete(f"/api/v1/namespaces/{namespace}/pods/theirs", grace_period_seconds=0)
        api.delete(f"{path}/theirs", missing_ok=True)


@pytest.mark.usefixtures("claimed")
def test_gpus_that_others_claim_are_not_planned_and_are_when_they_come_free(
    models: Models, control_plane: ControlPlane, namespace: str, nodes: list[str]
) -> None:
    hostname = control_plane.nodes.get(nodes[0])["metadata"]["labels"]["kubernetes.io/hostname"]
    with holding(control_plane, namespace, hostname):
        models.create("large", LARGE)
        wait_for(lambda: models.condition("large")["status"] == "False", 30, "the plan to wait")
        models.create("small", SMALL, **ONE_GPU)
        plan = models.wait_ready("small")["status"]["plan"]
        assert plan["placement"]["nodes"] == [nodes[1]]
        models.delete("ShardedModel", "small")
        wait_for(lambda: not models.pods()[1:], 60, "the pods of the small model to go")
        assert models.all("StatefulSet") == []
    models.wait_ready("large")


@pytest.mark.usefixtures("nodes")
def test_slices_of_one_profile_are_claimed_one_by_one_and_whole_gpus_by_others(
    models: Models, control_plane: ControlPlane, nodes: list[str]
) -> None:
    cut, whole = nodes
    slices = a_slice(cut, map(a_mig_device, range(14)))
    sliced = a_device_class(name=MIG_CLASS, kind="mig")
    with (
        gpu_devices(control_plane, [slices], sliced),
        gpu_devices(control_plane, [a_slice(whole)], a_device_class()),
    ):
        models.create("many", SMALLEST, replicas=14, **A_SLICE)
        models.create("whole", SMALL, **ONE_GPU)
        models.wait_ready("many")
        models.wait_ready("whole")
        assert {node: len(devices) for node, devices in allocated(models).items()} == {
            cut: 14,
            whole: 1,
        }
        assert all("nvidia.com" not in str(engine(pod)) for pod in models.pods())

        models.create("late", SMALLEST, **A_SLICE)
        models.wait_reason("late", "InsufficientCapacity")
        models.delete("ShardedModel", "many")
        models.wait_ready("late")
        models.delete_all("ShardedModel")


@pytest.mark.usefixtures("extended")
def test_a_pod_whose_tenant_names_its_node_takes_no_gpu_of_slices(
    models: Models, control_plane: ControlPlane, namespace: str, nodes: list[str]
) -> None:
    """Nobody asks whether it fits: no scheduler makes a claim, and the kubelet passes over it."""
    evil = Models(control_plane, control_plane.create_namespace(f"evil-{namespace}"[:60]))
    asking = {"name": "a", "image": "a", "resources": {"limits": {RESOURCE: "8"}}}
    for number, node in enumerate(nodes):
        spec = {"nodeName": node, "containers": [asking]}
        evil.post("Pod", {"metadata": {"name": f"takes-{number}"}, "spec": spec})
    models.create("large", LARGE)
    models.wait_ready("large")
    assert allocated(models).keys() == set(nodes)
    assert [pod["spec"]["nodeName"] for pod in evil.pods()] == nodes
    control_plane.api.delete(f"/api/v1/namespaces/{evil.namespace}")
