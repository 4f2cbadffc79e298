"""Step-3.5 and Step-3.7: sliding layers, head norms, experts with one shared expert after the first
layers.

No engine with a class for Step-3.7 was seen: it is read as Step-3.5, and said to be.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import EXPERTS, HEADS, LAYERS, WIDTH, Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    alternating,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    window_of,
)
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    GroupedAttention,
    Layer,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    routed,
    router,
)


def _experts(fields: Fields) -> ExpertFeedForward:
    experts = fields.integer("num_experts", EXPERTS)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("moe_intermediate_size", WIDTH),
        shared_intermediate=fields.integer("share_expert_dim", WIDTH),
    )


def _expert_tensors(fields: Fields, shape: Shape, block: ExpertFeedForward) -> Tensors:
    """Source: vLLM 0.32 ``models/step3p5.py:FusedMoEBlock``."""
    bias = Tensor(name="moe.router_bias", outputs=block.experts, storage=FP32)
    return (
        router(
            "moe.gate",
            block.experts,
            shape.hidden,
            storage=FP32 if fields.boolean("need_fp32_gate", default=True) else None,
        ),
        *((bias,) if fields.boolean("use_moe_router_bias", default=True) else ()),
        *gated("share_expert", shape.hidden, block.shared_intermediate),
        *routed("moe.experts", block.experts, shape.hidden, block.expert_intermediate),
    )


def _attention(fields: Fields, shape: Shape, *, slides: bool) -> tuple[GroupedAttention, Tensors]:
    other = fields.section("attention_other_setting") if slides else None
    own = replace(
        shape,
        heads=other.integer("num_attention_heads", HEADS, default=shape.heads)
        if other
        else shape.heads,
        kv_heads=other.integer("num_attention_groups", HEADS, default=shape.kv_heads)
        if other
        else shape.kv_heads,
    )
    gate = linear("self_attn.g_proj", own.heads, own.hidden, Split.COLUMN)
    gated_heads = fields.boolean("use_head_wise_attn_gate", default=False)
    tensors = (*grouped_tensors(own), *(gate if gated_heads else ()), *head_norms(own))
    return grouped(own, window_of(fields) if slides else None), tensors


def _sparse_layers(fields: Fields, layers: int) -> frozenset[int]:
    """Return the layers with experts: listed (a text of numbers), else all after the first dense
    ones.
    """
    listed = fields.values.get("moe_layers_enum")
    if isinstance(listed, str):
        return frozenset(int(item) for item in listed.split(",") if item.strip().isdecimal())
    if isinstance(listed, list):
        return frozenset(fields.integers("moe_layers_enum"))
    return frozenset(
        range(fields.integer("first_k_dense_replace", (0, LAYERS[1]), default=1), layers)
    )


def _step(fields: Fields, shape: Shape) -> Blocks:
    experts = _experts(fields)
    dense = DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH))
    sparse = _sparse_layers(fields, shape.layers)
    slides = alternating(fields, shape.layers, full_every=4)
    attentions = {each: _attention(fields, shape, slides=each) for each in (True, False)}
    sparse_tensors = (*_expert_tensors(fields, shape, experts), *block_norms(shape))
    dense_tensors = (*gated("mlp", shape.hidden, dense.intermediate), *block_norms(shape))

    def block(layer: int) -> Block:
        attention, tensors = attentions[slides(layer)]
        if layer in sparse:
            return Block(
                layer=Layer(attention=attention, feed_forward=experts),
                tensors=(*tensors, *sparse_tensors),
            )
        return Block(
            layer=Layer(attention=attention, feed_forward=dense), tensors=(*tensors, *dense_tensors)
        )

    return block


_NAMES: Final = MappingProxyType(
    {
        "num_key_value_heads": ("num_attention_groups",),
        "num_experts": ("moe_num_experts",),
        "num_experts_per_tok": ("moe_top_k",),
        "max_position_embeddings": ("max_seq_len",),
    }
)

FAMILIES = {
    "Step3p5ForCausalLM": Family(blocks=_step, names=_NAMES),
    "Step3p7FlashForCausalLM": Family(
        blocks=_step,
        names=_NAMES,
        warnings=(
            "{architecture} is read as Step-3.5: no engine release with this class was seen",
        ),
    ),
}
