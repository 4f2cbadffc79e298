"""Stacked bars: the parts of a GPU's memory, and the parts of a token's time.

A negative part has no length, but its figure is shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardwright.pages.figures import NONE, SECONDS, Document, Figure, at, figure, gib

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
