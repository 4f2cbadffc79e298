"""Every candidate of a question: what the plan was chosen from."""

from shardwright.planning.checks import MEMORY
from shardwright.planning.planner import choose, consider
from shardwright.planning.report import Plan
from shardwright.planning.survey import survey
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits


def test_all_that_was_considered_is_there_and_the_plan_among_it() -> None:
    considered = consider(
        a_model("llama-70b"), an_inventory(a_pool(nodes=2)), a_request(), vllm_traits()
    )
    report, found = choose(considered), survey(considered)
    plan = report.outcome

    assert isinstance(plan, Plan)
    assert len(found) == report.considered
    (chosen,) = (one for one in found if (one.layout, one.pool) == (plan.layout, plan.pool))
    assert (chosen.codes, chosen.performance, chosen.carries_load) == (
        (),
        plan.performance,
        plan.carries_load,
    )


def test_every_layout_that_is_ruled_out_is_counted_once() -> None:
    considered = consider(
        a_model("llama-70b"), an_inventory(a_pool(nodes=2)), a_request(), vllm_traits()
    )

    excluded = choose(considered).excluded
    assert sum(item.count for item in excluded) == sum(
        bool(one.codes) for one in survey(considered)
    )
    assert {item.code for item in excluded} == {"HeadsNotDivisible", "WeightsExceedMemory"}


def test_what_fits_no_memory_or_does_not_divide_the_model_has_no_speed() -> None:
    considered = consider(
        a_model("llama-70b"), an_inventory(a_pool(nodes=1)), a_request(), vllm_traits()
    )

    without = [one.codes for one in survey(considered) if one.performance is None]

    assert without
    assert all(
        MEMORY & set(codes) or any("Divisible" in code for code in codes) for codes in without
    )
