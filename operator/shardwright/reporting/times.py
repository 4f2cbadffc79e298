"""The parts of an output token's time, for the chosen layout and the runners-up side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.costs.estimates import Performance
from shardwright.planning.phrases import WORDS, copies
from shardwright.planning.report import Alternative, Plan, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One part of the time, in seconds, for every layout in order."""

    part: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """A token's time by its parts, the chosen layout's largest first; one column per layout."""

    layouts: tuple[str, ...]
    rows: tuple[TimeRow, ...]
    token: TimeRow
    first_token: TimeRow


def time_split(plan: Plan, report: Report) -> TimeSplit:
    """Return the times of a plan and of its report's alternatives."""
    speeds = [plan.performance, *(other.performance for other in report.alternatives)]
    return TimeSplit(
        layouts=(copies(plan.layout), *(_named(other, plan) for other in report.alternatives)),
        rows=tuple(TimeRow(part=WORDS[name], seconds=_of(name, speeds)) for name in _parts(speeds)),
        token=TimeRow(part="a token", seconds=tuple(speed.tpot_seconds for speed in speeds)),
        first_token=TimeRow(
            part="first token", seconds=tuple(speed.ttft_seconds for speed in speeds)
        ),
    )


def _named(other: Alternative, plan: Plan) -> str:
    elsewhere = f" on {other.pool}" if other.pool != plan.pool else ""
    return f"{copies(other.layout)}{elsewhere}"


def _parts(speeds: Sequence[Performance]) -> list[str]:
    """Return the parts of all layouts, the chosen layout's largest first."""
    largest: dict[str, tuple[float, ...]] = {
        share.name: _of(share.name, speeds) for speed in speeds for share in speed.decode_shares
    }
    return sorted(largest, key=lambda name: (*(-seconds for seconds in largest[name]), name))


def _of(name: str, speeds: Sequence[Performance]) -> tuple[float, ...]:
    return tuple(
        sum(share.seconds for share in speed.decode_shares if share.name == name)
        for speed in speeds
    )
