"""Tenants that mean harm, on a real API server: with all rights of the edit role in their
namespace, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shardwright.reconcile.members import mounted_secrets
from shardwright.rendering.names import made_secret
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, SMALL, Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
A_NODE: dict[str, Any] = {
    "model": SMALL,
    "parallelism": {"tensor": 8, "pipeline": 1},
}  # all 8 GPUs of one node


def data_of(models: Models, name: str) -> Manifest:
    data: Manifest = models.get("ConfigMap", f"{name}-plan")["data"]
    return data


def edited(data: Manifest, **changes: Any) -> Manifest:
    """Return a record whose plan says something else, signed as it was."""
    record = json.loads(data["plan.json"])
    record["plan"] |= changes
    return {**data, "plan.json": json.dumps(record)}


def forgeries(good: Manifest, other: Manifest, nodes: list[str]) -> Iterator[tuple[str, Manifest]]:
    """Yield what a tenant makes of a plan of record: in the words of the review, and in others."""
    plan = json.loads(good["plan.json"])["plan"]
    yield "a group on each node", edited(good, groups=[[node] for node in nodes])
    yield (
        "2,147,483,647 pods a group",
        edited(good, nodes_per_replica=2**31 - 1, load_bytes_per_node=0),
    )
    yield (
        "another node",
        edited(good, groups=[[node] for node in nodes if [node] not in plan["groups"]][:1]),
    )
    yield "a device of somebody else", edited(good, resource="vendor.example/anything")
    yield ("options of the engine", edited(good, max_model_len=1, memory_utilization=0.01))
    yield "10,000,000 ranks", edited(good, layout={**plan["layout"], "tensor": 10**7})
    yield "no signature", {**edited(good, groups=[[nodes[-1]]]), "signature": None}
    yield (
        "a signature that it makes itself",
        {**edited(good, groups=[[nodes[-1]]]), "signature": "ab" * 32},
    )
    yield "the record of another model", other
    yield "levels without end", {**good, "plan.json": "[" * 500_000}


def test_whatever_a_tenant_makes_of_a_record_it_is_set_right_and_nothing_that_runs_changes(
    models: Models, fleet: Fleet, operator: OperatorProcess
) -> None:
    nodes = fleet(H100, 3)
    models.create("llama", **A_NODE)
    models.create("other", **A_NODE)
    models.wait_ready("other", timeout=90)
    models.wait_ready("llama", timeout=90)
    good, other, uids = (data_of(models, "llama"), data_of(models, "other"), models.uids())
    running = operator.running()

    for name, forged in forgeries(good, other, nodes):
        models.patch("ConfigMap", "llama-plan", {"data": forged})
        refused = wait_for(
            lambda: _true(models.condition("llama", "RecordRefused")), 30, f"{name} to be refused"
        )
        assert refused["reason"] == "PlanRecordRefused"
        assert models.condition("llama")["reason"] == "Serving"
        assert [item["metadata"]["name"] for item in models.all("StatefulSet")] == [
            "llama-0",
            "other-0",
        ], name
        assert models.uids() == uids, name
    models.patch("ConfigMap", "llama-plan", {"data": good})
    assert operator.running() == running


def _true(condition: Manifest) -> Manifest:
    return condition if condition["status"] == "True" else {}


def test_labels_annotations_and_owners_of_a_tenant_move_nothing_of_another_namespace(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("victim", **A_NODE)
    models.wait_ready("victim", timeout=90)
    uids, groups = (models.uids(), models.get("ShardedModel", "victim")["status"]["groups"])
    evil = Models(
        control_plane, control_plane.create_namespace(f"evil-{models.namespace}"[:60].rstrip("-"))
    )
    record = models.get("ConfigMap", "victim-plan")
    (owner,) = record["metadata"]["ownerReferences"]
    metadata = {
        "name": "victim-plan",
        "labels": record["metadata"]["labels"],
        "ownerReferences": [owner],
    }
    evil.post("ConfigMap", {"metadata": metadata, "data": {**record["data"], "plan.json": "{}"}})
    label = {"shardwright.io/model": "victim", "app.kubernetes.io/managed-by": "shardwright"}
    of_a_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "victim-0",
        "uid": owner["uid"],
        "controller": True,
    }
    forged = {**metadata, "name": "victim-0"}
    evil.post("Service", {"metadata": forged, "spec": {"ports": [{"port": 1}]}})
    evil.post("PodDisruptionBudget", {"metadata": forged, "spec": {"minAvailable": 0}})
    (live,) = models.all("StatefulSet")
    emptied = {**live["spec"], "replicas": 0}
    evil.post("StatefulSet", {"metadata": forged, "spec": emptied})
    assert live["metadata"]["name"] == "victim-0"
    of_a_set["uid"] = live["metadata"]["uid"]
    for name in ("victim-0-0", "victim-0-3000000000", "victim-7-0"):
        pod = {"metadata": {"name": name, "labels": label, "ownerReferences": [of_a_set]}}
        evil.post("Pod", pod | {"spec": {"containers": [{"name": "c", "image": "c"}]}})

    evil.create("late", **A_NODE)
    evil.wait_ready("late", timeout=90)

    assert (models.uids(), models.get("ShardedModel", "victim")["status"]["groups"]) == (
        uids,
        groups,
    )
    assert models.condition("victim", "RecordRefused")["status"] == "False"
    control_plane.api.delete(f"/api/v1/namespaces/{evil.namespace}")


def test_a_secret_that_a_tenant_makes_first_is_never_mounted_and_names_are_withheld(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models.create("llama", model=LARGE, paused=True)
    uid = models.get("ShardedModel", "llama")["metadata"]["uid"]
    foreseen = made_secret("llama", "token", uid)
    models.post(
        "Secret",
        {
            "metadata": {"name": foreseen},
            "type": "shardwright.io/group-token",
            "data": {"token": "bWluZQ=="},
        },
    )
    models.post(
        "ResourceQuota", {"metadata": {"name": "mine"}, "spec": {"hard": {"count/secrets": "1"}}}
    )
    counted = wait_for(
        lambda: models.get("ResourceQuota", "mine")["status"].get("used"), 30, "the quota to count"
    )
    assert counted == {"count/secrets": "1"}

    models.change("llama", paused=False)
    refused = models.wait_reason("llama", "ObjectRefused")["message"]
    assert 'secrets "(name withheld)" is forbidden: exceeded quota: mine' in refused
    models.delete("ResourceQuota", "mine")
    group = wait_for(lambda: models.find("StatefulSet", "llama-0") or {}, 60, "the group")

    (name,) = mounted_secrets(group["spec"]["template"]["spec"])
    assert (name == foreseen, name in refused) == (False, False)
    (owner,) = models.get("Secret", name)["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (uid, True)


def quota(models: Models, name: str, gpus: int, **spec: Any) -> None:
    models.post(
        "ResourceQuota",
        {
            "metadata": {"name": name},
            "spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}, **spec},
        },
    )


GREEDY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a budget that fills the cluster": ({"budget": {"gpus": 100_000, "fill": True}}, {}),
    "as many replicas as there are nodes": (
        {"replicas": 4, "parallelism": {"tensor": 8, "pipeline": 1}},
        {},
    ),
    "a quota of a scope": (A_NODE | {"replicas": 4}, {"scopes": ["NotTerminating"]}),
    "a plan that is made anew at each look": (A_NODE | {"replicas": 4, "replan": "Always"}, {}),
}


@pytest.mark.parametrize(("asked", "scopes"), GREEDY.values(), ids=GREEDY)
def test_who_may_use_no_gpu_holds_none_and_is_told_which_quota_says_so(
    models: Models,
    fleet: Fleet,
    control_plane: ControlPlane,
    asked: dict[str, Any],
    scopes: dict[str, Any],
) -> None:
    fleet(H100, 4)
    evil = Models(
        control_plane, control_plane.create_namespace(f"hog-{models.namespace}"[:60].rstrip("-"))
    )
    quota(evil, "none", 0, **scopes)
    wait_for(lambda: evil.get("ResourceQuota", "none")["status"]["hard"], 30, "the quota to count")
    evil.create("hog", **{"model": SMALL, **asked})
    refused = evil.wait_reason("hog", "QuotaExceeded", timeout=60)
    assert refused["message"].startswith("ResourceQuota none allows 0 requests.nvidia.com/gpu")
    assert [
        evil.find(kind, name)
        for kind, name in (("StatefulSet", "hog-0"), ("ConfigMap", "hog-plan"))
    ] == [None, None]

    models.create("victim", **A_NODE, replicas=4)
    assert models.wait_ready("victim", timeout=120)["status"]["readyReplicas"] == 4

    models.delete("ShardedModel", "victim")
    quota_path = f"/api/v1/namespaces/{evil.namespace}/resourcequotas/none"
    control_plane.api.patch(quota_path, {"spec": {"hard": {"requests.nvidia.com/gpu": "32"}}})
    evil.wait_ready("hog", timeout=120)
    control_plane.api.delete(f"/api/v1/namespaces/{evil.namespace}")


def test_pods_that_a_limit_range_keeps_out_hold_nothing(models: Models, fleet: Fleet) -> None:
    most = {"type": "Container", "max": {"nvidia.com/gpu": "4"}}
    models.post("LimitRange", {"metadata": {"name": "half"}, "spec": {"limits": [most]}})
    models.create("llama", **A_NODE)
    fleet(H100, 1)  # after the range: who plans before he has heard of it is refused by the server
    refused = models.wait_reason("llama", "QuotaExceeded", timeout=60)

    assert refused["message"].startswith("LimitRange half allows each container 4 nvidia.com/gpu")
    assert models.all("StatefulSet") == []
