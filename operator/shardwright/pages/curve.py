"""The trade-off between tokens per second per GPU and per user, with every layout that has a speed
as a point on two logarithmic axes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from shardwright.pages.figures import COUNT, SECONDS, Document, at

MARGIN: Final = 0.06  #: of the axis, beyond the outermost point
_STEPS: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis: ends are decimal logarithms, marks (place in percent, words)."""

    low: float
    high: float
    marks: tuple[tuple[float, str], ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Axis":
        """Return an axis with room for all values above zero."""
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        low, high = min(logs), max(logs)
        # Equal values would give an axis without length.
        room = max(high - low, 0.3) * MARGIN
        low, high = low - room, high + room
        ends = cls(low=low, high=high, marks=())
        marks = tuple(
            (round(ends.place(value), 2), f"{value:,g}") for value in _round_values(low, high)
        )
        return cls(low=low, high=high, marks=marks)

    def place(self, value: float) -> float:
        """Return the position of a value, in percent of the axis."""
        return 100 * (math.log10(value) - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A layout on the curve, in percent from the left and from the top."""

    x: float
    y: float
    kind: str  # chosen, runs, queues, out
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """All points, the chosen one last, the steps of the Pareto frontier, and the axes."""

    x: Axis
    y: Axis
    points: tuple[Point, ...]
    frontier: tuple[tuple[float, float, float, float], ...]  # lines: from x, y to x, y


def curve(document: Document, loads: Mapping[str, Any] | None) -> Curve | None:
    """Return the curve, on axes with room for every load; None if nothing has a speed."""
    found = [*_with_speed(document)]
    if not found:
        return None
    speeds = [speed for point in (loads or {}).get("points", ()) for speed in point["speeds"]]
    x = Axis.of(
        [
            *(one["speed"]["outputTokensPerSecondPerUser"] for one in found),
            *(1 / speed[1] for speed in speeds),
        ]
    )
    y = Axis.of(
        [
            *(one["speed"]["outputTokensPerSecondPerGpu"] for one in found),
            *(speed[2] for speed in speeds),
        ]
    )
    points = sorted((_point(one, x, y) for one in found), key=lambda point: _ORDER[point.kind])
    runs = [(point.x, point.y) for point in points if point.kind in {"chosen", "runs"}]
    return Curve(x=x, y=y, points=tuple(points), frontier=tuple(_steps(runs)))


def _with_speed(document: Document) -> Iterator[Mapping[str, Any]]:
    """Yield the candidates that have a speed, and the best layouts that are not among them: in more
    instances, or all where no candidates are known.
    """
    drawn = set()
    for one in at(document, "explanation.candidates"):
        if one["speed"]:
            drawn.add((one["layout"], one["pool"]))
            yield one
    plan = document["plan"] or {}
    for one in plan.get("overSpeed") or ():
        pool = one.get("pool", plan["pool"])
        if (one["layout"], pool) not in drawn:
            yield _as_candidate(one, pool)


def _as_candidate(one: Mapping[str, Any], pool: str) -> Mapping[str, Any]:
    user = one["outputTokensPerSecondPerUser"]
    return {
        "layout": one["layout"],
        "pool": pool,
        "chosen": one.get("planned", False),
        "rules": (),
        "carriesLoad": True,
        "speed": {**one, "tpotSeconds": 1 / user},
    }


_ORDER: Final = {"out": 0, "queues": 1, "runs": 2, "chosen": 3}


def dot_kind(candidate: Mapping[str, Any]) -> str:
    """Return a candidate's kind: chosen, out (ruled out), runs or queues."""
    if candidate["chosen"]:
        return "chosen"
    if candidate["rules"]:
        return "out"
    return "runs" if candidate["carriesLoad"] else "queues"


def _point(one: Mapping[str, Any], x: Axis, y: Axis) -> Point:
    speed = one["speed"]
    gives, gets = (speed["outputTokensPerSecondPerGpu"], speed["outputTokensPerSecondPerUser"])
    words = (
        f"{one['layout']} on {one['pool']}: {COUNT(gives)} tok/s per GPU, "
        f"{SECONDS(speed['tpotSeconds'])}"
        " per token"
    )
    said = {
        "chosen": ", the plan",
        "runs": "",
        "queues": ", requests queue",
        "out": f", ruled out: {', '.join(one['rules'])}",
    }
    return Point(
        x=round(x.place(gets), 2),
        y=round(100 - y.place(gives), 2),
        kind=dot_kind(one),
        title=words + said[dot_kind(one)],
    )


def _steps(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, float, float]]:
    """Yield the lines of the Pareto frontier as steps; y grows downwards."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (-point[0], point[1])):
        if not best or y < best[-1][1]:
            best.append((x, y))
    for (x, y), (left, above) in pairwise(best):
        yield (x, y, left, y)
        yield (left, y, left, above)


def _round_values(low: float, high: float) -> Iterator[float]:
    """Yield 1, 2, 5, 10, … between two logarithms; on a long axis only the powers of ten."""
    steps = _STEPS if high - low < 2.5 else (1,)  # noqa: PLR2004 - more than eight marks are a crowd
    for power in range(math.floor(low), math.ceil(high) + 1):
        for step in steps:
            if low <= math.log10(step) + power <= high:
                yield step * 10.0**power
