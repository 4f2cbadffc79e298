"""The explanation of a plan as one HTML file that fetches nothing and computes only positions of
lines.

The page is made from the document that ``explain -o json`` prints, and embeds it; every number
names its path in the document. Its policy names the styles and the script by hash, so a browser
runs nothing else, whatever a text may hold.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from shardwright.pages.charts import (
    Curve,
    curve,
    dot_kind,
    memory_legend,
    memory_rows,
    time_bars,
    time_legend,
)
from shardwright.pages.document import (
    COUNT,
    SECONDS,
    Document,
    Figure,
    at,
    figure,
    from_microseconds,
    from_milliseconds,
    range_text,
    whole,
)
from shardwright.pages.growth import growth
from shardwright.pages.mesh import link_rows, rank_rows, replicas
from shardwright.sinks import in_page, in_script

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

FIELDS: Final = {
    "concurrency": "Requests in flight",
    "requestsPerSecond": "Requests per second",
    "inputTokens": "Input tokens",
    "outputTokens": "Output tokens",
}
LISTED: Final = ("chosen", "runs", "queues", "out")
KINDS: Final = {"chosen": "the plan", "runs": "can run", "queues": "can run, requests queue"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTile:
    """A figure at the top of the page; ``note`` is a remark on it."""

    label: str
    figure: Figure
    unit: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """A candidate as a row of the table; figures are None if it has no speed."""

    layout: str
    pool: str
    kind: str
    verdict: str
    rules: str
    gpus: Figure
    per_gpu: Figure | None
    per_user: Figure | None
    first_token: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A ShardedModel as a row; ``plan`` is one line, empty if it has none."""

    namespace: str
    name: str
    model: str
    ready: str
    plan: str


def plan_page(document: Document, loads: Mapping[str, Any] | None = None) -> str:
    """Return an ASCII page that shows a document of ``explain -o json``.

    Args:
        document: The document to show.
        loads: The same question under other loads, as ``report`` makes them; None: no sliders.
    """
    script = _text("page.js")
    values = {
        "script": script,
        "script_hash": _hash(script),
        "document": document,
        "embedded": in_script(document),
        "explanation": document["explanation"],
        "tiles": tuple(_tiles(document)),
        "memory": memory_rows(document),
        "memory_legend": memory_legend(),
        "times": time_bars(document),
        "time_legend": time_legend(document),
        "growth": growth(document),
        "best": tuple(_best(document)),
        "exclusions": tuple(_exclusions(document)),
        "candidates": tuple(_rows(document)),
        "sliders": tuple(_sliders(loads)),
        **_mesh(document),
        **_curve(document, loads),
    }
    return rendered("plan.html", values)


def plans_page(listed: Sequence[Listed], *, unasked: int, root: str) -> str:
    """Return an ASCII page that lists models; ``unasked`` counts the namespaces left out, ``root``
    is the path of the list.
    """
    return rendered("plans.html", {"listed": listed, "unasked": unasked, "root": root})


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return a template as an ASCII page with the styles of all pages."""
    style = _text("page.css")
    page: str = (
        _environment()
        .get_template(template)
        .render({"style": style, "style_hash": _hash(style), **values})
    )
    return page.encode("ascii", "xmlcharrefreplace").decode()


def _mesh(document: Document) -> dict[str, Any]:
    if not at(document, "explanation.nodes"):
        return {"replicas": (), "hidden": (), "links": (), "ranks": ()}
    drawn, hidden = replicas(document)
    return {
        "replicas": drawn,
        "hidden": hidden,
        "links": link_rows(document),
        "ranks": rank_rows(document),
    }


def _curve(document: Document, loads: Mapping[str, Any] | None) -> dict[str, Any]:
    drawn = curve(document, loads)
    return {"curve": drawn, "data": in_script(_moving(loads, drawn)) if drawn and loads else ""}


def _moving(loads: Mapping[str, Any], drawn: Curve) -> dict[str, Any]:
    ends = [drawn.x.low, drawn.x.high, drawn.y.low, drawn.y.high]
    return {**loads, "ends": ends, "points": [_worded(point) for point in loads["points"]]}


def _worded(point: Mapping[str, Any]) -> dict[str, Any]:
    if "problem" in point:
        return {**point, "problem": in_page(point["problem"])}
    output, token = point["outputTokensPerSecond"], point["tpotSeconds"]
    return {**point, "words": [COUNT(output), SECONDS(point["ttftSeconds"]), SECONDS(token)]}


def _tiles(document: Document) -> Iterator[FigureTile]:
    if not document["explanation"]["fits"]:
        return
    yield from _speed(document)
    tokens = "plan.memory.kvCacheTokens"
    yield FigureTile(
        label="GPUs", figure=figure(document, "plan.gpus", whole), note=document["plan"]["product"]
    )
    carries = "carries the load" if document["plan"]["carriesLoad"] else "requests queue"
    yield FigureTile(
        label="K/V cache",
        figure=figure(document, tokens, COUNT),
        unit="tokens",
        note=f"per replica; {carries}",
    )


def _speed(document: Document) -> Iterator[FigureTile]:
    # None is promised of a model whose bytes are stated.
    if (predicted := document["plan"].get("predicted")) is None:
        return
    edges = (COUNT(predicted[edge], digits=2) for edge in ("low", "high"))
    band = f"80% band {range_text(*edges)}, {predicted['basis']}"
    milliseconds = from_milliseconds
    yield FigureTile(
        label="Output",
        figure=figure(document, "plan.predicted.outputTokensPerSecond", COUNT),
        unit="tok/s",
        note=band,
    )
    yield FigureTile(
        label="First token",
        figure=figure(document, "plan.predicted.ttftMilliseconds", milliseconds),
        note="mean",
    )
    yield FigureTile(
        label="Per token",
        figure=figure(document, "plan.predicted.tpotMicroseconds", from_microseconds),
        note="mean",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionBar:
    """A reason that ruled layouts out; ``reach`` is its bar's length, of 1000."""

    code: str
    count: Figure
    miss: str
    reach: int


