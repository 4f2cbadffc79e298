"""Killed, doubled, starved: the operator goes on from what the API server holds."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import SYSTEM, OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_an_operator_that_is_killed_while_a_group_is_at_zero_starts_it_again(
    chart: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models = Models(chart, namespace)
    with OperatorProcess(chart) as operator:
        models.create("large", LARGE)
        models.wait_ready("large")
        before = models.uids()
        models.change("large", engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
        wait_for(
            lambda: models.get("StatefulSet", "large-0")["spec"]["replicas"] == 0,
            15,
            "zero replicas",
            interval=0.01,
        )
        operator.kill()
        wait_for(lambda: models.pods() == [], 30, "all pods to be gone")

        operator.start()
        models.wait_ready("large")
        assert before.isdisjoint(models.uids())


def test_of_two_operators_one_leads_and_the_other_takes_over(
    chart: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models = Models(chart, namespace)
    with OperatorProcess(chart) as first:
        wait_for(first.leads, 30, "the first to lead")
        with OperatorProcess(chart, identity="operator-b") as second:
            models.create("before")
            models.wait_ready("before")
            assert not second.leads()
            assert queued(second) == 0

            first.kill()
            wait_for(second.leads, 25, "the second to lead")
            models.create("after")
            models.wait_ready("after")


def queued(operator: OperatorProcess) -> float:
    families = text_string_to_metric_families(operator.get("/metrics")[1])
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "shardwright_queue_depth"
    )


def test_a_leader_that_is_told_to_stop_exits_0_and_hands_over_at_once(chart: ControlPlane) -> None:
    with OperatorProcess(chart) as first:
        wait_for(first.leads, 30, "the first to lead")
        with OperatorProcess(chart, identity="operator-b") as second:
            assert first.stop() == 0
            wait_for(second.leads, 8, "the second to lead")


def test_two_models_never_get_the_same_last_gpus(
    chart: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models = Models(chart, namespace)
    with OperatorProcess(chart):
        models.create("one", LARGE)
        models.create("two", LARGE)
        wait_for(
            lambda: len({models.condition(name)["reason"] for name in ("one", "two")}) == 2,
            30,
            "two outcomes",
        )
        waiting = next(
            name
            for name in ("one", "two")
            if models.condition(name)["reason"] == "InsufficientCapacity"
        )
        serving = "two" if waiting == "one" else "one"
        models.wait_ready(serving)
        assert len(models.pods()) == 2

        models.delete("ShardedModel", serving)
        models.wait_ready(waiting)


def test_an_operator_that_may_not_list_pods_everywhere_says_so_and_serves_where_it_may(
    chart: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models = Models(chart, namespace)
    _narrow_account(chart)
    with OperatorProcess(chart, account="narrow"):
        models.create("small")
        message = models.wait_reason("small", "NotPermitted")["message"]
        assert message.startswith(f"the operator may not read namespace {namespace} ")
        assert 'cannot list resource "pods"' in message
        assert models.all("StatefulSet") == []

        pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
        here = f"{RBAC}/namespaces/{namespace}"
        chart.api.create(f"{here}/roles", {"metadata": {"name": "pods"}, "rules": [pods]})
        _bind(chart, here, "Role", "pods")
        models.wait_ready("small")

        assert models.condition("small", "Planned")["reason"] == "FreeCapacityUnknown"

        seen = models.get("ShardedModel", "small")["status"]
        chart.api.delete(f"{here}/rolebindings/narrow")
        models.annotate("small", restart="")  # a reconcile of it
        assert models.wait_reason("small", "NotPermitted")["status"] == "Unknown"
        now = models.get("ShardedModel", "small")["status"]
        assert {**now, "conditions": []} == {**seen, "conditions": []}
    _forget_narrow_account(chart)


def _narrow_account(chart: ControlPlane) -> None:
    """Make an account with the rights of the chart's, without a reconcile of the pods of all
    namespaces.
    """
    chart.api.create(
        f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": "narrow"}}
    )
    rules = chart.api.get(f"{RBAC}/clusterroles/shardwright")["rules"]
    fewer = [rule for rule in map(_without_pods, rules) if rule["resources"]]
    chart.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "narrow"}, "rules": fewer})
    _bind(chart, RBAC, "ClusterRole", "narrow")
    _bind(chart, f"{RBAC}/namespaces/{SYSTEM}", "Role", "shardwright-leader")


def _forget_narrow_account(chart: ControlPlane) -> None:
    for path in ("clusterrolebindings", f"namespaces/{SYSTEM}/rolebindings", "clusterroles"):
        chart.api.delete(f"{RBAC}/{path}/narrow")
    chart.api.delete(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/narrow")


def _without_pods(rule: Manifest) -> Manifest:
    lists = "list" in rule["verbs"]
    return {
        **rule,
        "resources": [name for name in rule["resources"] if not (lists and name == "pods")],
    }


def _bind(chart: ControlPlane, root: str, kind: str, role: str) -> None:
    subject = {"kind": "ServiceAccount", "name": "narrow", "namespace": SYSTEM}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    binding = {"metadata": {"name": "narrow"}, "subjects": [subject], "roleRef": reference}
    chart.api.create(f"{root}/{kind.lower()}bindings", binding)


def test_a_resource_that_is_nested_as_deeply_as_can_be_keeps_no_other_from_being_seen(
    models: Models, control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    fleet(H100, 2)
    models.create("good")
    models.wait_ready("good")
    good = models.get("ShardedModel", "good")
    kind = {"apiVersion": good["apiVersion"], "kind": good["kind"]}
    fields = '{"f:a":' * 9_900 + "{}" + "}" * 9_900
    managed = {
        "manager": "x",
        "operation": "Update",
        "apiVersion": good["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": "DEEP",
    }
    metadata = {"name": "deep", "namespace": namespace, "managedFields": [managed]}
    deep = json.dumps({**kind, "metadata": metadata, "spec": good["spec"]}).replace(
        '"DEEP"', fields
    )
    path = f"/apis/{good['apiVersion']}/namespaces/{namespace}/shardedmodels"
    stored = control_plane.kubectl("create", "--raw", path, "-f", "-", input=deep)
    assert stored.count("f:a") == 9_900
    models.create("after")
    models.wait_ready("after")
    control_plane.kubectl("delete", "shardedmodel", "deep", "-n", namespace, "--wait=false")
