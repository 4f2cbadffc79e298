"""What a plan turns into and a cluster does not have."""

from typing import Any

import pytest

from shardwright.hardware.devices import ClaimedDevices
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.pod_inputs import unavailable
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan

WITHOUT = frozenset({"ComputeDomain"})


@pytest.mark.parametrize(
    ("over_trays", "absent", "codes"),
    [
        ({"compute_domain": True}, WITHOUT, ["ComputeDomainUnavailable"]),
        ({"compute_domain": True}, frozenset(), []),
        ({}, WITHOUT, []),
        ({}, frozenset(), []),
    ],
)
def test_a_plan_is_refused_where_it_needs_a_kind_that_the_cluster_lacks(
    over_trays: dict[str, Any], absent: frozenset[str], codes: list[str]
) -> None:
    objects = render(a_plan(**over_trays), a_deployment()).objects
    problem = unavailable(objects, Observed(objects={}, absent_kinds=absent))

    assert [problem.code for problem in (problem,) if problem] == codes
    if problem:
        assert problem.path == "spec.pod.network.computeDomain"
        assert "install NVIDIA's DRA driver" in problem.sentence()


def test_a_plan_whose_pods_claim_gpus_is_refused_where_no_templates_are_seen() -> None:
    claimed = ClaimedDevices(device_class="gpu.nvidia.com", product="NVIDIA H100 80GB HBM3")
    objects = render(a_plan(claimed=claimed), a_deployment()).objects
    absent = Observed(objects={}, absent_kinds=frozenset({"ResourceClaimTemplate"}))

    assert unavailable(objects, Observed(objects={})) is None
    problem = unavailable(objects, absent)
    assert problem is not None
    assert (problem.code, "dra.enabled" in problem.sentence()) == ("DeviceClaimsUnavailable", True)
