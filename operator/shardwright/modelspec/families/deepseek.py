"""DeepSeek-V2 and V3: latent attention, shared experts, the first layers dense.

Layers for multi-token prediction (``num_nextn_predict_layers``) are not counted: the engines load them
only for speculative decoding.
"""

from shardwright.modelspec.families.family import Family, Shape, block_norms
from shardwright.modelspec.fields import EXPERTS, HEAD_DIM, LAYERS, WIDTH, Fields
from shardwright.modelspec.spec import DenseFeedForward, ExpertFeedForward, LatentAttention, Layer, Split, Storage
from shardwright.modelspec.tensors import FP32, Block, Blocks, Tensor, gated, linear, norms, routed, router


def _attention(fields: Fields, shape: Shape) -> LatentAttention:
    return LatentAttention(
        heads=shape.heads,
        kv_lora_rank=fields.integer("kv_lora_rank", WIDTH),
        rope_dim=fields.integer("qk_rope_head_dim", HEAD_DIM),
        nope_dim=fields.integer("qk_nope_head_dim", HEAD_DIM),
        value_head_dim=fields.integer("v_head_dim", HEAD_DIM),
        q_lora_rank=fields.optional_integer("q_lora_rank", WIDTH),
    )


def _queries(shape: Shape, attention: LatentAttention) -> tuple[Tensor, ...]:
    width = attention.heads * (attention.nope_dim + attention.rope_dim)
    if attention.q_lora_rank is None:
        return linear("self_attn.q_proj", width, shape.hidden, Split.COLUMN)
    return (
        *linear("self_attn.q_a_proj", attention.q_lora_rank, shape.hidden, Split.REPLICATED),
        *norms(attention.q_lora_rank, "self_attn.q_a_layernorm"),
        *linear("self_attn.q_b_proj", width, attention.q_lora_rank, Split.COLUMN),
    )


def _attention_tensors(shape: Shape, attention: LatentAttention) -> tuple[Tensor, ...]:
    latent, heads = attention.kv_lora_rank, attention.heads
    key_values = heads * (attention.nope_dim + attention.value_head_dim)
    return (
        *_queries(shape, attention),
        *linear("self_attn.kv_a_proj_with_mqa", latent + attention.rope_dim, shape.hidden, Split.REPLICATED),
        *norms(latent, "self_attn.kv_a_layernorm"),
        *linear("self_attn.kv_b_proj", key_values, latent, Split.COLUMN),
        *linear("self_attn.o_proj", shape.hidden, heads * attention.value_head_dim, Split.ROW),
    )


def read_experts(fields: Fields) -> ExpertFeedForward:
    """Read routed and shared experts as DeepSeek's configs name them."""
    experts = fields.integer("n_routed_experts", EXPERTS)
    intermediate = fields.integer("moe_intermediate_size", WIDTH)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=intermediate,
        shared_intermediate=intermediate * fields.integer("n_shared_experts", (0, EXPERTS[1]), default=0),
    )


def expert_tensors(shape: Shape, block: ExpertFeedForward, *, corrected: bool, gate: Storage | None = None) -> tuple[Tensor, ...]:
    """Return router (with its FP32 correction bias, where it has one), shared and routed experts."""
    bias = Tensor(name="mlp.gate.e_score_correction_bias", outputs=block.experts, storage=FP32)
    shared = gated("mlp.shared_experts", shape.hidden, block.shared_intermediate) if block.shared_intermediate else ()
    return (
        router("mlp.gate", block.experts, shape.hidden, storage=gate),
        *((bias,) if corrected else ()),
        *shared,
        *routed("mlp.experts", block.experts, shape.hidden, block.expert_intermediate),
    )


def _deepseek(fields: Fields, shape: Shape) -> Blocks:
    attention, experts = _attention(fields, shape), read_experts(fields)
    always = (*_attention_tensors(shape, attention), *block_norms(shape))
    intermediate = fields.integer("intermediate_size", WIDTH)
    first_sparse = fields.integer("first_k_dense_replace", (0, LAYERS[1]), default=0)
    corrected = fields.string("topk_method") == "noaux_tc"
    every = fields.integer("moe_layer_freq", LAYERS, default=1)
    dense = Block(
        layer=Layer(attention=attention, feed_forward=DenseFeedForward(intermediate=intermediate)),
        tensors=(*always, *gated("mlp", shape.hidden, intermediate)),
    )
    sparse = Block(
        layer=Layer(attention=attention, feed_forward=experts),
        tensors=(*always, *expert_tensors(shape, experts, corrected=corrected)),
    )
    return lambda layer: sparse if layer >= first_sparse and layer % every == 0 else dense


FAMILIES = {
    "DeepseekV2ForCausalLM": Family(blocks=_deepseek),
    "DeepseekV3ForCausalLM": Family(blocks=_deepseek),
}
