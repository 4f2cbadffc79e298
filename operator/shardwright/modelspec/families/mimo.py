"""MiMo-V2: sliding layers with sinks and heads of their own, wider keys than values, DeepSeek's
experts.
"""

from dataclasses import replace
from types import MappingProxyType

from shardwright.modelspec.config_json import HEAD_DIM, HEADS, WIDTH, Fields
from shardwright.modelspec.families.deepseek import expert_tensors, read_experts
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    per_layer,
    window_of,
)
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    GroupedAttention,
    Layer,
    Split,
    Tensor,
    Tensors,
    gated,
)


def _attention(fields: Fields, shape: Shape, *, slides: bool) -> tuple[GroupedAttention, Tensors]:
    prefix = "swa_" if slides else ""
    own = replace(
        shape,
        heads=fields.integer(f"{prefix}num_attention_heads", HEADS, default=shape.heads),
        kv_heads=fields.integer(f"{prefix}num_key_value_heads", HEADS, default=shape.kv_heads),
        head_dim=fields.integer(f"{prefix}head_dim", HEAD_DIM, default=shape.head_dim),
        value_head_dim=fields.integer(f"{prefix}v_head_dim", HEAD_DIM, default=shape.head_dim),
    )
    has_sink = fields.boolean(
        f"add_{'swa' if slides else 'full'}_attention_sink_bias", default=False
    )
    sink = Tensor(name="self_attn.attention_sink_bias", outputs=own.heads, split=Split.COLUMN)
    tensors = grouped_tensors(own, bias=fields.boolean("attention_bias", default=False))
    return replace(grouped(own, window_of(fields) if slides else None), sinks=has_sink), (
        *tensors,
        *((sink,) if has_sink else ()),
    )


def _mimo_v2(fields: Fields, shape: Shape) -> Blocks:
    experts = read_experts(fields)
    dense = DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH))
    slides = per_layer(fields, "hybrid_layer_pattern", shape.layers) or (0,) * shape.layers
    sparse = per_layer(fields, "moe_layer_freq", shape.layers) or (1,) * shape.layers
    attentions = {each: _attention(fields, shape, slides=each) for each in (True, False)}
    corrected = fields.string("topk_method") == "noaux_tc"

    def block(layer: int) -> Block:
        attention, tensors = attentions[slides[layer] == 1]
        always = (*tensors, *block_norms(shape))
        if sparse[layer]:
            chosen = expert_tensors(shape, experts, corrected=corrected, gate=FP32)
            return Block(
                layer=Layer(attention=attention, feed_forward=experts), tensors=(*always, *chosen)
            )
        chosen = gated("mlp", shape.hidden, dense.intermediate)
        return Block(
            layer=Layer(attention=attention, feed_forward=dense), tensors=(*always, *chosen)
        )

    return block


_DEFAULTS = MappingProxyType(
    {"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128}
)

FAMILIES = {"MiMoV2FlashForCausalLM": Family(blocks=_mimo_v2, defaults=_DEFAULTS)}
