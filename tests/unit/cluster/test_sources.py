"""What is kept of each object: enough to decide by, small, and equal as long as nothing that
matters has changed.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from shardwright.cluster.resources import SERVICES, STATEFUL_SETS
from shardwright.cluster.sources import (
    CHILD_MAX_BYTES,
    ConfigMapFacts,
    PodFacts,
    node_source,
    project_child,
    project_config_map,
    project_node,
    project_pod,
)
from shardwright.hardware.gpus import NONE
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import BareNode, GpuUsage, read_node
from shardwright.reconcile.members import read_member
from shardwright.reconcile.observed import controller_uid
from tests.support.builders_nodes import a_node
from tests.support.builders_store import a_config_map, a_pod, a_service, a_set


def test_of_a_node_the_facts_are_kept_and_equal_texts_once() -> None:
    first, second = (
        project_node(copy.deepcopy(a_node("a"))),
        project_node(json.loads(json.dumps(a_node("a")))),
    )
    assert first == second == read_node(a_node("a"))
    assert first is not None
    assert not isinstance(first, NodeExclusion)
    assert second is not None
    assert not isinstance(second, NodeExclusion)
    assert all(
        mine is yours
        for mine, yours in zip(first.labels.values(), second.labels.values(), strict=True)
    )
    assert first.name is second.name


def test_of_a_node_without_gpus_enough_is_kept_to_read_its_slices_with() -> None:
    found = project_node(
        {"metadata": {"name": "cpu", "labels": {"a": "b"}}, "status": {"images": ["large"]}}
    )
    assert isinstance(found, BareNode)
    assert (found.entry, found.raw.labels, found.raw.status) == (
        None,
        {"a": "b"},
        {"conditions": [], "nodeInfo": {"architecture": None}},
    )


def test_a_node_that_cannot_be_read_is_excluded_and_says_so() -> None:
    excluded = node_source(NONE).stand_in(("", "odd"))
    assert isinstance(excluded, NodeExclusion)
    assert (excluded.node, excluded.problem.code) == ("odd", "LabelsImplausible")


def test_of_a_foreign_pod_the_gpus_it_holds_are_kept() -> None:
    usage = GpuUsage(node="a", resource="nvidia.com/gpu", gpus=8)
    assert project_pod(a_pod("foreign", node="a", gpus=8)) == PodFacts(usage=(usage,))


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("no-gpus", node="a"),
        a_pod("not-placed", gpus=8),
        a_pod("theirs-0", set_name="theirs", node="a"),
    ],
    ids=["no GPUs", "not placed", "of another StatefulSet"],
)
def test_of_a_foreign_pod_that_holds_none_nothing_is_kept(pod: dict[str, Any]) -> None:
    assert project_pod(pod) is None


def test_a_member_is_what_a_stateful_set_controls_by_its_uid() -> None:
    pod = a_pod("llama-0-1", model="llama", set_name="llama-0", node="a", gpus=8)
    usage = GpuUsage(
        node="a", resource="nvidia.com/gpu", gpus=8, owner=("models", "llama"), group="llama-0"
    )
    assert project_pod(pod) == PodFacts(
        usage=(usage,), model="llama", set_uid="uid-of-llama-0", member=read_member(pod)
    )


def test_a_pod_of_ours_that_has_failed_is_kept_and_holds_nothing() -> None:
    pod = a_pod("llama-0-1", model="llama", set_name="llama-0", node="a", gpus=8)
    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "disk"}
    kept = project_pod(pod)
    assert kept is not None
    assert kept.usage == ()
    assert kept.member is not None
    assert kept.member.failure is not None
    assert kept.member.failure.reason == "Evicted"


@pytest.mark.parametrize(
    "name",
    [
        "large-0-999999999",
        "large-0-10000",
        "large-0-07",
        "large-0-٣",
        "large-0-",
        "large-0",
        "large-1-0",
        "other",
    ],
)
def test_a_name_that_its_stateful_set_does_not_give_makes_no_member(name: str) -> None:
    kept = project_pod(a_pod(name, model="large", set_name="large-0"))
    assert kept == PodFacts(model="large", set_uid="uid-of-large-0")


def test_an_owner_that_does_not_control_makes_no_member() -> None:
    pod = a_pod("large-0-7", model="large", set_name="large-0")
    del pod["metadata"]["ownerReferences"][0]["controller"]
    assert project_pod(pod) == PodFacts(model="large")


@pytest.mark.parametrize("changed", [{"kind": "ReplicaSet"}, {"apiVersion": "apps.example.com/v1"}])
def test_a_controller_of_another_kind_makes_no_member(changed: dict[str, str]) -> None:
    pod = a_pod("large-0-7", model="large", set_name="large-0")
    pod["metadata"]["ownerReferences"][0] |= changed
    assert project_pod(pod) == PodFacts(model="large")


def test_a_member_is_read_by_its_controller_whoever_else_owns_it() -> None:
    pod = a_pod("large-0-7", model="large", set_name="large-0")
    other = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "large-0-7", "uid": "forged"}
    pod["metadata"]["ownerReferences"].insert(0, other)
    kept = project_pod(pod)
    assert kept is not None
    assert kept.member is not None
    assert (kept.member.group, kept.member.rank, kept.set_uid) == ("large-0", 7, "uid-of-large-0")


def test_of_a_child_everything_is_kept_but_what_others_report() -> None:
    live = a_set("llama-0", version=7)
    live["metadata"] |= {"managedFields": [{"manager": "x"}], "labels": {"a": "b"}, "generation": 3}
    child = project_child(
        STATEFUL_SETS,
        {key: value for key, value in live.items() if key not in {"apiVersion", "kind"}},
    )
    content = child.content()
    assert content["metadata"].pop("ownerReferences") == live["metadata"]["ownerReferences"]
    assert content == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "llama-0",
            "namespace": "models",
            "uid": "uid-of-llama-0",
            "labels": {"a": "b"},
            "generation": 3,
        },
        "spec": {"replicas": 2},
    }
    assert (child.kind, child.namespace, child.name, child.uid) == (
        "StatefulSet",
        "models",
        "llama-0",
        "uid-of-llama-0",
    )
    assert (child.owner, child.owner_uid, child.version) == ("llama", "uid-of-llama", 7)


def test_a_status_that_changes_is_no_change_of_a_child_and_anything_else_is() -> None:
    before, reported, scaled = (
        a_set("llama-0", version=7),
        a_set("llama-0", version=8),
        a_set("llama-0", replicas=3),
    )
    reported["status"] = {"readyReplicas": 1}
    reported["metadata"]["managedFields"] = [{"manager": "kube-controller-manager"}]
    assert project_child(STATEFUL_SETS, reported) == project_child(STATEFUL_SETS, before)
    assert project_child(STATEFUL_SETS, scaled) != project_child(STATEFUL_SETS, before)


def test_an_object_that_no_sharded_model_of_ours_controls_has_no_owner() -> None:
    theirs = a_set("llama-0")
    theirs["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    child = project_child(STATEFUL_SETS, theirs)
    assert (child.owner, child.owner_uid) == ("", "")


def test_of_an_object_that_is_not_ours_no_more_is_kept_than_that_it_is_there() -> None:
    found = a_set("llama-0", version=7)
    found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "shardwright", "odd": "x"}
    found["metadata"]["annotations"] = {"theirs": "x" * CHILD_MAX_BYTES}
    found["metadata"]["ownerReferences"] = []

    child = project_child(STATEFUL_SETS, found)

    labels = {"app.kubernetes.io/managed-by": "shardwright"}
    assert child.content() == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "llama-0",
            "namespace": "models",
            "uid": "uid-of-llama-0",
            "labels": labels,
        },
        "spec": {},
    }
    assert (child.name, child.owner, child.owner_uid, child.version) == ("llama-0", "", "", 7)


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_an_object_of_ours_that_others_have_filled_stays_ours_without_what_they_have_written(
    field: str,
) -> None:
    found = a_set("llama-0", version=7)
    whole = project_child(STATEFUL_SETS, found).content()
    found["metadata"].setdefault(field, {})
    theirs = {f"others.example/{number}": "x" * 50 for number in range(CHILD_MAX_BYTES // 50)}
    found["metadata"][field] = {"shardwright.io/size": "2", **theirs}
    whole["metadata"][field] = {"shardwright.io/size": "2"}

    child = project_child(STATEFUL_SETS, found)

    assert child.content() == whole
    assert (child.owner, child.owner_uid) == ("llama", "uid-of-llama")
    assert child.excess.endswith(f" bytes in metadata.{field} are not ours")


def test_of_one_whose_template_is_filled_what_nobody_can_change_is_kept_and_the_rest_differs() -> (
    None
):
    found = a_set("llama-0", version=7)
    labels = {"shardwright.io/template-hash": "abc"}
    fixed = {"replicas": 2, "serviceName": "llama-0-hosts", "podManagementPolicy": "Parallel"}
    env = [{"name": f"N{number}", "value": "x" * 50} for number in range(CHILD_MAX_BYTES // 50)]
    template = {
        "metadata": {"labels": {**labels, "theirs": "x"}},
        "spec": {"containers": [{"name": "engine", "env": env}]},
    }
    found["spec"] = {**fixed, "template": template}

    child = project_child(STATEFUL_SETS, found)

    assert child.content()["spec"] == {
        **fixed,
        "template": {"metadata": {"labels": labels}, "spec": {}},
    }
    assert (child.owner_uid, child.excess.partition(" ")[2]) == (
        "uid-of-llama",
        "bytes, and more in its spec than is ours",
    )


def test_an_object_filled_with_empty_values_is_small_in_memory_too() -> None:
    """80,000 empty objects are 240 kB of JSON, and 6 MB as Python values: a look at 80 of them took
    all memory of the operator.
    """
    found = a_service("llama")
    found["spec"] = {"ports": [{}] * 80_000}

    child = project_child(SERVICES, found)

    assert child.content()["spec"] == {}
    assert child.excess.endswith(" bytes, and more in its spec than is ours")


def test_an_object_whose_texts_have_many_commas_is_kept_as_it_is() -> None:
    """A list in an argument is one value, however long, and with quotes in it too."""
    found = a_service("llama")
    found["spec"] = {"args": ['--sizes={"a\\":[1,2]' * 1_500] * 5}

    child = project_child(SERVICES, found)

    assert (child.content()["spec"], child.excess) == (found["spec"], "")


def test_of_a_foreign_object_in_the_way_it_is_kept_whether_anybody_controls_it() -> None:
    theirs = a_service("llama")
    theirs["metadata"]["ownerReferences"][0]["kind"] = "Website"
    found = {
        name: controller_uid(project_child(SERVICES, content).content())
        for name, content in (("theirs", theirs), ("nobodys", a_service("llama", owner="")))
    }
    assert found == {"theirs": "", "nobodys": None}


def test_of_a_config_map_its_identity_version_and_owner_are_kept() -> None:
    assert project_config_map(a_config_map("c", version=9)) == ConfigMapFacts(
        uid="uid-of-c", version="9"
    )
    owned = ConfigMapFacts(uid="uid-of-c", version="9", owner="llama", owner_uid="uid-of-llama")
    assert project_config_map(a_config_map("c", "llama", version=9)) == owned
