"""The pod of `helm test`: valid, apart from the operator's own, under the account whose rights it
asks for, and with no object beside it.
"""

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import CHART, SYSTEM, named, read, render


@pytest.fixture(scope="module")
def pod(control_plane: ControlPlane) -> Manifest:
    only = ("--show-only", "templates/tests/installed.yaml")
    (only_one,) = read(
        control_plane.helm(
            "template", "shardwright", str(CHART), "--namespace", SYSTEM, *only, *NAMED
        )
    )
    return only_one


def test_helm_test_is_one_valid_pod_made_for_a_test_alone(pod: Manifest) -> None:
    kubernetes_validate.validate(pod, "1.34.0", strict=True)

    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_the_pod_of_helm_test_has_the_account_that_it_asks_for(
    control_plane: ControlPlane, pod: Manifest
) -> None:
    operator = named(render(control_plane), "Deployment")["spec"]["template"]["spec"]
    account = operator["serviceAccountName"]

    assert pod["spec"]["serviceAccountName"] == account
    assert f"--account={account}" in pod["spec"]["containers"][0]["args"]


def test_no_service_and_no_budget_takes_it_for_the_operators(
    control_plane: ControlPlane, pod: Manifest
) -> None:
    selector = named(render(control_plane), "Service")["spec"]["selector"]

    assert not selector.items() <= pod["metadata"]["labels"].items()


def test_the_pod_of_helm_test_asks_the_port_of_the_probes(
    control_plane: ControlPlane, pod: Manifest
) -> None:
    service = named(render(control_plane), "Service")
    (health,) = (entry["port"] for entry in service["spec"]["ports"] if entry["name"] == "health")

    address = (
        f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{health}"
        "/readyz"
    )
    assert f"--ready-url={address}" in pod["spec"]["containers"][0]["args"]
