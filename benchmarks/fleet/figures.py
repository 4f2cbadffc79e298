"""What is measured, in words and units, and whether it is within its range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

RANGES: Final = Path(__file__).with_name("ranges.yaml")
REGRESSION: Final = 0.5
"""A figure may grow by this share before it is a regression: two runs on one machine differ by
less.
"""

WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "prepare.seconds": ("nodes and foreign pods created, cluster quiet", "s"),
    "start.first_request_seconds": ("start of the operator to its first request", "s"),
    "start.ready_seconds": ("start of the operator to ready", "s"),
    "start.cpu_seconds": ("CPU of the start", "s"),
    "apply.seconds": ("applying all models", "s"),
    "bring_up.statefulsets_seconds": ("last apply to the last model's StatefulSet", "s"),
    "bring_up.models_without_statefulset": ("models without a StatefulSet when waiting ended", ""),
    "bring_up.ready_seconds": ("last apply to the last model Ready", "s"),
    "bring_up.cpu_milliseconds_per_model": (
        "CPU of the operator a model, first apply to last Ready",
        "ms",
    ),
    "bring_up.planning_milliseconds_per_model": (
        "CPU of planning a model, as the operator says",
        "ms",
    ),
    "bring_up.cpu_without_planning_milliseconds_per_model": (
        "CPU of the operator a model without planning",
        "ms",
    ),
    "bring_up.requests_per_model": ("requests a model, dry runs among them", ""),
    "bring_up.requests_without_children_per_model": (
        "requests a model without one for each object made",
        "",
    ),
    "bring_up.child_objects_per_model": ("objects made a model", ""),
    "reaction.median_seconds": (
        "crash in one model while the others are made, to `replicas: 0`, median",
        "s",
    ),
    "reaction.slowest_seconds": (
        "crash in one model while the others are made, to `replicas: 0`, slowest",
        "s",
    ),
    "rest.writes": ("writes at rest, without the Lease", ""),
    "rest.requests": ("requests at rest, without the Lease", ""),
    "rest.cpu_percent_of_a_core": ("CPU at rest, of a core", "%"),
    "pod_event.cpu_milliseconds": ("CPU of a pod event that changes nothing that matters", "ms"),
    "node_event.cpu_milliseconds": ("CPU of a node's heartbeat", "ms"),
    "scrape.cpu_milliseconds": ("CPU of reading the metrics once", "ms"),
    "scrape.kibibytes": ("size of the metrics", "KiB"),
    "memory.main_mebibytes": ("peak resident memory of the main process", "MiB"),
    "memory.all_mebibytes": ("peak resident memory of all processes together", "MiB"),
    "failover_after_kill.first_look_seconds": (
        "SIGKILL of the leader to the standby's first look",
        "s",
    ),
    "failover_after_kill.first_write_seconds": (
        "SIGKILL of the leader to the standby's first write for a crash",
        "s",
    ),
    "failover_after_term.first_look_seconds": (
        "SIGTERM of the leader to the standby's first look",
        "s",
    ),
    "failover_after_term.first_write_seconds": (
        "SIGTERM of the leader to the standby's first write for a crash",
        "s",
    ),
    "takeover.cpu_seconds": ("CPU of the standby that takes over, until it is quiet again", "s"),
    "takeover.requests_per_model": ("requests a model of taking over", ""),
    "takeover.writes": ("writes of taking over, those for one crash among them", ""),
    "resync.cpu_seconds": ("CPU of a full comparison of all models", "s"),
    "resync.comparisons": ("full comparisons while that was measured", ""),
    "look.cpu_milliseconds": ("CPU of a look that changes nothing", "ms"),
    "look.requests": ("requests of a look that changes nothing", ""),
    "groups.statefulsets_seconds": (
        "one model with very many groups: until all StatefulSets are there",
        "s",
    ),
    "groups.cpu_seconds": ("CPU of the operator until those StatefulSets are there", "s"),
    "groups.others_median_seconds": ("another model meanwhile, apply to StatefulSet, median", "s"),
    "groups.others_slowest_seconds": (
        "another model meanwhile, apply to StatefulSet, slowest",
        "s",
    ),
    "groups.others_without_statefulset": (
        "other models without a StatefulSet when waiting ended",
        "",
    ),
}
"""Figure to what it says and its unit, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A figure above its limit, or one with a limit that was not measured (None)."""

    figure: str
    limit: float
    measured: float | None

    def __str__(self) -> str:
        what, unit = WORDS[self.figure]
        measured = (
            "was not measured"
            if self.measured is None
            else f"is {shown(self.measured)} {unit}".rstrip()
        )
        return (
            f"{self.figure} {measured}, the limit is {shown(self.limit)} {unit}".rstrip()
            + f" ({what})"
        )


def ranges(size: str, path: Path = RANGES) -> dict[str, float]:
    """Return the largest allowed value of each figure that has one, for a form of the benchmark.

    Raises:
        KeyError: there is no such form, or no such figure.
    """
    found: dict[str, float] = yaml.safe_load(path.read_text())[size]
    if unknown := found.keys() - WORDS.keys():
        raise KeyError(
            f"{path.name}: {size} limits figures that are not measured: "
            f"{', '.join(sorted(unknown))}"
        )
    return found


def excesses(figures: Mapping[str, float], limits: Mapping[str, float]) -> list[Excess]:
    """Return what is outside its range; what has a limit and was not measured is too."""
    return [
        Excess(figure, limit, figures.get(figure))
        for figure, limit in limits.items()
        if (measured := figures.get(figure)) is None or measured > limit
    ]


def suggested(figures: Mapping[str, float], limits: Mapping[str, float]) -> dict[str, float]:
    """Return limits of half more than what was measured, for the figures that have one; to two
    digits, zero stays zero.
    """
    return {
        figure: float(f"{figures[figure] * (1 + REGRESSION):.2g}")
        for figure in limits
        if figure in figures
    }


def shown(value: float) -> str:
    """Return a number with three significant digits, large ones in full."""
    return (
        f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 - three digits
    )
