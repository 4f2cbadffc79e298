"""How do users see prompts and answers on groups of their own? The cost model is asked two other
questions: for one output token, and for prompts that are cached; between the two K/V moves.

Means alone are known, as everywhere; a group of one kind never helps the other.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from shardwright.costs.coefficients import coefficients_of
from shardwright.costs.communication import NETWORK_EFFICIENCY
from shardwright.costs.estimates import Estimate, Performance, TimeShare
from shardwright.costs.kvcache import kv_cache
from shardwright.costs.workload import Phase, Workload
from shardwright.hardware.gpus import Link
from shardwright.layouts.layout import Candidate, EngineTraits, Layout
from shardwright.modelspec.model_spec import ModelSpec

HANDSHAKE_SECONDS: Final = 0.002
"""Unit: seconds. What a decode group needs to ask for K/V and to be told that it is there. Basis:
assumed; a transfer of 20 MB over TCP took 6 ms on a CPU.
"""

BUNCHED_PROMPTS: Final = 0.12
"""Share of the prompts of all others in flight that a prompt waits for: requests of like lengths
end together, and their successors come together. Basis: fitted, 56 published pairs on B200
(docs/decisions/0044-prompts-and-answers-apart.md).
"""

DECODE_ALONE: Final = 0.95
"""Time of a step of an engine that only decodes over that of one that also computes prompts. Basis:
fitted, with ``BUNCHED_PROMPTS``.
"""

_FILLED: Final = (1, 8)
"""Prompts in flight on each attention rank, of which the number that serves most counts. Basis:
assumed; more do not fill a GPU further.
"""


class Pricer(Protocol):
    """The estimator of candidates under a load."""

    def under(self, workload: Workload) -> "Pricer":
        """Return the estimator under another load."""

    def estimate(self, candidate: Candidate) -> Estimate:
        """Return memory and speed of a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """One group that computes prompts: seconds of a prompt alone, of which ``shares`` are parts,
    and the prompts a second that it computes at most.
    """

    seconds: float
    rate: float
    shares: tuple[TimeShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """So many groups of each kind, and the time that K/V of a prompt is on its way."""

    prefill: Candidate
    decode: Candidate
    prefill_groups: int
    decode_groups: int
    transfer_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpeed:
    """The speed of a pair: means over all its groups.

    ``busy`` is the share of the time for which prompts are computed; one decode group has
    ``in_flight`` requests at once. All groups decode ``decoded`` requests a second at most, and
    compute the prompts of ``computed``.
    """

    performance: Performance
    busy: float
    in_flight: float
    decoded: float
    computed: float

    @property
    def capacity(self) -> float:
        """Return the requests that are served a second at most."""
        return min(self.computed, self.decoded)


def kv_bytes(model: ModelSpec, workload: Workload, layout: Layout, traits: EngineTraits) -> int:
    """Return the K/V of one prompt on one rank of a decode group, states of recurrent layers
    included.

    Formula: that of :func:`~shardwright.costs.kvcache.kv_cache`, for the prompt.
    Unit: bytes.
    Error: none of its own.
    Source: vLLM 0.33 ``nixl``: a rank reads the blocks of its own K/V heads.

    >>> kv_bytes(llama, load, Layout(tensor=8), vllm) / load.input_tokens  # one K/V head of 8
    40960.0
    """
    cache = kv_cache(model, layout, 0, workload.kv_cache_dtype, traits)
    return cache.bytes_for_request(workload.input_tokens)


def transfer_seconds(bytes_of_a_rank: int, prefill: Layout, decode: Layout, link: Link) -> float:
    """Return how long the K/V of a prompt takes from a prefill group to a decode group.

    Formula: ``HANDSHAKE_SECONDS`` + latency + bytes of a decode rank x decode ranks for each
        prefill rank / (bandwidth x ``NETWORK_EFFICIENCY``).
    Unit: seconds.
    Error: not known: no published pair states it. The share of the bandwidth is that of
        collectives, and no two requests share a link.
    Source: derived.

    >>> from shardwright.hardware.gpus import Link
    >>> rdma = Link(name="", bytes_per_second=50e9, latency_seconds=0, basis="", source="")
    >>> round(1000 * transfer_seconds(300_000_000, Layout(tensor=4), Layout(tensor=8), rdma))
    22
    """
    senders = max(1, decode.tensor // prefill.tensor)
    moved = bytes_of_a_rank * senders / (link.bytes_per_second * NETWORK_EFFICIENCY)
    return HANDSHAKE_SECONDS + link.latency_seconds + moved


class PairEstimator:
    """Prices units of one model under one load; what a group does by itself is priced once."""

    def __init__(self, whole: Pricer, workload: Workload, traits: EngineTraits) -> None:
        self._load = workload
        fitted = coefficients_of(traits.name, traits.released)
        self._first_steps = max(1.0, fitted.answer_steps)
        self._asked = {phase: workload.of_phase(phase) for phase in Phase}
        self._base = {phase: whole.under(asked) for phase, asked in self._asked.items()}
        self._at: dict[tuple[Phase, int], Pricer] = {}
        self._prompts: dict[tuple[object, ...], Prompts] = {}
        self._decoding: dict[tuple[object, ...], Performance] = {}

    def prompts(self, candidate: Candidate) -> Prompts:
        """Return the prompts that one group of a candidate computes."""
        one = _one(candidate)
        key = (one.layout, *one.hardware)
        if key not in self._prompts:
            alone = self._with(Phase.PREFILL, 1).estimate(one).performance
            ranks = one.layout.attention_data
            full = (self._with(Phase.PREFILL, ranks * each).estimate(one) for each in _FILLED)
            self._prompts[key] = Prompts(
                seconds=alone.ttft_seconds,
                rate=max(each.performance.requests_per_second for each in full),
                shares=alone.prefill_shares,
            )
        return self._prompts[key]

    def decoding(self, candidate: Candidate, in_flight: int) -> Performance:
        """Return how one group of a candidate decodes with so many requests in flight."""
        one = _one(candidate)
        key = (in_flight, one.layout, *one.hardware)
        if key not in self._decoding:
            self._decoding[key] = self._with(Phase.DECODE, in_flight).estimate(one).performance
        return self._decoding[key]

    def _with(self, phase: Phase, in_flight: int) -> Pricer:
        if (phase, in_flight) not in self._at:
            asked = replace(self._asked[phase], concurrency=in_flight, requests_per_second=None)
            self._at[phase, in_flight] = self._base[phase].under(asked)
        return self._at[phase, in_flight]

    def speed(self, unit: Unit) -> PairSpeed:
        """Return the speed of a unit under the load: its requests in flight, or its rate.

        Formula: requests a second = requests in flight / (prompt + wait + transfer + answer), at
            most what prompts are computed at; an answer takes its tokens at the pace of so many
            in flight (Little's law); wait = ``BUNCHED_PROMPTS`` x the time of all others' prompts.
            Time to first token = prompt + wait + transfer + one step.
        Unit: seconds, tokens and requests a second.
        Error: 56 published pairs on B200: output tokens a second 12.0%, TPOT 12.1%, TTFT 36.3%,
            medians in sample (docs/decisions/0044-prompts-and-answers-apart.md).
        Source: derived; two numbers are fitted.
        """
        prompts = self.prompts(unit.prefill)
        computed = prompts.rate * unit.prefill_groups
        decoded = self._decoded_most(unit)
        rate = self._load.requests_per_second
        if rate is None:
            in_flight, served = self._closed(unit, prompts.seconds, computed)
        else:
            served = min(rate, computed, decoded)
            in_flight = self._kept(unit, served)
        step = self.step(unit.decode, in_flight)
        stay = prompts.seconds + unit.transfer_seconds + step * self._steps
        waited = self._waited(served, stay, computed)
        return PairSpeed(
            performance=self._performance(unit, in_flight, served, waited),
            busy=served / computed,
            in_flight=served * step * self._steps / unit.decode_groups,
            decoded=decoded,
            computed=computed,
        )

    @property
    def _steps(self) -> float:
        """Return the steps of an answer in a decode group."""
        return self._load.output_tokens - 1 + self._first_steps

    def step(self, decode: Candidate, in_flight: float) -> float:
        """Return the time per token with so many requests in flight on one decode group."""
        # Between doublings it grows by nearly as much for each request.
        least = 1 << max(0, math.floor(in_flight).bit_length() - 1)
        here = self.decoding(decode, least).tpot_seconds
        share = max(0.0, in_flight / least - 1)
        if share:
            here += share * (self.decoding(decode, 2 * least).tpot_seconds - here)
        return here * DECODE_ALONE

    def _paced(self, unit: Unit, in_flight: float) -> float:
        """Return the requests a second of all decode groups with so many in flight on each."""
        running = min(in_flight, self.room(unit.decode))
        return unit.decode_groups * running / (self.step(unit.decode, in_flight) * self._steps)

    def _closed(self, unit: Unit, prompt: float, computed: float) -> tuple[float, float]:
        """Return the requests in flight on a decode group, and those served a second."""
        total = self._load.concurrency
        before = prompt + unit.transfer_seconds + BUNCHED_PROMPTS * (total - 1) / computed

        def fits(in_flight: float) -> bool:
            served = self._paced(unit, in_flight)
            return served < computed and unit.decode_groups * in_flight + served * before <= total

        in_flight = _largest(fits, max(1, total // unit.decode_groups))
        answer = self.step(unit.decode, in_flight) * self._steps
        return in_flight, min(total / (before + answer), computed, self._decoded_most(unit))

    def _kept(self, unit: Unit, served: float) -> float:
        """Return the requests that a rate keeps in flight on each decode group."""
        return _largest(lambda number: self._paced(unit, number) < served, self.room(unit.decode))

    def room(self, decode: Candidate) -> int:
        """Return how many requests one decode group runs at once."""
        full = self._with(Phase.DECODE, 1).estimate(_one(decode))
        ranks = decode.layout.attention_data
        return max(1, math.floor(min(full.kv_requests, full.max_sequences) * ranks))

    def _decoded_most(self, unit: Unit) -> float:
        return self._paced(unit, self.room(unit.decode))

    def _waited(self, served: float, stay: float, computed: float) -> float:
        """Return how long a prompt waits, by Little's law."""
        if self._load.requests_per_second is None:
            return max(0.0, self._load.concurrency / served - stay)
        share = BUNCHED_PROMPTS / computed
        return share * max(0.0, served * stay - 1) / (1 - share * served)

    def _performance(
        self, unit: Unit, in_flight: float, served: float, waited: float
    ) -> Performance:
        prompts, step = self.prompts(unit.prefill), self.step(unit.decode, in_flight)
        decoding = self.decoding(unit.decode, 1 << (max(1, round(in_flight)).bit_length() - 1))
        tokens = served * self._load.output_tokens
        beside = (
            TimeShare(name="Queue", seconds=waited),
            TimeShare(name="Transfer", seconds=unit.transfer_seconds),
        )
        return replace(
            decoding,
            ttft_seconds=prompts.seconds
            + waited
            + unit.transfer_seconds
            + step * self._first_steps,
            tpot_seconds=step,
            output_tokens_per_second=tokens,
            requests_per_second=served,
            low=tokens * decoding.low / decoding.output_tokens_per_second,
            high=tokens * decoding.high / decoding.output_tokens_per_second,
            running_requests=max(1, round(in_flight)),
            prefill_shares=(*prompts.shares, *(each for each in beside if each.seconds > 0)),
        )


def _one(candidate: Candidate) -> Candidate:
    layout = candidate.layout
    if layout.replicas == 1:
        return candidate
    return replace(candidate, layout=replace(layout, replicas=1))


def _largest(fits: Callable[[float], bool], most: int) -> float:
    """Return the largest number from 1 to the most that fits, 1 if none does; none fits after one
    that does not.

    >>> round(_largest(lambda number: number <= 7.25, 100), 2)
    7.25
    """
    # Whole numbers first: each costs a price.
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    if low == most:
        return float(most)
    least, share = float(low), 0.5
    for _ in range(_HALVINGS):
        least += share if fits(least + share) else 0.0
        share /= 2
    return least


_HALVINGS: Final = 8
"""Steps that tell a share of a request from a smaller one. Basis: chosen, a thousandth is none."""
