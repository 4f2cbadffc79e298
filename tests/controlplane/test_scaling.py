"""Autoscalers scale ShardedModels through the scale subresource: the real HPA controller, and
KEDA's own definition.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.harness import build
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.autoscalers import shown
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict"}


def test_a_horizontal_pod_autoscaler_adds_and_removes_groups(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama")
    models.wait_ready("llama")
    path = f"/apis/autoscaling/v2/namespaces/{models.namespace}/horizontalpodautoscalers"
    autoscaler = shown("HorizontalPodAutoscaler")

    control_plane.api.request(
        "POST", path, {**autoscaler, "spec": autoscaler["spec"] | {"minReplicas": 2}}, query=STRICT
    )
    _wait_for_groups(models, 2)
    control_plane.api.patch(f"{path}/llama", {"spec": {"minReplicas": 1, "maxReplicas": 1}})
    _wait_for_groups(models, 1)

    said = control_plane.kubectl("events", "-n", models.namespace, "--for", "hpa/llama")
    assert "New size: 2; reason: Current number of replicas below Spec.MinReplicas" in said
    assert "New size: 1; reason: Current number of replicas above Spec.MaxReplicas" in said


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
def test_the_scaled_object_of_the_page_is_what_keda_defines(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"

    kept = control_plane.api.request("POST", path, shown("ScaledObject"), query=STRICT)

    assert kept["spec"] == shown("ScaledObject")["spec"]


def _wait_for_groups(models: Models, count: int) -> None:
    wait_for(
        lambda: models.get("ShardedModel", "llama")["status"].get("readyReplicas") == count,
        120,
        f"{count} ready groups",
    )


def _established(control_plane: ControlPlane, name: str) -> bool:
    conditions = control_plane.api.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or []
    return {"Established": "True"}.items() <= {
        item["type"]: item["status"] for item in conditions
    }.items()
