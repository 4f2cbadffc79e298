"""What is a family, and which fields do nearly all of them share?

K/V heads that do not divide the heads, and a Qwen window for some layers only, are refused.

Which decoder layer and tensors do layers for multi-token prediction (MTP) consist of?

As vLLM 0.33 makes them. Embedding and output head are the model's: the engine makes both and gives
them back when the weights are loaded
(``v1/worker/gpu/spec_decode/eagle/utils.py:load_eagle_model``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.modelspec.config_json import CONTEXT, HEAD_DIM, HEADS, LAYERS, WIDTH, Fields
from shardwright.modelspec.model_spec import (
    Block,
    Blocks,
    GroupedAttention,
    PipelineRole,
    RecurrentAttention,
    Split,
    Tensor,
    Tensors,
    linear,
    norms,
)


def _no_ends(_: Fields, __: "Shape") -> tuple[tuple[PipelineRole, Tensor], ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the configs of one architecture are read.

    ``blocks`` reads the family's own fields and returns the layer at an index. ``tied``: embedding
    and head are one matrix if the config does not say. ``defaults`` are what the architecture's
    config class (transformers 5) fills in for missing fields, not for null. ``names`` are the
    architecture's names of fields that most others name alike; the first one that is there counts,
    and a dot leads into a section. ``ignores`` are fields that the engine's class does not read.
    ``ends`` are tensors before the first or after the last layer beside embedding, final norm and
    head. ``predictor`` is how layers for multi-token prediction are read (None: they are not).
    ``warnings`` name parts that were read in the generic way or are not known; they widen the band,
    and may name the ``{architecture}``.
    """

    blocks: Callable[[Fields, "Shape"], Blocks]
    tied: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignores: frozenset[str] = frozenset()
    ends: Callable[[Fields, "Shape"], tuple[tuple[PipelineRole, Tensor], ...]] = _no_ends
    tower: "Tower | None" = None
    predictor: "Predictor | None" = None
    warnings: tuple[str, ...] = ()


def _nothing(_: "Shape") -> Tensors:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The layers for multi-token prediction (MTP) of a family; the engine loads them to draft.

    ``counts`` is the field that says how many there are, ``default`` their number without it.
    ``block`` returns the decoder layer that each repeats, given all of them and their number.
    ``beside`` are further tensors of each layer, ``shared`` those of all together.
    """

    counts: str
    block: Callable[[Blocks, int], Block]
    default: int = 0
    beside: Callable[["Shape"], Tensors] = _nothing
    shared: Callable[["Shape"], Tensors] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A multimodal family's vision tower: 3 ``matrices`` if its feed-forward blocks are gated, else
    2.

    ``split``: tensor parallelism cuts it; else every rank holds it whole.
    """

    matrices: int
    split: Split


QWEN_TOWER: Final = Tower(matrices=2, split=Split.COLUMN)
"""Of Qwen3-VL and Qwen3.5. Source: vLLM 0.33.0, qwen3_vl.py:Qwen3_VisionTransformer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields that every decoder has; values are as wide as keys if ``value_head_dim`` is 0."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int = 0

    @property
    def value_dim(self) -> int:
        """Return the width of a head's values."""
        return self.value_head_dim or self.head_dim


