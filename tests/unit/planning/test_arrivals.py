"""A rate of requests is priced as the number in flight that it comes to."""

from dataclasses import replace

import pytest

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

POOL = a_pool(nodes=2)


def _at(rate: float, **changes: object) -> Request:
    request = a_request(**changes)  # type: ignore[arg-type]
    return replace(request, workload=replace(request.workload, requests_per_second=rate))


def _speed(rate: float, layout: Layout) -> Performance:
    candidate = Candidate(layout=layout, pool=POOL, placement=place(POOL, layout))
    return (
        estimator_of(a_model("llama-70b"), _at(rate), vllm_traits()).estimate(candidate).performance
    )


def test_what_is_offered_is_served_and_no_more_is_promised() -> None:
    speed = _speed(1.0, Layout(tensor=8))

    assert speed.requests_per_second == pytest.approx(1.0)
    assert speed.output_tokens_per_second == pytest.approx(512)


def test_in_flight_is_the_rate_times_the_stay() -> None:
    speed = _speed(1.0, Layout(tensor=8))
    stay = speed.ttft_seconds + 512 * speed.tpot_seconds

    assert stay <= speed.running_requests <= 1.2 * stay + 1


def test_a_higher_rate_makes_every_request_slower() -> None:
    slow, fast = _speed(0.5, Layout(tensor=8)), _speed(2.0, Layout(tensor=8))

    assert slow.tpot_seconds < fast.tpot_seconds
    assert slow.running_requests < fast.running_requests


def test_a_rate_that_cannot_be_served_is_not_promised() -> None:
    assert _speed(1000.0, Layout(tensor=4)).requests_per_second < 100


def test_a_rate_asks_for_as_many_gpus_as_it_needs() -> None:
    """Throughput per GPU is greatest with the fewest GPUs that serve the rate."""
    plans = [
        make_plan(
            a_model("llama-70b"),
            an_inventory(POOL),
            _at(rate, optimize_for=OptimizeFor.THROUGHPUT),
            vllm_traits(),
        )
        for rate in (0.2, 4.0)
    ]

    low, high = (plan.outcome for plan in plans)
    assert isinstance(low, Plan)
    assert isinstance(high, Plan)
    assert low.carries_load
    assert high.carries_load
    assert low.layout.gpus < high.layout.gpus
    (said,) = [
        reason
        for reason in low.reasons
        if reason.startswith("It carries 0.2 requests a second of 2,048 + 512 tokens, ")
    ]
    assert said.endswith(" that it serves at most.")


def test_a_rate_that_leaves_no_headroom_is_not_blamed_on_k_v() -> None:
    request = _at(2.9, tensor=4, pipeline=1, replicas=1)
    plan = make_plan(a_model("llama-70b"), an_inventory(a_pool()), request, vllm_traits()).outcome

    assert isinstance(plan, Plan)
    assert not plan.carries_load
    assert plan.performance.requests_per_second == pytest.approx(2.9)
    assert [warning for warning in plan.warnings if "K/V" in warning] == []
