"""What are the parts of a decoder layer of an architecture? One module for each model family.

A family says how its layers compute and which tensors they hold, from its own config fields alone.
What all families share (embeddings, head, dtype, quantization, context length) is in
``shardwright.modelspec.read``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.families import (
    classic,
    deepseek,
    deepseek_v4,
    gemma,
    glm,
    glm_next,
    gpt_oss,
    kimi,
    llama,
    llama4,
    mimo,
    minimax,
    mixture,
    muse,
    named,
    nemotron,
    qwen_hybrid,
    step,
)
from shardwright.modelspec.families.family import Family

_MODULES: Final = (
    classic,
    deepseek,
    deepseek_v4,
    gemma,
    glm,
    glm_next,
    gpt_oss,
    kimi,
    llama,
    llama4,
    mimo,
    minimax,
    mixture,
    muse,
    named,
    nemotron,
    qwen_hybrid,
    step,
)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        architecture: family
        for module in _MODULES
        for architecture, family in module.FAMILIES.items()
    }
)
"""Every architecture that can be read, by the name that ``architectures`` has for it."""

LANGUAGE_MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepseek_v2": "DeepseekV2ForCausalLM",
        "deepseek_v3": "DeepseekV3ForCausalLM",
        "deepseek_v32": "DeepseekV32ForCausalLM",
        "deepseek_v4": "DeepseekV4ForCausalLM",
        "gemma": "GemmaForCausalLM",
        "gemma2": "Gemma2ForCausalLM",
        "gemma3_text": "Gemma3ForCausalLM",
        "gemma4_text": "Gemma4ForCausalLM",
        "glm5_next_text": "Glm5NextForCausalLM",
        "glm4_moe": "Glm4MoeForCausalLM",
        "glm4v_moe_text": "Glm4MoeForCausalLM",
        "glm_moe_dsa": "GlmMoeDsaForCausalLM",
        "gpt_oss": "GptOssForCausalLM",
        "kimi_k2": "DeepseekV3ForCausalLM",
        "kimi_linear": "KimiLinearForCausalLM",
        "llama": "LlamaForCausalLM",
        "llama4_text": "Llama4ForCausalLM",
        "minimax_m2": "MiniMaxM2ForCausalLM",
        "mistral": "MistralForCausalLM",
        "mixtral": "MixtralForCausalLM",
        "muse_glimmer_text": "MuseGlimmerForCausalLM",
        "nemotron_h": "NemotronHForCausalLM",
        "phi3": "Phi3ForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "qwen2_5_vl_text": "Qwen2ForCausalLM",
        "qwen2_vl_text": "Qwen2ForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
        "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
        "qwen3_5_text": "Qwen3_5ForCausalLM",
        "qwen3_moe": "Qwen3MoeForCausalLM",
        "qwen3_next": "Qwen3NextForCausalLM",
        "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
        "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
        "qwen3_vl_text": "Qwen3ForCausalLM",
        "step3p5": "Step3p5ForCausalLM",
    }
)
"""The architecture of a ``text_config`` by its ``model_type``, as transformers 5 names them."""

MODEL_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"gptj": "GPTJForCausalLM", "opt": "OPTForCausalLM"}
)
"""The architecture of a ``model_type``, for summaries of other tools, which name no architecture.
"""
