"""The trade-off between tokens per second per GPU and per user, with every layout that has a speed
as a point on two logarithmic axes.

Stacked bars: the parts of a GPU's memory, and the parts of a token's time.

A negative part has no length, but its figure is shown.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from shardwright.pages.document import COUNT, NONE, SECONDS, Document, Figure, at, figure, gib

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


LENGTH: Final = 1000  #: units in a whole bar
MEMORY: Final = (
    ("weights", "weightsBytes", "weights"),
    ("activations", "activationsBytes", "activations"),
    ("overhead", "overheadBytes", "overhead"),
    ("K/V cache", "kvCacheBytes", "kv-cache"),
)
TIMES: Final = {
    "reading weights": "weights",
    "reading K/V": "kv-cache",
    "computing": "compute",
    "tensor communication": "tensor",
    "sending between stages": "pipeline",
    "sending to experts": "experts",
    "joining shared K/V": "context",
    "waiting for other stages": "bubble",
    "other requests' prompts": "prompts",
    "queueing": "queue",
    "fixed overhead": "overhead",
}
"""The colour of each part of a token's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a bar; ``x`` and ``width`` are in thousandths of the bar."""

    x: float
    width: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """The memory of the fullest GPU of a stage, or of neighbouring stages that are alike."""

    stage: str
    layers: str
    pieces: tuple[Piece, ...]
    figures: tuple[Figure, ...]
    budget: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBar:
    """A layout's time per token, part by part, and its time to the first token.

    ``pieces`` are on the scale of the slowest layout, ``whole`` fill the bar.
    """

    layout: str
    pieces: tuple[Piece, ...]
    whole: tuple[Piece, ...]
    token: Figure
    first_token: Figure
    parts: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """A part with its colour."""

    name: str
    colour: str


def memory_rows(document: Document) -> tuple[MemoryRow, ...]:
    """Return a bar for every stage: the memory of a GPU that the engine may use."""
    bars = at(document, "explanation.memory")
    return tuple(
        _memory_row(document, f"explanation.memory.{index}", bar) for index, bar in enumerate(bars)
    )


def _memory_row(document: Document, path: str, bar: dict[str, Any]) -> MemoryRow:
    figures = tuple(figure(document, f"{path}.{key}", gib) for _, key, _ in MEMORY)
    named = [
        (name, colour, shown) for (name, _, colour), shown in zip(MEMORY, figures, strict=True)
    ]
    words = [
        (f"{name}: {shown.text} GiB", colour, max(0, shown.value)) for name, colour, shown in named
    ]
    return MemoryRow(
        stage=bar["label"],
        layers=bar["layers"],
        pieces=tuple(_stacked(words, whole=bar["budgetBytes"])),
        figures=figures,
        budget=figure(document, f"{path}.budgetBytes", gib),
    )


def memory_legend() -> tuple[Legend, ...]:
    """Return the colour of each part of memory."""
    return tuple(Legend(name=name, colour=colour) for name, _, colour in MEMORY)


def time_bars(document: Document) -> tuple[TimeBar, ...]:
    """Return a bar for the plan and for each runner-up, all on the scale of the slowest."""
    times = at(document, "explanation.times")
    if not times:
        return ()
    longest = max(times["token"]["seconds"])
    return tuple(
        _time_bar(document, times, index, longest) for index in range(len(times["layouts"]))
    )


def _time_bar(document: Document, times: dict[str, Any], index: int, longest: float) -> TimeBar:
    rows = times["rows"]
    parts = tuple(
        figure(document, f"explanation.times.rows.{place}.seconds.{index}", _part)
        for place in range(len(rows))
    )
    words = [
        (f"{row['part']}: {shown.text}", TIMES[row["part"]], shown.value)
        for row, shown in zip(rows, parts, strict=True)
    ]
    return TimeBar(
        layout=times["layouts"][index],
        pieces=tuple(_stacked(words, whole=longest)),
        whole=tuple(_stacked(words, whole=times["token"]["seconds"][index])),
        token=figure(document, f"explanation.times.token.seconds.{index}", SECONDS),
        first_token=figure(document, f"explanation.times.firstToken.seconds.{index}", SECONDS),
        parts=parts,
    )


def _part(seconds: float) -> str:
    return SECONDS(seconds) if seconds else NONE


def time_legend(document: Document) -> tuple[Legend, ...]:
    """Return the colour of each part of a token's time, in the order of the bars."""
    times = at(document, "explanation.times")
    return (
        tuple(Legend(name=row["part"], colour=TIMES[row["part"]]) for row in times["rows"])
        if times
        else ()
    )


def _stacked(parts: Sequence[tuple[str, str, float]], *, whole: float) -> Iterator[Piece]:
    x = 0.0
    for title, colour, value in parts:
        width = LENGTH * value / whole if whole > 0 else 0.0
        if width > 0:
            yield Piece(x=round(x, 2), width=round(width, 2), colour=colour, title=title)
        x += width
