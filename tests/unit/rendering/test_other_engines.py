"""What other engines than vLLM are given says nothing of vLLM."""

import json

import pytest

from shardwright.engines.registry import ENGINES, VLLM
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment, SecretKey
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_trtllm_deployment,
    an_sglang_deployment,
)

DEPLOYMENTS = {"SGLang": an_sglang_deployment, "TensorRTLLM": a_trtllm_deployment}
PLANS = {
    "one GPU": a_small_plan(memory_utilization=0.95),
    "two pods": a_plan(memory_utilization=0.95),
    "experts": a_plan_of(Layout(attention_data=8, expert=8), memory_utilization=0.95),
}


def rendered(plan: Plan, deployment: Deployment) -> str:
    bundle = render(plan, deployment)
    return json.dumps([*bundle.objects, *bundle.keys]).lower()


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("engine", sorted(ENGINES.keys() - {VLLM.name}))
@pytest.mark.parametrize("silence", [0, 300])
def test_no_word_of_vllm_is_in_what_another_engine_is_given(
    engine: str, silence: int, plan: Plan
) -> None:
    deployment = DEPLOYMENTS[engine](
        hub_token=SecretKey(name="hub", key="token"), silence_seconds=silence
    )

    assert "vllm" not in rendered(plan, deployment)


def test_the_words_of_vllm_are_found_where_they_are() -> None:
    assert "vllm" in rendered(a_small_plan(), a_deployment(silence_seconds=300))
