"""Which load is a model planned for? Only mean lengths are known, no distribution.

Which limits is an engine started with? They are lowered before a layout is refused.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from shardwright.hardware.gpus import Gpu
from shardwright.layouts.layout import EngineOverrides, EngineTraits, Layout


class Arrival(StrEnum):
    """How requests come."""

    #: ``concurrency`` requests are in flight, each one's end starts the next
    CLOSED_LOOP = "ClosedLoop"
    SATURATED = "Saturated"  #: everything is queued: the engine runs what fits
    #: ``concurrency`` requests start together, and the last one's end is the end
    STATIC_BATCH = "StaticBatch"


class Phase(StrEnum):
    """Which part of its requests a group computes."""

    WHOLE = "Whole"
    PREFILL = "Prefill"  #: the prompt, whose K/V a decode group fetches
    DECODE = "Decode"  #: the answer, from a prompt whose K/V it has fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOffload:
    """K/V kept in the node's memory beside the GPUs': so many bytes for each pod (None: all there
    is).

    ``beside_bytes`` is the pod's further request as somebody states it (0: the engine's need).
    """

    pod_bytes: int | None = None
    beside_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Mean lengths and requests in flight over all replicas; ``max_model_len`` is the longest
    request that a layout must hold.

    If nobody asked for that length, the chosen layout takes a longer one, up to ``open_model_len``,
    where that costs nothing (None: it stays). ``requests_per_second``, if stated, is the offered
    rate of all replicas: the number in flight is derived, with ``concurrency`` as upper limit.
    ``prefix_cache_hit_rate`` is the share of input tokens whose K/V is where their beginning was
    computed; with ``follows_prefixes`` requests go there, else to any replica.
    ``expert_imbalance`` is the work of the busiest expert rank over the mean (None: the cost
    model's own). With speculative decoding a step verifies ``draft_tokens`` drafted tokens, each
    accepted with the chance ``draft_acceptance``, give or take ``draft_acceptance_band``; each
    estimate takes the one of ``draft_choices``, if given, that serves most. ``kv_offload`` is the
    K/V kept beside the GPUs (None: nothing).
    """

    input_tokens: int
    output_tokens: int
    concurrency: int
    max_model_len: int
    open_model_len: int | None = None
    kv_cache_dtype: str = "auto"  # auto | fp8
    arrival: Arrival = Arrival.CLOSED_LOOP
    requests_per_second: float | None = None
    prefix_cache_hit_rate: float = 0.0
    follows_prefixes: bool = False
    expert_imbalance: float | None = None
    draft_tokens: int = 0
    draft_acceptance: float = 0.0
    draft_acceptance_band: float = 0.0
    draft_choices: tuple[int, ...] = ()
    kv_offload: KvOffload | None = None

    def among(self, replicas: int) -> "Workload":
        """Return the load with the hits that are left to each of so many replicas.

        Formula: the hit rate where requests follow their prefixes; else the hit rate / replicas.
        Unit: share of input tokens.
        Error: a prefix that all requests share hits everywhere, and of a conversation an earlier
            turn may be found: then it is too low. Replicas of the attention in one instance count
            as one, whose prefixes lie together: then it is too high.
        Source: derived: a Service picks a replica for each connection at random.

        >>> from dataclasses import replace
        >>> load = Workload(input_tokens=1, output_tokens=1, concurrency=1, max_model_len=2)
        >>> load.among(4) is load
        True
        >>> replace(load, prefix_cache_hit_rate=0.9).among(4).prefix_cache_hit_rate
        0.225
        """
        if replicas == 1 or self.follows_prefixes or not self.prefix_cache_hit_rate:
            return self
        return replace(
            self, prefix_cache_hit_rate=self.prefix_cache_hit_rate / replicas, follows_prefixes=True
        )

    def of_phase(self, phase: Phase) -> "Workload":
        """Return what a load asks of groups that compute one phase of its requests.

        Formula: prefill: one output token; decode: all of the prompt but its last token is cached.
            The longest request stays, so that both take the same ones.
        Unit: tokens, share of input tokens.
        Error: that of the estimates: published pairs in docs/benchmarks/accuracy.md.
        Source: vLLM 0.33 ``v1/worker``: a prefill engine is asked for one token, which the decode
            engine computes again.

        >>> load = Workload(input_tokens=8, output_tokens=4, concurrency=1, max_model_len=16)
        >>> load.of_phase(Phase.PREFILL).output_tokens
        1
        >>> load.of_phase(Phase.DECODE).prefix_cache_hit_rate
        0.875
        """
        if phase is Phase.PREFILL:
            return replace(self, output_tokens=1)
        if phase is Phase.DECODE:
            fetched = (self.input_tokens - 1) / self.input_tokens
            return replace(self, prefix_cache_hit_rate=fetched, follows_prefixes=True)
        return self

    @property
    def tokens_per_step(self) -> float:
        """Return the mean tokens a sequence gains in a decode step: ``(1 - a^(k + 1)) / (1 - a)``
        at acceptance a, as drafts count up to the first miss.

        >>> from dataclasses import replace
        >>> load = Workload(input_tokens=1, output_tokens=1, concurrency=1, max_model_len=2)
        >>> load.tokens_per_step
        1.0
        >>> replace(load, draft_tokens=3, draft_acceptance=0.5).tokens_per_step
        1.875
        """
        return self.tokens_per_step_at(self.draft_acceptance)

    def tokens_per_step_at(self, acceptance: float) -> float:
        """Return the mean tokens of a decode step at another chance that drafts are accepted."""
        return sum(acceptance**drafted for drafted in range(self.draft_tokens + 1))

    @property
    def drafted_band(self) -> tuple[float, float]:
        """Return the tokens of a step over the mean, if fewer and if more drafts are accepted.

        >>> from dataclasses import replace
        >>> load = Workload(input_tokens=1, output_tokens=1, concurrency=1, max_model_len=2)
        >>> load.drafted_band
        (1.0, 1.0)
        >>> wide = replace(load, draft_tokens=1, draft_acceptance=0.5)
        >>> replace(wide, draft_acceptance_band=0.375).drafted_band
        (0.75, 1.25)
        """
        if not self.draft_acceptance_band:
            return 1.0, 1.0
        mean = self.draft_acceptance
        band = self.draft_acceptance_band
        low = max(0.0, mean - band)
        high = min(1.0, mean + band)
        each = self.tokens_per_step
        return self.tokens_per_step_at(low) / each, self.tokens_per_step_at(high) / each


