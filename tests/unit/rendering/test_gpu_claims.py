"""Pods ask for their GPUs by the extended resource, or claim them: never both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.devices import ClaimedDevices
from shardwright.rendering.bundle import Bundle, asked_hash, digest, of_kind, plan_hash
from shardwright.rendering.names import group_name
from shardwright.rendering.pod_resources import claim_spec
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan

CLAIMED = ClaimedDevices(device_class="gpu.nvidia.com", product="NVIDIA H100 80GB HBM3")
RESOURCE = "nvidia.com/gpu"


def pods(bundle: Bundle) -> list[dict[str, Any]]:
    return [item["spec"]["template"]["spec"] for item in of_kind(bundle.objects, "StatefulSet")]


def engine(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["containers"]
    return dict(container["resources"])


def test_a_plan_that_requests_is_rendered_without_any_claim() -> None:
    bundle = render(a_plan(), a_deployment())
    assert of_kind(bundle.objects, "ResourceClaimTemplate") == ()
    assert all("resourceClaims" not in pod and "claims" not in engine(pod) for pod in pods(bundle))
    assert all(engine(pod)["limits"][RESOURCE] for pod in pods(bundle))


def test_each_group_claims_by_a_template_of_its_own_that_asks_for_the_planned_product() -> None:
    plan = a_plan(claimed=CLAIMED)
    bundle = render(plan, a_deployment())
    templates = of_kind(bundle.objects, "ResourceClaimTemplate")
    assert len(templates) == len(plan.groups)
    for index, (template, pod) in enumerate(zip(templates, pods(bundle), strict=True)):
        name = template["metadata"]["name"]
        assert name.startswith(f"{group_name(a_deployment().base, index)}-gpus-")
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        assert request == {
            "name": "gpus",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "allocationMode": "ExactCount",
                "count": plan.gpus_per_node,
                "selectors": [
                    {
                        "cel": {
                            "expression": "device.attributes['gpu.nvidia.com'].productName"
                            " == 'NVIDIA H100 80GB HBM3'"
                        }
                    }
                ],
            },
        }
        assert pod["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": name}]
        assert engine(pod)["claims"] == [{"name": "gpus"}]
        assert RESOURCE not in {**engine(pod)["limits"], **engine(pod)["requests"]}


def test_slices_are_claimed_by_product_and_profile() -> None:
    sliced = ClaimedDevices(
        device_class="mig.nvidia.com", product="NVIDIA A30", mig_profile="1g.6gb+me"
    )
    of = "device.attributes['gpu.nvidia.com']"
    assert claim_spec(sliced, 1)["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "mig.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [
            {
                "cel": {
                    "expression": f"{of}.productName == 'NVIDIA A30' && {of}.profile == '1g.6gb+me'"
                }
            }
        ],
    }


def test_claims_of_whole_gpus_have_the_hash_that_they_had_before_slices_were_claimed() -> None:
    """Or a release would restart the groups that claim."""
    assert digest(CLAIMED) == digest(
        {"device_class": CLAIMED.device_class, "product": CLAIMED.product}
    )


def test_a_channel_of_a_compute_domain_stands_beside_the_claim() -> None:
    bundle = render(a_plan(claimed=CLAIMED, compute_domain=True), a_deployment())
    for pod in pods(bundle):
        assert [claim["name"] for claim in pod["resourceClaims"]] == [
            "compute-domain-channel",
            "gpus",
        ]
        assert engine(pod)["claims"] == [{"name": "compute-domain-channel"}, {"name": "gpus"}]


@pytest.mark.parametrize(
    "other",
    [
        {"gpus_per_node": 2},
        {"claimed": ClaimedDevices(device_class="a", product="b")},
        {"claimed": replace(CLAIMED, mig_profile="1g.10gb")},
    ],
)
def test_a_template_that_asks_for_anything_else_has_another_name(other: dict[str, Any]) -> None:
    names = [
        of_kind(
            render(a_plan(**{"claimed": CLAIMED, **more}), a_deployment()).objects,
            "ResourceClaimTemplate",
        )[0]["metadata"]["name"]
        for more in ({}, other)
    ]
    assert names[0] != names[1]


def test_how_pods_ask_is_part_of_the_hashes_only_where_they_claim() -> None:
    requests, claims = a_plan(), a_plan(claimed=CLAIMED)
    assert plan_hash(requests) != plan_hash(claims)
    assert asked_hash("a", requests, ()) != asked_hash("a", claims, ())
