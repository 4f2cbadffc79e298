"""Telling schedulers of groups: the exact objects and fields of each, and nothing else."""

from typing import Any

import pytest

from shardwright.layouts.layout import Layout
from shardwright.rendering.bundle import (
    CONTENT_HASH,
    TEMPLATE_HASH,
    Bundle,
    content_hash,
    of_kind,
    template_hash,
)
from shardwright.rendering.deployment import Scheduling
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_trtllm_deployment,
    an_owner,
)

NATIVE = Scheduling(integration="Native", api_version="scheduling.k8s.io/v1alpha2")
KUEUE = Scheduling(integration="Kueue", api_version="kueue.x-k8s.io/v1beta2", queue="serving")
COSCHEDULING = Scheduling(integration="Coscheduling", api_version="scheduling.x-k8s.io/v1alpha1")
ALL = {one.integration: one for one in (NATIVE, KUEUE, COSCHEDULING)}


def rendered(scheduling: Scheduling | None, groups: int = 1) -> Bundle:
    plan = (
        a_plan()
        if groups == 1
        else a_plan_of(Layout(tensor=8, pipeline=2, replicas=groups), nodes=2)
    )
    return render(plan, a_deployment(scheduling=scheduling))


def pod_group(bundle: Bundle) -> dict[str, Any]:
    (found,) = of_kind(bundle.objects, "PodGroup")
    return dict(found)


def added(scheduling: Scheduling) -> dict[str, Any]:
    """Return what an adapter adds to the StatefulSet and its pods, hashes left out."""
    (plain,), (told,) = (
        of_kind(rendered(each).objects, "StatefulSet") for each in (None, scheduling)
    )
    return dict(_added(plain, told))


def _added(before: Any, after: Any, path: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in after.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            found += _added(before[key], value, where)
        elif before.get(key) != value and key not in (TEMPLATE_HASH, CONTENT_HASH):
            found.append((where, value))
    return found


def test_native_is_one_pod_group_that_the_pods_name() -> None:
    assert pod_group(rendered(NATIVE))["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert added(NATIVE) == {
        "spec.template.spec.schedulingGroup": {"podGroupName": "llama-405b-0-2"}
    }


def test_a_native_pod_group_of_another_size_is_another_one() -> None:
    """Kubernetes 1.36 allows no change of it."""
    larger = render(
        a_plan_of(Layout(tensor=8, pipeline=3), nodes=3), a_deployment(scheduling=NATIVE)
    )
    assert pod_group(larger)["metadata"]["name"] == "llama-405b-0-3"


BETA = Scheduling(integration="Native", api_version="scheduling.k8s.io/v1beta1")


@pytest.mark.parametrize(("priority", "digits"), [(None, "e35c5b17"), ("serving", "c4e3af92")])
def test_a_native_group_of_kubernetes_1_37_is_disrupted_whole_with_the_priority_of_its_pods(
    priority: str | None, digits: str
) -> None:
    bundle = render(a_plan(), a_deployment(scheduling=BETA, priority_class=priority))

    group, (pods,) = pod_group(bundle), of_kind(bundle.objects, "StatefulSet")
    fixed: dict[str, Any] = {"disruptionMode": {"all": {}}} | (
        {"priorityClassName": priority} if priority else {}
    )
    assert group["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}, **fixed}
    assert group["metadata"]["name"] == f"llama-405b-0-2-{digits}"
    assert pods["spec"]["template"]["spec"]["schedulingGroup"] == {
        "podGroupName": f"llama-405b-0-2-{digits}"
    }


def test_coscheduling_is_one_pod_group_and_a_scheduler_that_has_the_plugin() -> None:
    assert pod_group(rendered(COSCHEDULING))["spec"] == {
        "minMember": 2,
        "scheduleTimeoutSeconds": 60,
    }
    assert added(COSCHEDULING) == {
        "spec.template.metadata.labels.scheduling.x-k8s.io/pod-group": "llama-405b-0",
        "spec.template.spec.schedulerName": "scheduler-plugins-scheduler",
    }


def test_kueue_is_told_by_a_label_and_makes_its_group_itself() -> None:
    assert of_kind(rendered(KUEUE).objects, "PodGroup") == ()
    assert added(KUEUE) == {
        "metadata.labels.kueue.x-k8s.io/queue-name": "serving",
        "spec.template.metadata.annotations.shardwright.io/queue": "serving",
    }


@pytest.mark.parametrize("name", [name for name in ALL if name != "Kueue"])
def test_every_group_has_a_pod_group_of_its_own_that_comes_before_its_pods(name: str) -> None:
    kinds = [
        (item["kind"], item["metadata"]["name"])
        for item in rendered(ALL[name], groups=2).objects[-4:]
    ]
    suffix = "-2" if name == "Native" else ""
    assert kinds == [
        ("PodGroup", f"llama-405b-0{suffix}"),
        ("StatefulSet", "llama-405b-0"),
        ("PodGroup", f"llama-405b-1{suffix}"),
        ("StatefulSet", "llama-405b-1"),
    ]


@pytest.mark.parametrize("name", [name for name in ALL if name != "Kueue"])
def test_a_pod_group_is_owned_labelled_and_hashed_as_everything_else(name: str) -> None:
    bundle = rendered(ALL[name])
    (group,) = of_kind(bundle.objects, "StatefulSet")
    metadata = pod_group(bundle)["metadata"]
    assert pod_group(bundle)["apiVersion"] == ALL[name].api_version
    assert (metadata["namespace"], metadata["labels"]) == ("models", group["metadata"]["labels"])
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [an_owner().uid]
    assert metadata["annotations"] == {CONTENT_HASH: content_hash(pod_group(bundle))}


@pytest.mark.parametrize("name", ALL)
def test_pods_that_are_told_of_a_scheduler_are_of_another_revision(name: str) -> None:
    (plain,), (told,) = (
        of_kind(rendered(each).objects, "StatefulSet") for each in (None, ALL[name])
    )
    template = told["spec"]["template"]
    bare = {
        key: value for key, value in template["metadata"]["labels"].items() if key != TEMPLATE_HASH
    }
    expected = template_hash({**template, "metadata": {**template["metadata"], "labels": bare}})
    assert (
        template["metadata"]["labels"][TEMPLATE_HASH]
        == expected
        == told["metadata"]["annotations"][TEMPLATE_HASH]
    )
    assert expected != plain["metadata"]["annotations"][TEMPLATE_HASH]
    assert told["metadata"]["annotations"][CONTENT_HASH] == content_hash(told)


@pytest.mark.parametrize("name", ALL)
def test_the_nodes_stay_those_of_the_plan(name: str) -> None:
    (plain,), (told,) = (
        of_kind(rendered(each).objects, "StatefulSet") for each in (None, ALL[name])
    )
    assert (
        told["spec"]["template"]["spec"]["affinity"]
        == plain["spec"]["template"]["spec"]["affinity"]
    )


@pytest.mark.parametrize("name", ALL)
def test_nothing_but_the_groups_changes(name: str) -> None:
    def others(bundle: Bundle) -> list[Any]:
        return [item for item in bundle.objects if item["kind"] not in ("StatefulSet", "PodGroup")]

    assert others(rendered(ALL[name])) == others(rendered(None))


@pytest.mark.parametrize("scheduling", ALL.values(), ids=ALL)
def test_a_key_of_the_ranks_is_made_whatever_scheduler_is_told(scheduling: Scheduling) -> None:
    plain, told = (
        render(a_plan(), a_trtllm_deployment(scheduling=one)) for one in (None, scheduling)
    )
    assert len(plain.keys) == 2
    assert told.keys == plain.keys
