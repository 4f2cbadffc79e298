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


def test_who_wants_no_rdma_gets_none_and_is_told_what_it_costs(
    models: Models, fleet: Fleet
) -> None:
    fleet(P5, 2)
    models.create("large", LARGE, pod={"network": {"rdma": "None", "attachments": ["rail-0"]}})
    plan = models.wait_ready("large")["status"]["plan"]

    (first, *_) = pods = models.pods()
    assert devices(pods) == [{"nvidia.com/gpu": "8"}] * 2
    assert first["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "rail-0"
    assert plan["placement"]["pipelineLink"] == "12.5 Gb/s Ethernet"
    assert any("spec.pod.network.rdma is None" in warning for warning in plan["warnings"])


def test_named_devices_that_the_nodes_lack_are_a_plan_that_nothing_fits(
    models: Models, fleet: Fleet
) -> None:
    fleet(P5, 2)
    models.create(
        "large", LARGE, pod={"network": {"rdma": "Explicit", "resources": [{"name": "rdma/hca"}]}}
    )
    models.wait_reason("large", "NothingFits")

    excluded = models.get("ShardedModel", "large")["status"]["plan"]["excluded"]
    assert "NetworkResourceMissing" in {item["code"] for item in excluded}
