"""Which decoders that are unknown by name can be read, as they state the usual fields and no others
of weight?
"""

from typing import Final

from shardwright.modelspec.families.family import Family
from shardwright.modelspec.families.llama import dense_blocks
from shardwright.modelspec.fields import Fields

_NEEDED: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)

_TELLING: Final = (
    "attention_window",
    "attn_config",
    "audio",
    "block_configs",
    "chunk",
    "conv",
    "cross_",
    "cycles",
    "embed_proj",
    "embedding_size",
    "encoder",
    "expert",
    "ffn_config",
    "full_attn",
    "hc_",
    "hybrid",
    "kv_shared",
    "layers_block_type",
    "linear",
    "loop",
    "lora_rank",
    "mamba",
    "moe",
    "multi_query",
    "ngram",
    "num_kv_heads",
    "per_stack",
    "query_group",
    "recurrent",
    "rwkv",
    "share_",
    "shared_",
    "sparse",
    "ssm",
    "state_size",
    "text_config",
    "ut_steps",
    "v_head_dim",
    "vision",
    "window_size",
)
"""Parts of field names that belong to layers that are not plain attention and a gated feed-forward
block.
"""

_GATED: Final = frozenset({"silu", "swish", "swiglu"})
"""Activations of gated feed-forward blocks: among the causal decoders of transformers 5 whose
config names one of them there is none without a gate, among those with another (gelu, relu2, ...)
hardly any with one.
"""

_KINDS: Final = frozenset({"full_attention", "sliding_attention"})


def is_plain(architecture: str, top: Fields) -> bool:
    """Return whether the generic reading is safe: a causal decoder with the usual fields, and no
    others of weight.
    """
    if not architecture.endswith("ForCausalLM") or any(
        top.values.get(name) is None for name in _NEEDED
    ):
        return False
    if top.values.get("hidden_act") not in _GATED or not _KINDS.issuperset(
        top.strings("layer_types")
    ):
        return False
    stated = (name for name, value in top.values.items() if value not in (None, False, 0, [], {}))
    return not any(part in name for name in stated for part in _TELLING)


FAMILY: Final = Family(
    blocks=dense_blocks,
    warnings=(
        (
            "{architecture} is not known: read as a plain "
            "decoder (gated feed-forward, two norms a layer)"
        ),
    ),
)
"""How such a config is read: as Llama's, with sliding windows where they are stated."""