FEWEST_TOKENS: Final = 1024
"""Unit: tokens. Basis: assumed; a smaller chunk leaves the GPU's units idle while prompts are
computed.
"""

FEWEST_SEQUENCES: Final = 16
"""Unit: requests. Basis: assumed; less saves next to nothing."""

WHOLE_PROMPT_TOKENS: Final = 32768
"""Unit: tokens. Engines that do not chunk prompts by default begin to above this. Source: vLLM 0.6
``engine/arg_utils.py`` (``use_long_context``)."""

LENGTH_STEP: Final = 1024
"""Unit: tokens. Basis: chosen; a longest request that nobody asked for is a multiple of it, so that
a small change of the memory figures changes no argument of an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The engine's batch limits and the longest request."""

    batched_tokens: int
    sequences: int
    model_len: int


def requests_per_replica(workload: Workload, layout: Layout) -> int:
    """Return the planned requests in flight of one replica.

    Formula: ceil(requests in flight / replicas).
    Unit: requests.
    Error: exact, of requests that are spread evenly.
    Source: derived.

    >>> requests_per_replica(load, Layout(replicas=3))  # of 64
    22
    """
    return math.ceil(workload.concurrency / layout.replicas)


def requests_per_rank(workload: Workload, layout: Layout) -> int:
    """Return the planned requests in flight of one attention rank, on which alone its memory
    depends.

    Formula: ceil(requests of a replica / attention-data degree).
    Unit: requests.
    Error: exact, of requests that are spread evenly.
    Source: derived.

    >>> requests_per_rank(load, Layout(replicas=3, tensor=4, attention_data=4))  # of 64
    6
    """
    return math.ceil(requests_per_replica(workload, layout) / layout.attention_data)


