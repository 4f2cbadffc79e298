"""Gemma 1 to 4: tied embeddings, from 2 on four norms a layer and layers that slide, in 4 experts
beside the dense block.

Refuses a Gemma 4 whose layers share K/V or take inputs of their own: those are not read.
"""

from dataclasses import replace
from types import MappingProxyType

from shardwright.modelspec.config_json import EXPERTS, HEAD_DIM, HEADS, LAYERS, WIDTH, Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    Tower,
    alternating,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    window_of,
)
from shardwright.modelspec.model_spec import (
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
    norms,
    routed,
    router,
)


def _tensors(fields: Fields, shape: Shape, intermediate: int) -> Tensors:
    bias = fields.boolean("attention_bias", default=False)
    attention = grouped_tensors(shape, bias=bias, output_bias=bias)
    return (*attention, *gated("mlp", shape.hidden, intermediate), *block_norms(shape))


def _sandwich(shape: Shape) -> Tensors:
    return norms(shape.hidden, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _gemma(fields: Fields, shape: Shape) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH)
    block = Block(
        layer=Layer(
            attention=grouped(shape), feed_forward=DenseFeedForward(intermediate=intermediate)
        ),
        tensors=_tensors(fields, shape, intermediate),
    )
    return lambda _: block


def _sliding(fields: Fields, shape: Shape, extra: Tensors, full_every: int) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH)
    tensors = (*_tensors(fields, shape, intermediate), *_sandwich(shape), *extra)
    slides = alternating(fields, shape.layers, full_every)
    sliding, full = (
        Block(
            layer=Layer(
                attention=grouped(shape, reach),
                feed_forward=DenseFeedForward(intermediate=intermediate),
            ),
            tensors=tensors,
        )
        for reach in (window_of(fields), None)
    )
    return lambda layer: sliding if slides(layer) else full


def _gemma2(fields: Fields, shape: Shape) -> Blocks:
    return _sliding(fields, shape, (), full_every=2)


def _gemma3(fields: Fields, shape: Shape) -> Blocks:
    every = fields.integer("sliding_window_pattern", LAYERS, default=6)
    return _sliding(fields, shape, head_norms(shape), every)


def _gemma4_attention(
    fields: Fields, shape: Shape, *, slides: bool
) -> tuple[GroupedAttention, Tensors]:
    """Full layers have their own head width and K/V heads."""
    full = replace(
        shape,
        head_dim=fields.integer("global_head_dim", HEAD_DIM, default=shape.head_dim),
        kv_heads=fields.integer("num_global_key_value_heads", HEADS, default=shape.kv_heads),
    )
    own = shape if slides else full
    window = window_of(fields) if slides else None
    return grouped(own, window), (*grouped_tensors(own), *head_norms(own))


def _gemma4_experts(fields: Fields) -> ExpertFeedForward | None:
    if not fields.boolean("enable_moe_block", default=False):
        return None
    experts = fields.integer("num_experts", EXPERTS)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("top_k_experts", (1, experts)),
        expert_intermediate=fields.integer("moe_intermediate_size", WIDTH),
        shared_intermediate=fields.integer("intermediate_size", WIDTH),
    )


def _gemma4_expert_tensors(shape: Shape, block: ExpertFeedForward) -> Tensors:
    return (
        Tensor(name="router.scale", outputs=shape.hidden),
        Tensor(name="router.per_expert_scale", outputs=block.experts),
        router("router.proj", block.experts, shape.hidden),
        *routed("experts", block.experts, shape.hidden, block.expert_intermediate),
        *norms(
            shape.hidden,
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
            "pre_feedforward_layernorm_2",
        ),
    )


def _gemma4(fields: Fields, shape: Shape) -> Blocks:
    for unread in ("num_kv_shared_layers", "hidden_size_per_layer_input"):
        if fields.integer(unread, (0, WIDTH[1]), default=0):
            fields.refuse(
                unread, f"{fields.values[unread]}", "is not read yet", "serve a model without it"
            )
    intermediate = fields.integer("intermediate_size", WIDTH)
    experts = _gemma4_experts(fields)
    rest = (
        *gated("mlp", shape.hidden, intermediate),
        *block_norms(shape),
        *_sandwich(shape),
        *(_gemma4_expert_tensors(shape, experts) if experts else ()),
    )
    slides = alternating(fields, shape.layers, full_every=6)
    sliding, full = (
        Block(
            layer=Layer(
                attention=attention,
                feed_forward=experts or DenseFeedForward(intermediate=intermediate),
            ),
            tensors=(*tensors, *rest),
        )
        for attention, tensors in (
            _gemma4_attention(fields, shape, slides=each) for each in (True, False)
        )
    )
    return lambda layer: sliding if slides(layer) else full


_GEMMA2_DEFAULTS = MappingProxyType(
    {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096}
)
_GEMMA4_DEFAULTS = MappingProxyType(
    {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 512}
)
_GEMMA3_DEFAULTS = MappingProxyType(
    {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }
)

FAMILIES = {
    "Gemma4ForCausalLM": Family(blocks=_gemma4, tied=True, defaults=_GEMMA4_DEFAULTS),
    "Gemma4ForConditionalGeneration": Family(
        blocks=_gemma4,
        tied=True,
        defaults=_GEMMA4_DEFAULTS,
        tower=Tower(matrices=3, split=Split.REPLICATED),
    ),
    "GemmaForCausalLM": Family(
        blocks=_gemma, tied=True, defaults=MappingProxyType({"head_dim": 256})
    ),
    "Gemma2ForCausalLM": Family(blocks=_gemma2, tied=True, defaults=_GEMMA2_DEFAULTS),
    "Gemma3ForCausalLM": Family(blocks=_gemma3, tied=True, defaults=_GEMMA3_DEFAULTS),
    "Gemma3ForConditionalGeneration": Family(
        blocks=_gemma3,
        tied=True,
        defaults=_GEMMA3_DEFAULTS,
        tower=Tower(matrices=2, split=Split.COLUMN),
    ),
}
