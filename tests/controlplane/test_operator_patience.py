"""What is so for a moment only moves nothing and is said now and then: the operator's clock runs as
any other here.
"""

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models, status_writes
from tests.support.places import nodes_of, wait_stale, wait_stays

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


@pytest.fixture
def spare(models: Models, fleet: Fleet) -> Models:
    """The models of a cluster with one node more than LARGE needs."""
    fleet(H100, 3)
    return models


def test_a_planned_node_that_is_deleted_and_comes_back_within_the_grace_moves_nothing(
    spare: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    spare.create("large", LARGE)
    before = nodes_of(spare)
    (pod,) = (
        pod["metadata"]["name"] for pod in spare.pods() if pod["spec"]["nodeName"] == before[1]
    )

    control_plane.nodes.delete(before[1])
    control_plane.api.delete(
        f"/api/v1/namespaces/{spare.namespace}/pods/{pod}", grace_period_seconds=0
    )  # as its collection does
    wait_stays(spare, before[1])
    wait_stale(spare, before[1])

    fleet(H100, 1, first=int(before[1].rpartition("-")[2]))
    assert sorted(nodes_of(spare)) == sorted(before)


def test_a_label_that_comes_and_goes_moves_nothing_and_is_said_now_and_then(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 1)
    models.create("llama", parallelism={"tensor": 8})
    (node,) = models.wait_ready("llama")["status"]["plan"]["placement"]["nodes"]
    label, before, written = (
        "nvidia.com/gpu.product",
        models.uids(),
        status_writes(control_plane, models.namespace),
    )
    product = control_plane.nodes.get(node)["metadata"]["labels"][label]

    for number in range(60):
        changed = {"metadata": {"labels": {label: product if number % 2 else "another"}}}
        control_plane.api.patch(f"/api/v1/nodes/{node}", changed)
    wait_for(
        lambda: models.condition("llama", "PlanStale")["status"] == "False",
        30,
        "the plan to be valid again",
    )

    assert models.uids() == before
    assert models.condition("llama")["status"] == "True"
    assert status_writes(control_plane, models.namespace) - written <= 6
