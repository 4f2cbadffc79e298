"""Decoders that are unknown by name but state the usual fields, and nothing that a plain decoder does not have."""

from typing import Final

from shardwright.modelspec.families.family import Family
from shardwright.modelspec.families.llama import dense_blocks
from shardwright.modelspec.fields import Fields

_NEEDED: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")

_TELLING: Final = (
    "attn_config",
    "block_configs",
    "chunk",
    "conv",
    "cross_",
    "encoder",
    "expert",
    "ffn_config",
    "full_attn",
    "hybrid",
    "kv_shared",
    "layer_types",
    "layers_block_type",
    "linear",
    "lora_rank",
    "mamba",
    "moe",
    "rwkv",
    "sparse",
    "ssm",
    "state_size",
    "text_config",
    "vision",
    "audio",
)
"""Parts of field names that belong to layers that are not plain attention and a gated feed-forward block."""


def is_plain(architecture: str, top: Fields) -> bool:
    """Return whether the generic reading is safe: a causal decoder with the usual fields and no others of weight."""
    if not architecture.endswith("ForCausalLM") or any(top.values.get(name) is None for name in _NEEDED):
        return False
    stated = (name for name, value in top.values.items() if value not in (None, False, 0, [], {}))
    return not any(part in name for name in stated for part in _TELLING)


FAMILY: Final = Family(
    blocks=dense_blocks,
    assumed=("{architecture} is not known: read as a plain decoder (gated feed-forward, two norms a layer)",),
)
"""How such a config is read: as Llama's, with a sliding window where one is stated."""
