"""What an engine refuses of a layout beside a draft model, and what a plan says of one."""

import re
from dataclasses import replace

import pytest

from shardwright.layouts.layout import Drafter, EngineTraits, Layout
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.shapes import shape_problems
from tests.support.builders_model import catalogued
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits


def drafting(model: str = "meta-llama/Llama-3.2-1B") -> EngineTraits:
    return vllm_traits(drafter=Drafter(model=catalogued(model)))


@pytest.mark.parametrize(
    ("model", "layout", "sentence"),
    [
        (
            "llama-70b",
            Layout(tensor=4, pipeline=2),
            "2 stages run no draft model in vLLM 0.33.0; use pipeline 1, or %s",
        ),
        (
            "qwen3-30b-a3b",
            Layout(attention_data=2, expert=2),
            (
                "2 replicas of the attention run no draft model in vLLM 0.33.0; use dataParallelAttention "
                "1, or %s"
            ),
        ),
        (
            "llama-70b",
            Layout(tensor=16, context=2),
            "2 ranks that share K/V run no draft model in vLLM 0.33.0; use context 1, or %s",
        ),
    ],
    ids=["pipeline", "attention data", "context"],
)
def test_a_degree_beside_which_no_draft_model_runs_is_refused(
    model: str, layout: Layout, sentence: str
) -> None:
    (problem,) = shape_problems(a_model(model), layout, drafting())

    assert problem.sentence().removeprefix(f"{problem.path}: ") == sentence % "PromptLookup"
    assert shape_problems(a_model(model), layout, vllm_traits()) == ()


def test_tensor_ranks_alone_and_whole_experts_over_them_run_one() -> None:
    assert shape_problems(a_model("llama-70b"), Layout(tensor=8), drafting()) == ()
    assert (
        shape_problems(
            a_model("qwen3-30b-a3b"), Layout(tensor=4, expert=4), drafting("Qwen/Qwen3-0.6B")
        )
        == ()
    )


def test_a_draft_model_must_divide_by_the_tensor_degree_of_its_target() -> None:
    problems = shape_problems(
        catalogued("Qwen/Qwen2.5-32B"), Layout(tensor=4), drafting("Qwen/Qwen2.5-0.5B")
    )

    assert {problem.code for problem in problems} == {"DraftNotDivisible"}
    assert problems[0].sentence().removeprefix("tensor: ") == (
        "the draft model's 14 attention heads must be divisible by 4 ranks, 2 left over; use tensor 1 "
        "or 2, or another draft model"
    )


def test_a_plan_says_what_a_draft_model_takes_and_on_what_its_price_rests() -> None:
    plan = make_plan(a_model(), an_inventory(a_pool()), a_request(tensor=1), drafting()).outcome

    assert isinstance(plan, Plan)
    (warning,) = (warning for warning in plan.warnings if warning.startswith("draft model"))
    assert warning == (
        "draft model: meta-llama/Llama-3.2-1B takes 2.3 GiB of the weights' memory per GPU and "
        "K/V beside it; how many drafts "
        "are accepted is what the spec says, and no plan with one has been measured"
    )


@pytest.mark.parametrize(("acceptance", "slower"), [(0.05, True), (0.9, False)])
def test_a_plan_says_when_drafts_make_serving_slower(
    acceptance: float,
    slower: bool,  # noqa: FBT001  # a case of a table
) -> None:
    asked = a_request(tensor=1)
    request = replace(
        asked, workload=replace(asked.workload, draft_tokens=3, draft_acceptance=acceptance)
    )
    plan = make_plan(a_model(), an_inventory(a_pool()), request, drafting()).outcome

    assert isinstance(plan, Plan)
    said = [
        warning for warning in plan.warnings if warning.startswith("drafts make serving slower")
    ]
    assert bool(said) is slower
    for warning in said:
        drafted, alone = (float(number) for number in re.findall(r"([\d.]+) ms", warning))
        assert drafted > alone


def test_a_draft_model_that_leaves_no_room_is_named_among_the_weights() -> None:
    report = make_plan(
        a_model(),
        an_inventory(a_pool()),
        a_request(tensor=1, pipeline=1),
        drafting("meta-llama/Meta-Llama-3-70B"),
    )

    assert isinstance(report.outcome, NoPlan)
    (example,) = (item.example for item in report.excluded if item.code == "WeightsExceedMemory")
    assert "GiB of them to draft with) and " in example


def test_a_draft_model_in_fp8_needs_gpus_with_such_a_unit() -> None:
    fp8 = vllm_traits(drafter=Drafter(model=a_model("llama-70b-fp8")))

    report = make_plan(
        a_model("llama-70b"), an_inventory(a_pool("MI250-128GB", gpus_per_node=8)), a_request(), fp8
    )

    (example,) = (item.example for item in report.excluded if item.code == "DtypeNotSupported")
    assert "the draft model's weights are held in fp8 but MI250-128GB has no fp8 unit" in example
