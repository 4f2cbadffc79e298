"""Shape rules: the same verdict as vLLM, and a way out that works."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shardwright.engines.trtllm import traits as trtllm
from shardwright.layouts.layout import Layout
from shardwright.modelspec.read import read_model
from shardwright.planning.shapes import (
    SHAPE_REASONS,
    architecture_unknown_to_engine,
    max_model_len_problem,
    shape_problems,
)
from tests.support.builders_model import a_config, a_moe, a_small_model, catalogued, oracle_traits
from tests.support.command_lines import read_arguments
from tests.support.oracle import STRICTER_THAN_VLLM, OracleCase, oracle_cases

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def _codes(case: OracleCase) -> set[str]:
    return {problem.code for problem in shape_problems(case.model, case.layout, oracle_traits())}


def test_the_verdict_is_that_of_vllm() -> None:
    wrong = {
        case.name: (codes, case.message)
        for case in oracle_cases()
        if not _agrees(case, codes := _codes(case))
    }

    assert wrong == {}


def _agrees(case: OracleCase, codes: set[str]) -> bool:
    if case.name in STRICTER_THAN_VLLM:
        return codes == {STRICTER_THAN_VLLM[case.name]}
    return bool(codes) is not case.accepted


def test_a_problem_names_what_the_limit_the_gap_and_the_tensor_degrees_that_work() -> None:
    problems = shape_problems(
        catalogued("Qwen/Qwen2.5-7B-Instruct"), Layout(tensor=8), oracle_traits()
    )
    assert [problem.sentence() for problem in problems] == [
        "tensor: 28 attention heads must be divisible by 8 ranks, 4 left over; use tensor 1, 2 or 4"
    ]


def test_every_degree_that_a_remedy_names_works() -> None:
    model = catalogued("Qwen/Qwen3-235B-A22B-FP8")
    (problem, *_) = shape_problems(model, Layout(tensor=48), oracle_traits())
    degrees = [int(number) for number in re.findall(r"\d+", problem.remedy)]
    assert degrees
    for tensor in degrees:
        assert shape_problems(model, Layout(tensor=tensor), oracle_traits()) == ()


@pytest.mark.parametrize(
    ("config", "layout", "code"),
    [
        ({}, Layout(tensor=3), "HeadsNotDivisible"),
        (
            {"num_attention_heads": 12, "num_key_value_heads": 6},
            Layout(tensor=4),
            "KvHeadsNotDivisible",
        ),
        (
            {"num_attention_heads": 7, "num_key_value_heads": 7, "head_dim": 64},
            Layout(tensor=7),
            "VocabularyNotDivisible",
        ),
        ({"intermediate_size": 1001}, Layout(tensor=2), "IntermediateNotDivisible"),
        ({"quantization_config": FP8}, Layout(tensor=16), "QuantizationBlockNotDivisible"),
        ({}, Layout(pipeline=9), "MoreStagesThanLayers"),
        ({}, Layout(tensor=2, expert=2), "ExpertParallelNeedsExperts"),
        ({}, Layout(attention_data=2), "AttentionDataNeedsExperts"),
        ({}, Layout(pipeline=2, partition=(4, 3)), "PartitionImpossible"),
        ({}, Layout(pipeline=2, partition=(3, 3, 2)), "PartitionImpossible"),
        ({}, Layout(pipeline=2, partition=(0, 8)), "PartitionImpossible"),
        ({}, Layout(tensor=4, context=2), "ContextDegreeImpossible"),
        ({}, Layout(tensor=8, context=4), "ContextDegreeImpossible"),
        ({"num_key_value_heads": 1}, Layout(tensor=8, context=3), "ContextDegreeImpossible"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes"}},
            Layout(),
            "QuantizationUnknownToEngine",
        ),
    ],
)
def test_each_rule_of_a_dense_model_has_its_code(
    config: dict[str, object], layout: Layout, code: str
) -> None:
    assert code in {
        problem.code for problem in shape_problems(a_small_model(**config), layout, oracle_traits())
    }


def test_experts_that_are_sliced_must_divide_by_tensor_times_attention_data() -> None:
    model = a_moe(moe_intermediate_size=6)
    assert shape_problems(model, Layout(tensor=2), oracle_traits()) == ()
    codes = {
        p.code for p in shape_problems(model, Layout(tensor=2, attention_data=2), oracle_traits())
    }
    assert codes == {"IntermediateNotDivisible"}


def test_an_expert_degree_between_one_and_all_ranks_is_impossible() -> None:
    (problem,) = shape_problems(a_moe(), Layout(tensor=4, expert=2), oracle_traits())
    assert problem.code == "ExpertDegreeImpossible"
    assert (
        shape_problems(a_moe(), Layout(tensor=4, expert=2), oracle_traits(mixes_expert_cuts=True))
        == ()
    )


def test_ranks_beyond_the_experts_are_refused_only_where_somebody_needs_one_each() -> None:
    few = a_moe(num_experts=2)
    assert shape_problems(few, Layout(tensor=2, expert=2), oracle_traits()) == ()
    assert {p.code for p in shape_problems(few, Layout(tensor=4), oracle_traits())} == {
        "ExpertsFewerThanRanks"
    }
    mixtral = catalogued("mistralai/Mixtral-8x7B-Instruct-v0.1")
    assert shape_problems(mixtral, Layout(tensor=16), oracle_traits()) == ()


def test_scales_of_experts_are_refined_down_to_32() -> None:
    layout = Layout(tensor=4)
    at_32 = a_moe(moe_intermediate_size=128, head_dim=128, quantization_config=FP8)
    assert shape_problems(at_32, layout, oracle_traits()) == ()
    at_16 = a_moe(moe_intermediate_size=64, head_dim=128, quantization_config=FP8)
    assert {p.code for p in shape_problems(at_16, layout, oracle_traits())} == {
        "QuantizationBlockNotDivisible"
    }


COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8,
                "type": "float",
                "strategy": "block",
                "block_structure": [128, 128],
            },
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "group"},
        }
    },
}


@pytest.mark.parametrize(
    ("width", "layout", "codes"),
    [
        (512, Layout(tensor=4), set()),
        (512, Layout(tensor=8), {"QuantizationBlockNotDivisible"}),
        (512, Layout(tensor=8, expert=8), set()),
        # Whole experts that are no whole blocks: their scales are cut off.
        (192, Layout(tensor=1), {"QuantizationBlockNotDivisible"}),
    ],
)
def test_only_the_method_fp8_refines_the_scales_of_experts(
    width: int, layout: Layout, codes: set[str]
) -> None:
    sizes = {"moe_intermediate_size": width, "head_dim": 128, "num_attention_heads": 8}
    compressed = a_moe(**sizes, quantization_config=COMPRESSED)
    refined = a_moe(**sizes, quantization_config=FP8)

    experts = {
        problem.code
        for problem in shape_problems(compressed, layout, oracle_traits())
        if "experts" in problem.what
    }

    assert experts == codes
    assert not any(
        "experts" in problem.what for problem in shape_problems(refined, layout, oracle_traits())
    )


def test_gpt_oss_wants_its_width_divided_by_all_ranks_of_the_replica() -> None:
    model = catalogued("openai/gpt-oss-20b")
    assert shape_problems(model, Layout(tensor=8, pipeline=3), oracle_traits()) == ()
    (problem,) = shape_problems(model, Layout(tensor=1, pipeline=7), oracle_traits())
    assert (problem.code, problem.gap) == ("IntermediateNotDivisible", "3 left over")


def test_an_architecture_without_pipeline_stays_on_one_stage() -> None:
    traits = oracle_traits(without_pipeline=frozenset({"LlamaForCausalLM"}))
    assert shape_problems(a_small_model(), Layout(), traits) == ()
    assert [p.code for p in shape_problems(a_small_model(), Layout(pipeline=2), traits)] == [
        "PipelineNotSupported"
    ]


def test_a_request_may_be_as_long_as_the_model_allows_and_no_longer() -> None:
    assert max_model_len_problem(a_small_model(), 8192) is None
    problem = max_model_len_problem(a_small_model(), 8193)
    assert problem is not None
    assert problem.sentence() == (
        "8193 tokens per request must not exceed the model's limit of 8192, 1 too many; plan for "
        "requests of at most 8192 tokens"
    )
    assert [p.code for p in shape_problems(a_small_model(), Layout(), oracle_traits(), 8193)] == [
        "MaxModelLenTooLong"
    ]


def test_an_architecture_that_the_engine_does_not_list_is_refused_where_the_list_is_known() -> None:
    assert architecture_unknown_to_engine(a_small_model(), oracle_traits()) is None
    known = oracle_traits(architectures=frozenset({"LlamaForCausalLM"}))
    assert architecture_unknown_to_engine(a_small_model(), known) is None
    assert [p.code for p in shape_problems(a_moe(), Layout(), known)] == [
        "ArchitectureUnknownToEngine"
    ]


def test_every_code_is_explained() -> None:
    models = [
        a_small_model(quantization_config=FP8, vocab_size=4097),
        a_moe(),
        read_model(a_config(), source="x"),
    ]
    layouts = [
        Layout(tensor=t, pipeline=p, expert=e, attention_data=d)
        for t in (1, 3, 16)
        for p in (1, 9)
        for e in (1, 4)
        for d in (1, 2)
    ]
    traits = oracle_traits(
        without_pipeline=frozenset({"LlamaForCausalLM"}), architectures=frozenset({"None"})
    )
    found = {
        p.code
        for model in models
        for layout in layouts
        for p in shape_problems(model, layout, traits, 1 << 20)
    }
    assert found <= set(SHAPE_REASONS)


def test_ranks_share_what_they_would_hold_copies_of() -> None:
    few_heads = read_model(a_config(num_key_value_heads=2), source="a test")
    assert shape_problems(few_heads, Layout(tensor=8, context=4), oracle_traits()) == ()
    latent = catalogued("deepseek-ai/DeepSeek-V3")
    assert shape_problems(latent, Layout(tensor=8, context=8), oracle_traits()) == ()


def test_a_window_is_not_shared() -> None:
    (problem,) = shape_problems(
        catalogued("openai/gpt-oss-120b"), Layout(tensor=16, context=2), oracle_traits()
    )
    assert (problem.code, problem.path) == ("ContextDegreeImpossible", "context")


def test_the_heads_of_recurrent_layers_divide_too() -> None:
    problems = shape_problems(catalogued("Qwen/Qwen3.5-27B"), Layout(tensor=12), oracle_traits())
    assert (
        "16 key heads of recurrent layers must be divisible by 12 ranks" in problems[0].sentence()
    )


def test_key_value_heads_may_cut_blocks_that_a_merged_projection_covers() -> None:
    narrow = read_model(
        a_config(num_key_value_heads=8, intermediate_size=2048, quantization_config=FP8),
        source="a test",
    )
    assert shape_problems(narrow, Layout(tensor=4), oracle_traits()) == ()


def test_a_stage_has_a_layer_that_keeps_something() -> None:
    model = catalogued("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert shape_problems(model, Layout(pipeline=13), oracle_traits()) == ()
    assert {
        problem.code for problem in shape_problems(model, Layout(pipeline=52), oracle_traits())
    } == {"StageWithoutAttention"}


def test_some_classes_want_experts_on_every_stage() -> None:
    sparse_at_the_end = a_moe(decoder_sparse_step=4, num_hidden_layers=8)
    (problem,) = shape_problems(sparse_at_the_end, Layout(pipeline=4), oracle_traits())
    assert (problem.code, problem.gap) == ("StageWithoutExperts", "2 stages have none")
    assert shape_problems(sparse_at_the_end, Layout(pipeline=2), oracle_traits()) == ()


_FOLDER = Path(__file__).parents[2] / "data"
_LINES: list[dict[str, Any]] = json.loads(
    (_FOLDER / "engines/vllm-accept-refuse.json").read_text()
)["cases"]
_CONFIGS: dict[str, Any] = json.loads((_FOLDER / "oracle/weights-kv.json").read_text())["configs"]
_OF_DEGREES = ("tensor", "pipeline", "data", "decode-context")
_OF_OTHER_THINGS = (
    "must evenly divide",
    "--node-rank",
    "nnodes >",
    "available GPUs",
    "EPLB",
    "--data-parallel-rank",
    "executor",
    "unpack",
    "Cannot find",
)
_REFUSED_ALL_THE_SAME = {
    "kv heads 4, tp 7 heads 28": "refused when the model is built",
    "pp > layers": "dies at the start",
    "partition with a zero": "dies at the start",
    "dp on dense": "replicas do the same",
}


def _about_degrees(case: dict[str, Any]) -> bool:
    options = read_arguments(case["args"])[1]
    degrees = any(f"{name}-parallel-size" in options for name in _OF_DEGREES)
    elsewhere = case.get("stage") == "parse" or any(
        part in case.get("message", "") for part in _OF_OTHER_THINGS
    )
    untouched = {
        "quantization",
        "enable-chunked-prefill",
        "no-enable-chunked-prefill",
        "max-num-seqs",
        "load-format",
        "enable-eplb",
    }
    return (
        degrees
        and not elsewhere
        and not untouched & set(options)
        and options.get("tensor-parallel-size") != "0"
    )


def test_command_lines_that_vllm_accepts_or_refuses_for_their_degrees_are_judged_alike() -> None:
    wrong = {
        case["name"]: codes
        for case in _LINES
        if _about_degrees(case)
        if (not (codes := _codes_of_line(case)))
        != (case["accepted"] and case["name"] not in _REFUSED_ALL_THE_SAME)
    }

    assert wrong == {}


def _codes_of_line(case: dict[str, Any]) -> list[str]:
    name, options = read_arguments(case["args"])
    tensor, pipeline, data, context = (
        int(str(options.get(f"{axis}-parallel-size", 1))) for axis in _OF_DEGREES
    )
    partition = (case.get("env") or {}).get("VLLM_PP_LAYER_PARTITION", "")
    layout = Layout(
        tensor=tensor,
        pipeline=pipeline,
        attention_data=data,
        context=context,
        expert=tensor * data if "enable-expert-parallel" in options else 1,
        partition=tuple(int(layers) for layers in partition.split(",") if layers),
    )
    length = str(options.get("max-model-len", 1)).replace("k", "000")
    model = read_model(_CONFIGS[name.split("/")[-1]], source=name)
    return [found.code for found in shape_problems(model, layout, oracle_traits(), int(length))]


@pytest.mark.parametrize(
    ("layout", "code"),
    [
        (Layout(tensor=8), ""),
        (Layout(tensor=8, pipeline=2), ""),
        (Layout(attention_data=8, expert=8), ""),
        (Layout(tensor=2, attention_data=4, expert=8), "AttentionDataExcludesTensor"),
        (Layout(tensor=8, context=2), "ContextDegreeImpossible"),
        (Layout(attention_data=12, expert=12), "ExpertsNotDivisible"),
    ],
)
def test_tensorrt_llm_is_asked_for_what_it_can_be_told_only(layout: Layout, code: str) -> None:
    model = catalogued("Qwen/Qwen3-235B-A22B")
    problems = shape_problems(model, layout, trtllm.traits("1.2.1"))
    assert {problem.code for problem in problems} == ({code} if code else set())
