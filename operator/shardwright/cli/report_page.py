"""The command ``report``: the explanation of one plan as a page for a browser.

The same question under other loads, for the sliders of a page.

Lengths stay fixed if too many layouts would have to be priced.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

from shardwright.api.resource import parse_manifest
from shardwright.cli.exits import Exit
from shardwright.cli.output import print_text
from shardwright.cli.plan import PlannedModel, answers_to, drawn_explanation_of, exit_of
from shardwright.cli.plan_inputs import PlanInputs, question_of, read_inputs
from shardwright.costs.workload import Workload
from shardwright.errors import InputError, Problem
from shardwright.hardware.inventory import Inventory
from shardwright.pages.page import plan_page
from shardwright.pipeline.assembly import plan_with_survey
from shardwright.pipeline.documents import explanation_document
from shardwright.planning.phrases import copies
from shardwright.planning.report import NoPlan, Report
from shardwright.planning.survey import Surveyed
from shardwright.reporting.drawings import tradeoff
from shardwright.resolving.subject import resolve

ARRIVAL_FACTORS: Final = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""Multiples of the load that are planned as well. Basis: chosen, a doubling at a time."""

LENGTH_FACTORS: Final = (1 / 2, 1, 2)
"""Multiples of the lengths of prompts and answers. Basis: chosen."""

MOST_REQUESTS: Final = 65_536
"""Requests in flight; the limit of ``spec.workload.concurrency``."""

MOST_RATE: Final = 100_000.0
"""Requests per second; the limit of ``spec.workload.requestsPerSecond``."""

_MOST_PRICED: Final = 20_000
"""Layouts times loads up to which lengths vary, too. Basis: assumed, some ten seconds of CPU, and
half a megabyte of page.
"""

_DIGITS: Final = 4
"""Significant digits of the curve's points: more than can be seen, a third of the size."""


def loads_around(answer: PlannedModel, inputs: PlanInputs, *, candidates: int) -> dict[str, Any]:
    """Return the plan under every load of a grid around the one that was asked for, as data.

    ``axes`` are the values along each axis, ``base`` the indices of the load asked for, and
    ``points`` the plan at each load, the last axis fastest. ``layouts`` are named once; a point
    lists for each layout that can run its index among them, its time per token and its output per
    GPU, to four digits.
    """
    ((_, resource),) = inputs.resources
    manifest = resource.model_dump(mode="json", by_alias=True, exclude_unset=True)
    axes = _axes(answer.subject.request.workload, lengths=_loads() * candidates <= _MOST_PRICED)
    layouts: dict[tuple[str, str, int], int] = {}
    points = [
        _point(
            _under(manifest, dict(zip(axes, values, strict=True))),
            inputs,
            answer.inventory,
            layouts,
        )
        for values in product(*(axis["values"] for axis in axes.values()))
    ]
    return {
        "axes": [{"field": field, "values": axis["values"]} for field, axis in axes.items()],
        "base": [axis["base"] for axis in axes.values()],
        "layouts": [list(key) for key in layouts],
        "points": points,
    }


def _loads() -> int:
    return len(ARRIVAL_FACTORS) * len(LENGTH_FACTORS) ** 2


def _axes(load: Workload, *, lengths: bool) -> dict[str, dict[str, Any]]:
    factors = LENGTH_FACTORS if lengths else (1,)
    tokens = {"inputTokens": load.input_tokens, "outputTokens": load.output_tokens}
    return {
        **dict([_arrival(load)]),
        **{field: _whole(value, factors, most=None) for field, value in tokens.items()},
    }


def _arrival(load: Workload) -> tuple[str, dict[str, Any]]:
    rate = load.requests_per_second
    if rate is None:
        return "concurrency", _whole(load.concurrency, ARRIVAL_FACTORS, most=MOST_REQUESTS)
    values = [
        value
        for factor in ARRIVAL_FACTORS
        if (value := _short(rate * factor) if factor != 1 else rate) <= MOST_RATE
    ]
    return "requestsPerSecond", {"values": values, "base": values.index(rate)}


