"""Qwen3-Next and Qwen3.5: gated delta rule in most layers, gated full attention in every fourth.

Refuses a list of layers that is shorter than the model.
"""

from collections.abc import Callable
from types import MappingProxyType

from shardwright.modelspec.config_json import HEAD_DIM, HEADS, KERNEL, LAYERS, WIDTH, Fields
from shardwright.modelspec.families.family import (
    QWEN_3_5,
    QWEN_NEXT,
    QWEN_TOWER,
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
)
from shardwright.modelspec.families.mixture import qwen_expert_tensors, read_qwen_experts
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    FeedForward,
    Layer,
    RecurrentAttention,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    norms,
)


def _delta_rule(fields: Fields, shape: Shape) -> tuple[RecurrentAttention, Tensors]:
    key_heads = fields.integer("linear_num_key_heads", HEADS)
    heads = fields.integer("linear_num_value_heads", HEADS)
    key_dim = fields.integer("linear_key_head_dim", HEAD_DIM)
    value_dim = fields.integer("linear_value_head_dim", HEAD_DIM)
    kernel = fields.integer("linear_conv_kernel_dim", KERNEL)
    mixed, values = 2 * key_heads * key_dim + heads * value_dim, heads * value_dim
    state = RecurrentAttention(
        heads=heads,
        key_heads=key_heads,
        width=mixed + values + 2 * heads,
        state_elements=heads * key_dim * value_dim,
        convolution_elements=mixed * (kernel - 1),
        state_bits=32 if fields.string("mamba_ssm_dtype") in (None, "float32") else 16,
    )
    return state, (
        Tensor(name="linear_attn.dt_bias", outputs=heads, split=Split.COLUMN),
        Tensor(name="linear_attn.A_log", outputs=heads, split=Split.COLUMN, storage=FP32),
        Tensor(name="linear_attn.conv1d", outputs=mixed, inputs=kernel, split=Split.COLUMN),
        *linear("linear_attn.in_proj_qkv", mixed, shape.hidden, Split.COLUMN),
        *linear("linear_attn.in_proj_z", values, shape.hidden, Split.COLUMN),
        *linear("linear_attn.in_proj_ba", 2 * heads, shape.hidden, Split.COLUMN),
        *norms(value_dim, "linear_attn.norm"),
        *linear("linear_attn.out_proj", shape.hidden, values, Split.ROW),
    )


def _full_attention(fields: Fields, shape: Shape) -> Tensors:
    gate = linear("self_attn.q_gate", shape.heads * shape.head_dim, shape.hidden, Split.COLUMN)
    gated_output = fields.boolean("attn_output_gate", default=True)
    bias = fields.boolean("attention_bias", default=False)
    return (*grouped_tensors(shape, bias=bias), *(gate if gated_output else ()), *head_norms(shape))


def _is_full(fields: Fields, layers: int) -> Callable[[int], bool]:
    types = fields.strings("layer_types")
    if types and len(types) < layers:
        fields.refuse(
            "layer_types", f"{len(types)} entries", f"must be one for each of {layers} layers"
        )
        return lambda _: True
    every = fields.integer("full_attention_interval", LAYERS, default=4)
    return (
        (lambda layer: types[layer] == "full_attention")
        if types
        else (lambda layer: (layer + 1) % every == 0)
    )


def _hybrid(fields: Fields, shape: Shape, feed_forward: FeedForward, tensors: Tensors) -> Blocks:
    state, recurrent = _delta_rule(fields, shape)
    rest = (*tensors, *block_norms(shape))
    is_full = _is_full(fields, shape.layers)
    full = Block(
        layer=Layer(attention=grouped(shape), feed_forward=feed_forward),
        tensors=(*_full_attention(fields, shape), *rest),
    )
    linear_block = Block(
        layer=Layer(attention=state, feed_forward=feed_forward), tensors=(*recurrent, *rest)
    )
    return lambda layer: full if is_full(layer) else linear_block


def _dense(fields: Fields, shape: Shape) -> Blocks:
    block = DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH))
    return _hybrid(fields, shape, block, gated("mlp", shape.hidden, block.intermediate))


def _sparse(fields: Fields, shape: Shape) -> Blocks:
    experts: ExpertFeedForward = read_qwen_experts(fields)
    return _hybrid(
        fields, shape, experts, qwen_expert_tensors(shape, experts, quantizable_router=False)
    )


_DENSE_DEFAULTS = MappingProxyType({"num_key_value_heads": 4, "head_dim": 256})
_SPARSE_DEFAULTS = MappingProxyType(
    {"num_key_value_heads": 2, "head_dim": 256, "shared_expert_intermediate_size": 512}
)

FAMILIES = {
    "Qwen3NextForCausalLM": Family(blocks=_sparse, defaults=_SPARSE_DEFAULTS, predictor=QWEN_NEXT),
    "Qwen3_5ForCausalLM": Family(blocks=_dense, defaults=_DENSE_DEFAULTS, predictor=QWEN_3_5),
    "Qwen3_5ForConditionalGeneration": Family(
        blocks=_dense, defaults=_DENSE_DEFAULTS, tower=QWEN_TOWER, predictor=QWEN_3_5
    ),
    "Qwen3_5MoeForCausalLM": Family(blocks=_sparse, defaults=_SPARSE_DEFAULTS, predictor=QWEN_3_5),
    "Qwen3_5MoeForConditionalGeneration": Family(
        blocks=_sparse, defaults=_SPARSE_DEFAULTS, tower=QWEN_TOWER, predictor=QWEN_3_5
    ),
}
