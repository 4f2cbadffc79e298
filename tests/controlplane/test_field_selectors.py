"""What `kubectl get smodel --field-selector` finds."""

from __future__ import annotations

import pytest

from shardwright.api.schema import SELECTABLE_FIELDS
from tests.harness.controlplane import ControlPlane
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

STATUS = {
    "small": {"layout": "TP1", "plan": {"pool": "l40s"}},
    "large": {"layout": "TP8·PP2", "plan": {"pool": "h100"}},
}


@pytest.fixture
def models(chart: ControlPlane, namespace: str) -> Models:
    """Two models of different ids, modes, pools and layouts, as an operator has said; none runs."""
    models = Models(chart, namespace)
    models.create("small", mode="PlanOnly")
    models.create("large", model={"id": "meta-llama/Llama-3.1-70B-Instruct"})
    for name, status in STATUS.items():
        path = f"/apis/shardwright.io/v1alpha1/namespaces/{namespace}/shardedmodels/{name}"
        chart.api.patch(f"{path}/status", {"status": status})
    return models


@pytest.mark.parametrize("path", SELECTABLE_FIELDS)
def test_models_are_found_by_each_field_that_can_be_selected(
    chart: ControlPlane, models: Models, path: str
) -> None:
    found = {}
    for name in STATUS:
        value = models.get("ShardedModel", name)
        for part in path.strip(".").split("."):
            value = value[part]
        found[name] = chart.kubectl(
            "get",
            "smodel",
            "-n",
            models.namespace,
            f"--field-selector={path.removeprefix('.')}={value}",
            "-o=name",
        ).split()

    assert found == {name: [f"shardedmodel.shardwright.io/{name}"] for name in STATUS}
