"""Dense decoders of Llama's form under other names: what differs are biases, norms and windows.

Sources: vLLM 0.33.0, the class of each name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import WIDTH, Fields
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
from shardwright.modelspec.families.llama import dense_blocks
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    DenseFeedForward,
    Layer,
    PipelineRole,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    norms,
)

LayerTensors = Callable[[Fields, Shape], Tensors]
"""Tensors of each layer, by the config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaForm:
    """How a class differs from Llama's; ``slides``: layers with a window are those of
    ``layer_types``.
    """

    attention: LayerTensors
    norms: LayerTensors
    gate: bool = True
    slides: bool = False

    def blocks(self, fields: Fields, shape: Shape) -> Blocks:
        """Return the layers."""
        width = fields.integer("intermediate_size", WIDTH)
        biased = fields.boolean("mlp_bias", default=False)
        up = gated("mlp", shape.hidden, width, bias=biased)
        if not self.gate:
            up = (
                *linear("mlp.up_proj", width, shape.hidden, Split.COLUMN, bias=biased),
                *linear("mlp.down_proj", shape.hidden, width, Split.ROW, bias=biased),
            )
        tensors = (*self.attention(fields, shape), *up, *self.norms(fields, shape))
        feed_forward = DenseFeedForward(intermediate=width, matrices=3 if self.gate else 2)
        window = window_of(fields) if self.slides else None
        slides = alternating(fields, shape.layers, full_every=1)

        def block(layer: int) -> Block:
            attention = grouped(shape, window if slides(layer) else None)
            return Block(
                layer=Layer(attention=attention, feed_forward=feed_forward), tensors=tensors
            )

        blocks = [block(layer) for layer in range(shape.layers)]
        return lambda layer: blocks[min(layer, shape.layers - 1)]


def _biased_alike(fields: Fields, shape: Shape) -> Tensors:
    bias = fields.boolean("attention_bias", default=False)
    return grouped_tensors(shape, bias=bias, output_bias=bias)


def _biased_before(fields: Fields, shape: Shape) -> Tensors:
    return grouped_tensors(shape, bias=fields.boolean("attention_bias", default=False))


def _biased_by_switch(fields: Fields, shape: Shape) -> Tensors:
    output = fields.boolean("bias", default=False)
    bias = fields.boolean("qkv_bias", default=output)
    return grouped_tensors(shape, bias=bias, output_bias=output)


def _stable(fields: Fields, shape: Shape) -> Tensors:
    return grouped_tensors(shape, bias=fields.boolean("use_qkv_bias", default=False))


def _normed_heads(fields: Fields, shape: Shape) -> Tensors:
    return (*_biased_alike(fields, shape), *head_norms(shape))


def _plain(_: Fields, shape: Shape) -> Tensors:
    return grouped_tensors(shape)


def _two(_: Fields, shape: Shape) -> Tensors:
    return block_norms(shape)


def _two_with_bias(_: Fields, shape: Shape) -> Tensors:
    names = ("input_layernorm", "post_attention_layernorm")
    return norms(shape.hidden, *names, *(f"{name}.bias" for name in names))


def _four(_: Fields, shape: Shape) -> Tensors:
    return (
        *block_norms(shape),
        *norms(shape.hidden, "post_self_attn_layernorm", "post_mlp_layernorm"),
    )


def _two_or_four(fields: Fields, shape: Shape) -> Tensors:
    return (_four if fields.boolean("use_post_norm", default=False) else _two)(fields, shape)


def _normed_with_bias(_: Fields, shape: Shape) -> tuple[tuple[PipelineRole, Tensor], ...]:
    return ((PipelineRole.FINAL, Tensor(name="model.norm.bias", outputs=shape.hidden)),)


LLAMA: Final = (
    "Ernie4_5ForCausalLM",
    "GraniteForCausalLM",
    "IQuestCoderForCausalLM",
    "InternLM2ForCausalLM",
    "LLaMAForCausalLM",
    "MiniCPMForCausalLM",
    "Ministral3ForCausalLM",
    "SolarForCausalLM",
    "TeleChat3ForCausalLM",
    "TeleFLMForCausalLM",
)
"""Names of classes that have Llama's tensors."""

FAMILIES = {
    **dict.fromkeys(LLAMA, Family(blocks=dense_blocks)),
    "ExaoneForCausalLM": Family(
        blocks=dense_blocks, names=MappingProxyType({"num_hidden_layers": ("num_layers",)})
    ),
    "InternLM3ForCausalLM": Family(
        blocks=LlamaForm(attention=_biased_by_switch, norms=_two).blocks
    ),
    "PanguEmbeddedForCausalLM": Family(
        blocks=LlamaForm(attention=_biased_by_switch, norms=_two).blocks
    ),
    "HyperCLOVAXForCausalLM": Family(
        blocks=LlamaForm(attention=_biased_alike, norms=_two_or_four).blocks
    ),
    "Glm4ForCausalLM": Family(blocks=LlamaForm(attention=_biased_before, norms=_four).blocks),
    "Exaone4ForCausalLM": Family(
        blocks=LlamaForm(attention=_normed_heads, norms=_two, slides=True).blocks
    ),
    "StableLmForCausalLM": Family(
        blocks=LlamaForm(attention=_stable, norms=_two_with_bias).blocks, ends=_normed_with_bias
    ),
    "OrionForCausalLM": Family(
        blocks=LlamaForm(attention=_plain, norms=_two_with_bias).blocks, ends=_normed_with_bias
    ),
    "NemotronForCausalLM": Family(
        blocks=LlamaForm(attention=_biased_alike, norms=_two_with_bias, gate=False).blocks,
        ends=_normed_with_bias,
    ),
}
