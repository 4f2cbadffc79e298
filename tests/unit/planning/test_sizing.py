"""How a chosen layout grows with the load, and the layouts that none beats."""

from dataclasses import replace

import pytest

from shardwright.costs.estimates import Performance
from shardwright.layouts.layout import Layout, SearchSpace
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.numbers import of
from shardwright.planning.planner import Considered, choose, consider
from shardwright.planning.report import Plan
from shardwright.planning.request import Request
from shardwright.planning.select import UTILISATION
from shardwright.planning.survey import (
    InstanceLoad,
    LoadStep,
    Surveyed,
    front,
    instance_of,
    steps_of,
)
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits
from tests.support.builders_reporting import a_reported_performance, a_reported_plan

OPEN = SearchSpace(replicas=None, tensor=1, pipeline=1)


def _at_rate(rate: float, tpot_seconds: float | None = None) -> Request:
    request = a_request(tpot_seconds=tpot_seconds)
    load = replace(request.workload, requests_per_second=rate)
    return replace(request, workload=load, space=OPEN)


def _planned(request: Request) -> tuple[Plan, Considered]:
    inventory = an_inventory(a_pool(nodes=8))
    considered = consider(a_model(), inventory, request, vllm_traits())
    plan = choose(considered).outcome
    assert isinstance(plan, Plan)
    return plan, considered


def _instance(request: Request) -> InstanceLoad:
    plan, considered = _planned(request)
    found = instance_of(plan, considered)
    assert found is not None
    return found


def _tpot(request: Request, in_flight: int) -> float:
    _, considered = _planned(request)
    load = replace(request.workload, concurrency=in_flight, requests_per_second=None)
    asked = replace(request, workload=load)
    one = of(considered.verdicts[0].candidate, 1)
    prices = estimator_of(a_model(), asked, vllm_traits())
    return prices.estimate(one).performance.tpot_seconds


def test_an_instance_holds_as_many_requests_as_stay_within_the_limit_and_no_more() -> None:
    request = _at_rate(50, tpot_seconds=0.015)

    held = _instance(request).requests

    assert held == _planned(request)[0].replica_requests
    assert _tpot(request, held) <= 0.015 < _tpot(request, held + 1)


def test_without_a_limit_an_instance_holds_what_its_cache_does_and_serves_with_headroom() -> None:
    plan, considered = _planned(_at_rate(50))
    found = instance_of(plan, considered)

    assert found is not None
    assert found.requests > _instance(_at_rate(50, tpot_seconds=0.015)).requests
    assert plan.capacity is not None
    assert found.rate == pytest.approx(UTILISATION * plan.capacity / plan.layout.replicas)


@pytest.mark.parametrize("rate", [3, 17, 50])
def test_the_planned_number_is_a_step_that_carries_the_load_and_the_first_that_does(
    rate: float,
) -> None:
    request = _at_rate(rate)
    plan, considered = _planned(request)
    found = instance_of(plan, considered)
    assert found is not None

    loads = {step.instances: step.load for step in steps_of(plan, found, request)}

    assert loads[plan.layout.replicas] >= rate
    assert found.rate * (plan.layout.replicas - 1) < rate


def test_steps_reach_twice_the_planned_instances_and_are_few() -> None:
    plan = a_reported_plan(layout=Layout(tensor=2, replicas=4))

    steps = steps_of(plan, InstanceLoad(requests=10, rate=1.5), a_request())

    assert [step.instances for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert steps[3] == LoadStep(instances=4, gpus=8, load=40)
    many = replace(plan, layout=Layout(replicas=400))
    assert len(steps_of(many, InstanceLoad(requests=10, rate=1.5), _at_rate(9))) == 8


def _surveyed(tensor: int, tpot: float, output: float, *codes: str) -> Surveyed:
    speed: Performance = replace(
        a_reported_performance(), tpot_seconds=tpot, output_tokens_per_second=output
    )
    return Surveyed(
        layout=Layout(tensor=tensor),
        pool="a",
        product="A",
        codes=codes,
        performance=speed,
        carries_load=True,
    )


def test_the_front_has_the_layouts_that_none_beats_in_both() -> None:
    found = front(
        [
            _surveyed(1, 0.02, 1000),
            _surveyed(2, 0.01, 1800),
            _surveyed(4, 0.012, 3000),  # slower than two GPUs, and less on each
            _surveyed(8, 0.001, 80_000, "NotEnough"),
        ],
        a_request(),
    )

    assert [(point.layout.tensor, point.tokens_per_gpu) for point in found] == [(2, 900), (1, 1000)]
