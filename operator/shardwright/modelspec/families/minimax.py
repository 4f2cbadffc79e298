"""MiniMax-M2 and M3: experts in (nearly) all layers; M3 attends to blocks that an indexer
selects.
"""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from shardwright.modelspec.config_json import (
    CONTEXT,
    EXPERTS,
    HEAD_DIM,
    HEADS,
    LAYERS,
    WIDTH,
    Fields,
)
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    Tower,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    per_layer,
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
    norms,
    routed,
    router,
)


def _experts(fields: Fields) -> ExpertFeedForward:
    experts = fields.integer("num_local_experts", EXPERTS)
    intermediate = fields.integer("intermediate_size", WIDTH)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=intermediate,
        shared_intermediate=intermediate
        * fields.integer("n_shared_experts", (0, EXPERTS[1]), default=0),
    )


def _expert_tensors(fields: Fields, shape: Shape, block: ExpertFeedForward) -> Tensors:
    correction = Tensor(
        name="block_sparse_moe.e_score_correction_bias", outputs=block.experts, storage=FP32
    )
    shared = gated("block_sparse_moe.shared_experts", shape.hidden, block.shared_intermediate)
    return (
        *((correction,) if fields.boolean("use_routing_bias", default=False) else ()),
        router("block_sparse_moe.gate", block.experts, shape.hidden, storage=FP32),
        *(shared if block.shared_intermediate else ()),
        *routed("block_sparse_moe.experts", block.experts, shape.hidden, block.expert_intermediate),
    )


def _query_key_norms(fields: Fields, shape: Shape) -> Tensors:
    if not fields.boolean("use_qk_norm", default=False):
        return ()
    if fields.string("qk_norm_type") == "per_head":
        return head_norms(shape)
    return (
        Tensor(name="self_attn.q_norm", outputs=shape.heads * shape.head_dim, split=Split.COLUMN),
        Tensor(
            name="self_attn.k_norm", outputs=shape.kv_heads * shape.head_dim, split=Split.KV_HEADS
        ),
    )


def _minimax_m2(fields: Fields, shape: Shape) -> Blocks:
    experts = _experts(fields)
    block = Block(
        layer=Layer(attention=grouped(shape), feed_forward=experts),
        tensors=(
            *grouped_tensors(shape),
            *_query_key_norms(fields, shape),
            *_expert_tensors(fields, shape, experts),
            *block_norms(shape),
        ),
    )
    return lambda _: block


def _indexed(fields: Fields, shape: Shape) -> tuple[GroupedAttention, Tensors]:
    section = fields.section("sparse_attention_config") or Fields(
        {}, f"{fields.path}sparse_attention_config.", fields.problems
    )
    heads, dim = (
        section.integer("sparse_num_index_heads", HEADS),
        section.integer("sparse_index_dim", HEAD_DIM),
    )
    blocks, size = (
        section.integer("sparse_topk_blocks", CONTEXT),
        section.integer("sparse_block_size", CONTEXT),
    )
    attention = replace(grouped(shape), selected_tokens=blocks * size, index_dim=dim)
    return attention, (
        *linear("self_attn.index_q_proj", heads * dim, shape.hidden, Split.KV_HEADS),
        *linear("self_attn.index_k_proj", dim, shape.hidden, Split.REPLICATED),
        *norms(dim, "self_attn.index_q_norm", "self_attn.index_k_norm"),
    )


def _is_sparse(fields: Fields, layers: int) -> Callable[[int], bool]:
    listed = per_layer(fields, "moe_layer_freq", layers)
    first = fields.integer("first_k_dense_replace", (0, LAYERS[1]), default=0)
    return (lambda layer: listed[layer] != 0) if listed else (lambda layer: layer >= first)


def _minimax_m3(fields: Fields, shape: Shape) -> Blocks:
    experts = _experts(fields)
    dense = DenseFeedForward(intermediate=fields.integer("dense_intermediate_size", WIDTH))
    always = (*grouped_tensors(shape), *_query_key_norms(fields, shape), *block_norms(shape))
    attention, indexer = _indexed(fields, shape)
    sparse_tensors = (*always, *indexer, *_expert_tensors(fields, shape, experts))
    first = Block(
        layer=Layer(attention=grouped(shape), feed_forward=dense),
        tensors=(*always, *gated("mlp", shape.hidden, dense.intermediate)),
    )
    sparse = Block(layer=Layer(attention=attention, feed_forward=experts), tensors=sparse_tensors)
    is_sparse = _is_sparse(fields, shape.layers)
    return lambda layer: sparse if is_sparse(layer) else first


FAMILIES = {
    "MiniMaxM2ForCausalLM": Family(
        blocks=_minimax_m2, defaults=MappingProxyType({"num_key_value_heads": 8, "head_dim": 128})
    ),
    "MiniMaxM3ForCausalLM": Family(blocks=_minimax_m3),
    "MiniMaxM3SparseForCausalLM": Family(blocks=_minimax_m3),
    "MiniMaxM3SparseForConditionalGeneration": Family(
        blocks=_minimax_m3, tower=Tower(matrices=2, split=Split.COLUMN)
    ),
}
