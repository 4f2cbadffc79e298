"""Autoscalers scale ShardedModels through the scale subresource: the real HPA controller, and
KEDA's own definition. A number that was planned is handed over to them, and taken back.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from shardwright.reconcile.drift import drifted_fields
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import Autoscaling
from shardwright.rendering.render import render
from tests.harness import build
from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.autoscalers import shown
from tests.support.builders_deployment import a_deployment, a_plan
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict"}
LOAD = {"requestsPerSecond": 20}
"""What four GPUs carry."""


def test_a_horizontal_pod_autoscaler_adds_and_removes_groups(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama", replicas=1)
    models.wait_ready("llama")
    path = _autoscale(models, control_plane, minReplicas=2)
    _wait_for_groups(models, 2)
    control_plane.api.patch(f"{path}/llama", {"spec": {"minReplicas": 1, "maxReplicas": 1}})
    _wait_for_groups(models, 1)

    said = control_plane.kubectl("events", "-n", models.namespace, "--for", "hpa/llama")
    assert "New size: 2; reason: Current number of replicas below Spec.MinReplicas" in said
    assert "New size: 1; reason: Current number of replicas above Spec.MaxReplicas" in said


def test_a_planned_number_is_handed_over_and_taken_back_and_no_group_restarts(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("llama", workload=LOAD)
    _wait_for_groups(models, 4)
    planned = _pods(models)
    with pytest.raises(ApiError, match=r"spec replicas field.+does not exist"):
        _scale(models, control_plane)
    hand_over, take_back = models.condition("llama", "ReplicasPlanned")["message"].split("`")[1::2]

    _run(control_plane, hand_over)
    wait_for(lambda: not _is_planned(models), 30, "the number to be handed over")
    assert (_scale(models, control_plane)["spec"], _pods(models)) == ({"replicas": 4}, planned)

    control_plane.kubectl("scale", "smodel/llama", "--replicas=5", "-n", models.namespace)
    _wait_for_groups(models, 5)
    assert _pods(models).items() > planned.items()

    _run(control_plane, take_back)
    _wait_for_groups(models, 4)
    assert (_is_planned(models), _pods(models)) == (True, planned)
    assert "replicas" not in models.get("ShardedModel", "llama")["spec"]


def test_an_autoscaler_leaves_a_planned_number_alone_and_goes_on_from_it_once_it_has_it(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("llama", workload=LOAD)
    _wait_for_groups(models, 4)
    planned = _pods(models)

    path = _autoscale(models, control_plane, minReplicas=1, maxReplicas=5)
    wait_for(lambda: _able(control_plane, f"{path}/llama") == "FailedGetScale", 60, "a failed read")
    assert (_is_planned(models), _pods(models)) == (True, planned)

    _run(control_plane, models.condition("llama", "ReplicasPlanned")["message"].split("`")[1])
    wait_for(lambda: _able(control_plane, f"{path}/llama") != "FailedGetScale", 60, "a read")
    assert (_scale(models, control_plane)["spec"], _pods(models)) == ({"replicas": 4}, planned)
    control_plane.api.patch(f"{path}/llama", {"spec": {"minReplicas": 5}})
    _wait_for_groups(models, 5)
    assert _pods(models).items() > planned.items()


@pytest.mark.parametrize("how", [[], ["--server-side"]], ids=["client side", "server side"])
def test_a_manifest_that_never_names_the_number_leaves_it_to_the_plan_or_to_who_has_it(
    how: list[str], models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    manifest = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": "llama", "namespace": models.namespace},
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "workload": LOAD},
    }

    def apply(**spec: Any) -> None:
        text = json.dumps(manifest | {"spec": manifest["spec"] | spec})  # type: ignore[operator]
        control_plane.kubectl("apply", *how, "-f", "-", input=text)

    apply()
    _wait_for_groups(models, 4)
    hand_over, take_back = models.condition("llama", "ReplicasPlanned")["message"].split("`")[1::2]
    _run(control_plane, hand_over)
    apply(replan="Always")
    assert models.get("ShardedModel", "llama")["spec"]["replicas"] == 4
    _run(control_plane, take_back)
    apply(replan="WhenInvalid")
    assert "replicas" not in models.get("ShardedModel", "llama")["spec"]


def test_an_autoscaler_counts_one_pod_for_each_group(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("llama", replicas=2, parallelism={"tensor": 8, "pipeline": 1})
    models.wait_ready("llama")

    scale = control_plane.api.get(
        f"/apis/shardwright.io/v1alpha1/namespaces/{models.namespace}/shardedmodels/llama/scale"
    )
    counted = control_plane.kubectl(
        "get", "pods", "-n", models.namespace, "-l", scale["status"]["selector"], "-o", "name"
    )

    assert sorted(counted.split()) == ["pod/llama-0-0", "pod/llama-1-0"]


@pytest.fixture
def keda(control_plane: ControlPlane) -> Iterator[None]:
    """KEDA's own definition of a ScaledObject."""
    file = build.keda_config() / "crd" / "bases" / "keda.sh_scaledobjects.yaml"
    definition = yaml.safe_load(file.read_text())
    name = definition["metadata"]["name"]
    control_plane.api.create(CRDS, definition)
    wait_for(lambda: _established(control_plane, name), 60, "the CRD of KEDA is established")
    yield
    control_plane.api.delete(f"{CRDS}/{name}")


