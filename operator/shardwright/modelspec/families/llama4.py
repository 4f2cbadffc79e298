"""Llama 4: chunked layers with every fourth one full, experts in every layer or every other one.

Refuses a list of layers that is shorter than the model.
"""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from shardwright.modelspec.config_json import CONTEXT, EXPERTS, LAYERS, WIDTH, Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    Tower,
    block_norms,
    grouped,
    grouped_tensors,
)
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    Layer,
    Split,
    Tensors,
    gated,
    routed,
    router,
)

_FULL_EVERY = 4
"""Layers without positions (and with full attention) if the config lists none: every fourth.
Source: transformers ``Llama4TextConfig.no_rope_layer_interval``.
"""


def _experts(fields: Fields) -> ExpertFeedForward:
    experts = fields.integer("num_local_experts", EXPERTS)
    intermediate = fields.integer("intermediate_size", WIDTH)
    return ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts), default=1),
        expert_intermediate=intermediate,
        shared_intermediate=intermediate,
    )


def _expert_tensors(shape: Shape, block: ExpertFeedForward) -> Tensors:
    return (
        router("feed_forward.router", block.experts, shape.hidden),
        *gated("feed_forward.shared_expert", shape.hidden, block.shared_intermediate),
        *routed("feed_forward.experts", block.experts, shape.hidden, block.expert_intermediate),
    )


def _is_full(fields: Fields, layers: int) -> Callable[[int], bool]:
    listed = fields.integers("no_rope_layers")
    if listed and len(listed) < layers:
        fields.refuse(
            "no_rope_layers", f"{len(listed)} entries", f"must be one for each of {layers} layers"
        )
        return lambda _: True
    return (
        (lambda layer: listed[layer] == 0)
        if listed
        else (lambda layer: (layer + 1) % _FULL_EVERY == 0)
    )


def _is_sparse(fields: Fields) -> Callable[[int], bool]:
    listed = frozenset(fields.integers("moe_layers"))
    step = fields.integer("interleave_moe_layer_step", LAYERS, default=1)
    return (lambda layer: layer in listed) if listed else (lambda layer: (layer + 1) % step == 0)


def _llama4(fields: Fields, shape: Shape) -> Blocks:
    chunk = fields.optional_integer("attention_chunk_size", CONTEXT)
    full, sparse = _is_full(fields, shape.layers), _is_sparse(fields)
    always = (
        *grouped_tensors(shape, bias=fields.boolean("attention_bias", default=False)),
        *block_norms(shape),
    )
    experts = _experts(fields)
    dense = DenseFeedForward(
        intermediate=fields.integer(
            "intermediate_size_mlp", WIDTH, default=experts.expert_intermediate
        )
    )
    chunked = replace(grouped(shape, chunk), chunked=chunk is not None)

    def block(layer: int) -> Block:
        attention = grouped(shape) if full(layer) else chunked
        if sparse(layer):
            tensors = (*always, *_expert_tensors(shape, experts))
            return Block(layer=Layer(attention=attention, feed_forward=experts), tensors=tensors)
        tensors = (*always, *gated("feed_forward", shape.hidden, dense.intermediate))
        return Block(layer=Layer(attention=attention, feed_forward=dense), tensors=tensors)

    return block


_DEFAULTS = MappingProxyType({"num_key_value_heads": 8, "attention_chunk_size": 8192})

FAMILIES = {
    "Llama4ForCausalLM": Family(blocks=_llama4, defaults=_DEFAULTS),
    "Llama4ForConditionalGeneration": Family(
        blocks=_llama4, defaults=_DEFAULTS, tower=Tower(matrices=2, split=Split.COLUMN)
    ),
}