def _whole(base: int, factors: Sequence[float], *, most: int | None) -> dict[str, Any]:
    values = sorted({max(1, round(base * factor)) for factor in factors})
    values = [value for value in values if most is None or value <= most]
    return {"values": values, "base": values.index(base)}


def _under(manifest: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return {**manifest, "spec": {**spec, "workload": {**spec.get("workload", {}), **load}}}


def _point(
    manifest: Mapping[str, Any],
    inputs: PlanInputs,
    inventory: Inventory,
    layouts: dict[tuple[str, str, int], int],
) -> dict[str, Any]:
    try:
        subject = resolve(
            replace(question_of(parse_manifest(manifest), inputs), settings=inputs.settings)
        )
    except InputError as error:
        return {"problem": _sentence(error.problems[0]), "speeds": []}
    report, surveyed = plan_with_survey(subject, inventory)
    speeds = list(_speeds(surveyed, layouts))
    outcome = report.outcome
    if isinstance(outcome, NoPlan):
        return {"problem": _sentence(outcome.problem), "speeds": speeds}
    speeds += _beside(report, speeds, layouts)
    speed = outcome.performance
    return {
        "chosen": _place(copies(outcome.layout), outcome.pool, outcome.layout.gpus, layouts),
        "carriesLoad": outcome.carries_load,
        "ttftSeconds": speed.ttft_seconds,
        "tpotSeconds": speed.tpot_seconds,
        "outputTokensPerSecond": speed.output_tokens_per_second,
        "speeds": speeds,
    }


def _sentence(problem: Problem) -> str:
    return replace(problem, path="").sentence()


def _speeds(
    surveyed: Sequence[Surveyed], layouts: dict[tuple[str, str, int], int]
) -> Iterator[list[float]]:
    for one in surveyed:
        speed = tradeoff(one)
        if speed is not None and not one.codes:
            place = _place(copies(one.layout), one.pool, one.layout.gpus, layouts)
            yield [
                place,
                _short(speed.tpot_seconds),
                _short(speed.output_tokens_per_second_per_gpu),
                int(one.carries_load),
            ]


def _beside(
    report: Report, speeds: Sequence[list[float]], layouts: dict[tuple[str, str, int], int]
) -> list[list[float]]:
    """Return the best layouts that no candidate is: those in more instances, maybe the plan."""
    drawn, beside = {speed[0] for speed in speeds}, []
    for point in report.front:
        place = _place(copies(point.layout), point.pool, point.layout.gpus, layouts)
        if place not in drawn:
            figures = (1 / point.tokens_per_user, point.tokens_per_gpu)
            beside.append([place, *map(_short, figures), 1])
    return beside


def _place(layout: str, pool: str, gpus: int, layouts: dict[tuple[str, str, int], int]) -> int:
    return layouts.setdefault((layout, pool, gpus), len(layouts))


def _short(value: float) -> float:
    """Return a value with few digits.

    >>> _short(0.0839061296)
    0.08391
    """
    return float(f"{value:.{_DIGITS}g}")


def report(arguments: Namespace) -> Exit:
    """Print the page of one ShardedModel; the exit code is that of ``plan``.

    Raises:
        InputError: several ShardedModels were given.
    """
    inputs = read_inputs(arguments)
    if len(inputs.resources) > 1:
        names = ", ".join(resource.metadata.name for _, resource in inputs.resources[:3])
        what, limit = (f"{len(inputs.resources)} ShardedModels are there", "and a report shows one")
        remedy = (
            "make one for each: "
            f"{names}{', …' if len(inputs.resources) > len(names.split(', ')) else ''}"
        )
        raise InputError(
            [Problem(code="NotTogether", path="-f", what=what, limit=limit, remedy=remedy)]
        )
    (answer,) = answers_to(inputs)
    explanation = drawn_explanation_of(answer)
    loads = loads_around(answer, inputs, candidates=len(explanation.candidates))
    print_text(
        plan_page(
            explanation_document(answer.subject, answer.report, explanation), loads
        ).removesuffix("\n")
    )
    return exit_of([answer])
