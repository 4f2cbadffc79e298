"""What the fullest rank of every stage holds: weights, activations, overhead, and what is left for K/V.

The parts add up to the engine's budget. The sizes of a batch are variables: they are halved step by step
where the wanted ones leave too little K/V. The longest request is as long as asked for.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shardwright.costs.estimates import StageMemory
from shardwright.costs.kvcache import KvCache, kv_cache
from shardwright.costs.weights import WeightBytes, stage_weight_parts
from shardwright.costs.workload import Workload
from shardwright.layouts.layout import Layout
from shardwright.layouts.stages import split_layers
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import DenseFeedForward, ExpertFeedForward, GroupedAttention, LatentAttention, Layer, ModelSpec

LOGIT_COPIES: Final = 4
"""FP32 rows of the vocabulary that sampling holds per sequence. Basis: fitted, vLLM 0.19 activation peaks of Llama
(1.9 GiB), Qwen2/3 (2.2), Granite (0.85) and Gemma 3 (3.9) with 1,024 sequences come out within 7 %.
Source: llm-d-incubation/llm-d-planner docs/accuracy/vllm-v0.19.0-accuracy-report.md."""

HIDDEN_COPIES: Final = 4
"""Rows of the hidden size that a forward pass holds per token: residual, input, normed, output. Basis: assumed."""

WIDE_COPIES: Final = 1.5
"""Rows of a block's widest matrix that are held at once: the product and half of it after gating. Basis: derived."""

_FEWEST_TOKENS: Final = 1024
_FEWEST_SEQUENCES: Final = 16
_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHold:
    """What a rank of one stage holds whatever the batch: its layers, weights and kind of K/V cache."""

    layers: tuple[int, int]
    weights: WeightBytes
    kv: KvCache
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The engine's batch limits and the longest request."""

    batched_tokens: int
    sequences: int
    model_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMemory:
    """The memory of one replica at given limits. ``requests`` of the mean length fit at once."""

    stages: tuple[StageMemory, ...]
    limits: Limits
    kv_tokens: int
    requests: float

    @property
    def starts(self) -> bool:
        """Return whether every rank holds one request of the longest length."""
        return self.kv_tokens >= self.limits.model_len

    def running(self, offered: int) -> int:
        """Return how many of the offered requests run at once."""
        return min(offered, self.limits.sequences, int(self.requests))


def stage_holds(model: ModelSpec, layout: Layout, kv_cache_dtype: str, traits: EngineTraits) -> tuple[StageHold, ...]:
    """Return what every stage of a layout holds, on its fullest rank."""
    weights = stage_weight_parts(model, layout, traits)
    spans = split_layers(len(model.layers), layout.pipeline, traits.remainder, layout.partition)
    return tuple(
        StageHold(
            layers=span,
            weights=weights[stage],
            kv=kv_cache(model, layout, stage, kv_cache_dtype, traits),
            last=stage == layout.pipeline - 1,
        )
        for stage, span in enumerate(spans)
    )


def replica_memory(
    model: ModelSpec, layout: Layout, holds: tuple[StageHold, ...], total_bytes: int, workload: Workload, traits: EngineTraits
) -> ReplicaMemory:
    """Return the memory with the highest limits that carry the load, else that start, else that come closest.

    ``total_bytes`` is the memory of the GPU.
    """
    share = requests_per_replica(workload, layout)
    frame = _Frame(
        model=model,
        layout=layout,
        holds=holds,
        budget_bytes=math.ceil(total_bytes * traits.memory_utilization),
        overhead_bytes=_overhead_bytes(layout, traits),
        mean_tokens=workload.input_tokens + workload.output_tokens,
    )
    tried = []
    for limits in _limits(workload, traits, share):
        tried.append(_at(frame, limits))
        if tried[-1].starts and tried[-1].running(share) >= share:
            return tried[-1]
    starting = [memory for memory in tried if memory.starts]
    if not starting:
        return tried[-1]
    return max(starting, key=lambda memory: memory.running(share))  # the first of the best: the highest limits


def requests_per_replica(workload: Workload, layout: Layout) -> int:
    """Return the planned requests in flight of one replica."""
    return math.ceil(workload.concurrency / layout.replicas)


