"""Nemotron-H (one mixer a layer: Mamba-2, attention or feed-forward) and DeciLM (layers cut down
one by one).

Refuses a layer of another kind than these, and attention that was replaced by a matrix.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.config_json import EXPERTS, HEAD_DIM, HEADS, KERNEL, WIDTH, Fields
from shardwright.modelspec.families.family import Family, Shape, grouped, grouped_tensors
from shardwright.modelspec.model_spec import (
    FP32,
    Block,
    Blocks,
    DenseFeedForward,
    ExpertFeedForward,
    Layer,
    RecurrentAttention,
    Split,
    Tensor,
    Tensors,
    gated,
    linear,
    norms,
    routed,
    router,
)

_TYPES: Final = MappingProxyType(
    {
        "mamba": "M",
        "linear_attention": "M",
        "moe": "E",
        "mlp": "-",
        "attention": "*",
        "full_attention": "*",
    }
)
"""Names of layers in configs that list them; transformers 5 writes the longer ones."""

_MULTIPLE: Final = 256
"""DeciLM's feed-forward widths are rounded up to it. Source: vLLM 0.32 ``models/nemotron_nas.py``.
"""


def _mamba(fields: Fields, shape: Shape) -> Block:
    heads, head_dim = (
        fields.integer("mamba_num_heads", HEADS),
        fields.integer("mamba_head_dim", HEAD_DIM),
    )
    groups, state = (fields.integer("n_groups", HEADS), fields.integer("ssm_state_size", HEAD_DIM))
    kernel = fields.integer("conv_kernel", KERNEL)
    inner, mixed = heads * head_dim, heads * head_dim + 2 * groups * state
    attention = RecurrentAttention(
        heads=heads,
        key_heads=groups if groups > 1 else heads,
        width=inner + mixed + heads,
        state_elements=inner * state,
        convolution_elements=mixed * (kernel - 1),
        state_bits=32 if fields.string("mamba_ssm_cache_dtype") == "float32" else 16,
        checkpointed=True,
    )
    bias = Tensor(name="mixer.conv1d.bias", outputs=mixed, split=Split.COLUMN)
    tensors = (
        Tensor(name="mixer.A", outputs=heads, split=Split.COLUMN, storage=FP32),
        Tensor(name="mixer.D", outputs=heads, split=Split.COLUMN),
        Tensor(name="mixer.dt_bias", outputs=heads, split=Split.COLUMN),
        Tensor(name="mixer.conv1d", outputs=mixed, inputs=kernel, split=Split.COLUMN),
        *((bias,) if fields.boolean("use_conv_bias", default=True) else ()),
        *linear("mixer.in_proj", inner + mixed + heads, shape.hidden, Split.COLUMN),
        *linear("mixer.out_proj", shape.hidden, inner, Split.ROW),
        Tensor(name="mixer.norm", outputs=inner, split=Split.COLUMN),
        *norms(shape.hidden, "norm"),
    )
    return Block(layer=Layer(attention=attention, feed_forward=None), tensors=tensors)


def _ungated(name: str, hidden: int, intermediate: int) -> Tensors:
    return (
        *linear(f"{name}.up_proj", intermediate, hidden, Split.COLUMN),
        *linear(f"{name}.down_proj", hidden, intermediate, Split.ROW),
    )


def _moe(fields: Fields, shape: Shape) -> Block:
    experts = fields.integer("n_routed_experts", EXPERTS)
    shared = fields.integer("moe_shared_expert_intermediate_size", (0, WIDTH[1]), default=0)
    latent = fields.optional_integer("moe_latent_size", WIDTH)
    block = ExpertFeedForward(
        experts=experts,
        experts_per_token=fields.integer("num_experts_per_tok", (1, experts)),
        expert_intermediate=fields.integer("moe_intermediate_size", WIDTH),
        shared_intermediate=shared * fields.integer("n_shared_experts", (0, EXPERTS[1]), default=0),
        matrices=2,
    )
    inside = routed("mixer.experts", experts, latent or shape.hidden, block.expert_intermediate)
    tensors = (
        router("mixer.gate", experts, shape.hidden),
        Tensor(name="mixer.gate.e_score_correction_bias", outputs=experts, storage=FP32),
        *(
            _ungated("mixer.shared_experts", shape.hidden, block.shared_intermediate)
            if block.shared_intermediate
            else ()
        ),
        *(_latent_projections(latent, shape.hidden) if latent else ()),
        *(tensor for tensor in inside if not tensor.name.endswith("gate_proj")),
        *norms(shape.hidden, "norm"),
    )
    return Block(layer=Layer(attention=None, feed_forward=block), tensors=tensors)


def _latent_projections(latent: int, hidden: int) -> Tensors:
    return (
        *linear("mixer.fc1_latent_proj", latent, hidden, Split.REPLICATED),
        *linear("mixer.fc2_latent_proj", hidden, latent, Split.REPLICATED),
    )


def _mlp(fields: Fields, shape: Shape) -> Block:
    intermediate = fields.integer("intermediate_size", WIDTH)
    return Block(
        layer=Layer(
            attention=None, feed_forward=DenseFeedForward(intermediate=intermediate, matrices=2)
        ),
        tensors=(*_ungated("mixer", shape.hidden, intermediate), *norms(shape.hidden, "norm")),
    )


def _attention(fields: Fields, shape: Shape) -> Block:
    projections = grouped_tensors(shape, bias=fields.boolean("attention_bias", default=False))
    tensors = (
        replace(tensor, name=tensor.name.replace("self_attn", "mixer")) for tensor in projections
    )
    return Block(
        layer=Layer(attention=grouped(shape), feed_forward=None),
        tensors=(*tensors, *norms(shape.hidden, "norm")),
    )


_READERS: Final = MappingProxyType({"M": _mamba, "E": _moe, "-": _mlp, "*": _attention})


def _pattern(fields: Fields, layers: int) -> str:
    listed = fields.strings("layers_block_type")
    pattern = (
        "".join(_TYPES.get(kind, "?") for kind in listed)
        or fields.string("hybrid_override_pattern")
        or ""
    )
    if len(pattern) == layers and set(pattern) <= set(_READERS):
        return pattern
    name = "layers_block_type" if listed else "hybrid_override_pattern"
    fields.refuse(
        name, f"{pattern!r:.60}", f"must be one of {' '.join(_READERS)} for each of {layers} layers"
    )
    return "-" * layers


def _nemotron_h(fields: Fields, shape: Shape) -> Blocks:
    pattern = _pattern(fields, shape.layers)
    blocks = {kind: _READERS[kind](fields, shape) for kind in dict.fromkeys(pattern)}
    return lambda layer: blocks[pattern[layer]]


def _deci_attention(config: Fields, shape: Shape) -> Shape | None:
    if config.boolean("no_op", default=False):
        return None
    if config.boolean("replace_with_linear", default=False):
        config.refuse("replace_with_linear", "true", "is not served by vLLM")
    group = config.integer("n_heads_in_group", (1, shape.heads), default=1)
    return replace(shape, kv_heads=max(1, shape.heads // group))


def _deci_width(config: Fields, shape: Shape) -> int:
    """Return the width of a layer's feed-forward block, 0 without one."""
    if config.boolean("no_op", default=False):
        return 0
    factor = config.values.get("ffn_mult")
    if (
        isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor <= 64  # noqa: PLR2004 - published: below 8
    ):
        return -(-int(2 * factor * shape.hidden / 3) // _MULTIPLE) * _MULTIPLE
    return config.integer("intermediate_size", WIDTH)


def _deci_block(config: Fields, shape: Shape) -> Block:
    empty = Fields({}, config.path, config.problems)
    own = _deci_attention(config.section("attention") or empty, shape)
    width = _deci_width(config.section("ffn") or empty, shape)
    layer = Layer(
        attention=grouped(own) if own else None,
        feed_forward=DenseFeedForward(intermediate=width) if width else None,
    )
    attention = (*grouped_tensors(own), *norms(shape.hidden, "input_layernorm")) if own else ()
    feed_forward = (
        (*gated("mlp", shape.hidden, width), *norms(shape.hidden, "post_attention_layernorm"))
        if width
        else ()
    )
    return Block(layer=layer, tensors=(*attention, *feed_forward))


def _deci(fields: Fields, shape: Shape) -> Blocks:
    configs = fields.sections("block_configs")
    if len(configs) != shape.layers:
        fields.refuse(
            "block_configs",
            f"{len(configs)} entries",
            f"must be one for each of {shape.layers} layers",
        )
        return lambda _: _mlp(fields, shape)
    blocks = [_deci_block(config, shape) for config in configs]
    return lambda layer: blocks[layer]


FAMILIES = {
    "DeciLMForCausalLM": Family(blocks=_deci),
    "NemotronHForCausalLM": Family(blocks=_nemotron_h),
}
