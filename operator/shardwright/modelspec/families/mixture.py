"""Mixtures of experts with grouped-query attention: Mixtral, Phi-MoE, DBRX, Qwen2-MoE,
Qwen3-MoE.
"""

from collections.abc import Callable
from types import MappingProxyType

from shardwright.modelspec.config_json import EXPERTS, LAYERS, VOCABULARY, WIDTH, Fields
from shardwright.modelspec.families.family import (
    QWEN_TOWER,
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    qwen_window,
    window_of,
)
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    Layer,
    PipelineRole,
    Split,
    Tensor,
    Tensors,
    gated,
    norms,
    routed,
    router,
)


def _mixtral(fields: Fields, shape: Shape, shared: int = 0) -> Blocks:
    experts = fields.integer("num_local_experts", EXPERTS)
    intermediate = fields.integer("intermediate_size", WIDTH)
    block = Block(
        layer=Layer(
            attention=grouped(shape, window_of(fields)),
            feed_forward=ExpertFeedForward(
                experts=experts,
                experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
                expert_intermediate=intermediate,
                shared_intermediate=shared,
            ),
        ),
        tensors=(
            *grouped_tensors(shape),
            router("block_sparse_moe.gate", experts, shape.hidden),
            *routed("block_sparse_moe.experts", experts, shape.hidden, intermediate),
            *block_norms(shape),
            *(gated("shared_mlp", shape.hidden, shared) if shared else ()),
        ),
    )
    return lambda _: block


def _phimoe(fields: Fields, shape: Shape) -> Blocks:
    bias = fields.boolean("attention_bias", default=False)
    experts = fields.integer("num_local_experts", EXPERTS)
    feed_forward = ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("intermediate_size", WIDTH),
    )
    block = Block(
        layer=Layer(attention=grouped(shape, window_of(fields)), feed_forward=feed_forward),
        tensors=(
            *grouped_tensors(shape, bias=bias, output_bias=bias),
            router("block_sparse_moe.gate", experts, shape.hidden),
            *routed(
                "block_sparse_moe.experts", experts, shape.hidden, feed_forward.expert_intermediate
            ),
            *block_norms(shape),
            *norms(shape.hidden, "input_layernorm.bias", "post_attention_layernorm.bias"),
        ),
    )
    return lambda _: block


def _phimoe_ends(fields: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    norm = (PipelineRole.FINAL, Tensor(name="model.norm.bias", outputs=shape.hidden))
    if not fields.boolean("lm_head_bias", default=False):
        return (norm,)
    vocabulary = fields.integer("vocab_size", VOCABULARY)
    return (
        norm,
        (
            PipelineRole.HEAD,
            Tensor(name="lm_head.bias", outputs=vocabulary, split=Split.VOCABULARY),
        ),
    )


def _dbrx(fields: Fields, shape: Shape) -> Blocks:
    experts = fields.integer("num_local_experts", EXPERTS)
    feed_forward = ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("intermediate_size", WIDTH),
    )
    block = Block(
        layer=Layer(attention=grouped(shape), feed_forward=feed_forward),
        tensors=(
            *grouped_tensors(shape),
            router("ffn.router.layer", experts, shape.hidden),
            *routed("ffn.experts", experts, shape.hidden, feed_forward.expert_intermediate),
            *block_norms(shape),
        ),
    )
    return lambda _: block


_DBRX_NAMES = MappingProxyType(
    {
        "hidden_size": ("d_model",),
        "num_hidden_layers": ("n_layers",),
        "num_attention_heads": ("n_heads",),
        "num_key_value_heads": ("attn_config.kv_n_heads",),
        "intermediate_size": ("ffn_config.ffn_hidden_size",),
        "num_local_experts": ("ffn_config.moe_num_experts",),
        "num_experts_per_tok": ("ffn_config.moe_top_k",),
        "max_position_embeddings": ("max_seq_len",),
    }
)


def _sparse_layers(fields: Fields) -> Callable[[int], bool]:
    step = fields.integer("decoder_sparse_step", LAYERS, default=1)
    dense = frozenset(fields.integers("mlp_only_layers"))
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def _qwen_dense(fields: Fields, shape: Shape, attention: Tensors) -> Block:
    intermediate = fields.integer("intermediate_size", WIDTH)
    window = qwen_window(fields, shape.layers)
    return Block(
        layer=Layer(
            attention=grouped(shape, window),
            feed_forward=DenseFeedForward(intermediate=intermediate),
        ),
        tensors=(*attention, *gated("mlp", shape.hidden, intermediate), *block_norms(shape)),
    )


