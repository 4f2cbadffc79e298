"""Dense decoders of Llama's form under other names: what differs are biases, norms and windows.

Sources: vLLM 0.33.0, the class of each name.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import Fields
from shardwright.modelspec.families.family import (
    Family,
    Shape,
    alternating,
    block_norms,
    grouped_tensors,
    head_norms,
    window_of,
)
from shardwright.modelspec.families.llama import (
    LlamaForm,
    biased_alike,
    biased_before,
    dense_blocks,
    two_norms,
)
from shardwright.modelspec.model_spec import PipelineRole, Tensor, Tensors, norms


def _biased_by_switch(fields: Fields, shape: Shape) -> Tensors:
    output = fields.boolean("bias", default=False)
    bias = fields.boolean("qkv_bias", default=output)
    return grouped_tensors(shape, bias=bias, output_bias=output)


def _stable(fields: Fields, shape: Shape) -> Tensors:
    return grouped_tensors(shape, bias=fields.boolean("use_qkv_bias", default=False))


def _normed_heads(fields: Fields, shape: Shape) -> Tensors:
    return (*biased_alike(fields, shape), *head_norms(shape))


def _listed_windows(fields: Fields, shape: Shape) -> Sequence[int | None]:
    window, slides = window_of(fields), alternating(fields, shape.layers, full_every=1)
    return tuple(window if slides(layer) else None for layer in range(shape.layers))


def _plain(_: Fields, shape: Shape) -> Tensors:
    return grouped_tensors(shape)


def _two_with_bias(_: Fields, shape: Shape) -> Tensors:
    names = ("input_layernorm", "post_attention_layernorm")
    return norms(shape.hidden, *names, *(f"{name}.bias" for name in names))


def _four(_: Fields, shape: Shape) -> Tensors:
    return (
        *block_norms(shape),
        *norms(shape.hidden, "post_self_attn_layernorm", "post_mlp_layernorm"),
    )


def _two_or_four(fields: Fields, shape: Shape) -> Tensors:
    return (_four if fields.boolean("use_post_norm", default=False) else two_norms)(fields, shape)


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
    "InternLM3ForCausalLM": Family(blocks=LlamaForm(attention=_biased_by_switch).blocks),
    "PanguEmbeddedForCausalLM": Family(blocks=LlamaForm(attention=_biased_by_switch).blocks),
    "HyperCLOVAXForCausalLM": Family(
        blocks=LlamaForm(attention=biased_alike, norms=_two_or_four).blocks
    ),
    "Glm4ForCausalLM": Family(blocks=LlamaForm(attention=biased_before, norms=_four).blocks),
    "Exaone4ForCausalLM": Family(
        blocks=LlamaForm(attention=_normed_heads, reach=_listed_windows).blocks
    ),
    "StableLmForCausalLM": Family(
        blocks=LlamaForm(attention=_stable, norms=_two_with_bias).blocks, ends=_normed_with_bias
    ),
    "OrionForCausalLM": Family(
        blocks=LlamaForm(attention=_plain, norms=_two_with_bias).blocks, ends=_normed_with_bias
    ),
    "NemotronForCausalLM": Family(
        blocks=LlamaForm(attention=biased_alike, norms=_two_with_bias, gate=False).blocks,
        ends=_normed_with_bias,
    ),
}