def read_shape(fields: Fields) -> Shape:
    """Return the width, depth and heads of a decoder."""
    hidden = fields.integer("hidden_size", WIDTH)
    before = len(fields.problems)
    heads = fields.integer("num_attention_heads", HEADS)
    kv_heads = fields.integer("num_key_value_heads", HEADS, default=heads)
    if heads % kv_heads and len(fields.problems) == before:
        fields.refuse(
            "num_key_value_heads", f"{kv_heads}", f"must divide num_attention_heads {heads}"
        )
    return Shape(
        hidden=hidden,
        layers=fields.integer("num_hidden_layers", LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.integer("head_dim", HEAD_DIM, default=max(1, hidden // heads)),
    )


def grouped(shape: Shape, window: int | None = None) -> GroupedAttention:
    """Return grouped-query attention of a decoder's shape."""
    return GroupedAttention(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        value_head_dim=shape.value_dim,
        window=window,
    )


def grouped_tensors(shape: Shape, *, bias: bool = False, output_bias: bool = False) -> Tensors:
    """Return query, key, value and output projections."""
    return (
        *linear(
            "self_attn.q_proj", shape.heads * shape.head_dim, shape.hidden, Split.COLUMN, bias=bias
        ),
        *linear(
            "self_attn.k_proj",
            shape.kv_heads * shape.head_dim,
            shape.hidden,
            Split.KV_HEADS,
            bias=bias,
        ),
        *linear(
            "self_attn.v_proj",
            shape.kv_heads * shape.value_dim,
            shape.hidden,
            Split.KV_HEADS,
            bias=bias,
        ),
        *linear(
            "self_attn.o_proj",
            shape.hidden,
            shape.heads * shape.value_dim,
            Split.ROW,
            bias=output_bias,
        ),
    )


def head_norms(shape: Shape) -> Tensors:
    """Return the norms of queries and keys, one vector of a head's width each."""
    return norms(shape.head_dim, "self_attn.q_norm", "self_attn.k_norm")


def block_norms(shape: Shape) -> Tensors:
    """Return the two norms of a layer: before attention and before the feed-forward block."""
    return norms(shape.hidden, "input_layernorm", "post_attention_layernorm")


def window_of(fields: Fields, *, switch: str | None = None) -> int | None:
    """Return the sliding window in tokens; None if it is missing, 0 or switched off."""
    window = fields.optional_integer("sliding_window", (0, CONTEXT[1]))
    if switch is not None and not fields.boolean(switch, default=False):
        return None
    return window or None


def windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Return the window of every layer: where ``layer_types`` lets it slide, everywhere without
    that.

    Source: vLLM 0.32 ``engine/arg_utils.py:create_engine_config``,
    ``models/llama.py:LlamaAttention``.
    """
    window, slides = (window_of(fields), alternating(fields, layers, full_every=layers + 1))
    return tuple(window if slides(layer) else None for layer in range(layers))


def qwen_window(fields: Fields, layers: int) -> int | None:
    """Return the window of all layers of a Qwen; the config may switch it on from some layer
    onwards.

    Source: vLLM 0.32 ``models/qwen2.py:Qwen2Model``, which refuses windows of some layers only.
    """
    window = window_of(fields, switch="use_sliding_window")
    first = fields.integer("max_window_layers", (0, LAYERS[1]), default=0)
    if window is not None and 0 < first < layers:
        fields.refuse(
            "max_window_layers",
            f"{first}",
            f"must be 0 or at least num_hidden_layers {layers} with a sliding window",
        )
    return window if first == 0 else None


def per_layer(fields: Fields, name: str, layers: int) -> tuple[int, ...]:
    """Return a number for each layer, or nothing if the config has no such list."""
    listed = fields.integers(name)
    if listed and len(listed) < layers:
        fields.refuse(name, f"{len(listed)} entries", f"must be one for each of {layers} layers")
        return (0,) * layers
    return listed


def alternating(fields: Fields, layers: int, full_every: int) -> Callable[[int], bool]:
    """Return which layers slide: as ``layer_types`` says, else all but every ``full_every``-th."""
    types = fields.strings("layer_types")
    if types and len(types) < layers:
        fields.refuse(
            "layer_types", f"{len(types)} entries", f"must be one for each of {layers} layers"
        )
        return lambda _: False
    if types:
        return lambda layer: types[layer] == "sliding_attention"
    return lambda layer: (layer + 1) % full_every != 0


def _joined(hidden: int, name: str, split: Split) -> Tensor:
    """One hidden state of the token's embedding and the last state; not quantized."""
    return Tensor(name=name, outputs=hidden, inputs=2 * hidden, split=split)


def _next(blocks: Blocks, layers: int) -> Block:
    return blocks(layers)


def _deepseek(shape: Shape) -> Tensors:
    return (
        _joined(shape.hidden, "eh_proj", Split.REPLICATED),
        *norms(shape.hidden, "enorm", "hnorm", "shared_head.norm"),
    )


def _first_whole(blocks: Blocks, layers: int) -> Block:
    """Layers that predict have no recurrent state."""
    stack = (blocks(layer) for layer in range(layers))
    return next(
        (block for block in stack if not isinstance(block.layer.attention, RecurrentAttention)),
        blocks(0),
    )


def _qwen(shape: Shape) -> Tensors:
    return (
        _joined(shape.hidden, "fc", Split.COLUMN),
        *norms(shape.hidden, "norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"),
    )


DEEPSEEK: Final = Predictor(counts="num_nextn_predict_layers", block=_next, beside=_deepseek)
"""``models/deepseek_mtp.py`` and ``models/glm4_moe_mtp.py``."""

QWEN_NEXT: Final = Predictor(
    counts="num_nextn_predict_layers", default=1, block=_first_whole, shared=_qwen
)
"""``models/qwen3_next_mtp.py``."""

QWEN_3_5: Final = Predictor(
    counts="mtp_num_hidden_layers", default=1, block=_first_whole, shared=_qwen
)
"""``models/qwen3_5_mtp.py``."""
