"""Which load is a model planned for? Only mean lengths are known, no distribution."""

from dataclasses import dataclass
from enum import StrEnum


class Arrival(StrEnum):
    """How requests come."""

    #: ``concurrency`` requests are in flight, each one's end starts the next
    CLOSED_LOOP = "ClosedLoop"
    SATURATED = "Saturated"  #: everything is queued: the engine runs what fits
    #: ``concurrency`` requests start together, and the last one's end is the end
    STATIC_BATCH = "StaticBatch"


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
    ``prefix_cache_hit_rate`` is the share of input tokens whose K/V is there already.
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
    expert_imbalance: float | None = None
    draft_tokens: int = 0
    draft_acceptance: float = 0.0
    draft_acceptance_band: float = 0.0
    draft_choices: tuple[int, ...] = ()
    kv_offload: KvOffload | None = None

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