@pytest.mark.usefixtures("keda")
def test_the_scaled_object_that_is_rendered_is_what_keda_defines(
    control_plane: ControlPlane, namespace: str
) -> None:
    scaling = Autoscaling(least=1, most=4, idle_seconds=1800, prometheus="http://prometheus:9090")
    owner = replace(a_deployment().owner, namespace=namespace)
    bundle = render(a_plan(), a_deployment(autoscaling=scaling, owner=owner))
    (rendered,) = of_kind(bundle.objects, "ScaledObject")
    path = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"

    kept = control_plane.api.request("POST", path, dict(rendered), query=STRICT)

    assert kept["spec"] == rendered["spec"]
    assert drifted_fields(rendered, kept) == ()


def test_who_names_a_number_that_is_an_autoscalers_is_warned_and_not_refused(
    models: Models, control_plane: ControlPlane
) -> None:
    def warned(name: str, **spec: Any) -> bool:
        body = {
            "apiVersion": "shardwright.io/v1alpha1",
            "kind": "ShardedModel",
            "metadata": {"name": name, "namespace": models.namespace},
            "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, **spec},
        }
        how = ("apply", "--warnings-as-errors", "-f", "-")
        said = control_plane.kubectl(*how, input=json.dumps(body), check=False)
        return "belongs to the autoscaler of spec.scaling" in said

    scaling = {"maxReplicas": 4}
    assert not warned("plain", replicas=0)
    assert not warned("scaled", scaling=scaling, mode="PlanOnly")
    assert warned("scaled", scaling=scaling, mode="PlanOnly", replicas=2)
    models.patch("ShardedModel", "scaled", {"spec": {"replan": "Always"}})
    assert not warned("scaled", scaling=scaling, mode="PlanOnly", replicas=2)
    assert models.get("ShardedModel", "scaled")["spec"]["replicas"] == 2


def _wait_for_groups(models: Models, count: int) -> None:
    def reached() -> bool:
        status = models.get("ShardedModel", "llama").get("status") or {}
        return status.get("replicas") == status.get("readyReplicas") == count

    wait_for(reached, 120, f"{count} ready groups")


def _pods(models: Models) -> dict[str, str]:
    found = (item["metadata"] for item in models.all("Pod"))
    return {item["name"]: item["uid"] for item in found if "deletionTimestamp" not in item}


def _is_planned(models: Models) -> bool:
    conditions = models.get("ShardedModel", "llama")["status"]["conditions"]
    return any((item["type"], item["status"]) == ("ReplicasPlanned", "True") for item in conditions)


def _run(control_plane: ControlPlane, command: str) -> None:
    """Run a command of kubectl that a condition shows."""
    program, *words = shlex.split(command)
    assert program == "kubectl"
    control_plane.kubectl(*words)


def _scale(models: Models, control_plane: ControlPlane) -> dict[str, Any]:
    path = f"/apis/shardwright.io/v1alpha1/namespaces/{models.namespace}/shardedmodels/llama/scale"
    found: dict[str, Any] = control_plane.api.get(path)
    return found


def _autoscale(models: Models, control_plane: ControlPlane, **spec: int) -> str:
    """Create the HPA of the page; return the path of autoscalers."""
    path = f"/apis/autoscaling/v2/namespaces/{models.namespace}/horizontalpodautoscalers"
    autoscaler = shown("HorizontalPodAutoscaler")
    changed = {**autoscaler, "spec": autoscaler["spec"] | spec}
    control_plane.api.request("POST", path, changed, query=STRICT)
    return path


def _able(control_plane: ControlPlane, path: str) -> str:
    conditions = control_plane.api.get(path).get("status", {}).get("conditions") or []
    return next((str(one["reason"]) for one in conditions if one["type"] == "AbleToScale"), "")


def _established(control_plane: ControlPlane, name: str) -> bool:
    conditions = control_plane.api.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or []
    return {"Established": "True"}.items() <= {
        item["type"]: item["status"] for item in conditions
    }.items()
