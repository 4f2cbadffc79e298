"""Kimi-Linear and K3: Kimi delta attention in most layers, latent attention in every fourth,
experts on a latent width.
"""

from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import (
    EXPERTS,
    HEAD_DIM,
    HEADS,
    KERNEL,
    LAYERS,
    WIDTH,
    Fields,
)
from shardwright.modelspec.families.deepseek import latent_tensors, read_latent
from shardwright.modelspec.families.family import Family, Shape, Tower, block_norms
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    FeedForward,
    Layer,
    PipelineRole,
    RecurrentAttention,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    norms,
    routed,
    router,
)


def _delta_attention(config: Fields, shape: Shape) -> tuple[RecurrentAttention, Tensors]:
    """Source: vLLM 0.32 ``models/kimi_k3/nvidia/kda.py``, built for K3."""
    heads, dim = (config.integer("num_heads", HEADS), config.integer("head_dim", HEAD_DIM))
    kernel = config.integer("short_conv_kernel_size", KERNEL)
    width = heads * dim
    gate = _gate(config, shape.hidden, width, dim)
    state = RecurrentAttention(
        heads=heads,
        key_heads=heads,
        width=4 * width,
        state_elements=width * dim,
        convolution_elements=3 * width * (kernel - 1),
        checkpointed=True,
    )
    return state, (
        Tensor(name="self_attn.dt_bias", outputs=width, split=Split.COLUMN, storage=FP32),
        Tensor(name="self_attn.A_log", outputs=heads, split=Split.COLUMN, storage=FP32),
        Tensor(
            name="self_attn.conv1d",
            outputs=3 * width,
            inputs=kernel,
            split=Split.COLUMN,
            storage=FP32,
        ),
        *linear("self_attn.qkv_proj", 3 * width, shape.hidden, Split.COLUMN),
        *gate,
        *linear("self_attn.f_a_proj", dim, shape.hidden, Split.REPLICATED),
        *linear("self_attn.f_b_proj", width, dim, Split.COLUMN),
        *linear("self_attn.b_proj", heads, shape.hidden, Split.COLUMN),
        *norms(dim, "self_attn.o_norm"),
        *linear("self_attn.o_proj", shape.hidden, width, Split.ROW),
    )


def _gate(config: Fields, hidden: int, width: int, dim: int) -> Tensors:
    if config.boolean("use_full_rank_gate", default=False):
        return linear("self_attn.g_proj", width, hidden, Split.COLUMN)
    return (
        *linear("self_attn.g_a_proj", dim, hidden, Split.REPLICATED),
        *linear("self_attn.g_b_proj", width, dim, Split.COLUMN),
    )


def _experts(fields: Fields) -> ExpertFeedForward:
    experts = fields.integer("num_experts", EXPERTS)
    intermediate = fields.integer("moe_intermediate_size", WIDTH)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=intermediate,
        shared_intermediate=intermediate
        * fields.integer("num_shared_experts", (0, EXPERTS[1]), default=0),
    )


def _expert_tensors(fields: Fields, shape: Shape, block: ExpertFeedForward) -> Tensors:
    latent = fields.optional_integer("routed_expert_hidden_size", WIDTH)
    return (
        router("block_sparse_moe.gate", block.experts, shape.hidden),
        Tensor(
            name="block_sparse_moe.gate.e_score_correction_bias",
            outputs=block.experts,
            storage=FP32,
        ),
        *(
            gated("block_sparse_moe.shared_experts", shape.hidden, block.shared_intermediate)
            if block.shared_intermediate
            else ()
        ),
        *(_latent_projections(latent, shape.hidden) if latent else ()),
        *routed(
            "block_sparse_moe.experts",
            block.experts,
            latent or shape.hidden,
            block.expert_intermediate,
        ),
    )


def _latent_projections(latent: int, hidden: int) -> Tensors:
    return (
        Tensor(name="block_sparse_moe.routed_expert_down_proj", outputs=latent, inputs=hidden),
        *norms(latent, "block_sparse_moe.routed_expert_norm"),
        Tensor(name="block_sparse_moe.routed_expert_up_proj", outputs=hidden, inputs=latent),
    )


def _residuals(fields: Fields, shape: Shape, *names: str) -> Tensors:
    """Only K3 weighs earlier residuals."""
    if fields.values.get("attn_res_block_size") is None:
        return ()
    projections = (
        Tensor(name=f"{name}_res_proj", outputs=1, inputs=shape.hidden) for name in names
    )
    return (*norms(shape.hidden, *(f"{name}_res_norm" for name in names)), *projections)


def _kimi_linear(fields: Fields, shape: Shape) -> Blocks:
    config = fields.section("linear_attn_config") or Fields(
        {}, f"{fields.path}linear_attn_config.", fields.problems
    )
    full_layers = frozenset(config.integers("full_attn_layers"))  # counted from 1
    state, state_tensors = _delta_attention(config, shape)
    latent = read_latent(fields, shape)
    gate = linear(
        "self_attn.g_proj", latent.heads * latent.value_head_dim, shape.hidden, Split.COLUMN
    )
    latent_parts = (
        *latent_tensors(shape, latent),
        *(gate if fields.boolean("mla_use_output_gate", default=False) else ()),
    )
    experts, dense = (
        _experts(fields),
        DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH)),
    )
    first_sparse = fields.integer("first_k_dense_replace", (0, LAYERS[1]), default=0)
    always = (*block_norms(shape), *_residuals(fields, shape, "self_attention", "mlp"))
    dense_tensors = gated("mlp", shape.hidden, dense.intermediate)
    sparse_tensors = _expert_tensors(fields, shape, experts)

    def block(layer: int) -> Block:
        full = layer + 1 in full_layers
        feed_forward: FeedForward = experts if layer >= first_sparse else dense
        rest = (*(sparse_tensors if layer >= first_sparse else dense_tensors), *always)
        return Block(
            layer=Layer(attention=latent if full else state, feed_forward=feed_forward),
            tensors=(*(latent_parts if full else state_tensors), *rest),
        )

    return block


def _ends(fields: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    return tuple(
        (PipelineRole.FINAL, tensor) for tensor in _residuals(fields, shape, "model.output_attn")
    )


_NAMES: Final = MappingProxyType({"num_experts_per_tok": ("num_experts_per_token",)})

FAMILIES = {
    "KimiLinearForCausalLM": Family(blocks=_kimi_linear, names=_NAMES, ends=_ends),
    "KimiK3ForConditionalGeneration": Family(
        blocks=_kimi_linear,
        names=_NAMES,
        ends=_ends,
        tower=Tower(matrices=2, split=Split.REPLICATED),
    ),
}
