"""Dense decoders of Llama's form: Llama, Mistral, Phi-3, Qwen2, Qwen3."""

from types import MappingProxyType

from shardwright.modelspec.families.family import (
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    window_of,
)
from shardwright.modelspec.fields import WIDTH, Fields
from shardwright.modelspec.spec import DenseFeedForward, Layer
from shardwright.modelspec.tensors import Block, Blocks, Tensor, gated


def _same(shape: Shape, intermediate: int, attention: tuple[Tensor, ...], window: int | None) -> Blocks:
    block = Block(
        layer=Layer(attention=grouped(shape, window), feed_forward=DenseFeedForward(intermediate=intermediate)),
        tensors=(*attention, *gated("mlp", shape.hidden, intermediate), *block_norms(shape)),
    )
    return lambda _: block


def _llama(fields: Fields, shape: Shape) -> Blocks:
    bias = fields.boolean("attention_bias", default=False)
    attention = grouped_tensors(shape, bias=bias, output_bias=bias)
    return _same(shape, fields.integer("intermediate_size", WIDTH), attention, None)


def _mistral(fields: Fields, shape: Shape) -> Blocks:
    return _same(shape, fields.integer("intermediate_size", WIDTH), grouped_tensors(shape), window_of(fields))


def dense_blocks(fields: Fields, shape: Shape) -> Blocks:
    """Return Llama's layers, with a bias of queries, keys and values and a window where the config states them."""
    bias = fields.boolean("attention_bias", default=False)
    attention = grouped_tensors(shape, bias=bias, output_bias=bias)
    return _same(shape, fields.integer("intermediate_size", WIDTH), attention, window_of(fields))


def _qwen2(fields: Fields, shape: Shape) -> Blocks:
    attention = grouped_tensors(shape, bias=True)
    return _same(shape, fields.integer("intermediate_size", WIDTH), attention, None)


def _qwen3(fields: Fields, shape: Shape) -> Blocks:
    bias = fields.boolean("attention_bias", default=False)
    attention = (*grouped_tensors(shape, bias=bias), *head_norms(shape))
    return _same(shape, fields.integer("intermediate_size", WIDTH), attention, None)


FAMILIES = {
    "LlamaForCausalLM": Family(blocks=_llama),
    "MistralForCausalLM": Family(blocks=_mistral),
    "Phi3ForCausalLM": Family(blocks=_mistral),
    "Qwen2ForCausalLM": Family(blocks=_qwen2),
    "Qwen3ForCausalLM": Family(blocks=_qwen3, defaults=MappingProxyType({"head_dim": 128})),
}
