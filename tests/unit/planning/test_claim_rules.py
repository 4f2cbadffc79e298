"""A layout whose pods cannot mount their claims is ruled out and counted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.volume_claims import Sharing, VolumeClaim
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.units import GIB
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits


def report_of(claim: VolumeClaim, model: str, asked: Mapping[str, Any], **degrees: Any) -> Report:
    request = replace(a_request(**degrees), claims=(claim,), **asked)
    return make_plan(a_model(model), an_inventory(a_pool(nodes=4)), request, vllm_traits())


@pytest.mark.parametrize(
    ("sharing", "degrees", "fits"),
    [
        (Sharing.NODE, {"tensor": 8}, True),
        (Sharing.NODE, {"tensor": 8, "pipeline": 2}, False),
        (Sharing.NODE, {"tensor": 8, "replicas": 2}, False),
        (Sharing.NODE, {"tensor": 4, "replicas": 2}, True),
        (Sharing.POD, {"tensor": 4, "replicas": 2}, False),
        (Sharing.POD, {"tensor": 4}, True),
        (Sharing.EVERYWHERE, {"tensor": 8, "pipeline": 2}, True),
    ],
)
def test_the_pods_of_a_layout_must_be_where_its_claim_may_be_mounted(
    sharing: Sharing, degrees: dict[str, int], *, fits: bool
) -> None:
    outcome = report_of(
        VolumeClaim(name="hub", sharing=sharing), "llama-70b", {}, **degrees
    ).outcome

    assert isinstance(outcome, Plan) is fits
    if isinstance(outcome, NoPlan):
        assert outcome.problem.code == "ClaimNotShared"


@pytest.mark.parametrize(("gigabytes", "cache", "fits"), [(99, "hub", False), (100, "hub", True)])
def test_what_is_downloaded_must_fit_into_the_claim_for_it(
    gigabytes: int, cache: str, *, fits: bool
) -> None:
    claim = VolumeClaim(name="hub", size_bytes=gigabytes * GIB)
    asked = {"file_bytes": 100 * GIB, "cache_claim": cache}

    assert isinstance(report_of(claim, "llama-8b", asked).outcome, Plan) is fits
    # Files that lie on a claim already have found their room.
    assert isinstance(report_of(claim, "llama-8b", {**asked, "cache_claim": ""}).outcome, Plan)


def test_a_claim_without_a_volume_keeps_every_layout_from_starting() -> None:
    outcome = report_of(VolumeClaim(name="hub", bindable=False), "llama-8b", {}).outcome

    assert isinstance(outcome, NoPlan)
    assert outcome.problem.sentence().startswith(
        "spec.model.weights: claim hub has no volume, and nothing makes or offers one for it"
    )
