"""What an engine refuses of adapters, and what a plan says of them."""

from dataclasses import replace

from shardwright.layouts.layout import AdapterSlots, Layout
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.shapes import shape_problems
from tests.support.builders_model import catalogued
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

ADAPTED = vllm_traits(adapters=AdapterSlots(count=2, rank=16))


def codes_of(model: ModelSpec, layout: Layout | None = None) -> list[str]:
    return [problem.code for problem in shape_problems(model, layout or Layout(), ADAPTED)]


def test_an_architecture_that_takes_none_is_refused_and_says_the_way_out() -> None:
    model = replace(a_model(), architecture="FalconForCausalLM", config_hash="falcon")

    (problem,) = shape_problems(model, Layout(), ADAPTED)

    assert problem.sentence() == (
        "adapters of FalconForCausalLM are not supported by vLLM 0.33.0; "
        "remove spec.model.adapters, or merge each adapter into weights of its own"
    )
    assert shape_problems(model, Layout(), vllm_traits()) == ()


def test_a_vocabulary_above_the_engines_limit_is_refused_where_adapters_may_change_it() -> None:
    fits, above = (
        replace(a_model(), vocabulary=size, config_hash=str(size)) for size in (258_048, 258_112)
    )

    assert (codes_of(fits), codes_of(above)) == ([], ["VocabularyTooLargeForAdapters"])
    assert codes_of(catalogued("google/gemma-4-26B-A4B")) == []  # 262,144 that no adapter changes


def test_whole_experts_that_share_tokens_between_tensor_ranks_take_none() -> None:
    moe = catalogued("Qwen/Qwen3-30B-A3B")

    assert codes_of(moe, Layout(tensor=2, attention_data=2, expert=4)) == ["AdaptersExcludeExperts"]
    assert (
        codes_of(moe, Layout(tensor=4, expert=4))
        == codes_of(moe, Layout(attention_data=4, expert=4))
        == []
    )


def test_slices_of_quantized_experts_must_be_whole_blocks() -> None:
    moe, eight = catalogued("Qwen/Qwen3-235B-A22B-FP8"), Layout(tensor=8)

    assert shape_problems(moe, eight, vllm_traits()) == ()
    assert set(codes_of(moe, eight)) == {"QuantizationBlockNotDivisible"}


def test_a_plan_says_what_adapters_take_and_that_their_price_is_not_known() -> None:
    plan = make_plan(a_model(), an_inventory(a_pool()), a_request(), ADAPTED).outcome

    assert isinstance(plan, Plan)
    (warning,) = (warning for warning in plan.warnings if warning.startswith("adapters"))
    assert warning == (
        "adapters: 2 up to rank 16 take 0.2 GiB of the weights' memory per GPU; the predicted "
        "speed is that of the model "
        "without them"
    )


def test_slots_that_leave_no_room_are_named_among_the_weights() -> None:
    huge = vllm_traits(adapters=AdapterSlots(count=32, rank=512))

    report = make_plan(a_model(), an_inventory(a_pool()), a_request(tensor=1, pipeline=1), huge)

    assert isinstance(report.outcome, NoPlan)
    (example,) = (item.example for item in report.excluded if item.code == "WeightsExceedMemory")
    assert example.startswith(
        "TP1 on h100-sxm-80gb: 103.0 GiB of weights (88.1 GiB of them slots of adapters) and "
    )
