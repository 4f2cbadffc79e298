"""Kueue and Coscheduling: exact fields and the operator's side of it. None of their
controllers runs here.

CustomResourceDefinitions with the fields that we write stand in for theirs, an admission policy for
Kueue's gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, SMALL, Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GATE = "kueue.x-k8s.io/admission"
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}


def a_crd(api: str, kind: str, **fields: Any) -> Manifest:
    """Return a CustomResourceDefinition whose spec has these fields and drops all others."""
    group, _, version = api.partition("/")
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": fields}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    approved = {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approved},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": versions},
    }


class Installed:
    """Definitions of one test; they are gone afterwards."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._cp = control_plane
        self._names: list[str] = []

    def __call__(self, crd: Manifest) -> None:
        self._names.append(crd["metadata"]["name"])
        self._cp.api.create(CRDS, crd)
        wait_for(
            lambda: self._established(crd["metadata"]["name"]), 30, "the resource to be served"
        )

    def widen(self, crd: Manifest) -> None:
        """Replace a definition, as an upgrade would."""
        self._cp.api.patch(
            f"{CRDS}/{crd['metadata']['name']}", {"spec": {"versions": crd["spec"]["versions"]}}
        )

    def remove(self) -> None:
        for name in self._names:
            self._cp.api.delete(f"{CRDS}/{name}")
            wait_for(partial(self._lacks, name), 60, "the resource to be gone")

    def _lacks(self, name: str) -> bool:
        return name not in self._all()

    def _all(self) -> set[str]:
        return {item["metadata"]["name"] for item in self._cp.api.get(CRDS)["items"]}

    def _established(self, name: str) -> bool:
        conditions = self._cp.api.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or ()
        return any(
            item["type"] == "Established" and item["status"] == "True" for item in conditions
        )


@pytest.fixture
def install(gated: ControlPlane) -> Iterator[Installed]:
    installed = Installed(gated)
    yield installed
    installed.remove()


COSCHEDULING = a_crd(
    "scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=INTEGER, scheduleTimeoutSeconds=INTEGER
)
OLD_COSCHEDULING = a_crd("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=INTEGER)
QUEUES = a_crd("kueue.x-k8s.io/v1beta2", "LocalQueue", clusterQueue=TEXT)


def pod_group(gated: ControlPlane, api: str, namespace: str) -> Manifest:
    (found,) = gated.api.get(f"/apis/{api}/namespaces/{namespace}/podgroups")["items"]
    return dict(found)


def test_a_scheduler_that_is_not_there_is_named_and_found_when_it_has_been_installed(
    gated: ControlPlane, gangs: Models, nodes: Fleet, install: Installed
) -> None:
    nodes(H100, 2)
    gangs.create("large", LARGE, placement={"scheduler": "Coscheduling"})
    unavailable = gangs.wait_reason("large", "SchedulerUnavailable")
    assert "install scheduler-plugins" in unavailable["message"]
    assert gangs.condition("large", "Stalled")["status"] == "True"
    assert gangs.all("StatefulSet") == []

    install(COSCHEDULING)
    wait_for(lambda: len(gangs.pods()) == 2, 90, "the pods of the group")
    group = pod_group(gated, "scheduling.x-k8s.io/v1alpha1", gangs.namespace)
    assert group["metadata"]["name"] == "large-0"
    (pod, _) = gangs.pods()
    assert pod["spec"]["schedulerName"] == "scheduler-plugins-scheduler"


def test_a_field_that_an_old_definition_drops_stalls_the_model_until_it_is_upgraded(
    gated: ControlPlane, gangs: Models, nodes: Fleet, install: Installed
) -> None:
    install(OLD_COSCHEDULING)
    nodes(H100, 2)
    gangs.create("large", LARGE, placement={"scheduler": "Coscheduling", "schedulerName": "gangs"})
    dropped = gangs.wait_reason("large", "FieldDropped", timeout=60)
    assert "PodGroup large-0 must be stored as it is sent" in dropped["message"]
    assert "the API server drops spec.scheduleTimeoutSeconds" in dropped["message"]
    assert gangs.condition("large", "Stalled")["status"] == "True"
    assert gangs.pods() == []

    install.widen(COSCHEDULING)
    wait_for(lambda: len(gangs.pods()) == 2, 90, "the pods of the group")
    group = pod_group(gated, "scheduling.x-k8s.io/v1alpha1", gangs.namespace)
    assert group["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 60}
    (pod, _) = gangs.pods()
    assert (
        pod["spec"]["schedulerName"],
        pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"],
    ) == ("gangs", "large-0")


def test_a_group_waits_for_its_quota_at_its_start_and_at_each_restart_and_no_wait_is_a_failure(
    gated: ControlPlane, gangs: Models, nodes: Fleet, install: Installed
) -> None:
    install(QUEUES)
    nodes(H100, 2)
    gate_pods(gated, gangs.namespace)
    gangs.create(
        "large", LARGE, placement={"scheduler": "Kueue", "queue": "serving"}, restart={"budget": 0}
    )
    wait_for(lambda: len(gangs.pods()) == 2, 60, "the pods of the group")
    waiting = gangs.wait_reason("large", "WaitingForQuota")
    assert f"held back by {GATE}" in waiting["message"]
    assert gangs.condition("large", "Reconciling")["status"] == "True"
    assert (
        gangs.get("StatefulSet", "large-0")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        == "serving"
    )

    admit(gated, gangs)
    gangs.wait_ready("large")
    before = gangs.uids()
    gated.pods.evict_by_kubelet(gangs.namespace, "large-0-1")
    wait_for(lambda: before.isdisjoint(gangs.uids()) and len(gangs.pods()) == 2, 60, "two new pods")
    gangs.wait_reason("large", "WaitingForQuota")
    admit(gated, gangs)
    assert gangs.wait_ready("large")["status"]["groups"][0]["restarts"] == 1


ADD_GATE = (
    f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}'
    '"}]}}'
)


def gate_pods(gated: ControlPlane, namespace: str) -> None:
    """Hold back every new pod of a namespace, as Kueue's webhook does for what is in a queue."""
    policy = {
        "metadata": {"name": namespace},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
            },
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": ADD_GATE}}
            ],
        },
    }
    gated.api.create(f"{ADMISSION}/mutatingadmissionpolicies", policy)
    binding = {"metadata": {"name": namespace}, "spec": {"policyName": namespace}}
    gated.api.create(f"{ADMISSION}/mutatingadmissionpolicybindings", binding)
    wait_for(lambda: is_gated(gated, namespace), 30, "the policy to be in force")


def is_gated(gated: ControlPlane, namespace: str) -> bool:
    pod = {"metadata": {"name": "asked"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    return (
        "schedulingGates" in gated.api.request("POST", path, pod, query={"dryRun": "All"})["spec"]
    )


def admit(gated: ControlPlane, models: Models) -> None:
    """Lift the gates of all pods, as Kueue does when there is quota."""
    for pod in models.pods():
        path = f"/api/v1/namespaces/{models.namespace}/pods/{pod['metadata']['name']}"
        gated.api.patch(path, {"spec": {"schedulingGates": None}})


def test_a_model_of_one_pod_needs_no_group_but_its_queue(
    gangs: Models, nodes: Fleet, install: Installed
) -> None:
    install(QUEUES)
    nodes(H100, 1)
    gangs.create("small", SMALL, placement={"scheduler": "Kueue", "queue": "serving"})
    gangs.wait_ready("small")
    assert (
        gangs.get("StatefulSet", "small-0")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        == "serving"
    )
