"""GLM-5.3-Flash: Kimi delta attention in most layers, indexed latent attention in the others,
several residual streams.

Never compared with the engine's classes: its K/V is estimated, and said to be.
"""

from dataclasses import replace
from typing import Final

from shardwright.modelspec.config_json import CONTEXT, HEAD_DIM, HEADS, KERNEL, WIDTH, Fields
from shardwright.modelspec.families.deepseek import (
    expert_tensors,
    latent_tensors,
    read_experts,
    read_latent,
)
from shardwright.modelspec.families.deepseek_v4 import stream_tensors
from shardwright.modelspec.families.family import Family, Shape, Tower, block_norms
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    LatentAttention,
    Layer,
    RecurrentAttention,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    norms,
)

_POOL: Final = (1, 1024)


def _plain(tensors: Tensors) -> Tensors:
    """Attention is kept in the model's type. Source: ``glm5next/common/model.py``."""
    return tuple(replace(tensor, quantizable=False) for tensor in tensors)


def _delta_attention(config: Fields, shape: Shape) -> tuple[RecurrentAttention, Tensors]:
    """Source: vLLM 0.33 ``models/glm5next/common/kda.py``; every rank holds two low-rank gates
    whole.
    """
    heads, dim = (config.integer("num_heads", HEADS), config.integer("head_dim", HEAD_DIM))
    kernel = config.integer("short_conv_kernel_size", KERNEL)
    width = heads * dim
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
        *linear("self_attn.b_proj", heads, shape.hidden, Split.COLUMN),
        *linear("self_attn.f_a_proj", dim, shape.hidden, Split.REPLICATED),
        *linear("self_attn.g_a_proj", dim, shape.hidden, Split.REPLICATED),
        *linear("self_attn.f_b_proj", width, dim, Split.COLUMN),
        *linear("self_attn.g_b_proj", width, dim, Split.COLUMN),
        *norms(dim, "self_attn.o_norm"),
        *linear("self_attn.o_proj", shape.hidden, width, Split.ROW),
    )


def _indexer_tensors(fields: Fields, shape: Shape, q_rank: int, pool: int) -> Tensors:
    """Source: vLLM 0.33 ``models/glm5next/common/attention.py:Indexer``."""
    heads, dim = (
        fields.integer("index_n_heads", HEADS),
        fields.integer("index_head_dim", HEAD_DIM),
    )
    return (
        Tensor(
            name="self_attn.indexer.index_kpool_compress_ape",
            outputs=pool,
            inputs=dim,
            storage=FP32,
        ),
        Tensor(
            name="self_attn.indexer.index_kpool_compress_gate", outputs=dim, inputs=shape.hidden
        ),
        *linear("self_attn.indexer.wq_b", heads * dim, q_rank, Split.REPLICATED),
        *linear("self_attn.indexer.wk", dim, shape.hidden, Split.REPLICATED),
        *linear("self_attn.indexer.weights_proj", heads, shape.hidden, Split.REPLICATED),
        Tensor(name="self_attn.indexer.k_norm", outputs=dim, storage=FP32),
        Tensor(name="self_attn.indexer.k_norm.bias", outputs=dim, storage=FP32),
    )


def _kinds(fields: Fields, name: str, layers: int) -> tuple[str, ...]:
    kinds = fields.strings(name)
    if len(kinds) < layers:
        fields.refuse(name, f"{len(kinds)} entries", f"must be one for each of {layers} layers")
        return ("",) * layers
    return kinds


def _glm_next(fields: Fields, shape: Shape) -> Blocks:
    state, recurrent = _recurrent(fields, shape)
    latent, full = _selected(fields, shape)
    experts, dense = (
        read_experts(fields),
        DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH)),
    )
    attentions, blocks = (
        _kinds(fields, "layer_types", shape.layers),
        _kinds(fields, "mlp_layer_types", shape.layers),
    )
    streams = stream_tensors(fields, shape.hidden) if fields.boolean("mhc", default=False) else ()
    always = (*block_norms(shape), *streams)
    sparse_tensors = expert_tensors(
        shape, experts, corrected=fields.string("topk_method") == "noaux_tc"
    )

    def block(layer: int) -> Block:
        linear_layer, sparse = (attentions[layer] == "linear_attention", blocks[layer] == "sparse")
        rest = sparse_tensors if sparse else gated("mlp", shape.hidden, dense.intermediate)
        return Block(
            layer=Layer(
                attention=state if linear_layer else latent,
                feed_forward=experts if sparse else dense,
            ),
            tensors=(*(recurrent if linear_layer else full), *rest, *always),
        )

    return block


def _recurrent(fields: Fields, shape: Shape) -> tuple[RecurrentAttention, Tensors]:
    config = fields.section("linear_attn_config") or Fields(
        {}, f"{fields.path}linear_attn_config.", fields.problems
    )
    state, tensors = _delta_attention(config, shape)
    return state, _plain(tensors)


def _selected(fields: Fields, shape: Shape) -> tuple[LatentAttention, Tensors]:
    pool = fields.integer("index_kpool", _POOL, default=1)
    latent = replace(
        read_latent(fields, shape),
        selected_tokens=fields.integer("index_topk", CONTEXT),
        index_dim=fields.integer("index_head_dim", HEAD_DIM),
        index_pool=pool,
    )
    indexer = _indexer_tensors(fields, shape, latent.q_lora_rank or shape.hidden, pool)
    return latent, _plain((*latent_tensors(shape, latent), *indexer))


_WARNING: Final = (
    "{architecture} was counted from the source of vLLM's classes and not compared with them: "
    "its K/V is estimated"
)

_UNREAD: Final = frozenset({"head_dim"})
"""Stated as 0: each kind of layer has a width of its own."""

FAMILIES = {
    "Glm5NextForCausalLM": Family(blocks=_glm_next, ignores=_UNREAD, warnings=(_WARNING,)),
    "Glm5NextForConditionalGeneration": Family(
        blocks=_glm_next,
        ignores=_UNREAD,
        warnings=(_WARNING,),
        tower=Tower(matrices=3, split=Split.COLUMN),
    ),
}
