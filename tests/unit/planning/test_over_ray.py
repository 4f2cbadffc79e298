"""What planning makes of Ray: it joins no attention replicas of several nodes, and has nothing to
do in one pod.
"""

from shardwright.layouts.layout import Candidate, EngineTraits, Layout
from shardwright.layouts.placing import place
from shardwright.planning.checks import Judge, Verdict
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

OVER_RAY = vllm_traits(over_ray=True)
EXPERTS = "qwen3-235b-fp8"
NOTHING_TO_JOIN = (
    "spec.engine.executor Ray changes nothing here: a group is one pod, whose ranks the engine "
    "starts by itself"
)


def verdict(layout: Layout, traits: EngineTraits) -> Verdict:
    pool = a_pool(nodes=4)
    return Judge(a_model(EXPERTS), a_request(), traits).verdict(
        Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    )


def test_ray_joins_no_attention_replicas_of_several_nodes() -> None:
    over_nodes = Layout(attention_data=16, expert=16)
    problems = (violation.problem for violation in verdict(over_nodes, OVER_RAY).violations)
    (found,) = (problem for problem in problems if problem.code == "AttentionDataOverRay")

    assert found.sentence() == (
        "spec.parallelism.dataParallelAttention: attention data 16 over 2 nodes is not joined by Ray; use "
        "spec.engine.executor Native, or "
        "attention data 1"
    )
    assert "AttentionDataOverRay" not in verdict(over_nodes, vllm_traits()).codes


def test_attention_replicas_of_one_node_and_other_degrees_over_nodes_are_left_alone() -> None:
    for layout in (Layout(attention_data=8, expert=8), Layout(tensor=8, pipeline=2, expert=8)):
        assert verdict(layout, OVER_RAY).codes == verdict(layout, vllm_traits()).codes


def test_both_pinned_is_no_plan_with_its_reason() -> None:
    report = make_plan(
        a_model(EXPERTS),
        an_inventory(a_pool(nodes=4)),
        a_request(attention_data=16, pipeline=1),
        OVER_RAY,
    )

    assert isinstance(report.outcome, NoPlan)
    assert "AttentionDataOverRay" in {item.code for item in report.excluded}


def test_a_plan_of_one_pod_says_that_ray_changes_nothing() -> None:
    said = {}
    for request in (a_request(), a_request(tensor=8, pipeline=2)):
        plan = make_plan(
            a_model("llama-8b"), an_inventory(a_pool(nodes=2)), request, OVER_RAY
        ).outcome
        assert isinstance(plan, Plan)
        said[plan.nodes_per_replica] = NOTHING_TO_JOIN in plan.warnings

    assert said == {1: True, 2: False}
