"""The question to the planner, made by ``api`` from a ShardedModel or by the CLI from flags.

Nothing is checked here: ``api`` has refused what is impossible.
"""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.costs.loading import Storage
from shardwright.costs.workload import Workload
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
    shown.
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
    owner: tuple[str, str] = ("", "NAME")
    deploy: bool = False
