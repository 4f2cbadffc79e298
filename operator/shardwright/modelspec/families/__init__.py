"""The model families, one module each: what a decoder layer of an architecture is made of.

A family says what its layers compute and which tensors they hold; it reads nothing but its own config
fields. What all families share (embeddings, head, dtype, quantization, context length) is in
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
    gpt_oss,
    kimi,
    llama,
    llama4,
    mimo,
    minimax,
    mixture,
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
    gpt_oss,
    kimi,
    llama,
    llama4,
    mimo,
    minimax,
    mixture,
    nemotron,
    qwen_hybrid,
    step,
)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {architecture: family for module in _MODULES for architecture, family in module.FAMILIES.items()}
)
"""Every architecture that can be read, by the name that ``architectures`` has for it."""

MODEL_TYPES: Final[Mapping[str, str]] = MappingProxyType({"gptj": "GPTJForCausalLM", "opt": "OPTForCausalLM"})
"""The architecture of a ``model_type``, for summaries of other tools, which name no architecture."""
