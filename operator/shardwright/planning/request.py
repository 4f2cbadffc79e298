"""What is wanted of the planner; made by ``api`` from a ShardedModel or by the CLI from flags."""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.costs.workload import Workload
from shardwright.layouts.layout import SearchSpace


class OptimizeFor(StrEnum):
    """What is best, defined in docs/planner.md."""

    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    BALANCED = "Balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What to optimise, and limits on the mean that a plan must meet (None: no limit)."""

    optimize_for: OptimizeFor = OptimizeFor.BALANCED
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to the planner; with ``deploy`` a layout that can be run goes before one that can only be shown."""

    workload: Workload
    objective: Objective
    space: SearchSpace
    deploy: bool = False
