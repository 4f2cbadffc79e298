"""GPUs and their price over the load: a stair whose steps are the instances, on two linear axes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardwright.pages.charts import Point
from shardwright.pages.document import COUNT, Document, Figure, at, figure, whole

MOST_STEPS: Final = 40
"""Instances up to which each is drawn as a step; more are a slope. Basis: chosen."""

MARKS: Final = 6  #: of an axis at most, beside its origin

LOADS: Final = {"requestsPerSecond": "requests/s", "concurrency": "requests in flight"}
PRICES: Final = {"Stated": "price an hour", "Listed": "price in H100s", "Assumed": "price in H100s"}

Stroke = tuple[float, float, float, float]  # from x, y to x, y, in percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A value on an axis, in percent of it; ``price`` is that of so many GPUs (empty: none)."""

    place: float
    words: str
    price: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step as a row of the table; ``price`` is None if GPUs have none."""

    replicas: Figure
    gpus: Figure
    load: Figure
    price: Figure | None
    planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The stair, the points on it (the plan at the load asked for last), the axes and the table."""

    unit: str
    price: str  # what prices are in, empty if there are none
    x: tuple[Mark, ...]
    y: tuple[Mark, ...]
    lines: tuple[Stroke, ...]
    points: tuple[Point, ...]
    rows: tuple[StepRow, ...]


def growth(document: Document) -> Growth | None:
    """Return how a plan grows with its load; None if there is none, or nothing that grows."""
    plan = document["plan"] or {}
    steps: Sequence[Mapping[str, Any]] = plan.get("overLoad") or ()
    if not steps:
        return None
    load, last = next(name for name in LOADS if name in steps[0]), steps[-1]
    asked = at(document, f"request.workload.{load}")
    across, up = max(last[load], asked), last["gpus"]
    price = plan.get("price")

    def point(value: float, gpus: int, kind: str, title: str) -> Point:
        return Point(x=_place(value, across), y=100 - _place(gpus, up), kind=kind, title=title)

    return Growth(
        unit=LOADS[load],
        price=PRICES[price["basis"]] if price else "",
        x=tuple(Mark(place=_place(value, across), words=f"{value:,g}") for value in _round(across)),
        y=tuple(_priced(value, up, price) for value in _round(up, least=1)),
        lines=tuple(_stair(last["replicas"], last[load] / across, 1.0)),
        points=(
            *(point(step[load], step["gpus"], "runs", _said(step, load)) for step in steps),
            point(asked, plan["gpus"], "chosen", _planned(asked, load, plan)),
        ),
        rows=tuple(_row(document, index, load) for index in range(len(steps))),
    )


def _place(value: float, most: float) -> float:
    return round(100 * value / most, 2)


def _stair(instances: int, across: float, up: float) -> Iterator[Stroke]:
    """Yield the lines of a stair up to a share of both axes; y grows downwards."""
    right, top = 100 * across, 100 * up
    if instances > MOST_STEPS:
        yield (0.0, 100.0, round(right, 2), round(100 - top, 2))
        return
    for step in range(instances):
        left, end = (round(right * each / instances, 2) for each in (step, step + 1))
        below, above = (round(100 - top * each / instances, 2) for each in (step, step + 1))
        yield (left, below, left, above)
        yield (left, above, end, above)


def _round(most: float, least: float = 0.0) -> tuple[float, ...]:
    """Return round values from zero up to the most, few of them.

    >>> _round(107.0)
    (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
    """
    power = 10.0 ** math.floor(math.log10(most / MARKS))
    step = next(each * power for each in (1, 2, 5, 10) if most / (each * power) <= MARKS)
    step = max(step, least)
    return tuple(round(step * index, 9) for index in range(math.floor(most / step) + 1))


def _priced(gpus: float, most: int, price: Mapping[str, Any] | None) -> Mark:
    words = f"{gpus * float(price['gpuHour']):,g}" if price else ""
    return Mark(place=_place(gpus, most), words=whole(round(gpus)), price=words)


def _said(step: Mapping[str, Any], load: str) -> str:
    copies = "replica" if step["replicas"] == 1 else "replicas"
    return (
        f"{step['replicas']:,} {copies} on {step['gpus']:,} GPUs: up to {COUNT(step[load])} "
        f"{LOADS[load]}"
    )


def _planned(asked: float, load: str, plan: Mapping[str, Any]) -> str:
    return f"the plan: {plan['gpus']:,} GPUs for {COUNT(asked)} {LOADS[load]}"


def _row(document: Document, index: int, load: str) -> StepRow:
    path = f"plan.overLoad.{index}"
    step = at(document, path)
    return StepRow(
        replicas=figure(document, f"{path}.replicas", whole),
        gpus=figure(document, f"{path}.gpus", whole),
        load=figure(document, f"{path}.{load}", COUNT),
        price=figure(document, f"{path}.hourPrice", COUNT) if "hourPrice" in step else None,
        planned=step["replicas"] == at(document, "plan.layout.replicas"),
    )
