"""DeepSeek-V2 to V3.2, Kimi-K2 and GLM-5: latent attention, shared experts, the first layers dense.

From V3.2 on an indexer in (most) layers selects the tokens to attend to; the cache holds its keys
beside the latent vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
from shardwright.modelspec.families.family import DEEPSEEK, Family, Shape, Tower, block_norms
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    LatentAttention,
    Layer,
    Split,
    Tensor,
    Tensors,
    WeightFormat,
    gated,
    linear,
    norms,
    routed,
    router,
)


def read_latent(fields: Fields, shape: Shape) -> LatentAttention:
    """Return latent attention as DeepSeek's configs name it."""
    return LatentAttention(
        heads=shape.heads,
        kv_lora_rank=fields.integer("kv_lora_rank", WIDTH),
        rope_dim=fields.integer("qk_rope_head_dim", (0, HEAD_DIM[1])),
        nope_dim=fields.integer("qk_nope_head_dim", HEAD_DIM),
        value_head_dim=fields.integer("v_head_dim", HEAD_DIM),
        q_lora_rank=fields.optional_integer("q_lora_rank", WIDTH),
    )


def _queries(shape: Shape, attention: LatentAttention) -> Tensors:
    width = attention.heads * (attention.nope_dim + attention.rope_dim)
    if attention.q_lora_rank is None:
        return linear("self_attn.q_proj", width, shape.hidden, Split.COLUMN)
    return (
        *linear("self_attn.q_a_proj", attention.q_lora_rank, shape.hidden, Split.REPLICATED),
        *norms(attention.q_lora_rank, "self_attn.q_a_layernorm"),
        *linear("self_attn.q_b_proj", width, attention.q_lora_rank, Split.COLUMN),
    )


def latent_tensors(shape: Shape, attention: LatentAttention) -> Tensors:
    """Return queries, the latent vector, its expansion to keys and values, and the output
    projection.
    """
    latent, heads = attention.kv_lora_rank, attention.heads
    key_values = heads * (attention.nope_dim + attention.value_head_dim)
    return (
        *_queries(shape, attention),
        *linear(
            "self_attn.kv_a_proj_with_mqa",
            latent + attention.rope_dim,
            shape.hidden,
            Split.REPLICATED,
        ),
        *norms(latent, "self_attn.kv_a_layernorm"),
        *linear("self_attn.kv_b_proj", key_values, latent, Split.COLUMN),
        *linear("self_attn.o_proj", shape.hidden, heads * attention.value_head_dim, Split.ROW),
    )


def read_experts(fields: Fields) -> ExpertFeedForward:
    """Return routed and shared experts as DeepSeek's configs name them."""
    experts = fields.integer("n_routed_experts", EXPERTS)
    intermediate = fields.integer("moe_intermediate_size", WIDTH)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=intermediate,
        shared_intermediate=intermediate
        * fields.integer("n_shared_experts", (0, EXPERTS[1]), default=0),
    )


