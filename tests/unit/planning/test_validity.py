"""A plan of record stands while its nodes do: better ones move nothing, busy or cordoned ones disturb nothing."""

from dataclasses import replace

from shardwright.hardware.inventory import Inventory
from shardwright.planning.plan import make_plan
from shardwright.planning.report import Plan
from shardwright.planning.validity import plan_problem
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits


def _plan(inventory: Inventory) -> Plan:
    outcome = make_plan(a_model("llama-405b"), inventory, a_request(), vllm_traits()).outcome
    assert isinstance(outcome, Plan)
    return outcome


PLAN = _plan(an_inventory(a_pool(nodes=2)))


def test_it_stands_where_it_was_made() -> None:
    assert plan_problem(PLAN, an_inventory(a_pool(nodes=2))) is None


def test_its_own_gpus_being_taken_does_not_matter() -> None:
    assert plan_problem(PLAN, an_inventory(a_pool(nodes=2, free={0: 0, 1: 0}))) is None


def test_better_nodes_move_nothing() -> None:
    assert plan_problem(PLAN, an_inventory(a_pool("B200-SXM-180GB", 4), a_pool(nodes=2))) is None


def test_a_node_that_is_gone_breaks_it() -> None:
    problem = plan_problem(PLAN, an_inventory(a_pool(nodes=1)))

    assert problem is not None
    assert problem.code == "PlanInvalid"
    assert problem.what == "planned node h100-sxm-80gb-00001: is gone or no longer selected"


def test_a_node_that_comes_back_is_waited_for() -> None:
    for code in ("NotReady", "Cordoned"):
        assert plan_problem(PLAN, an_inventory(a_pool(nodes=1), excluded={"h100-sxm-80gb-00001": code})) is None


def test_a_node_that_must_not_be_used_breaks_it() -> None:
    problem = plan_problem(PLAN, an_inventory(a_pool(nodes=1), excluded={"h100-sxm-80gb-00001": "SelectorMismatch"}))

    assert problem is not None
    assert problem.what == "planned node h100-sxm-80gb-00001 cannot be used: the node is out"


def test_a_gpu_that_failed_breaks_it() -> None:
    pool = a_pool(nodes=2)
    sick = replace(pool, nodes=(pool.nodes[0], replace(pool.nodes[1], gpus=7)))

    problem = plan_problem(PLAN, an_inventory(sick))

    assert problem is not None
    assert problem.what == "planned node h100-sxm-80gb-00001 has 7 healthy GPUs: the plan needs 8"


def test_other_gpus_under_the_same_name_break_it() -> None:
    problem = plan_problem(PLAN, an_inventory(replace(a_pool(nodes=2), product="NVIDIA-H200")))

    assert problem is not None
    assert "NVIDIA-H200" in problem.what
