"""GLM-4.5: grouped-query attention before DeepSeek's experts."""

from types import MappingProxyType

from shardwright.modelspec.config_json import LAYERS, WIDTH, Fields
from shardwright.modelspec.families.deepseek import expert_tensors, read_experts
from shardwright.modelspec.families.family import (
    DEEPSEEK,
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
)
from shardwright.modelspec.model_spec import FP32, Block, Blocks, DenseFeedForward, Layer, gated


def _glm4_moe(fields: Fields, shape: Shape) -> Blocks:
    experts = read_experts(fields)
    intermediate = fields.integer("intermediate_size", WIDTH)
    first_sparse = fields.integer("first_k_dense_replace", (0, LAYERS[1]), default=1)
    normed = fields.boolean("use_qk_norm", default=False)
    always = (
        *grouped_tensors(shape, bias=fields.boolean("attention_bias", default=False)),
        *(head_norms(shape) if normed else ()),
        *block_norms(shape),
    )
    dense = Block(
        layer=Layer(
            attention=grouped(shape), feed_forward=DenseFeedForward(intermediate=intermediate)
        ),
        tensors=(*always, *gated("mlp", shape.hidden, intermediate)),
    )
    sparse = Block(
        layer=Layer(attention=grouped(shape), feed_forward=experts),
        tensors=(*always, *expert_tensors(shape, experts, corrected=True, gate=FP32)),
    )
    return lambda layer: sparse if layer >= first_sparse else dense


FAMILIES = {
    "Glm4MoeForCausalLM": Family(
        blocks=_glm4_moe,
        defaults=MappingProxyType({"num_key_value_heads": 8, "n_shared_experts": 1}),
        predictor=DEEPSEEK,
    )
}
