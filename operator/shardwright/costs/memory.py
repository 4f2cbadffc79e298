"""How much memory does the fullest rank of a stage need for weights, activations, overhead, and
K/V?

The parts add up to the engine's budget. The sizes of a batch are halved step by step if they leave
too little K/V.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardwright.costs.drafts import draft_activation_bytes, draft_weight_bytes
from shardwright.costs.estimates import StageMemory
from shardwright.costs.kvcache import EXTRA_BATCHES, KvCache, kv_cache
from shardwright.costs.weight_bytes import WeightBytes, stage_weight_parts
from shardwright.costs.working_memory import (
    Device,
    LoadedStage,
    activation_bytes,
    band_bytes,
    overhead_bytes,
    stage_adapter_bytes,
    stage_widened_bytes,
)
from shardwright.costs.workload import (
    LENGTH_STEP,
    Limits,
    Workload,
    limits_to_try,
    longest_whole,
    requests_per_rank,
)
from shardwright.layouts.layout import EngineTraits, Layout
from shardwright.layouts.stages import split_layers
from shardwright.modelspec.model_spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHold:
    """A stage's rank whatever the batch: layers, bytes of weights, adapter slots and draft model,
    K/V cache, growth of scales where FP8 is widened.
    """

    stage: int
    layers: tuple[int, int]
    weights: WeightBytes
    adapter_bytes: int
    draft_bytes: int
    kv: KvCache
    last: bool
    widened_bytes: int = 0

    @property
    def loaded(self) -> LoadedStage:
        """Return what is read from files."""
        first, end = self.layers
        return LoadedStage(
            layers=end - first,
            weights_bytes=self.weights.total_bytes + self.draft_bytes,
            widened_bytes=self.widened_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMemory:
    """The memory of one replica at given limits; ``requests`` of the mean length fit at once.

    ``sequences`` are the most that the blocks of recurrent states allow, as predicted and at the
    lower end of the band (None: they limit nothing).
    """

    stages: tuple[StageMemory, ...]
    limits: Limits
    kv_tokens: int
    requests: float
    sequences: tuple[int, int] | None = None

    @property
    def holds_longest(self) -> bool:
        """Return whether every rank holds one request of the longest length."""
        return self.kv_tokens >= self.limits.model_len

    @property
    def starts(self) -> bool:
        """Return whether every rank holds one longest request, and a state of every sequence."""
        return self.holds_longest and (
            self.sequences is None or self.limits.sequences <= self.sequences[0]
        )

    @property
    def tight(self) -> bool:
        """Return whether it starts by less than the band of the prediction."""
        few = self.sequences is not None and self.limits.sequences > self.sequences[1]
        return self.starts and (few or any(stage.tight for stage in self.stages))

    def running(self, offered: int) -> int:
        """Return the number of offered requests that run at once."""
        return min(offered, self.limits.sequences, int(self.requests))


def stage_holds(
    model: ModelSpec, layout: Layout, kv_cache_dtype: str, traits: EngineTraits
) -> tuple[StageHold, ...]:
    """Return the layers and bytes that each stage of a layout holds on its fullest rank.

    Formula: none of its own: weights, slots of adapters, the draft model and K/V of each stage.
    Unit: bytes.
    Error: that of its parts: weights below 0.6%, K/V none (docs/planner-models.md).
    Source: derived from ``weights``, ``adapters``, ``drafts`` and ``kvcache``.

    >>> for hold in stage_holds(llama, Layout(tensor=4, pipeline=2), "auto", vllm):
    ...     print(hold.layers, hold.weights.total_bytes, hold.kv.bytes_per_token)
    (0, 40) 17639407616 40960
    (40, 80) 17639424000 40960
    """
    weights, adapters = (
        stage_weight_parts(model, layout, traits),
        stage_adapter_bytes(model, layout, traits),
    )
    widened = stage_widened_bytes(model, layout, traits)
    spans = split_layers(
        len(model.layers), layout.pipeline, traits.cuts.remainder, layout.partition
    )
    return tuple(
        StageHold(
            stage=stage,
            layers=span,
            weights=weights[stage],
            adapter_bytes=adapters[stage],
            draft_bytes=draft_weight_bytes(layout, traits) if stage == layout.pipeline - 1 else 0,
            kv=kv_cache(model, layout, stage, kv_cache_dtype, traits),
            last=stage == layout.pipeline - 1,
            widened_bytes=widened[stage],
        )
        for stage, span in enumerate(spans)
    )


def memory_under(
    frame: "Frame", workload: Workload, seen: dict[Limits, ReplicaMemory]
) -> ReplicaMemory:
    """Return the memory with the highest limits that carry the load, else start, else come closest.

    ``seen`` are earlier trials for other numbers in flight; the new ones are added.

    Formula: K/V bytes = budget - weights - activations - overhead, at the first limits of
        :func:`~shardwright.costs.workload.limits_to_try` that carry the load.
    Unit: bytes, tokens, requests.
    Error: K/V tokens: median 3.1% of 15 published rows; 13 of 19 lie inside the band
        (docs/benchmarks/memory.md).
    Source: derived; docs/memory.md.

    >>> found = memory_under(frame, load, {})
    >>> (stage,) = found.stages
    >>> stage.budget_bytes - stage.weights_bytes - stage.activations_bytes
    40701698376
    >>> stage.kv_cache_bytes == 40701698376 - stage.overhead_bytes, found.kv_tokens
    (True, 450272)
    """
    share = requests_per_rank(workload, frame.layout)
    tried = []
    uncut = frame.traits.batching.uncut_inputs.get(frame.model.architecture, 0)
    for limits in limits_to_try(workload, frame.traits, frame.device.gpu, share, uncut):
        tried.append(_within_blocks(frame, limits, seen))
        if tried[-1].starts and tried[-1].running(share) >= share:
            return tried[-1]
    starting = [memory for memory in tried if memory.starts]
    if not starting:
        return tried[-1]  # the smallest batches leave the most K/V
    # The first of the best: the highest limits.
    return max(starting, key=lambda memory: memory.running(share))


def _within_blocks(
    frame: "Frame", limits: Limits, seen: dict[Limits, ReplicaMemory]
) -> ReplicaMemory:
    """Return the memory at limits with no more sequences than states surely have blocks, unless
    they are told.
    """
    memory = _at(frame, limits, seen)
    most = memory.sequences[1] if memory.sequences else limits.sequences
    if not 0 < most < limits.sequences or frame.traits.options.told.sequences is not None:
        return memory
    # A power of two, so that a small change of the memory figures changes no argument.
    return _at(frame, replace(limits, sequences=1 << (most.bit_length() - 1)), seen)


def _at(frame: "Frame", limits: Limits, seen: dict[Limits, ReplicaMemory]) -> ReplicaMemory:
    # The same limits are tried for every number in flight.
    if limits not in seen:
        seen[limits] = memory_at(frame, limits)
    return seen[limits]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What trials of limits have in common; ``mean_tokens`` is the length of a mean request."""

    model: ModelSpec
    layout: Layout
    holds: tuple[StageHold, ...]
    device: Device
    traits: EngineTraits
    mean_tokens: int

    @property
    def budget_bytes(self) -> int:
        """Return the bytes of a GPU that the engine may take.

        Told how much to keep for K/V, it takes its needs beside from the whole GPU. Source: vLLM
        0.32 ``v1/worker/utils.py:request_memory``.
        """
        rules, told = self.traits.memory, self.traits.options.kv_cache_bytes is not None
        share = 1.0 if told or rules.cache_of_free else rules.memory_utilization
        # As vLLM rounds it: a share of all memory of the GPU, not of what is free at the start.
        return math.ceil(self.device.usable_bytes * share)


