"""Parsers of tool calls and reasoning by the model's family."""

import pytest

from shardwright.engines.options import check_arguments
from shardwright.engines.vllm.arguments import FAMILIES, ParserFamily, family_arguments, family_of
from shardwright.engines.vllm.policy import RULES

FOUND = {
    "Qwen/Qwen3-8B": ("hermes", "qwen3"),
    "Qwen/Qwen3-30B-A3B-Thinking-2507": ("hermes", "qwen3"),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": ("hermes", ""),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": ("qwen3_coder", ""),
    "Qwen/Qwen2.5-7B-Instruct": ("hermes", ""),
    "Qwen/Qwen2.5-Coder-7B-Instruct": None,
    "Qwen/Qwen2.5-7B": None,
    "Qwen/Qwen3Guard-Gen-8B": None,
    "Qwen/Qwen3-8B-Base": None,
    "Qwen/Qwen3.5-27B": ("qwen3_coder", "qwen3"),
    "deepseek-ai/DeepSeek-V3-Base": None,
    "deepseek-ai/DeepSeek-V3.1": ("", "deepseek_v3"),
    "deepseek-ai/DeepSeek-V3.2": ("deepseek_v32", "deepseek_v3"),
    "deepseek-ai/DeepSeek-V4-Pro": ("deepseek_v4", "deepseek_v4"),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": ("", "deepseek_r1"),
    "nvidia/GLM-4.7-NVFP4": ("glm47", "glm45"),
    "zai-org/GLM-4.5-Air": ("glm45", "glm45"),
    "zai-org/GLM-4.5V": None,
    "moonshotai/Kimi-K2-Instruct-0905": ("kimi_k2", ""),
    "moonshotai/Kimi-K2-Thinking": ("kimi_k2", "kimi_k2"),
    "RedHatAI/MiniMax-M2-NVFP4": ("minimax_m2", "minimax_m2"),
    "openai/gpt-oss-20b": ("openai", ""),
    "meta-llama/Llama-3.1-8B-Instruct": None,
}


@pytest.mark.parametrize("model", FOUND)
def test_a_model_is_of_the_family_that_its_name_says_whoever_stores_it(model: str) -> None:
    found = family_of(model)
    assert (found and (found.tools, found.reasoning)) == FOUND[model]


@pytest.mark.parametrize("version", RULES.tables.versions)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_version_has_the_parsers_that_a_family_is_told(
    family: ParserFamily, version: str
) -> None:
    parsers = {"tool-call-parser": family.tools, "reasoning-parser": family.reasoning}
    said = {name: parser for name, parser in parsers.items() if parser}

    assert said
    assert check_arguments(said, version, rules=RULES) == ()


def test_what_a_user_says_is_left_as_he_says_it_and_what_goes_together_comes_together() -> None:
    assert family_arguments("Qwen/Qwen3-8B", "0.33.0", {}) == {
        "enable-auto-tool-choice": True,
        "tool-call-parser": "hermes",
        "reasoning-parser": "qwen3",
    }
    assert family_arguments("Qwen/Qwen3-8B", "0.33.0", {"tool_call_parser": "qwen3_xml"}) == {
        "reasoning-parser": "qwen3"
    }
    assert (
        family_arguments(
            "Qwen/Qwen3-8B",
            "0.33.0",
            {"enable-auto-tool-choice": False, "reasoning-parser": "none"},
        )
        == {}
    )


def test_a_version_whose_options_are_not_known_is_told_nothing() -> None:
    assert family_arguments("Qwen/Qwen3-8B", "0.40.0", {}) == {}