def read_qwen_experts(fields: Fields) -> ExpertFeedForward:
    """Return routed and shared experts as Qwen's configs name them."""
    experts = fields.integer("num_experts", EXPERTS)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("moe_intermediate_size", WIDTH),
        shared_intermediate=fields.integer(
            "shared_expert_intermediate_size", (0, WIDTH[1]), default=0
        ),
    )


def qwen_expert_tensors(
    shape: Shape, block: ExpertFeedForward, *, quantizable_router: bool
) -> Tensors:
    """Return the router, routed experts and the gated shared expert, if any."""
    shared = block.shared_intermediate
    beside = (
        router("mlp.shared_expert_gate", 1, shape.hidden),
        *gated("mlp.shared_expert", shape.hidden, shared),
    )
    return (
        router("mlp.gate", block.experts, shape.hidden, quantizable=quantizable_router),
        *(beside if shared else ()),
        *routed("mlp.experts", block.experts, shape.hidden, block.expert_intermediate),
    )


def _qwen_sparse(
    fields: Fields, shape: Shape, attention: Tensors, *, quantizable_router: bool
) -> Block:
    experts = read_qwen_experts(fields)
    tensors = qwen_expert_tensors(shape, experts, quantizable_router=quantizable_router)
    window = qwen_window(fields, shape.layers)
    return Block(
        layer=Layer(attention=grouped(shape, window), feed_forward=experts),
        tensors=(*attention, *tensors, *block_norms(shape)),
    )


def _qwen(fields: Fields, shape: Shape, attention: Tensors, *, quantizable_router: bool) -> Blocks:
    is_sparse = _sparse_layers(fields)
    sparse = _qwen_sparse(fields, shape, attention, quantizable_router=quantizable_router)
    dense = (
        sparse
        if all(map(is_sparse, range(shape.layers)))
        else _qwen_dense(fields, shape, attention)
    )
    return lambda layer: sparse if is_sparse(layer) else dense


def _qwen2_moe(fields: Fields, shape: Shape) -> Blocks:
    attention = grouped_tensors(shape, bias=fields.boolean("qkv_bias", default=True))
    return _qwen(fields, shape, attention, quantizable_router=False)


def _qwen3_moe(fields: Fields, shape: Shape) -> Blocks:
    bias = fields.boolean("attention_bias", default=False)
    attention = (*grouped_tensors(shape, bias=bias), *head_norms(shape))
    return _qwen(fields, shape, attention, quantizable_router=True)


_QWEN3_NAMES = MappingProxyType({"num_experts": ("num_local_experts",)})


def _olmoe(fields: Fields, shape: Shape) -> Blocks:
    experts = fields.integer("num_experts", EXPERTS)
    block = ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("intermediate_size", WIDTH),
    )
    whole = Block(
        layer=Layer(attention=grouped(shape), feed_forward=block),
        tensors=(
            *grouped_tensors(shape),
            *norms(shape.heads * shape.head_dim, "self_attn.q_norm"),
            *norms(shape.kv_heads * shape.head_dim, "self_attn.k_norm"),
            *qwen_expert_tensors(shape, block, quantizable_router=False),
            *block_norms(shape),
        ),
    )
    return lambda _: whole


def _granite(fields: Fields, shape: Shape) -> Blocks:
    shared = fields.integer("shared_intermediate_size", (0, WIDTH[1]), default=0)
    return _mixtral(fields, shape, shared)


FAMILIES = {
    "OlmoeForCausalLM": Family(blocks=_olmoe, ignores=frozenset({"head_dim"})),
    "GraniteMoeForCausalLM": Family(blocks=_granite),
    "GraniteMoeSharedForCausalLM": Family(blocks=_granite),
    "DbrxForCausalLM": Family(blocks=_dbrx, names=_DBRX_NAMES),
    "PhiMoEForCausalLM": Family(blocks=_phimoe, ends=_phimoe_ends),
    "MixtralForCausalLM": Family(
        blocks=_mixtral, defaults=MappingProxyType({"num_key_value_heads": 8})
    ),
    "Qwen2MoeForCausalLM": Family(
        blocks=_qwen2_moe,
        defaults=MappingProxyType(
            {"num_key_value_heads": 16, "shared_expert_intermediate_size": 5632}
        ),
        ignores=frozenset({"head_dim"}),
    ),
    "Qwen3MoeForCausalLM": Family(blocks=_qwen3_moe, names=_QWEN3_NAMES),
    "Qwen3VLMoeForConditionalGeneration": Family(
        blocks=_qwen3_moe, names=_QWEN3_NAMES, tower=QWEN_TOWER
    ),
}
