"""What does a candidate cost: memory per stage, time per step, speed? Values alone, made by
``estimator``.
"""

from dataclasses import dataclass
from typing import Final

from shardwright.costs.host import LoadingTime


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on the fullest rank of one pipeline stage.

    ``budget_bytes`` is the engine's share (total x utilization); ``kv_cache_bytes`` the rest for
    the K/V cache (negative: that much too little). ``request_bytes`` is the K/V of one longest
    request, ``band_bytes`` how far ``kv_cache_bytes`` may be off (one way). ``weights_bytes``
    include ``adapter_bytes`` of adapter slots and ``draft_bytes`` of the draft model.
    """

    stage: int
    layers: tuple[int, int]  # first, one past the last
    weights_bytes: int
    activations_bytes: int
    overhead_bytes: int
    kv_cache_bytes: int
    budget_bytes: int
    kv_bytes_per_token: int
    request_bytes: int = 0
    band_bytes: int = 0
    adapter_bytes: int = 0
    draft_bytes: int = 0

    @property
    def tight(self) -> bool:
        """Return whether one longest request fits by less than the band."""
        # Below zero it does not start at all, which is a violation and no warning.
        return 0 <= self.kv_cache_bytes - self.request_bytes < self.band_bytes


UNPROMISED: Final = "unproven"
"""Basis of a speed that orders layouts of a model which is not counted, and is shown nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """One part of a decode step or of a prefill, in seconds."""

    # Weights, KvCache, Compute, TensorCommunication, PipelineCommunication, Bubble, Prefill, Queue,
    # Overhead
    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """Means at the planned load; ``low`` and ``high`` bound the output tokens per second (80%
    band).
    """

    ttft_seconds: float
    tpot_seconds: float
    output_tokens_per_second: float  # over all replicas
    requests_per_second: float
    low: float
    high: float
    basis: str  # fitted | modelled | unproven
    running_requests: int  # per replica, at once
    decode_shares: tuple[TimeShare, ...]
    prefill_shares: tuple[TimeShare, ...]

    @property
    def promised(self) -> bool:
        """Return whether it may be shown: nothing is known of the speed of a stated model."""
        return self.basis != UNPROMISED


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory and speed of one candidate.

    ``kv_tokens`` is the capacity of one replica's K/V cache on its worst stage, ``kv_requests`` how
    many requests of the planned mean length. ``max_model_len``, ``max_sequences`` and
    ``max_batched_tokens`` are the limits of the estimate and must be rendered; the last two may be
    lower than the engine's own. ``load_bytes_per_node`` are the bytes that a node reads at start,
    ``load`` how long that takes.
    """

    stages: tuple[StageMemory, ...]
    kv_tokens: int
    kv_requests: float
    max_model_len: int
    max_sequences: int
    max_batched_tokens: int
    load_bytes_per_node: int
    performance: Performance
    load: LoadingTime | None = None
    draft_tokens: int = 0  # that a step drafts
    # Requests a second that are served at most, where a rate is offered.
    capacity: float | None = None

    @property
    def load_seconds(self) -> float | None:
        """Return the seconds for which a node reads weights at start, None if they are not
        estimated.
        """
        return self.load.seconds if self.load else None
