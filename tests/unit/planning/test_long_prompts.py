"""A plan for long prompts says who shares their tokens, and why nobody does."""

import pytest

from shardwright.pipeline.assembly import plan_serving
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import TRTLLM, a_subject, plan_of, stock

LONG = {"inputTokens": 40_000, "outputTokens": 500, "concurrency": 4}
LLAMA = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
DEEPSEEK = {"id": "deepseek-ai/DeepSeek-V3"}
DECODE, PROMPTS = "(decode context parallelism)", "(prefill context parallelism"


def said(nodes: int = 1, **spec: object) -> list[str]:
    subject = a_subject(**spec)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(nodes))))
    return [reason for reason in plan.reasons if DECODE in reason or PROMPTS in reason]


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ({}, "the usual runner of vLLM 0.33.0 refuses it for every model."),
        (TRTLLM, "TensorRT-LLM 1.2.1 does not size its K/V cache beside it."),
    ],
)
def test_why_no_ranks_share_a_prompt_is_said_for_long_prompts(
    engine: dict[str, object], why: str
) -> None:
    _, prompts = said(model=LLAMA, engine=engine, workload=LONG)

    assert prompts.endswith(why)


def test_prompts_of_usual_length_are_not_spoken_of() -> None:
    assert said(model=LLAMA, workload=LONG | {"inputTokens": 32_768}) == []


def test_without_copies_of_k_v_there_is_nothing_to_share() -> None:
    assert "hold copies of K/V that could be shared" in said(model=LLAMA, workload=LONG)[0]


def test_the_best_layout_that_shares_k_v_is_named_and_a_pinned_degree_needs_no_reason() -> None:
    pins = {"tensor": 16, "expert": 16}

    tried, _ = said(2, model=DEEPSEEK, workload=LONG, parallelism=pins)

    assert "TP16·EP16·CP16 is the best that does" in tried
    assert len(said(2, model=DEEPSEEK, workload=LONG, parallelism=pins | {"context": 16})) == 1


def test_an_engine_that_cannot_share_it_says_so() -> None:
    decode, _ = said(2, model=DEEPSEEK, engine=TRTLLM, workload=LONG)

    assert decode.endswith("is not planned for TensorRT-LLM.")
