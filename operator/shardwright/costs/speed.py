"""How do users see a layout, under continuous batching, chunked prefill, micro-batches and
queueing?

Means alone are known: no percentile of a time, and no burst of arrivals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.costs.coefficients import Band, Coefficients
from shardwright.costs.communication import send_seconds
from shardwright.costs.drafts import DraftPasses, with_drafting
from shardwright.costs.estimates import Performance, TimeShare
from shardwright.costs.roofline import Batch, Links, StageFloor, StepTime, overlapped, step_time
from shardwright.costs.workload import Arrival, Workload
from shardwright.hardware.gpus import Link

UNEVEN_STEPS: Final = 0.04
"""By how much every further micro-batch in flight stretches the turn of the slowest stage, a share:
steps of unlike batches wait for each other. Basis: measured, 63 published runs with 2, 4 and 8
stages (TensorRT-LLM on RTX PRO 6000 and A100), which were 0%, 9% and 32% slower than evenly
filled stages.
"""

OUT_OF_STEP: Final = 0.3
"""Share of the other attention ranks whose prompts come at times of their own; those of the rest
come together, as requests of like lengths end together. Basis: fitted, 85 published runs with 2 to
8 such ranks: predicted over measured 0.77 (B200) and 1.05 (H200) at 8 ranks; with all of them out
of step 0.74 and 0.96, with none 0.96 and 1.23.
"""

_NOTHING_SECONDS: Final = 1e-12  # what rounding leaves of a difference


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """Stages of one pipeline that are alike and priced once."""

    floor: StageFloor
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica as serving sees it: its stages, the links among a stage's ranks and between
    stages.
    """

    kinds: tuple[StageKind, ...]
    links: Links
    tensor: int
    stage_link: Link | None
    stage_link_is_network: bool
    drafting: DraftPasses | None = None  # on the last stage, after steps that verify
    eager: bool = False  # the host launches every kernel: nothing is captured

    @property
    def stages(self) -> int:
        """Return the pipeline stages."""
        return sum(kind.count for kind in self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of one attention rank: ``running`` of ``offered`` at once, ``chunk_tokens`` of
    prompt a step.

    ``ranks`` of its replica have requests, all alike.
    """

    workload: Workload
    offered: float
    running: float
    chunk_tokens: int
    ranks: float = 1.0
    # Prompts and decoding share steps; else a prompt has steps of its own.
    mixed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One pass of a batch through all stages: time by part, and the slowest stage."""

    stages: tuple[StepTime, ...]
    counts: tuple[int, ...]
    send_seconds: float  # all hand-overs between stages

    def total(self, part: str) -> float:
        """Return one part's seconds over all stages."""
        if len(self.stages) == 1:  # most are alike; the same sum at a third of its cost
            seconds: float = getattr(self.stages[0], part)
            return seconds * self.counts[0]
        return math.fsum(
            [
                getattr(stage, part) * count
                for stage, count in zip(self.stages, self.counts, strict=True)
            ]
        )

    @property
    def latency_seconds(self) -> float:
        """Return the time from the first stage to the end of the last."""
        return (
            sum(
                stage.total_seconds * count
                for stage, count in zip(self.stages, self.counts, strict=True)
            )
            + self.send_seconds
        )

    @property
    def slowest_seconds(self) -> float:
        """Return the time of the stage that sets the pace."""
        return max(stage.total_seconds for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one replica: seconds of a request by phase and by cause
    (docs/planner-request-worked.md).
    """

    prefill_seconds: float  # a prompt alone
    waiting_seconds: float  # for other prompts, and for the step that runs
    queued_seconds: float  # for room in the K/V cache
    stay_seconds: float  # from admission to the last token
    requests_per_second: float
    decode: Passage
    alone: Passage
    decoding_seconds: float  # all steps of a request, without prompts
    cycle_seconds: float  # between two steps of a request's batch, without prompts
    between_seconds: float  # of it: what the engine does between two steps
    tokens_per_step: float

    @property
    def first_token_seconds(self) -> float:
        """Return the time to the first token once a request runs: its stay without the time after
        that token.
        """
        return self.stay_seconds - self.after_first_seconds

    @property
    def after_first_seconds(self) -> float:
        """Return the time from the first token to the last; no token comes faster than it is
        decoded.
        """
        return max(
            self.stay_seconds - self.prefill_seconds - self.waiting_seconds, self.decoding_seconds
        )


def serve(replica: Replica, load: Load, fitted: Coefficients) -> Speed:
    """Return the speed at which one replica serves a load.

    Formula: requests per second = running / stay; stay = prefill + steps x time of a step + what
        the prompts of others add (docs/planner-request-worked.md).
    Unit: seconds, requests per second.
    Error: output tokens per second 8.7%, TPOT 8.6%, TTFT 26.2%, medians in sample
        (docs/benchmarks/accuracy.md).
    Source: derived (docs/planner-speed.md); ``OUT_OF_STEP``, ``UNEVEN_STEPS`` and the coefficients
        are fitted or measured.

    >>> from shardwright.costs.coefficients import coefficients_of
    >>> speed = serve(task.replica, task.load, coefficients_of("vLLM", ""))
    >>> round(speed.prefill_seconds, 3), round(512 * speed.cycle_seconds, 2)
    (0.142, 8.59)
    >>> round(speed.stay_seconds, 2)  # the prompts of the others add 7.2 seconds
    15.95
    >>> round(speed.requests_per_second, 3), round(64 / 15.95, 3)
    (4.012, 4.013)
    """
    return (
        _static(replica, load, fitted)
        if load.workload.arrival is Arrival.STATIC_BATCH
        else _continuous(replica, load, fitted)
    )


def _continuous(replica: Replica, load: Load, fitted: Coefficients) -> Speed:
    work = load.workload
    inputs = _uncached(work)
    steps = work.output_tokens / work.tokens_per_step
    decode, cycle = _decode(replica, load, fitted)
    chunk = min(
        load.chunk_tokens, max(min(inputs, load.chunk_tokens), load.running * inputs / steps)
    )
    prompts = _prompts(replica, load, chunk)
    alone, prefill = _prefill(replica, load, fitted, prompts)
    others = _others(replica, load, fitted, decode, prompts)
    stay = prefill + steps * cycle + others
    waiting = (
        max(fitted.bunching, min(1.0, 1 / steps)) * others
        + fitted.admission_seconds * (load.running - 1)
        + min(fitted.answer_steps, steps) * cycle
    )
    return Speed(
        prefill_seconds=prefill,
        waiting_seconds=waiting,
        queued_seconds=max(0.0, load.offered / load.running - 1) * stay
        if work.arrival is Arrival.CLOSED_LOOP
        else 0.0,
        stay_seconds=stay,
        requests_per_second=load.running / stay,
        decode=decode,
        alone=alone,
        decoding_seconds=steps * cycle,
        cycle_seconds=cycle,
        between_seconds=fitted.step_seconds,
        tokens_per_step=work.tokens_per_step,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompts:
    """Others' prompts during one stay: ``steps`` with a chunk of ``chunk_tokens`` of one, on
    ``beside`` ranks in the mean.
    """

    chunk_tokens: float
    steps: float
    beside: float


def _prompts(replica: Replica, load: Load, chunk_tokens: float) -> _Prompts:
    """Return the steps that the prompts of others take.

    Attention ranks step together, so a prompt on any of them holds them all: as many steps have one
    as if the ranks went their own ways and at least one of them had one, and no more than one after
    the other.
    """
    work = load.workload
    others = load.ranks - 1
    each = _uncached(work) / chunk_tokens
    own = (load.running - 1) * each
    if others <= 0:
        return _Prompts(chunk_tokens=chunk_tokens, steps=own, beside=1.0)
    theirs = load.running * each
    slots = max(
        work.output_tokens / work.tokens_per_step * min(replica.stages, load.running), theirs
    )
    free = (1 - own / slots) * math.pow(1 - theirs / slots, OUT_OF_STEP * others)
    steps = (1 - free) * slots
    return _Prompts(
        chunk_tokens=chunk_tokens,
        steps=steps,
        beside=max(1.0, (own + others * theirs) / steps) if steps > 0 else 1.0,
    )


def _prefill(
    replica: Replica, load: Load, fitted: Coefficients, prompts: _Prompts
) -> tuple[Passage, float]:
    inputs = _uncached(load.workload)
    chunks = max(1.0, inputs / load.chunk_tokens)
    alone = _pass(replica, _batch(load, 0.0, inputs / chunks, prompts.beside), fitted)
    return alone, (
        alone.latency_seconds
        + (chunks - 1) * alone.slowest_seconds
        + fitted.step_seconds
        + fitted.request_seconds
    )


def _others(
    replica: Replica, load: Load, fitted: Coefficients, decode: Passage, prompts: _Prompts
) -> float:
    """Return the time that the prompts of the other requests add to the stay of one.

    They share the steps that decode (as ``decode`` without them) as long as there are any; the rest
    has steps of its own, as all of it has where an engine does not mix.
    """
    work = load.workload
    needed = prompts.steps
    chunk = prompts.chunk_tokens
    in_flight = min(replica.stages, load.running)
    shared = (
        min(needed, work.output_tokens / work.tokens_per_step * in_flight) if load.mixed else 0.0
    )
    added = 0.0
    if shared:
        mixed = _pass(
            replica, _batch(load, load.running / in_flight, chunk, prompts.beside), fitted
        )
        added = shared * (mixed.slowest_seconds - decode.slowest_seconds)
    if needed > shared:
        alone = _pass(replica, _batch(load, 0.0, chunk, prompts.beside), fitted)
        added += (needed - shared) * (alone.slowest_seconds + fitted.step_seconds)
    return added


def _static(replica: Replica, load: Load, fitted: Coefficients) -> Speed:
    """All start together: all prompts first, then all decode to the end; the rest goes in later
    rounds.
    """
    work = load.workload
    inputs = _uncached(work)
    steps = work.output_tokens / work.tokens_per_step
    decode, cycle = _decode(replica, load, fitted)
    tokens = load.running * inputs
    chunks = max(1.0, tokens / load.chunk_tokens)
    alone = _pass(replica, _batch(load, 0.0, tokens / chunks, load.ranks), fitted)
    prefill = (
        alone.latency_seconds
        + (chunks - 1) * alone.slowest_seconds
        + fitted.step_seconds
        + fitted.request_seconds
    )
    stay = prefill + steps * cycle
    rounds = max(1.0, load.offered / load.running)
    return Speed(
        prefill_seconds=prefill,
        waiting_seconds=0.0,
        # The first round waits for nothing, the last for all others: in the mean for half of them.
        queued_seconds=(rounds - 1) / 2 * stay,
        stay_seconds=stay,
        requests_per_second=load.running / stay,
        decode=decode,
        alone=alone,
        decoding_seconds=steps * cycle,
        cycle_seconds=cycle,
        between_seconds=fitted.step_seconds,
        tokens_per_step=work.tokens_per_step,
    )


def _uncached(work: Workload) -> float:
    """The last token of a prompt is always computed."""
    return max(1.0, work.input_tokens * (1 - work.prefix_cache_hit_rate))


def _batch(load: Load, sequences: float, prompt_tokens: float, prompting: float = 1.0) -> Batch:
    work = load.workload
    # Each prompt that ends in this step gets its first token by it.
    prompts = prompt_tokens / work.input_tokens
    return Batch(
        sequences=sequences,
        verified=1.0 + work.draft_tokens,
        # Of a request that decodes, half of the answer is there in the mean.
        context_tokens=work.input_tokens + work.output_tokens / 2,
        prompt_tokens=prompt_tokens,
        # Only the end of a prompt is computed: it sees the cached part whole, and half of itself.
        prompt_context_tokens=work.input_tokens * (1 + work.prefix_cache_hit_rate) / 2,
        sampled=sequences * (1.0 + work.draft_tokens) + prompts,
        prompting=prompting,
        expert_imbalance=work.expert_imbalance,
    )


def _decode(replica: Replica, load: Load, fitted: Coefficients) -> tuple[Passage, float]:
    """Return one pass of a micro-batch, and the time between two steps of a request without
    prompts.

    With P stages up to P micro-batches are in flight: one request alone gains nothing from the
    others' overlap, P batches keep the slowest stage busy. One loop of the engine prepares all
    their steps.
    """
    together = load.workload.arrival is Arrival.STATIC_BATCH
    in_flight = 1.0 if together else min(replica.stages, load.running)
    passage = _pass(replica, _batch(load, load.running / in_flight, 0.0), fitted)
    pace = (
        in_flight
        * max(passage.slowest_seconds, fitted.step_seconds)
        * (1 + UNEVEN_STEPS * (in_flight - 1))
    )
    return passage, max(passage.latency_seconds + fitted.step_seconds, pace)


def _pass(replica: Replica, batch: Batch, fitted: Coefficients) -> Passage:
    times = tuple(step_time(kind.floor, replica.links, batch, fitted) for kind in replica.kinds)
    if replica.drafting is not None and batch.verified > 1:
        drafting = with_drafting(times[-1], replica.drafting, batch, fitted)
        times = (*times[:-1], drafting)
    if replica.eager or batch.prompt_tokens:
        times = tuple(
            _launched(time, kind.floor.products * fitted.launch_seconds)
            for time, kind in zip(times, replica.kinds, strict=True)
        )
    return Passage(
        stages=times,
        counts=tuple(kind.count for kind in replica.kinds),
        send_seconds=_sends(replica, batch.tokens),
    )


def _launched(time: StepTime, host_seconds: float) -> StepTime:
    """Return a step that no captured graph has: the host launches it while the GPU computes."""
    more = overlapped(time.total_seconds, host_seconds) - time.total_seconds
    return replace(time, overhead_seconds=time.overhead_seconds + more)


def _sends(replica: Replica, tokens: float) -> float:
    """Hidden states and residual, each tensor rank its slice."""
    size = 2 * tokens * replica.links.hidden_bytes / replica.tensor
    return (replica.stages - 1) * send_seconds(
        size, replica.stage_link, network=replica.stage_link_is_network
    )


def performance(
    speed: Speed, load: Load, groups: float, *, running: int, band: Band
) -> Performance:
    """Return what users see of ``groups`` alike replicas (or attention ranks), ``running`` requests
    in a replica.

    Formula: TPOT = time after the first token / output tokens; TTFT = the rest of the stay + the
        queue; tokens per second = replicas x requests per second x output tokens, times the band.
    Unit: seconds, tokens and requests per second.
    Error: as :func:`serve`.
    Source: derived.

    >>> from shardwright.costs.coefficients import coefficients_of
    >>> speed = serve(task.replica, task.load, coefficients_of("vLLM", ""))
    >>> band = Band(low=0.5, high=2.0, basis="modelled")
    >>> seen = performance(speed, task.load, 2, running=64, band=band)
    >>> round(1000 * seen.tpot_seconds, 1), round(seen.ttft_seconds, 2)  # ms, seconds
    (29.9, 0.63)
    >>> round(seen.output_tokens_per_second), round(2 * 64 * 512 / 15.95)
    (4108, 4109)
    >>> round(seen.low), round(seen.high)
    (2054, 8217)
    """
    outputs = load.workload.output_tokens
    rate = groups * speed.requests_per_second
    tpot = speed.after_first_seconds / outputs
    return Performance(
        ttft_seconds=speed.first_token_seconds + speed.queued_seconds,
        tpot_seconds=tpot,
        output_tokens_per_second=rate * outputs,
        requests_per_second=rate,
        low=rate * outputs * band.low,
        high=rate * outputs * band.high,
        basis=band.basis,
        running_requests=running,
        decode_shares=_decode_shares(speed, tpot),
        prefill_shares=_prefill_shares(speed),
    )


_PARTS: Final = (
    ("Weights", "weights_seconds"),
    ("KvCache", "kv_cache_seconds"),
    ("Compute", "compute_seconds"),
    ("TensorCommunication", "communication_seconds"),
    ("ExpertCommunication", "expert_communication_seconds"),
    ("ContextCommunication", "context_communication_seconds"),
)


_MOVED: Final = frozenset(
    {"TensorCommunication", "ExpertCommunication", "ContextCommunication", "PipelineCommunication"}
)


def _work_shares(passage: Passage, scale: float) -> list[TimeShare]:
    shares = [TimeShare(name=name, seconds=passage.total(part) * scale) for name, part in _PARTS]
    return [*shares, TimeShare(name="PipelineCommunication", seconds=passage.send_seconds * scale)]


def _decode_shares(speed: Speed, tpot: float) -> tuple[TimeShare, ...]:
    """Return the parts of the time per token; a step that verifies drafts brings several.

    Traffic of others' prompts counts as that of decoding.
    """
    scale = 1 / speed.tokens_per_step
    step = speed.cycle_seconds * scale
    others = max(0.0, tpot - step)
    moved = others / speed.alone.latency_seconds if speed.alone.latency_seconds > 0 else 0.0
    prompts = _work_shares(speed.alone, moved)
    work = [
        _with_prompts(share, beside)
        for share, beside in zip(_work_shares(speed.decode, scale), prompts, strict=True)
    ]
    sent = sum(share.seconds for share in prompts if share.name in _MOVED)
    counted = (speed.decode.latency_seconds + speed.between_seconds) * scale
    overhead = (speed.decode.total("overhead_seconds") + speed.between_seconds) * scale
    rest = (
        ("Bubble", max(0.0, step - counted)),
        ("Prefill", others - sent),
        ("Overhead", overhead),
    )
    return _present([*work, *(TimeShare(name=name, seconds=seconds) for name, seconds in rest)])


def _with_prompts(share: TimeShare, prompts: TimeShare) -> TimeShare:
    return (
        TimeShare(name=share.name, seconds=share.seconds + prompts.seconds)
        if share.name in _MOVED
        else share
    )


def _prefill_shares(speed: Speed) -> tuple[TimeShare, ...]:
    counted = speed.alone.latency_seconds
    # Chunks overlap in a pipeline.
    scale = speed.prefill_seconds / counted if counted > 0 else 0.0
    overhead = TimeShare(name="Overhead", seconds=speed.alone.total("overhead_seconds") * scale)
    return _present(
        [
            *_work_shares(speed.alone, scale),
            overhead,
            TimeShare(name="Queue", seconds=speed.waiting_seconds + speed.queued_seconds),
        ]
    )


def _present(shares: Sequence[TimeShare]) -> tuple[TimeShare, ...]:
    return tuple(share for share in shares if share.seconds > _NOTHING_SECONDS)