def activation_bytes(model: ModelSpec, layout: Layout, limits: Limits, *, last: bool) -> int:
    """Return the peak of one step on a rank: a forward pass of a full batch, or sampling on the last stage.

    Source of the shape: engines.md section 7 (vLLM profiles one forward pass, then one sampling run).
    """
    size = _BYTES[model.dtype]
    wide = max(_wide_values(model, layer, layout) for layer in _kinds(model))
    forward = limits.batched_tokens * size * (HIDDEN_COPIES * model.hidden_size + wide)
    if not last:
        return math.ceil(forward)
    sampling = LOGIT_COPIES * limits.sequences * model.vocabulary * 4
    return math.ceil(max(forward, sampling + limits.batched_tokens * size * model.hidden_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What stays the same while limits are tried."""

    model: ModelSpec
    layout: Layout
    holds: tuple[StageHold, ...]
    budget_bytes: int
    overhead_bytes: int
    mean_tokens: int


def _overhead_bytes(layout: Layout, traits: EngineTraits) -> int:
    communication = traits.communication_overhead_bytes if layout.tensor > 1 else 0
    return traits.fixed_overhead_bytes + traits.cuda_graph_bytes + communication


def _at(frame: _Frame, limits: Limits) -> ReplicaMemory:
    middle, end = (activation_bytes(frame.model, frame.layout, limits, last=last) for last in (False, True))
    stages = tuple(_stage(index, hold, frame, end if hold.last else middle) for index, hold in enumerate(frame.holds))
    room = [(hold.kv, max(0, stage.kv_cache_bytes)) for stage, hold in zip(stages, frame.holds, strict=True)]
    return ReplicaMemory(
        stages=stages,
        limits=limits,
        kv_tokens=min(kv.tokens(free, limits.model_len) for kv, free in room),
        requests=min(kv.requests(free, frame.mean_tokens) for kv, free in room),
    )


def _stage(index: int, hold: StageHold, frame: _Frame, activations: int) -> StageMemory:
    weights = hold.weights.total_bytes
    return StageMemory(
        stage=index,
        layers=hold.layers,
        weights_bytes=weights,
        activations_bytes=activations,
        overhead_bytes=frame.overhead_bytes,
        kv_cache_bytes=frame.budget_bytes - weights - activations - frame.overhead_bytes,
        budget_bytes=frame.budget_bytes,
        kv_bytes_per_token=hold.kv.bytes_per_token,
    )


def _limits(workload: Workload, traits: EngineTraits, share: int) -> Iterator[Limits]:
    """Yield limits from the wished to the least.

    More sequences than the engine's default are wished for only when the load has them.
    """
    tokens, sequences = traits.max_batched_tokens, max(traits.max_sequences, _power_of_two(share))
    while True:
        yield Limits(batched_tokens=max(tokens, sequences), sequences=sequences, model_len=workload.max_model_len)
        if tokens <= _FEWEST_TOKENS and sequences <= _FEWEST_SEQUENCES:
            return
        tokens, sequences = max(_FEWEST_TOKENS, tokens // 2), max(_FEWEST_SEQUENCES, sequences // 2)


def _power_of_two(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


@lru_cache(maxsize=64)
def _kinds(model: ModelSpec) -> frozenset[Layer]:
    return frozenset(model.layers)


def _wide_values(model: ModelSpec, layer: Layer, layout: Layout) -> float:
    """Return the values per token of a layer's widest intermediate result on one rank."""
    return max(_attention_values(layer) / layout.tensor, _feed_forward_values(model, layer, layout))


def _attention_values(layer: Layer) -> float:
    attention = layer.attention
    if isinstance(attention, GroupedAttention):
        return attention.heads * attention.head_dim + attention.kv_heads * (attention.head_dim + attention.value_head_dim)
    if isinstance(attention, LatentAttention):
        return attention.heads * (attention.nope_dim + attention.rope_dim) * 2.0 + attention.heads * attention.value_head_dim
    return attention.width if attention else 0.0


def _feed_forward_values(model: ModelSpec, layer: Layer, layout: Layout) -> float:
    block = layer.feed_forward
    match block:
        case None:
            return 0.0
        case DenseFeedForward():
            return WIDE_COPIES * (block.matrices - 1) * block.intermediate / layout.tensor
        case ExpertFeedForward():
            # every chosen expert of a token has its rows; with whole experts a rank has its share of them
            rows = block.experts_per_token / layout.expert
            columns = block.expert_intermediate / (1 if layout.expert > 1 else layout.tensor)
            shared = WIDE_COPIES * 2 * block.shared_intermediate / layout.tensor
            return rows * (WIDE_COPIES * 2 * columns + model.hidden_size) + shared