def memory_at(frame: Frame, limits: Limits) -> ReplicaMemory:
    """Return the memory at given limits, whether it starts or not.

    Formula: K/V bytes = budget - weights - activations - overhead; tokens = what the worst stage
        holds.
    Unit: bytes, tokens, requests.
    Error: as :func:`memory_under`.
    Source: derived; docs/memory.md.

    >>> limits = Limits(batched_tokens=2048, sequences=256, model_len=3072)
    >>> memory_at(frame, limits).kv_tokens
    470736
    """
    copies = frame.traits.memory.logit_copies
    middle, end = (
        activation_bytes(frame.model, frame.layout, limits, copies, last=last)
        for last in (False, True)
    )
    end = max(end, draft_activation_bytes(frame.model, frame.layout, limits, frame.traits))
    caches = [_in_flight(hold.kv, frame.layout, limits) for hold in frame.holds]
    stages = tuple(
        _stage(hold, kv, frame, limits, end if hold.last else middle)
        for hold, kv in zip(frame.holds, caches, strict=True)
    )
    # Most stages are alike, and their room is dealt out once.
    room = {(kv, max(0, stage.kv_cache_bytes)) for stage, kv in zip(stages, caches, strict=True)}
    return ReplicaMemory(
        stages=stages,
        limits=limits,
        # The engine gives all ranks as many blocks as the poorest one has room for.
        kv_tokens=min(kv.tokens(free, limits.model_len) for kv, free in room),
        requests=min(kv.requests(free, frame.mean_tokens) for kv, free in room),
        sequences=_most_sequences(frame, stages, caches),
    )


