"""Gemma 1, 2 and 3: tied embeddings, and from 2 on four norms a layer and layers that slide."""

from types import MappingProxyType

from shardwright.modelspec.families.family import (
    Family,
    Shape,
    alternating,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    window_of,
)
from shardwright.modelspec.fields import LAYERS, WIDTH, Fields
from shardwright.modelspec.spec import DenseFeedForward, Layer
from shardwright.modelspec.tensors import Block, Blocks, Tensor, gated, norms


def _tensors(fields: Fields, shape: Shape, intermediate: int) -> tuple[Tensor, ...]:
    bias = fields.boolean("attention_bias", default=False)
    attention = grouped_tensors(shape, bias=bias, output_bias=bias)
    return (*attention, *gated("mlp", shape.hidden, intermediate), *block_norms(shape))


def _sandwich(shape: Shape) -> tuple[Tensor, ...]:
    return norms(shape.hidden, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _gemma(fields: Fields, shape: Shape) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH)
    block = Block(
        layer=Layer(attention=grouped(shape), feed_forward=DenseFeedForward(intermediate=intermediate)),
        tensors=_tensors(fields, shape, intermediate),
    )
    return lambda _: block


def _sliding(fields: Fields, shape: Shape, extra: tuple[Tensor, ...], full_every: int) -> Blocks:
    intermediate = fields.integer("intermediate_size", WIDTH)
    tensors = (*_tensors(fields, shape, intermediate), *_sandwich(shape), *extra)
    slides = alternating(fields, shape.layers, full_every)
    sliding, full = (
        Block(
            layer=Layer(attention=grouped(shape, reach), feed_forward=DenseFeedForward(intermediate=intermediate)),
            tensors=tensors,
        )
        for reach in (window_of(fields), None)
    )
    return lambda layer: sliding if slides(layer) else full


def _gemma2(fields: Fields, shape: Shape) -> Blocks:
    return _sliding(fields, shape, (), full_every=2)


def _gemma3(fields: Fields, shape: Shape) -> Blocks:
    every = fields.integer("sliding_window_pattern", LAYERS, default=6)
    return _sliding(fields, shape, head_norms(shape), every)


_GEMMA3_DEFAULTS = MappingProxyType(
    {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }
)

FAMILIES = {
    "GemmaForCausalLM": Family(blocks=_gemma, tied=True, defaults=MappingProxyType({"head_dim": 256})),
    "Gemma2ForCausalLM": Family(blocks=_gemma2, tied=True, defaults=MappingProxyType({"head_dim": 256, "sliding_window": 4096})),
    "Gemma3ForCausalLM": Family(blocks=_gemma3, tied=True, defaults=_GEMMA3_DEFAULTS),
    "Gemma3ForConditionalGeneration": Family(
        blocks=_gemma3,
        tied=True,
        defaults=_GEMMA3_DEFAULTS,
        warnings=("the vision tower is not counted: planned as a text-only model",),
    ),
}
