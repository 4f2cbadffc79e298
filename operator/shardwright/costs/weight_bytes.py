"""How many bytes of weights has the fullest rank of each stage, and how many does a node read?

Bytes as the engine creates them, equal to the oracle in ``tests/data/oracle``; ``working_memory``
adds what kernels leave when they repack after loading.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final

from shardwright.layouts.layout import EngineTraits, Layout
from shardwright.layouts.stages import split_layers
from shardwright.modelspec.model_spec import (
    DenseFeedForward,
    GroupedAttention,
    ModelSpec,
    PipelineRole,
    Split,
    Weight,
    WeightFormat,
)

MXFP4_SLICE: Final = 128
"""Elements that a rank's slice of an MXFP4 expert is padded to. Source: vLLM 0.32
``fused_moe/oracle/mxfp4.py:mxfp4_round_up_hidden_size_and_intermediate_size`` (Marlin, TRT-LLM)."""

MXFP4_HIDDEN: Final = 256
"""Elements that the hidden size of MXFP4 experts is padded to. Same source."""

_SHARED_EXPERT: Final = ".shared_expert"
_ATTENTION: Final = ("self_attn.", "linear_attn.", "input_layernorm")
_KIND: Final = tuple(field.name for field in fields(Weight) if field.name != "layer")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Bytes of weights by part; experts are the routed ones."""

    embedding_bytes: int = 0
    attention_bytes: int = 0
    feed_forward_bytes: int = 0
    expert_bytes: int = 0
    head_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Return the sum of all parts."""
        return sum(
            (
                self.embedding_bytes,
                self.attention_bytes,
                self.feed_forward_bytes,
                self.expert_bytes,
                self.head_bytes,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    tensor: int
    shared: int  # of shared experts
    dense: int  # of the feed-forward blocks of dense layers
    slices: int  # of each routed expert
    expert: int  # ranks that whole experts are dealt to
    vocabulary_padding: int
    pads_shared: bool  # slices of shared experts to whole quantization blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bytes:
    """Bytes that a rank holds of a model, by part; of its layers for the first n of them (n from 0
    to all).
    """

    attention: tuple[int, ...]
    feed_forward: tuple[int, ...]
    experts: tuple[int, ...]
    tower: int  # the vision tower: on every stage
    embedding: int
    head: int  # with the final norm, and the embedding when it is tied


Measure = Callable[[ModelSpec, Weight, int, int, int], int]
"""What is counted of one kind of weight: the model, the weight, and how many of which outputs and
inputs a rank holds.
"""


def stage_weight_parts(
    model: ModelSpec, layout: Layout, traits: EngineTraits
) -> tuple[WeightBytes, ...]:
    """Return the bytes of weights on the fullest rank of every pipeline stage, by part of the
    model.

    Formula: sum over weights of the stage of copies x (elements on the rank x bits + scales) / 8.
    Unit: bytes, one figure a stage and part.
    Error: below 0.6% of vLLM 0.32's own classes in 750 layouts, most equal to the byte; median 0.2
        % of 15 published rows (docs/planner-models.md, docs/benchmarks/memory.md).
    Source: vLLM 0.32's model classes, ``tests/data/oracle``.

    >>> (whole,) = stage_weight_parts(llama, Layout(), vllm)
    >>> whole.total_bytes  # 70.55 billion values of two bytes
    141107412992
    >>> cut = stage_weight_parts(llama, Layout(tensor=4, pipeline=2), vllm)
    >>> [stage.total_bytes for stage in cut]
    [17639407616, 17639424000]
    >>> whole.embedding_bytes, 128256 * 8192 * 2
    (2101346304, 2101346304)
    """
    return stage_sums(model, layout, traits, stored_bytes)


def stage_sums(
    model: ModelSpec, layout: Layout, traits: EngineTraits, measure: Measure
) -> tuple[WeightBytes, ...]:
    """Return a measure's sum over all weights on the fullest rank of every stage, by part of the
    model.

    Formula: sum over weights of the stage of ``measure``.
    Unit: that of the measure.
    Error: as :func:`stage_weight_parts`.
    Source: as :func:`stage_weight_parts`.

    >>> def matrices(model, weight, copies, outputs, inputs):
    ...     return copies if inputs > 1 else 0
    >>> (held,) = stage_sums(llama, Layout(), vllm, matrices)
    >>> (held.attention_bytes // 80, held.feed_forward_bytes // 80)  # q k v o; gate up down
    (4, 3)
    """
    return _by_stage(
        model, layout, traits, _rank_bytes(model, _cut(model, layout, traits), measure)
    )


def load_bytes_per_node(
    model: ModelSpec, layout: Layout, traits: EngineTraits, gpus_per_node: int
) -> int:
    """Return the bytes that the busiest node of a replica reads: each stage it holds, once,
    whole.

    The ranks of a node share the page cache, so slices of one stage are read once.

    Formula: the largest sum, over nodes, of the whole stages that a node holds.
    Unit: bytes a node.
    Error: as :func:`stage_weight_parts`.
    Source: derived: ranks of a node share its page cache.

    >>> load_bytes_per_node(llama, Layout(tensor=4, pipeline=4), vllm, 8)  # two of four
    70553714688
    >>> load_bytes_per_node(llama, Layout(tensor=8), vllm, 8)
    141107412992
    """
    whole = _rank_bytes(model, _cut(model, Layout(), traits), stored_bytes)
    stages = [part.total_bytes for part in _by_stage(model, layout, traits, whole)]
    ranks = layout.gpus_per_replica
    nodes = (
        range(first, min(first + gpus_per_node, ranks)) for first in range(0, ranks, gpus_per_node)
    )
    held = (
        # Tensor ranks count fastest (engine-measurements.md 1): the ranks of a stage lie side by
        # side.
        {rank // layout.tensor % layout.pipeline for rank in node}
        for node in nodes
    )
    return max(sum(stages[stage] for stage in on_node) for on_node in held)


def _cut(model: ModelSpec, layout: Layout, traits: EngineTraits) -> _Cut:
    """Source: vLLM 0.32 ``fused_moe/config.py:FusedMoEParallelConfig.make``. If whole experts are
    spread over tensor and attention-data ranks, some classes repeat on every rank the parts that
    are not routed (``config/parallel.py:use_sequence_parallel_moe``).
    """
    whole = layout.expert > 1
    repeated = whole and layout.tensor > 1 and layout.attention_data > 1
    return _Cut(
        tensor=layout.tensor,
        shared=1
        if repeated and model.architecture in traits.repeats.repeats_shared_experts
        else layout.tensor,
        dense=1
        if repeated and model.architecture in traits.repeats.repeats_dense_layers
        else layout.tensor,
        slices=layout.tensor * layout.attention_data // layout.expert,
        expert=layout.expert if whole else 1,
        vocabulary_padding=traits.memory.vocabulary_padding,
        pads_shared=model.architecture in traits.repeats.pads_shared_experts,
    )


def _by_stage(
    model: ModelSpec, layout: Layout, traits: EngineTraits, rank: _Bytes
) -> tuple[WeightBytes, ...]:
    everywhere = model.architecture in traits.repeats.ends_on_every_stage
    repeated = model.architecture in traits.repeats.embedding_on_every_stage
    stages = split_layers(
        len(model.layers), layout.pipeline, traits.cuts.remainder, layout.partition
    )
    last = len(stages) - 1
    tied_copy = 0 if not model.tied_embeddings or everywhere or repeated else rank.embedding
    return tuple(
        WeightBytes(
            embedding_bytes=rank.tower
            + (rank.embedding if stage == 0 or everywhere or repeated else 0)
            # With one stage the head is the embedding itself; with several the last one has a copy.
            + (tied_copy if stage == last and stage > 0 else 0),
            attention_bytes=rank.attention[end] - rank.attention[first],
            feed_forward_bytes=rank.feed_forward[end] - rank.feed_forward[first],
            expert_bytes=rank.experts[end] - rank.experts[first],
            head_bytes=rank.head if stage == last or everywhere else 0,
        )
        for stage, (first, end) in enumerate(stages)
    )


@lru_cache(maxsize=512)
def _rank_bytes(model: ModelSpec, cut: _Cut, measure: Measure) -> _Bytes:
    attention, feed_forward, experts = ([0] * len(model.layers) for _ in range(3))
    ends = dict.fromkeys(PipelineRole, 0)
    for weight, held_by in _alike(model):
        count = measure(model, weight, *_on_rank(model, weight, cut))
        if weight.layer is None:
            ends[weight.part] += count
            continue
        part = (
            experts
            if weight.experts
            else attention
            if _of_attention(model, weight)
            else feed_forward
        )
        for layer in held_by:
            part[layer] += count
    return _Bytes(
        attention=_first(attention),
        feed_forward=_first(feed_forward),
        experts=_first(experts),
        tower=ends[PipelineRole.TOWER],
        embedding=ends[PipelineRole.EMBEDDING],
        head=ends[PipelineRole.FINAL] + ends[PipelineRole.HEAD],
    )


def _first(layers: Iterable[int]) -> tuple[int, ...]:
    return tuple(accumulate(layers, initial=0))


@lru_cache(maxsize=64)
def _alike(model: ModelSpec) -> tuple[tuple[Weight, tuple[int, ...]], ...]:
    holders: dict[object, tuple[Weight, list[int]]] = {}
    for index, weight in enumerate(model.weights):
        layer = None if weight.layer is None else model.layers[weight.layer]
        key = index if layer is None else (*_kind(weight), layer)
        holders.setdefault(key, (weight, []))[1].extend(
            () if weight.layer is None else (weight.layer,)
        )
    return tuple((weight, tuple(layers)) for weight, layers in holders.values())


def _kind(weight: Weight) -> tuple[object, ...]:
    return tuple(getattr(weight, name) for name in _KIND)


def _of_attention(model: ModelSpec, weight: Weight) -> bool:
    layer = model.layers[weight.layer or 0]
    if layer.attention is None or layer.feed_forward is None:
        return layer.feed_forward is None
    return weight.name.startswith(_ATTENTION)


def stored_bytes(model: ModelSpec, weight: Weight, copies: int, outputs: int, inputs: int) -> int:
    """Return the bytes in which a rank's part of one kind of weight is stored.

    Formula: copies x ceil((outputs x inputs x bits + scales and zero points of all blocks) / 8).
    Unit: bytes.
    Error: exact, before kernels repack; FP8 scales of DeepSeek-V4 are 8 bits and counted as 32.
    Source: vLLM 0.32's model classes, ``tests/data/oracle``.

    >>> head = llama.weights[-1]
    >>> stored_bytes(llama, head, 1, 128256, 8192), 128256 * 8192 * 2
    (2101346304, 2101346304)
    """
    # A Measure is given it; the stored bytes follow from the weight alone.
    del model
    return copies * _stored_bytes(_refined(weight, outputs, inputs), outputs, inputs)


def _on_rank(model: ModelSpec, weight: Weight, cut: _Cut) -> tuple[int, int, int]:
    outputs, inputs = _shape_on_rank(model, weight, cut)
    if weight.experts and _is_mxfp4(model, weight):
        outputs, inputs = _padded(weight, outputs, inputs)
    return (
        # The first ranks get one expert more where they do not divide.
        math.ceil(weight.copies / cut.expert) if weight.experts else weight.copies,
        outputs,
        inputs,
    )


def _shape_on_rank(model: ModelSpec, weight: Weight, cut: _Cut) -> tuple[int, int]:
    ways = _ways(model, weight, cut)
    match weight.split:
        case Split.REPLICATED:
            return weight.outputs, weight.inputs
        case Split.COLUMN:
            return _slice(weight, weight.outputs, ways, cut), weight.inputs
        case Split.ROW:
            return weight.outputs, _slice(weight, weight.inputs, ways, cut)
        case Split.KV_HEADS:
            heads = _kv_heads(model, weight)
            # With more ranks than K/V heads every rank keeps a whole one.
            return weight.outputs // heads * math.ceil(heads / ways), weight.inputs
        case Split.VOCABULARY:
            padded = _round_up(weight.outputs, cut.vocabulary_padding)
            return math.ceil(padded / ways), weight.inputs


def _slice(weight: Weight, size: int, ways: int, cut: _Cut) -> int:
    """Padded shared experts are cut in whole quantization blocks."""
    share = math.ceil(size / ways)
    block = weight.storage.block
    if (
        not cut.pads_shared
        or ways == 1
        or block is None
        or weight.experts
        or _SHARED_EXPERT not in weight.name
    ):
        return share
    return _round_up(share, block[1 if weight.split is Split.ROW else 0])


def _ways(model: ModelSpec, weight: Weight, cut: _Cut) -> int:
    if weight.experts:
        return cut.slices
    if _SHARED_EXPERT in weight.name:
        return cut.shared
    dense = weight.layer is not None and isinstance(
        model.layers[weight.layer].feed_forward, DenseFeedForward
    )
    return cut.dense if dense and not weight.name.startswith(_ATTENTION) else cut.tensor


def _kv_heads(model: ModelSpec, weight: Weight) -> int:
    attention = model.layers[weight.layer or 0].attention
    return attention.kv_heads if isinstance(attention, GroupedAttention) else 1


def _is_mxfp4(model: ModelSpec, weight: Weight) -> bool:
    """The unquantized biases of MXFP4 experts, too."""
    return weight.storage.name == "mxfp4" or model.quantization == "mxfp4"


def _padded(weight: Weight, outputs: int, inputs: int) -> tuple[int, int]:
    """An MXFP4 kernel rounds the slice and the hidden size up."""
    if weight.split is Split.COLUMN:
        return _round_up(outputs, MXFP4_SLICE), _round_up(inputs, MXFP4_HIDDEN) if inputs > 1 else 1
    return _round_up(outputs, MXFP4_HIDDEN), _round_up(inputs, MXFP4_SLICE) if inputs > 1 else 1


def _refined(weight: Weight, outputs: int, inputs: int) -> WeightFormat:
    """Return a finer grid of scales if a slice of an expert is no whole number of blocks.

    Source: vLLM 0.32 ``fused_moe/oracle/fp8.py:resolve_fp8_moe_weight_block_shape``.
    """
    storage = weight.storage
    if not weight.experts or storage.block is None or not storage.in_grid:
        return storage
    cut_axis = outputs if weight.split is Split.COLUMN else inputs
    finer = (math.gcd(cut_axis, storage.block[0]), math.gcd(cut_axis, storage.block[1]))
    return storage if finer == storage.block else _with_block(storage, finer)


def _with_block(storage: WeightFormat, block: tuple[int, int]) -> WeightFormat:
    return replace(storage, block=block)


def _stored_bytes(storage: WeightFormat, outputs: int, inputs: int) -> int:
    bits = outputs * inputs * storage.bits + storage.matrix_bits
    if storage.block is not None:
        rows = math.ceil(outputs / (storage.block[0] or outputs))
        columns = math.ceil(inputs / (storage.block[1] or inputs))
        bits += rows * columns * (storage.scale_bits + storage.zero_point_bits)
    return math.ceil(bits / 8)


def _round_up(value: int, multiple: int) -> int:
    return math.ceil(value / multiple) * multiple if multiple else value
