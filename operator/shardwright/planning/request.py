"""The question to the planner, made by ``api`` from a ShardedModel or by the CLI from flags.

Nothing is checked here: ``api`` has refused what is impossible.

What does a latency limit compare: the predicted mean, or a 95th percentile derived from it?
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shardwright.costs.estimates import Performance, TimeShare
from shardwright.costs.host import Storage
from shardwright.costs.workload import Workload
from shardwright.hardware.volume_claims import VolumeClaim
from shardwright.layouts.layout import SearchSpace


class OptimizeFor(StrEnum):
    """What best means, as docs/planner-choice.md defines it."""

    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    BALANCED = "Balanced"


class Statistic(StrEnum):
    """What a latency limit means; ``limits`` derives P95 from the predicted mean."""

    MEAN = "Mean"
    P95 = "P95"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The goal, and limits on latency that a plan must meet (None: no limit)."""

    optimize_for: OptimizeFor = OptimizeFor.BALANCED
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    statistic: Statistic = Statistic.MEAN

    @property
    def limited(self) -> bool:
        """Return whether there is a limit at all."""
        return self.ttft_seconds is not None or self.tpot_seconds is not None


MOST_GROUPS: Final = 64
"""Groups of one kind in a unit at most. Basis: assumed; the largest published unit has 18."""


class PairMode(StrEnum):
    """Whether prompts and answers are put on groups of their own."""

    AUTO = "Auto"
    ON = "On"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWish:
    """The question for a pair, with the groups of one unit where somebody says them (None: the
    plan does).
    """

    mode: PairMode
    prefill_groups: int | None = None
    decode_groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to the planner.

    ``storage`` is where the weights lie (None: not known), ``read_bytes_per_second`` a node's
    stated rate of reading from there (None: assumed). ``file_bytes`` is the least size of the
    weights' files, ``cache_bytes`` the size of a pod's own claim for downloads, ``disk_bytes`` the
    local disk that each pod needs for them (0: none). ``commit_missed``: somebody wants a commit of
    the model named and none is. ``gated`` are models that the hub gives to nobody without a token,
    if none is named; ``owner`` is namespace (empty: the context's) and name of the ShardedModel,
    for commands about it. With ``deploy`` a layout that can be run goes before one that can only be
    shown. No key is asked for at an ``open_router``. ``claims`` are those that its pods mount, as
    far as they are known, ``cache_claim`` is the one that they download to (empty: none). ``pair``
    asks for prompts and answers apart (None: they are not).
    """

    workload: Workload
    objective: Objective
    space: SearchSpace
    storage: Storage | None = None
    read_bytes_per_second: float | None = None
    cache_bytes: int | None = None
    file_bytes: int = 0
    disk_bytes: int = 0
    commit_missed: bool = False
    gated: tuple[str, ...] = ()
    open_router: bool = False
    owner: tuple[str, str] = ("", "NAME")
    deploy: bool = False
    claims: tuple[VolumeClaim, ...] = ()
    cache_claim: str = ""
    pair: PairWish | None = None


ALL_OF_A_RATE: Final = 1 - 1e-6
"""Share of an offered rate that counts as all of it: rounding may leave this much."""

_EXPONENTIAL_P95: Final = math.log(20)
"""95th percentile of an exponential distribution over its mean. Basis: assumed: waiting times are
spread so.
"""

_NORMAL_P95: Final = 1.645
"""Standard deviations from the mean to the 95th percentile of a normal distribution. Basis:
assumed: the prompts that one answer meets are many and independent (a Poisson number, of which the
standard deviation is the root of the mean).
"""


def ttft_seconds(speed: Performance, statistic: Statistic) -> float:
    """Return the time to first token; P95 spreads waits (queue, others' prompts) exponentially."""
    if statistic is Statistic.MEAN:
        return speed.ttft_seconds
    # The mean has the queue once already, so its 95th percentile adds the rest.
    return speed.ttft_seconds + (_EXPONENTIAL_P95 - 1) * _share(speed.prefill_shares, "Queue")


def tpot_seconds(speed: Performance, statistic: Statistic) -> float:
    """Return the time per output token of a request; at P95 it meets more prompts of others."""
    if statistic is Statistic.MEAN:
        return speed.tpot_seconds
    # Without its own prompt, which is in the time to first token.
    prompts = max(1, speed.running_requests - 1)
    return speed.tpot_seconds + _share(speed.decode_shares, "Prefill") * _NORMAL_P95 / math.sqrt(
        prompts
    )


def running_requests(speed: Performance, offered: int, *, carries_load: bool) -> int:
    """Return how many of the requests offered to one replica run at once: not all if it does not
    carry them.
    """
    if carries_load:
        return speed.running_requests
    # Rounding may show all requests as running; if some queue, at least one is not.
    return min(speed.running_requests, max(1, offered - 1))


def _share(shares: tuple[TimeShare, ...], name: str) -> float:
    return sum(share.seconds for share in shares if share.name == name)
