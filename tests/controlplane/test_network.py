"""Pods of groups on several nodes and the devices of the network: requested, granted by the real
scheduler, refused by nobody.
"""

from typing import Any

import pytest

from tests.harness.plugin import Fleet
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.controlplane

P5 = "SYNTH-h100-8x-eks-p5"
EFA = "vpc.amazonaws.com/efa"


def devices(pods: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return how many of which devices each pod's engine gets."""
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    return [{resource: count for resource, count in of.items() if "/" in resource} for of in limits]


def test_every_pod_of_a_group_on_two_nodes_gets_the_rdma_devices_that_the_nodes_offer(
    models: Models, fleet: Fleet
) -> None:
    fleet(P5, 2)
    models.create("large", LARGE, pod={"network": {"plugins": ["EFA"]}})
    models.wait_ready("large")

    assert devices(models.pods()) == [{"nvidia.com/gpu": "8", EFA: "32"}] * 2
