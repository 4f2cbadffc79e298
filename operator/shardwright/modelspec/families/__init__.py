"""The model families, one module each: what a decoder layer of an architecture is made of.

A family says what its layers compute and which tensors they hold; it reads nothing but its own config
fields. What all families share (embeddings, head, dtype, quantization, context length) is in
``shardwright.modelspec.read``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.families import deepseek, gemma, glm, gpt_oss, llama, mixture
from shardwright.modelspec.families.family import Family

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    llama.FAMILIES | mixture.FAMILIES | deepseek.FAMILIES | glm.FAMILIES | gpt_oss.FAMILIES | gemma.FAMILIES
)
"""Every architecture that can be read, by the name that ``architectures`` has for it."""
