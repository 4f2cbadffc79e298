"""The pods of `helm test`: valid, apart from the operator's own, and each under the account whose
rights it asks for.
"""

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import CHART, SYSTEM, named, read, render


@pytest.fixture(scope="module")
def hooks(control_plane: ControlPlane) -> list[Manifest]:
    only = ("--show-only", "templates/tests/installed.yaml")
    return read(
        control_plane.helm(
            "template", "shardwright", str(CHART), "--namespace", SYSTEM, *only, *NAMED
        )
    )


def test_the_hooks_of_helm_test_are_valid_and_made_for_a_test_alone(
    hooks: list[Manifest],
) -> None:
    for item in hooks:
        kubernetes_validate.validate(item, "1.34.0", strict=True)

    assert {item["metadata"]["annotations"]["helm.sh/hook"] for item in hooks} == {
        "test"
    }


def test_each_pod_has_the_account_that_it_asks_for(hooks: list[Manifest]) -> None:
    pods = {
        item["metadata"]["name"]: item["spec"]["serviceAccountName"]
        for item in hooks
        if item["kind"] == "Pod"
    }

    assert pods == {
        "shardwright-test-rights": "shardwright",
        "shardwright-test": "shardwright-test",
    }
    roles = {
        item["metadata"]["namespace"]: item["rules"]
        for item in hooks
        if item["kind"] == "Role"
    }
    assert roles == {
        SYSTEM: [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": ["shardwright"],
                "verbs": ["get"],
            }
        ],
        "default": [
            {
                "apiGroups": ["shardwright.io"],
                "resources": ["shardedmodels"],
                "verbs": ["get", "create", "delete"],
            }
        ],
    }


def test_the_namespace_of_the_model_is_that_of_the_value(
    control_plane: ControlPlane,
) -> None:
    only = (
        "--show-only",
        "templates/tests/installed.yaml",
        "--set=test.namespace=models",
    )
    hooks = read(
        control_plane.helm(
            "template", "shardwright", str(CHART), "--namespace", SYSTEM, *only, *NAMED
        )
    )
    (container,) = named(hooks, "Pod", "shardwright-test")["spec"]["containers"]

    assert named(hooks, "Role", "-models")["metadata"]["namespace"] == "models"
    assert named(hooks, "RoleBinding", "-models")["metadata"]["namespace"] == "models"
    assert "--models-namespace=models" in container["args"]


def test_no_service_and_no_budget_takes_them_for_the_operators(
    control_plane: ControlPlane, hooks: list[Manifest]
) -> None:
    selector = named(render(control_plane), "Service")["spec"]["selector"]

    assert [
        item for item in hooks if selector.items() <= item["metadata"]["labels"].items()
    ] == []


def test_the_pod_of_helm_test_asks_the_port_of_the_probes(
    control_plane: ControlPlane, hooks: list[Manifest]
) -> None:
    service = named(render(control_plane), "Service")
    (health,) = (
        entry["port"] for entry in service["spec"]["ports"] if entry["name"] == "health"
    )
    (container,) = named(hooks, "Pod", "shardwright-test")["spec"]["containers"]

    address = (
        f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{health}"
        "/readyz"
    )
    assert f"--ready-url={address}" in container["args"]
