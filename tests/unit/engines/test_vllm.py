"""vLLM's traits."""

from shardwright.engines.vllm.traits import traits
from shardwright.layouts.layout import Remainder


def test_the_figures_are_those_of_the_engine() -> None:
    vllm = traits("0.33.0")
    assert (vllm.name, vllm.version, vllm.cuts.remainder) == (
        "vLLM",
        "0.33.0",
        Remainder.BEFORE_LAST,
    )
    assert (
        vllm.memory.memory_utilization,
        vllm.memory.vocabulary_padding,
        vllm.memory.kv_block_tokens,
    ) == (0.92, 64, 16)


def test_the_families_that_are_planned_are_known_and_can_be_cut_into_stages() -> None:
    vllm = traits("0.32.0")
    planned = {
        "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM", "MixtralForCausalLM",
        "Qwen3MoeForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM",
        "Gemma2ForCausalLM", "Gemma3ForCausalLM",
    }  # fmt: skip
    assert vllm.support.architectures is not None
    assert planned <= vllm.support.architectures - vllm.cuts.without_pipeline


def test_an_architecture_without_stages_is_known_and_listed() -> None:
    vllm = traits("0.32.0")
    assert vllm.support.architectures is not None
    assert "Mamba2ForCausalLM" in vllm.support.architectures & vllm.cuts.without_pipeline


def test_models_that_demand_tensor_at_most_experts_are_known() -> None:
    vllm = traits("0.32.0")
    assert vllm.support.architectures is not None
    assert vllm.cuts.experts_at_least_tensor <= vllm.support.architectures


def test_a_version_newer_than_the_list_refuses_no_architecture() -> None:
    assert traits("0.34.0").support.architectures is None
