"""The upgrade of an API server from Kubernetes 1.36 to 1.37 under a model with gang
scheduling, as docs/howto/gang-scheduling.md has it: on one etcd, with the API servers of both.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import build
from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess, install_chart

H100 = "h100-8x-dell-xe9680"
OLD, NEW = "scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1"


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    """A cluster whose API server is of 1.36. Its controllers are of 1.37; no scheduler runs, for
    that of 1.37 does not work with an older API server.
    """
    with ControlPlane.start(
        features=["gang-scheduling-1.36"], api_server=build.api_server("1.36")
    ) as running:
        for name in ("kube-controller-manager", "kwok"):
            running.start_component(name)
        install_chart(running, "--set", "schedulers={Native}")
        yield running


def pod_groups(cluster: ControlPlane, version: str) -> list[Manifest]:
    return list(cluster.api.get(f"/apis/{version}/podgroups")["items"])


def bound_to_groups(models: Models) -> list[bool]:
    """Return of each pod whether it belongs to a PodGroup."""
    return ["schedulingGroup" in pod["spec"] for pod in models.pods()]


def released(cluster: ControlPlane, models: Models) -> bool:
    """Do as the controller of 1.36 does, which is not here: PodGroups that are deleted and that no
    pod names lose their finalizer. Return whether none is left.
    """
    groups = pod_groups(cluster, OLD)
    path = f"/apis/{OLD}/namespaces/{models.namespace}/podgroups"
    for group in groups:
        if "deletionTimestamp" in group["metadata"]:
            cluster.api.patch(
                f"{path}/{group['metadata']['name']}", {"metadata": {"finalizers": None}}
            )
    return not groups


def test_a_model_with_pod_groups_goes_through_the_upgrade_as_the_page_says(
    cluster: ControlPlane,
) -> None:
    Fleet(cluster)(H100, 2)
    models = Models(cluster, cluster.create_namespace("served"))
    with OperatorProcess(cluster):
        models.create("large", LARGE, placement={"scheduler": "Native"})
        wait_for(lambda: bound_to_groups(models) == [True] * 2, 60, "two pods of it")
        assert models.condition("large", "Planned")["reason"] == "GroupsOfAlphaApi"
        assert len(pod_groups(cluster, OLD)) == 1

        models.change("large", placement={"scheduler": "None"})
        wait_for(lambda: bound_to_groups(models) == [False] * 2, 90, "two other pods")
        wait_for(lambda: released(cluster, models), 60, "the old PodGroups to go")
        unharmed = models.uids()

    # Whoever cannot renew the Lease while no API server answers ends, and is started again.
    cluster.upgrade(["gang-scheduling"])
    cluster.start_component("kube-scheduler")
    with OperatorProcess(cluster):
        assert cluster.api.get("/version")["gitVersion"] == build.KUBERNETES_VERSION
        with pytest.raises(ApiError):
            pod_groups(cluster, OLD)
        models.wait_ready("large", timeout=90)
        assert models.uids() == unharmed

        models.change("large", placement={"scheduler": "Native"})
        (group,) = wait_for(lambda: pod_groups(cluster, NEW), 120, "a PodGroup of the new version")
        assert group["spec"]["disruptionMode"] == {"all": {}}
        wait_for(
            lambda: unharmed.isdisjoint(models.uids()) and len(models.pods()) == 2,
            90,
            "the pods of the group to be made anew",
        )
        models.wait_ready("large", timeout=90)
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in models.pods()} == {
            group["metadata"]["name"]
        }
