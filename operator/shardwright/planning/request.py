"""The question to the planner; made by ``api`` from a ShardedModel or by the CLI from flags.

Nothing is checked here: ``api`` has refused impossible ones.
"""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.costs.loading import Storage
from shardwright.costs.workload import Workload
from shardwright.layouts.layout import SearchSpace


class OptimizeFor(StrEnum):
    """The meaning of best, defined in docs/planner.md."""

    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    BALANCED = "Balanced"


class Statistic(StrEnum):
    """The statistic that a limit on latency means; P95 is derived from the predicted mean by an
    assumption (``limits``).
    """

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
    """One question to the planner; ``storage`` is where the weights lie (None: not known), and
    ``read_bytes_per_second`` the rate of a node's reading from there, as stated (None: assumed).

    ``file_bytes`` is the least size of the weights' files, ``cache_bytes`` the size of the claim
    that a pod has of its own to keep its downloads on; ``pinned`` says that all pods are told which
    commit to download, ``commit_missed`` that somebody wants one to be named and none is. ``gated``
    are models that the hub gives to nobody without a token, if none is named; ``owner`` is
    namespace (empty: the context's) and name of the ShardedModel, for commands about it. With
    ``deploy`` a layout that can be run goes before one that can only be shown.
    """

    workload: Workload
    objective: Objective
    space: SearchSpace
    storage: Storage | None = None
    read_bytes_per_second: float | None = None
    cache_bytes: int | None = None
    file_bytes: int = 0
    pinned: bool = False
    commit_missed: bool = False
    gated: tuple[str, ...] = ()
    owner: tuple[str, str] = ("", "NAME")
    deploy: bool = False
