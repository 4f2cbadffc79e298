"""gpt-oss: experts with biases, attention sinks, every other layer slides."""

from dataclasses import replace
from types import MappingProxyType

from shardwright.modelspec.config_json import EXPERTS, WIDTH, Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    alternating,
    block_norms,
    grouped,
    grouped_tensors,
    window_of,
)
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    ExpertFeedForward,
    Layer,
    Split,
    Tensor,
    Tensors,
    routed,
    router,
)


def _expert_tensors(shape: Shape, block: ExpertFeedForward) -> Tensors:
    count, width = block.experts, block.expert_intermediate
    return (
        router("mlp.router", count, shape.hidden),
        Tensor(name="mlp.router.bias", outputs=count),
        *routed("mlp.experts", count, shape.hidden, width),
        Tensor(
            name="mlp.experts.gate_proj.bias",
            outputs=width,
            split=Split.COLUMN,
            copies=count,
            experts=True,
        ),
        Tensor(
            name="mlp.experts.up_proj.bias",
            outputs=width,
            split=Split.COLUMN,
            copies=count,
            experts=True,
        ),
        Tensor(name="mlp.experts.down_proj.bias", outputs=shape.hidden, copies=count, experts=True),
    )


def _gpt_oss(fields: Fields, shape: Shape) -> Blocks:
    experts = fields.integer("num_local_experts", EXPERTS)
    feed_forward = ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("intermediate_size", WIDTH),
    )
    tensors = (
        *grouped_tensors(shape, bias=True, output_bias=True),
        Tensor(name="self_attn.sinks", outputs=shape.heads, split=Split.COLUMN),
        *_expert_tensors(shape, feed_forward),
        *block_norms(shape),
    )
    window = window_of(fields)
    slides = alternating(fields, shape.layers, full_every=2)
    sliding, full = (
        Block(
            layer=Layer(
                attention=replace(grouped(shape, reach), sinks=True), feed_forward=feed_forward
            ),
            tensors=tensors,
        )
        for reach in (window, None)
    )
    return lambda layer: sliding if slides(layer) else full


FAMILIES = {
    "GptOssForCausalLM": Family(
        blocks=_gpt_oss,
        defaults=MappingProxyType(
            {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128}
        ),
    )
}