def limits_to_try(
    workload: Workload, traits: EngineTraits, gpu: Gpu, share: int, uncut: int = 0
) -> Iterator[Limits]:
    """Yield limits from those that the engine takes by itself on such a GPU to the least.

    More sequences than the engine's default are tried only when the load (``share`` requests) has
    them, and fewer than the load has are tried last. A batch is never less than ``uncut``, the
    tokens of an input that it must hold whole; with adapters it must hold the drafts of all
    sequences. A limit that the engine is told stays, and the other leaves it room: a batch has a
    token of every sequence.

    Formula: both limits are halved, tokens down to ``FEWEST_TOKENS``, sequences down to the load's
        and then to ``FEWEST_SEQUENCES``.
    Unit: tokens, sequences.
    Error: none: they are set, not predicted; how far to go down is assumed.
    Source: vLLM 0.32 ``engine/arg_utils.py:create_engine_config``.

    >>> for tried in limits_to_try(load, vllm, h100, share=64):
    ...     print(tried.batched_tokens, tried.sequences)
    8192 1024
    4096 512
    2048 256
    1024 128
    1024 64
    1024 32
    1024 16
    """
    tokens, sequences = default_batch(traits, gpu)
    needed = _power_of_two(share)
    fewest = max(uncut, _fewest_tokens(workload, traits))
    each = workload.draft_tokens + 1 if traits.options.adapters else 1
    # More sequences take room for their logits.
    tokens, sequences = max(tokens, fewest), max(sequences, needed)
    while True:
        yield _as_told(
            Limits(batched_tokens=tokens, sequences=sequences, model_len=workload.max_model_len),
            traits.options.told,
            each,
        )
        if tokens <= fewest and sequences <= FEWEST_SEQUENCES:
            return
        # Fewer sequences than the load has make requests wait, so chunks of prompts shrink first.
        floor = (
            FEWEST_SEQUENCES
            if sequences <= needed and tokens <= fewest
            else max(FEWEST_SEQUENCES, needed)
        )
        tokens, sequences = max(fewest, tokens // 2), max(floor, sequences // 2)


def _as_told(limits: Limits, told: EngineOverrides, each: int) -> Limits:
    most = (
        limits.sequences
        if told.batched_tokens is None
        else min(limits.sequences, max(1, told.batched_tokens // each))
    )
    sequences = most if told.sequences is None else told.sequences
    tokens = (
        max(limits.batched_tokens, sequences * each)
        if told.batched_tokens is None
        else told.batched_tokens
    )
    return replace(limits, batched_tokens=tokens, sequences=sequences)


def _fewest_tokens(workload: Workload, traits: EngineTraits) -> int:
    """The batch of an engine that takes prompts whole holds the longest."""
    whole = not traits.batching.chunks_prompts and workload.max_model_len <= WHOLE_PROMPT_TOKENS
    return max(FEWEST_TOKENS, workload.max_model_len) if whole else FEWEST_TOKENS


def longest_whole(limits: Limits, traits: EngineTraits, longest: int) -> int:
    """Return the longest request, up to ``longest``, that needs no larger batch than the limits'.

    Formula: ``longest``; at most the batch where the engine takes prompts whole.
    Unit: tokens.
    Error: none: it is set, not predicted.
    Source: vLLM 0.6 ``config.py:SchedulerConfig``: a batch below the longest request is refused
        without chunked prefill.

    >>> limits = Limits(batched_tokens=8192, sequences=256, model_len=3072)
    >>> longest_whole(limits, vllm, 131072)
    131072
    """
    if traits.batching.chunks_prompts or limits.model_len > WHOLE_PROMPT_TOKENS:
        return longest
    return min(longest, max(limits.model_len, limits.batched_tokens))


def default_batch(traits: EngineTraits, gpu: Gpu) -> tuple[int, int]:
    """Return the tokens and the sequences of the batch that the engine takes by itself on a GPU.

    Formula: none: the first row of the engine's ``batch_defaults`` that the GPU qualifies for.
    Unit: tokens, sequences.
    Error: exact for versions that were read.
    Source: vLLM 0.32 ``engine/arg_utils.py:get_batch_defaults``.

    >>> default_batch(vllm, h100)
    (8192, 1024)
    """
    capability = gpu.compute_capability
    for row in traits.batching.batch_defaults:
        if gpu.memory_bytes >= row.gpu_bytes and (
            # None: AMD's have no such number, and qualify.
            capability is None or capability >= row.compute_capability
        ):
            return row.tokens, row.sequences
    return traits.batching.max_batched_tokens, traits.batching.max_sequences


def _power_of_two(count: int) -> int:
    # So that halving the engine's own limit, a power of two, comes to it exactly.
    return 1 << max(0, count - 1).bit_length()