def expert_tensors(
    shape: Shape, block: ExpertFeedForward, *, corrected: bool, gate: WeightFormat | None = None
) -> Tensors:
    """Return the router (with its FP32 correction bias, if any), shared and routed experts."""
    bias = Tensor(name="mlp.gate.e_score_correction_bias", outputs=block.experts, storage=FP32)
    shared = (
        gated("mlp.shared_experts", shape.hidden, block.shared_intermediate)
        if block.shared_intermediate
        else ()
    )
    return (
        router("mlp.gate", block.experts, shape.hidden, storage=gate),
        *((bias,) if corrected else ()),
        *shared,
        *routed("mlp.experts", block.experts, shape.hidden, block.expert_intermediate),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    attention: LatentAttention
    tensors: Tensors


def _indexer_tensors(fields: Fields, shape: Shape, attention: LatentAttention, dim: int) -> Tensors:
    """Every rank holds it whole. Source: vLLM 0.32 ``models/deepseek_v2.py:Indexer``."""
    heads = fields.integer("index_n_heads", HEADS)
    return (
        *linear(
            "self_attn.indexer.wq_b",
            heads * dim,
            attention.q_lora_rank or shape.hidden,
            Split.REPLICATED,
        ),
        Tensor(name="self_attn.indexer.wk", outputs=dim, inputs=shape.hidden),
        Tensor(name="self_attn.indexer.weights_proj", outputs=heads, inputs=shape.hidden),
        Tensor(name="self_attn.indexer.k_norm", outputs=dim, storage=FP32),
        Tensor(name="self_attn.indexer.k_norm.bias", outputs=dim, storage=FP32),
    )


def _attentions(fields: Fields, shape: Shape) -> Callable[[int], _Attention]:
    attention = read_latent(fields, shape)
    tensors = latent_tensors(shape, attention)
    if fields.values.get("index_topk") is None:
        plain = _Attention(attention=attention, tensors=tensors)
        return lambda _: plain
    dim = fields.integer("index_head_dim", HEAD_DIM)
    shared = replace(attention, selected_tokens=fields.integer("index_topk", CONTEXT))
    indexed = replace(shared, index_dim=dim)
    own = _Attention(
        attention=indexed, tensors=(*tensors, *_indexer_tensors(fields, shape, attention, dim))
    )
    # A layer that borrows a selection has no indexer, and no keys of one in the cache.
    borrowed = _Attention(attention=shared, tensors=tensors)
    types = fields.strings("indexer_types")
    return lambda layer: borrowed if layer < len(types) and types[layer] == "shared" else own


def _deepseek(fields: Fields, shape: Shape, gate: WeightFormat | None = None) -> Blocks:
    attention, experts = _attentions(fields, shape), read_experts(fields)
    dense = DenseFeedForward(intermediate=fields.integer("intermediate_size", WIDTH))
    first_sparse = fields.integer("first_k_dense_replace", (0, LAYERS[1]), default=0)
    corrected = fields.string("topk_method") == "noaux_tc"
    every = fields.integer("moe_layer_freq", LAYERS, default=1)
    dense_tensors = (*gated("mlp", shape.hidden, dense.intermediate), *block_norms(shape))
    sparse_tensors = (
        *expert_tensors(shape, experts, corrected=corrected, gate=gate),
        *block_norms(shape),
    )

    def block(layer: int) -> Block:
        own = attention(layer)
        if layer >= first_sparse and layer % every == 0:
            return Block(
                layer=Layer(attention=own.attention, feed_forward=experts),
                tensors=(*own.tensors, *sparse_tensors),
            )
        return Block(
            layer=Layer(attention=own.attention, feed_forward=dense),
            tensors=(*own.tensors, *dense_tensors),
        )

    return block


_DEFAULTS = MappingProxyType(
    {"n_shared_experts": 1, "q_lora_rank": 1536, "first_k_dense_replace": 3}
)

FAMILIES = {
    "MistralLarge3ForCausalLM": Family(blocks=_deepseek, defaults=_DEFAULTS),
    "Glm4MoeLiteForCausalLM": Family(
        blocks=partial(_deepseek, gate=FP32),
        defaults=MappingProxyType({**_DEFAULTS, "first_k_dense_replace": 1}),
    ),
    "DeepseekV2ForCausalLM": Family(
        blocks=_deepseek, defaults=MappingProxyType({"n_shared_experts": 2, "q_lora_rank": 1536})
    ),
    "DeepseekV3ForCausalLM": Family(blocks=_deepseek, defaults=_DEFAULTS, predictor=DEEPSEEK),
    "DeepseekV32ForCausalLM": Family(
        blocks=_deepseek,
        defaults=MappingProxyType({**_DEFAULTS, "index_topk": 2048}),
        predictor=DEEPSEEK,
    ),
    "GlmMoeDsaForCausalLM": Family(
        blocks=_deepseek,
        defaults=MappingProxyType({**_DEFAULTS, "q_lora_rank": 2048, "index_topk": 2048}),
        predictor=DEEPSEEK,
    ),
    "KimiK25ForConditionalGeneration": Family(
        blocks=_deepseek, defaults=_DEFAULTS, tower=Tower(matrices=2, split=Split.COLUMN)
    ),
}
