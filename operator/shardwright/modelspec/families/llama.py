"""Dense decoders of Llama's form: Llama, Mistral, Phi-3, Qwen2, Qwen3, MiMo-7B."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import WIDTH, Fields
from shardwright.modelspec.families.family import (
    QWEN_TOWER,
    Family,
    Shape,
    block_norms,
    grouped,
    grouped_tensors,
    head_norms,
    qwen_window,
    windows,
)
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    DenseFeedForward,
    Layer,
    Split,
    Tensors,
    gated,
    linear,
)

LayerTensors = Callable[[Fields, Shape], Tensors]
"""Tensors of each layer, by the config."""

LayerWindows = Callable[[Fields, Shape], Sequence[int | None]]
"""The window of every layer, by the config."""


def two_norms(_: Fields, shape: Shape) -> Tensors:
    """Return the norms before attention and before the feed-forward block."""
    return block_norms(shape)


def biased_alike(fields: Fields, shape: Shape) -> Tensors:
    """Return attention of which all projections have a bias, or none."""
    bias = fields.boolean("attention_bias", default=False)
    return grouped_tensors(shape, bias=bias, output_bias=bias)


def biased_before(fields: Fields, shape: Shape) -> Tensors:
    """Return attention of which only queries, keys and values have a bias, or none."""
    return grouped_tensors(shape, bias=fields.boolean("attention_bias", default=False))


def _whole_context(_: Fields, shape: Shape) -> Sequence[int | None]:
    return (None,) * shape.layers


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaForm:
    """How the layers of a class of Llama's form are made: attention and norms around a feed-forward
    block, with or without a ``gate``.
    """

    attention: LayerTensors
    norms: LayerTensors = two_norms
    gate: bool = True
    reach: LayerWindows = _whole_context

    def blocks(self, fields: Fields, shape: Shape) -> Blocks:
        """Return the layers."""
        attention, reach = self.attention(fields, shape), self.reach(fields, shape)
        width = fields.integer("intermediate_size", WIDTH)
        bias = fields.boolean("mlp_bias", default=False)
        up = gated("mlp", shape.hidden, width, bias=bias)
        if not self.gate:
            up = (
                *linear("mlp.up_proj", width, shape.hidden, Split.COLUMN, bias=bias),
                *linear("mlp.down_proj", shape.hidden, width, Split.ROW, bias=bias),
            )
        tensors = (*attention, *up, *self.norms(fields, shape))
        feed_forward = DenseFeedForward(intermediate=width, matrices=3 if self.gate else 2)
        blocks = {
            window: Block(
                layer=Layer(attention=grouped(shape, window), feed_forward=feed_forward),
                tensors=tensors,
            )
            for window in set(reach)
        }
        return lambda layer: blocks[reach[layer]]


def _stated_windows(fields: Fields, shape: Shape) -> Sequence[int | None]:
    return windows(fields, shape.layers)


dense_blocks: Final = LlamaForm(attention=biased_alike, reach=_stated_windows).blocks
"""Llama's layers, with the biases and windows that the config states."""


def _qwen_windows(fields: Fields, shape: Shape) -> Sequence[int | None]:
    return (qwen_window(fields, shape.layers),) * shape.layers


def _biased(_: Fields, shape: Shape) -> Tensors:
    return grouped_tensors(shape, bias=True)


def _normed_heads(fields: Fields, shape: Shape) -> Tensors:
    return (*biased_before(fields, shape), *head_norms(shape))


_qwen2: Final = LlamaForm(attention=_biased, reach=_qwen_windows).blocks
_qwen3: Final = LlamaForm(attention=_normed_heads, reach=_qwen_windows).blocks

_QWEN3_DEFAULTS = MappingProxyType({"head_dim": 128})

FAMILIES = {
    "LlamaForCausalLM": Family(blocks=dense_blocks),
    "MistralForCausalLM": Family(
        blocks=dense_blocks,
        defaults=MappingProxyType({"num_key_value_heads": 8, "sliding_window": 4096}),
    ),
    "Phi3ForCausalLM": Family(blocks=dense_blocks),
    "MiMoForCausalLM": Family(blocks=_qwen2, ignores=frozenset({"head_dim"})),
    "Qwen2ForCausalLM": Family(blocks=_qwen2, ignores=frozenset({"head_dim"})),
    "Qwen3ForCausalLM": Family(blocks=_qwen3, defaults=_QWEN3_DEFAULTS),
    "Qwen3VLForConditionalGeneration": Family(
        blocks=_qwen3, defaults=_QWEN3_DEFAULTS, tower=QWEN_TOWER
    ),
}