def _most_sequences(
    frame: Frame, stages: tuple[StageMemory, ...], caches: Iterable[KvCache]
) -> tuple[int, int] | None:
    """Return how many sequences graphs are captured for at most: as many as states have blocks.

    Source: vLLM 0.33 ``config/compilation.py:resolve_cudagraph_mode_and_sizes`` ("exceeds available
    Mamba cache blocks"), where full graphs are captured.
    """
    traits = frame.traits
    held = [(stage, kv) for stage, kv in zip(stages, caches, strict=True) if kv.bytes_per_block]
    recurrent = any(kv.keeps_states for _, kv in held)
    if not (traits.memory.block_of_every_sequence and recurrent) or traits.options.told.eager:
        return None
    return (
        min(stage.kv_cache_bytes // kv.bytes_per_block for stage, kv in held),
        min((stage.kv_cache_bytes - stage.band_bytes) // kv.bytes_per_block for stage, kv in held),
    )


def lengthened(frame: Frame, memory: ReplicaMemory, workload: Workload) -> ReplicaMemory:
    """Return the memory at the longest request that costs nothing, if nobody asked for a length.

    It starts as surely as before, and as many of the load's requests run at once: K/V is taken as a
    request grows, and only buffers as long as the longest request take it from the others.

    Formula: the largest multiple of ``LENGTH_STEP``, or ``open_model_len`` itself, at which one
        longest request fits by the band.
    Unit: tokens.
    Error: that of K/V space (:func:`memory_under`), which the band covers.
    Source: derived; vLLM 0.32 refuses to start where one longest request does not fit
        (``v1/core/kv_cache_utils.py``).

    >>> from dataclasses import replace
    >>> longer = lengthened(
    ...     frame, memory_under(frame, load, {}), replace(load, open_model_len=131072)
    ... )
    >>> longer.limits.model_len, longer.kv_tokens
    (131072, 450272)
    """
    if workload.open_model_len is None or not memory.starts or memory.tight:
        return memory
    shortest = memory.limits.model_len
    most = longest_whole(memory.limits, frame.traits, workload.open_model_len)
    share = requests_per_rank(workload, frame.layout)

    def at(length: int) -> ReplicaMemory:
        return memory_at(frame, replace(memory.limits, model_len=min(length, most)))

    def costs(length: int) -> bool:
        tried = at(length)
        fewer = tried.running(share) < memory.running(share)
        return fewer or tried.tight or not tried.starts

    lengths = range(
        shortest - shortest % LENGTH_STEP + LENGTH_STEP, most + LENGTH_STEP, LENGTH_STEP
    )
    free = bisect_left(lengths, True, key=costs)
    return at(lengths[free - 1]) if free else memory


def _in_flight(kv: KvCache, layout: Layout, limits: Limits) -> KvCache:
    """Sliding layers keep the tokens in flight beside their window."""
    if not any(kv.windows):
        return kv
    return replace(kv, in_flight_tokens=limits.batched_tokens * (layout.pipeline + EXTRA_BATCHES))


def _stage(
    hold: StageHold, kv: KvCache, frame: Frame, limits: Limits, activations: int
) -> StageMemory:
    loaded = hold.loaded
    overhead = overhead_bytes(frame.layout, frame.device, frame.traits, limits, loaded)
    held = loaded.weights_bytes + hold.adapter_bytes
    stage = StageMemory(
        stage=hold.stage,
        layers=hold.layers,
        weights_bytes=held,
        adapter_bytes=hold.adapter_bytes,
        draft_bytes=hold.draft_bytes,
        activations_bytes=activations,
        overhead_bytes=overhead,
        # May be negative: by how much is the gap that a check names.
        kv_cache_bytes=frame.budget_bytes - held - activations - overhead,
        budget_bytes=frame.budget_bytes,
        kv_bytes_per_token=kv.bytes_per_token,
        request_bytes=kv.bytes_for_request(limits.model_len),
        band_bytes=band_bytes(
            loaded.weights_bytes,
            activations,
            overhead,
            uncounted=bool(frame.traits.options.told.uncounted),
        ),
    )
    if frame.traits.options.kv_cache_bytes is not None:
        return _pinned(stage, frame.traits.options.kv_cache_bytes)
    rules = frame.traits.memory
    return _shared(stage, rules.memory_utilization) if rules.cache_of_free else stage


def _shared(stage: StageMemory, share: float) -> StageMemory:
    """Return a stage with only a share of its free memory for K/V.

    Source: TensorRT-LLM ``_torch/pyexecutor/_util.py:_cal_max_memory`` (at 158b5d1): the memory of
    the GPU less the peak of a trial run, which has weights, activations, NCCL and graphs in it.
    """
    unused = stage.kv_cache_bytes - math.floor(stage.kv_cache_bytes * share)
    if unused <= 0:
        return stage
    return replace(
        stage,
        kv_cache_bytes=stage.kv_cache_bytes - unused,
        budget_bytes=stage.budget_bytes - unused,
    )


def _pinned(stage: StageMemory, kv_bytes: int) -> StageMemory:
    """Return a stage with a given K/V: just that, or the gap if it may not fit beside the rest."""
    # With the band: the engine does not lower a number that the user states.
    missing = kv_bytes + stage.band_bytes - stage.kv_cache_bytes
    if missing > 0:
        return replace(
            stage,
            kv_cache_bytes=-missing,
            budget_bytes=stage.budget_bytes - stage.kv_cache_bytes - missing,
        )
    unused = stage.kv_cache_bytes - kv_bytes
    return replace(
        stage, kv_cache_bytes=kv_bytes, budget_bytes=stage.budget_bytes - unused, band_bytes=0
    )
