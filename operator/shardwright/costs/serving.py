"""What users see of a layout: continuous batching with chunked prefill, micro-batches in flight, and queueing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.costs.coefficients import BUNCHING, REQUEST_SECONDS, STEP_SECONDS
from shardwright.costs.communication import send_seconds
from shardwright.costs.estimates import Performance, TimeShare
from shardwright.costs.kvcache import KvCache
from shardwright.costs.roofline import Batch, Machine, StepTime, prompt_time, step_time
from shardwright.costs.work import ModelWork, StageWork
from shardwright.costs.workload import Workload
from shardwright.hardware.gpus import Link

_NOTHING_SECONDS: Final = 1e-12  # what rounding leaves of a difference


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """Stages of one pipeline that are alike: they are priced once."""

    work: StageWork
    kv: KvCache
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica as serving sees it: its stages, what its ranks can do, and the link between stages."""

    model: ModelWork
    machine: Machine
    kinds: tuple[StageKind, ...]
    tensor: int
    whole_experts: bool
    stage_link: Link | None
    stage_link_is_network: bool

    @property
    def stages(self) -> int:
        """Return the pipeline stages."""
        return sum(kind.count for kind in self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of one replica: ``running`` of ``offered`` at once, ``chunk_tokens`` of prompt a step."""

    workload: Workload
    offered: int
    running: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One pass of a batch through all stages: time by part, and the slowest stage."""

    stages: tuple[StepTime, ...]
    counts: tuple[int, ...]
    send: float  # all hand-overs between stages

    def total(self, part: Callable[[StepTime], float]) -> float:
        """Return one part's seconds over all stages."""
        return sum(part(stage) * count for stage, count in zip(self.stages, self.counts, strict=True))

    @property
    def latency(self) -> float:
        """Return the time from the first stage to the end of the last."""
        return self.total(lambda stage: stage.total) + self.send

    @property
    def slowest(self) -> float:
        """Return the time of the stage that sets the pace."""
        return max(stage.total for stage in self.stages)


def serve(replica: Replica, load: Load, replicas: int, *, band: float, basis: str) -> Performance:
    """Return the mean latencies and the throughput of all replicas under a closed loop of requests."""
    outputs = load.workload.output_tokens
    decode, cycle = _decode(replica, load)
    chunks = math.ceil(load.workload.input_tokens / load.chunk_tokens)
    alone = _prompt(replica, load, chunks, step_time)
    beside = _prompt(replica, load, chunks, prompt_time).slowest * chunks
    prefill = alone.latency + (chunks - 1) * alone.slowest + REQUEST_SECONDS
    others = (load.running - 1) * beside
    stay = prefill + outputs * cycle + others
    waiting = BUNCHING * others + cycle / 2
    first = prefill + waiting
    queued = (load.offered / load.running - 1) * stay
    rate = min(replicas, load.workload.concurrency) * load.running / stay
    tpot = (stay - first) / outputs
    return Performance(
        ttft_seconds=first + queued,
        tpot_seconds=tpot,
        output_tokens_per_second=rate * outputs,
        requests_per_second=rate,
        low=rate * outputs * (1 - band),
        high=rate * outputs * (1 + band),
        basis=basis,
        running_requests=load.running,
        decode_shares=_decode_shares(decode, cycle, tpot),
        prefill_shares=_prefill_shares(alone, prefill, chunks, waiting, queued),
    )


def _decode(replica: Replica, load: Load) -> tuple[Passage, float]:
    """Return one pass of a micro-batch, and the time between two tokens of a request without prompts.

    With P stages up to P micro-batches are in flight: one request alone gains nothing from the others'
    overlap, P batches keep the slowest stage busy.
    """
    in_flight = min(replica.stages, load.running)
    sequences = load.running / in_flight
    context = load.workload.input_tokens + load.workload.output_tokens / 2
    times = tuple(
        step_time(
            replica.machine,
            replica.model,
            kind.work,
            Batch(sequences=sequences, context_tokens=context, kv_bytes=_kv_read_bytes(kind.kv, context), sampled=sequences),
            whole_experts=replica.whole_experts,
        )
        for kind in replica.kinds
    )
    passage = Passage(stages=times, counts=_counts(replica.kinds), send=_sends(replica, sequences))
    return passage, max(passage.latency + STEP_SECONDS, in_flight * passage.slowest)


def _prompt(replica: Replica, load: Load, chunks: int, price: Callable[..., StepTime]) -> Passage:
    tokens = load.workload.input_tokens / chunks
    batch = Batch(prompt_tokens=tokens, prompt_context_tokens=load.workload.input_tokens / 2, sampled=1 / chunks)
    times = tuple(
        price(replica.machine, replica.model, kind.work, batch, whole_experts=replica.whole_experts) for kind in replica.kinds
    )
    return Passage(stages=times, counts=_counts(replica.kinds), send=_sends(replica, tokens))


def _sends(replica: Replica, tokens: float) -> float:
    """Return the hand-overs of one pass: hidden states and residual, each tensor rank its slice."""
    size = 2 * tokens * replica.machine.hidden_bytes / replica.tensor
    return (replica.stages - 1) * send_seconds(size, replica.stage_link, network=replica.stage_link_is_network)


def _kv_read_bytes(kv: KvCache, context: float) -> float:
    """Return what one decoding sequence reads of a rank's K/V cache in one step."""
    read = sum(context if window is None else min(window, context) for window in kv.windows)
    whole = len(kv.windows) * context
    return kv.bytes_per_token * context * read / whole if whole else 0.0


def _counts(kinds: Sequence[StageKind]) -> tuple[int, ...]:
    return tuple(kind.count for kind in kinds)


def _bound_shares(passage: Passage) -> list[TimeShare]:
    """Return what bounds each stage: reading memory (split in two) or computing."""
    limited = [(t, n, t.compute > t.weights + t.kv_cache) for t, n in zip(passage.stages, passage.counts, strict=True)]
    return [
        TimeShare(name="Weights", seconds=sum(t.weights * n for t, n, computing in limited if not computing)),
        TimeShare(name="KvCache", seconds=sum(t.kv_cache * n for t, n, computing in limited if not computing)),
        TimeShare(name="Compute", seconds=sum(t.compute * n for t, n, computing in limited if computing)),
        TimeShare(name="TensorCommunication", seconds=passage.total(lambda stage: stage.communication)),
        TimeShare(name="PipelineCommunication", seconds=passage.send),
    ]


def _decode_shares(passage: Passage, cycle: float, tpot: float) -> tuple[TimeShare, ...]:
    overhead = passage.total(lambda stage: stage.overhead) + STEP_SECONDS
    bubble = max(0.0, cycle - passage.latency - STEP_SECONDS)
    rest = (("Bubble", bubble), ("Prefill", max(0.0, tpot - cycle)), ("Overhead", overhead))
    return _present([*_bound_shares(passage), *(TimeShare(name=name, seconds=seconds) for name, seconds in rest)])


def _prefill_shares(passage: Passage, prefill: float, chunks: int, waiting: float, queued: float) -> tuple[TimeShare, ...]:
    bound = [TimeShare(name=share.name, seconds=share.seconds * chunks) for share in _bound_shares(passage)]
    overhead = passage.total(lambda stage: stage.overhead) * chunks + REQUEST_SECONDS
    counted = sum(share.seconds for share in bound) + overhead
    scale = prefill / counted  # chunks overlap in a pipeline
    parts = [TimeShare(name=share.name, seconds=share.seconds * scale) for share in bound]
    parts.append(TimeShare(name="Overhead", seconds=overhead * scale))
    return _present([*parts, TimeShare(name="Queue", seconds=waiting + queued)])


def _present(shares: Sequence[TimeShare]) -> tuple[TimeShare, ...]:
    return tuple(share for share in shares if share.seconds > _NOTHING_SECONDS)
