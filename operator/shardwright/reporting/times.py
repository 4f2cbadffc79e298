"""The parts of the time of an output token, side by side for the chosen layout and the runners-up.

No time is worked out here: the plan and its runners-up bring theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.costs.estimates import Performance
from shardwright.planning.phrases import WORDS
from shardwright.planning.report import Alternative, Plan, Report
from shardwright.reporting.figures import format_layout


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One part of the time, in seconds, for every layout in order."""

    part: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """The parts of a token's time, the largest of the chosen layout first, and their sums; one
    column per layout.
    """

    layouts: tuple[str, ...]
    rows: tuple[TimeRow, ...]
    token: TimeRow
    first_token: TimeRow


def time_split(plan: Plan, report: Report) -> TimeSplit:
    """Return the split of a plan and of the alternatives in its report."""
    speeds = [plan.performance, *(other.performance for other in report.alternatives)]
    return TimeSplit(
        layouts=(
            format_layout(plan.layout),
            *(_named(other, plan) for other in report.alternatives),
        ),
        rows=tuple(TimeRow(part=WORDS[name], seconds=_of(name, speeds)) for name in _parts(speeds)),
        token=TimeRow(part="a token", seconds=tuple(speed.tpot_seconds for speed in speeds)),
        first_token=TimeRow(
            part="first token", seconds=tuple(speed.ttft_seconds for speed in speeds)
        ),
    )


def _named(other: Alternative, plan: Plan) -> str:
    """Return the layout, with its pool if that is not the plan's: the same layout may run on other
    GPUs.
    """
    elsewhere = f" on {other.pool}" if other.pool != plan.pool else ""
    return f"{format_layout(other.layout)}{elsewhere}"


def _parts(speeds: Sequence[Performance]) -> list[str]:
    """Return the names of all parts: those that take most of the chosen layout's time first, then
    the others'.
    """
    largest: dict[str, tuple[float, ...]] = {
        share.name: _of(share.name, speeds) for speed in speeds for share in speed.decode_shares
    }
    return sorted(largest, key=lambda name: (*(-seconds for seconds in largest[name]), name))


def _of(name: str, speeds: Sequence[Performance]) -> tuple[float, ...]:
    return tuple(
        sum(share.seconds for share in speed.decode_shares if share.name == name)
        for speed in speeds
    )
