"""How a chosen layout grows with the load, and the layouts that none beats."""

from dataclasses import replace

import pytest

from shardwright.hardware.gpus import GpuPrice, PriceBasis
from shardwright.layouts.layout import Layout, SearchSpace
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.held import MOST_IN_FLIGHT
from shardwright.planning.numbers import of
from shardwright.planning.planner import Considered, choose, consider, decided
from shardwright.planning.report import FrontPoint, Plan
from shardwright.planning.request import Request
from shardwright.planning.select import UTILISATION, FeasibleCandidate
from shardwright.planning.sizing import FRONT_MAX, LoadStep, front, steps_of
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits
from tests.support.builders_reporting import a_reported_plan

OPEN = SearchSpace(replicas=None, tensor=1, pipeline=1)
ONE = SearchSpace(replicas=1, tensor=1, pipeline=1)


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


def _tpot(request: Request, in_flight: int) -> float:
    _, considered = _planned(request)
    load = replace(request.workload, concurrency=in_flight, requests_per_second=None)
    asked = replace(request, workload=load)
    one = of(considered.verdicts[0].candidate, 1)
    prices = estimator_of(a_model(), asked, vllm_traits())
    return prices.estimate(one).performance.tpot_seconds


def test_an_instance_holds_as_many_requests_as_stay_within_the_limit_and_no_more() -> None:
    request = _at_rate(50, tpot_seconds=0.015)

    held = _planned(request)[0].replica_requests

    assert 0 < held < MOST_IN_FLIGHT
    assert _tpot(request, held) <= 0.015 < _tpot(request, held + 1)


def test_without_a_limit_an_instance_holds_what_its_cache_does_and_serves_with_headroom() -> None:
    plan, _ = _planned(_at_rate(50))

    assert plan.replica_requests > _planned(_at_rate(50, tpot_seconds=0.015))[0].replica_requests
    assert plan.capacity is not None
    assert plan.replica_rate == pytest.approx(UTILISATION * plan.capacity / plan.layout.replicas)


def test_an_instance_holds_all_that_its_memory_does_and_not_one_request_more() -> None:
    request = a_request(concurrency=1)
    held = _planned(request)[0].replica_requests

    def carried(number: int) -> bool:
        load = replace(request.workload, concurrency=number)
        return _planned(replace(request, workload=load, space=ONE))[0].carries_load

    assert (carried(held), carried(held + 1)) == (True, False)


@pytest.mark.parametrize("rate", [3, 17, 50])
def test_the_planned_number_is_a_step_that_carries_the_load_and_the_first_that_does(
    rate: float,
) -> None:
    plan, _ = _planned(_at_rate(rate))

    loads = {step.instances: step.load for step in steps_of(plan)}

    assert loads[plan.layout.replicas] >= rate
    assert plan.replica_rate * (plan.layout.replicas - 1) < rate


def test_steps_reach_twice_the_planned_instances_and_are_few() -> None:
    priced = GpuPrice(per_hour=2.5, basis=PriceBasis.STATED)
    plan = replace(
        a_reported_plan(layout=Layout(tensor=2, replicas=4)),
        replica_requests=10,
        replica_rate=1.5,
        capacity=None,
        gpu_price=priced,
    )

    steps = steps_of(plan)

    assert [step.instances for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert steps[3] == LoadStep(instances=4, gpus=8, load=40, price=20)
    assert steps_of(replace(plan, capacity=9.0))[3].load == 6
    assert len(steps_of(replace(plan, layout=Layout(replicas=400)))) == 8
    assert [step.instances for step in steps_of(replace(plan, layout=Layout(replicas=0)))] == [1, 2]
    assert steps_of(replace(plan, replica_requests=0)) == ()


def _ranked(rate: float) -> tuple[FeasibleCandidate, ...]:
    load = replace(a_request().workload, requests_per_second=rate)
    request = replace(a_request(), workload=load, space=SearchSpace(replicas=None))
    return decided(consider(a_model(), an_inventory(a_pool(nodes=4)), request, vllm_traits()))


def _figures(point: FrontPoint) -> tuple[float, float]:
    return point.tokens_per_user, point.tokens_per_gpu


def test_the_front_has_layouts_that_none_beats_in_both_and_the_plan() -> None:
    ranked = _ranked(20)

    found = front(ranked)

    every = {
        (
            1 / each.estimate.performance.tpot_seconds,
            each.estimate.performance.output_tokens_per_second / each.candidate.layout.gpus,
        )
        for each in ranked
        if each.carries_load
    }
    assert 2 < len(found) <= FRONT_MAX
    assert [_figures(point) for point in found] == sorted(
        map(_figures, found), reverse=True, key=lambda each: each[0]
    )
    for user, gpu in (_figures(point) for point in found if not point.planned):
        assert not [one for one in every if one != (user, gpu) and one[0] >= user and one[1] >= gpu]
    assert max(every) == _figures(found[0])
    assert [point.layout for point in found if point.planned] == [ranked[0].candidate.layout]


def test_the_plan_is_on_the_front_even_if_it_is_beaten() -> None:
    ranked = _ranked(20)
    beaten = max(ranked, key=lambda each: each.candidate.layout.gpus)

    points = front([beaten, *(each for each in ranked if each is not beaten)])

    assert [point.layout for point in points if point.planned] == [beaten.candidate.layout]
