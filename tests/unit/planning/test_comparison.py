"""A pinned layout beside the best one for the same load on the same GPUs."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import SearchSpace
from shardwright.planning.comparison import Comparison, Standing, compare, without_pins
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

ONE_NODE = an_inventory(a_pool(nodes=1))
LOAD = replace(a_request(), workload=replace(a_request().workload, requests_per_second=20))


def _compared(request: Request, inventory: Inventory = ONE_NODE) -> Comparison:
    model, traits = a_model(), vllm_traits()
    free = replace(request, space=without_pins(request.space))
    best = make_plan(model, inventory, free, traits).outcome
    assert isinstance(best, Plan)
    return compare(make_plan(model, inventory, request, traits).outcome, best, inventory, free)


def _pinned(**pins: Any) -> Request:
    return replace(LOAD, space=replace(SearchSpace(), **pins))


def test_the_best_layout_that_is_pinned_is_said_to_be_the_best() -> None:
    best = _compared(_pinned()).best

    found = _compared(_pinned(tensor=best.layout.tensor, replicas=best.layout.replicas))

    assert found.standing is Standing.BEST
    assert (found.cost, found.served, found.seconds) == (1.0, 1.0, 1.0)


def test_a_layout_behind_is_measured_by_price_service_and_time() -> None:
    found = _compared(_pinned(tensor=4, replicas=2))

    assert found.standing is Standing.BEHIND
    assert found.best.layout.replicas > 1
    assert found.cost == pytest.approx(found.best.layout.gpus / 8)
    assert found.served is not None
    assert found.served < 1
    assert found.seconds is not None
    assert found.seconds > 1
    assert found.objective is OptimizeFor.BALANCED


def test_requests_that_wait_have_no_time_to_compare() -> None:
    found = _compared(_pinned(tensor=1, pipeline=1, replicas=1))

    assert (found.standing, found.seconds) == (Standing.BEHIND, None)
    assert found.served is not None
    assert found.served > 1


def test_a_layout_without_a_plan_has_the_best_beside_it_all_the_same() -> None:
    found = _compared(_pinned(tensor=3))

    assert (found.standing, found.cost, found.served) == (Standing.NOTHING, None, None)


def test_without_pins_every_degree_and_the_number_is_planned_and_the_budget_stays() -> None:
    pinned = SearchSpace(
        replicas=2, tensor=4, pipeline=2, partition=(9, 23), max_gpus=16, max_nodes=2
    )

    assert without_pins(pinned) == SearchSpace(replicas=None, max_gpus=16, max_nodes=2)
    assert without_pins(replace(pinned, fill=True)).replicas == 2