def _exclusions(document: Document) -> Iterator[ExclusionBar]:
    found = document["explanation"]["exclusions"]
    most = max((item["count"] for item in found), default=1)
    for index, item in enumerate(found):
        yield ExclusionBar(
            code=item["code"],
            count=figure(document, f"explanation.exclusions.{index}.count", whole),
            miss=item["nearestMiss"] or item["example"],
            reach=round(1000 * item["count"] / most),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRow:
    """A layout that none beats in both, or the plan, as a row of the table."""

    layout: str
    gpus: Figure
    per_user: Figure
    per_gpu: Figure
    planned: bool


def _best(document: Document) -> Iterator[BestRow]:
    plan = document["plan"] or {}
    for index, one in enumerate(plan.get("overSpeed") or ()):
        path = f"plan.overSpeed.{index}"
        yield BestRow(
            layout=one["layout"],
            gpus=figure(document, f"{path}.gpus", whole),
            per_user=figure(document, f"{path}.outputTokensPerSecondPerUser", COUNT),
            per_gpu=figure(document, f"{path}.outputTokensPerSecondPerGpu", COUNT),
            planned=one.get("planned", False),
        )


def _rows(document: Document) -> Iterator[CandidateRow]:
    """Yield the plan, then layouts that run, queue and are ruled out, the most tokens/s per GPU
    first and those without a speed last.
    """
    for index, one in sorted(
        enumerate(document["explanation"]["candidates"]), key=lambda item: _rank(item[1])
    ):
        path = f"explanation.candidates.{index}"
        speed = f"{path}.speed"
        priced = one["speed"] is not None
        yield CandidateRow(
            layout=one["layout"],
            pool=one["pool"],
            kind=dot_kind(one),
            verdict=KINDS.get(dot_kind(one), ", ".join(one["rules"])),
            rules=" ".join(one["rules"]),
            gpus=figure(document, f"{path}.gpus", whole),
            per_gpu=figure(document, f"{speed}.outputTokensPerSecondPerGpu", COUNT)
            if priced
            else None,
            per_user=figure(document, f"{speed}.tpotSeconds", SECONDS) if priced else None,
            first_token=figure(document, f"{speed}.ttftSeconds", SECONDS) if priced else None,
        )


def _rank(one: Mapping[str, Any]) -> tuple[int, float]:
    speed = one["speed"]
    return LISTED.index(dot_kind(one)), -speed["outputTokensPerSecondPerGpu"] if speed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """One axis of the loads; ``base`` is the index of the load that was asked for."""

    label: str
    words: tuple[str, ...]
    base: int


def _sliders(loads: Mapping[str, Any] | None) -> Iterator[Slider]:
    for axis, base in zip(loads["axes"], loads["base"], strict=True) if loads else ():
        values: Sequence[float] = axis["values"]
        if len(values) > 1:
            yield Slider(
                label=FIELDS[axis["field"]],
                words=tuple(f"{value:,}" for value in values),
                base=base,
            )


def _hash(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _text(name: str) -> str:
    return (
        resources.files("shardwright.pages").joinpath("templates", name).read_text(encoding="utf-8")
    )


def _load(name: str) -> str:
    return _text(f"{name}.j2")


def _harmless(value: object) -> object:
    # Text that is marked as safe is ours.
    return in_page(value) if type(value) is str else value


@cache
def _environment() -> "ImmutableSandboxedEnvironment":
    from jinja2 import FunctionLoader, StrictUndefined  # noqa: PLC0415 - commands without a page do not pay for it
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - as the line above

    return ImmutableSandboxedEnvironment(
        loader=FunctionLoader(_load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=_harmless,
    )
