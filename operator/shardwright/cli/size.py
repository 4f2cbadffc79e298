"""The command ``size``: how many GPUs of each product does a load need?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import ceil, inf
from typing import Any, Final

from shardwright.api.settings import Settings
from shardwright.cli.checkpoints import BY_FETCH, fetch_unknown, fetched_for, with_ways_to_read
from shardwright.cli.exits import Exit
from shardwright.cli.inputs import STDIN, name_the_file, read_text
from shardwright.cli.named_gpus import NamedGpus, nodes_of, on_named_slices, read_named_gpus
from shardwright.cli.next_command import plan_command
from shardwright.cli.output import print_lines, print_text, width_of_output, with_bar
from shardwright.cli.outputs import print_document
from shardwright.cli.plan_forms import said_of_rows
from shardwright.cli.sheets import Sheet, widest_that_fits
from shardwright.cli.surroundings import read_nodes
from shardwright.cli.typed import of_option, read_typed, typed_manifest
from shardwright.documents import request_document
from shardwright.errors import InputError
from shardwright.hardware.prices import GpuPrice, PriceBasis, relative_price
from shardwright.hardware.stated import Stated
from shardwright.planning.arrivals import Prices, estimator_of
from shardwright.planning.phrases import copies
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.request import Request
from shardwright.planning.sizing import SizedOutcome, fewest, size
from shardwright.reporting.explanation import request_facts
from shardwright.reporting.figures import (
    format_band,
    format_count,
    format_seconds,
    format_served,
    half_band,
)
from shardwright.reporting.lines import (
    GAP,
    UNDER,
    Line,
    Role,
    Span,
    command_lines,
    line,
    paragraph,
    table,
    whole_rows,
)
from shardwright.reporting.shortfall import Missed, behind, missed, serves_rate
from shardwright.reporting.text import fact_lines
from shardwright.resolving.question import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject, resolve
from shardwright.units import format_plural, to_microseconds, to_milliseconds

USUAL: Final = ("L40S-48GB", "H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "MI300X-192GB")
"""Products that are compared by default. Basis: assumed, one of each price that clouds rent out;
the whole catalogue would take minutes.
"""

ABOUT_USUAL: Final = (
    "Only these were compared; --gpus names others, and 'shardwright gpus' lists them"
)

MOST_GPUS: Final = 1024
"""Where the search ends. Basis: assumed; the largest published deployments have a few hundred."""


ABOUT_PRICES: Final = (
    "PRICE: hourly cost, one H100 = 1 (public price lists; *: assumed from the data sheet); "
    "state your own prices as gpuHourPrices in --settings"
)


ABOUT_SLICES: Final = (
    "MIG: these are slices of GPUs, and cost as much as the whole GPUs that they are cut from"
)


class Counted(StrEnum):
    """The measure by which products are compared."""

    STATED = "Stated"  #: prices in the settings
    RELATIVE = "Relative"  #: prices relative to an H100
    GPUS = "Gpus"  #: nothing to compare


_PRICE_HEADERS: Final = {
    Counted.STATED: ("PER HOUR",),
    Counted.RELATIVE: ("PRICE",),
    Counted.GPUS: (),
}
_CHEAPEST: Final = {
    Counted.STATED: " (cheapest)",
    Counted.RELATIVE: " (cheapest by relative prices)",
    Counted.GPUS: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The findings for a product; ``gpu_hour_price`` is None if the settings state none."""

    named: NamedGpus
    steps: tuple[SizedOutcome, ...]
    gpu_hour_price: float | None

    @property
    def best(self) -> SizedOutcome | None:
        """Return the step with the fewest GPUs that carry the load."""
        return fewest(self.steps)

    @property
    def sliced(self) -> bool:
        """Return whether these are slices of GPUs (MIG)."""
        return self.named.gpu.whole is not None

    @property
    def paid(self) -> int:
        """Return how many are paid for: of slices all on their GPUs, which are sold whole."""
        if self.best is None:
            return 0
        return self.whole_gpus * self.named.gpu.slices

    @property
    def whole_gpus(self) -> int:
        """Return the number of whole GPUs behind the fewest."""
        return ceil(self.best.gpus / self.named.gpu.slices) if self.best else 0

    @property
    def hour_price(self) -> float | None:
        """Return the price of the fewest GPUs per hour."""
        if self.best is None or self.gpu_hour_price is None:
            return None
        return self.paid * self.gpu_hour_price

    @property
    def relative_price(self) -> GpuPrice | None:
        """Return the price of the fewest GPUs per hour, in hours of an H100."""
        if self.best is None:
            return None
        each = relative_price(self.named.gpu)
        return replace(each, per_hour=self.paid * each.per_hour)

    def counts(self, by: Counted) -> float:
        """Return the cost of the fewest GPUs by a measure; infinite if no number suffices."""
        if self.best is None:
            return inf
        relative = self.relative_price.per_hour if self.relative_price else None
        found = {Counted.STATED: self.hour_price, Counted.RELATIVE: relative}.get(by)
        return self.best.gpus if found is None else found


def print_size(arguments: Namespace) -> Exit:
    """Print the fewest GPUs of each product that carry the load; 1 if none do."""
    settings = _settings(arguments)
    named = read_named_gpus(
        arguments.gpus or USUAL,
        counted=False,
        gpus_per_node=arguments.nodes_of,
        network_gbps_per_gpu=arguments.network,
    )
    subject = _subject(arguments, settings)
    prices = estimator_of(subject.model, subject.request, subject.traits)
    with with_bar(len(named)) as show:
        sizes = [
            _size(subject, prices, gpus, settings.stated, partial(show, done))
            for done, gpus in enumerate(named)
        ]
    by = counted_by(sizes)
    found = sorted(sizes, key=lambda sized: sized.counts(by))
    match arguments.output:
        case "text":
            print_lines(_lines(arguments, subject.request, found, by))
        case "wide":
            print_lines(_wide(found, subject.request))
        case "name":
            for sized in found:
                if sized.best:
                    print_text(f"{sized.best.gpus}x{sized.named.gpu.id}")
        case form:
            print_document("GpuSizes", _document(arguments, subject, found), form)
    return Exit.PLAN if any(sized.best for sized in found) else Exit.NOTHING_FITS


def _settings(arguments: Namespace) -> Settings:
    from shardwright.api.settings import read_settings  # noqa: PLC0415 - most people have none

    file = arguments.settings
    return name_the_file(file, partial(read_settings, read_text(file))) if file else Settings()


def _subject(arguments: Namespace, settings: Settings) -> Subject:
    """Return the question for any number of GPUs, all of them to be used.

    Raises:
        InputError: The model is not known, or does not take the load.
    """
    manifest = typed_manifest(arguments)
    manifest["spec"]["budget"] = {"gpus": MOST_GPUS, "fill": True}
    resource = read_typed(manifest)
    fetched: Mapping[str, Mapping[str, object]] = {}
    if arguments.fetch:
        fetched = fetched_for(resource, fetch_unknown((("", resource),)))
    try:
        return resolve(Question(resource=resource, settings=settings, catalogue=fetched))
    except InputError as error:
        raise InputError(
            of_option(with_ways_to_read(problem, BY_FETCH)) for problem in error.problems
        ) from None


def _size(
    subject: Subject, prices: Prices, named: NamedGpus, stated: Stated, tell: Callable[[str], None]
) -> Sized:
    """Return the fewest GPUs of a product, and the outcome with more.

    ``prices``, of this model and load, are computed once for all numbers and products.
    """
    asked = on_named_slices(subject, [named])

    def ask(gpus: int) -> Plan | NoPlan:
        tell(f"{gpus} x {named.gpu.id}")
        nodes = read_nodes(nodes_of([replace(named, count=gpus)]), stated)
        stock = take_stock(asked, nodes, (), ())
        space = replace(subject.request.space, max_gpus=gpus)
        request = replace(subject.request, space=space)
        return make_plan(subject.model, stock, request, subject.traits, prices).outcome

    return Sized(named=named, steps=size(ask, MOST_GPUS), gpu_hour_price=stated.price_of(named.gpu))


def counted_by(found: Sequence[Sized]) -> Counted:
    """Return the measure that compares the products that carry the load: stated prices if all have
    one, as in ``plan``.
    """
    carrying = [sized for sized in found if sized.best]
    if any(sized.hour_price is not None for sized in carrying) and all(
        sized.hour_price is not None for sized in carrying
    ):
        return Counted.STATED
    return Counted.RELATIVE if carrying[1:] else Counted.GPUS


_COLUMNS: Final = ("GPUS", "CAN SERVE", "SURE", "TTFT", "TPOT", "LAYOUT")
"""Columns of every table of sizes."""


def _lines(
    arguments: Namespace, request: Request, found: Sequence[Sized], by: Counted
) -> Iterator[Line]:
    width, first = width_of_output(), found[0]
    headline = _headline(arguments.model, found, by)
    yield from paragraph(headline, width=width, role=Role.HEADLINE if first.best else Role.REFUSAL)
    yield from fact_lines(request_facts(request), width)
    yield Line()
    yield from _products(found, by, width)
    yield from said_of_rows(
        ((sized.named.gpu.id, _why_not(sized, request)) for sized in found), width
    )
    notes = (
        *((ABOUT_PRICES,) if by is Counted.RELATIVE else ()),
        *((ABOUT_SLICES,) if any(sized.sliced for sized in found) else ()),
        *(() if arguments.gpus else (ABOUT_USUAL,)),
    )
    for note in notes:
        yield Line()
        yield from paragraph(note, width=width, role=Role.FAINT)
    if first.best:
        yield Line()
        yield from _curve(first, request, width)
        # Stdin cannot be read again.
        if arguments.settings != STDIN:
            yield Line()
            yield line(Span("To plan for the fewest:"))
            command = plan_command(arguments, first.best, first.named)
            yield from command_lines(command, width=width, indent=UNDER)


def _curve(first: Sized, request: Request, width: int) -> Iterator[Line]:
    yield line(Span(f"Fewer and more {first.named.gpu.id}", Role.SECTION))
    near = list(_near(first))
    header = ("SLICES", *_COLUMNS[1:]) if first.sliced else _COLUMNS
    cells = [_cells(step) for step in near]
    yield from table(header, cells, width=width)
    noun = "slice" if first.sliced else "GPU"
    said = [(format_plural(step.gpus, noun), _shortfall(step, request)) for step in near]
    yield from said_of_rows(said, width)


def _products(found: Sequence[Sized], by: Counted, width: int) -> list[Line]:
    """Return a row for each product; the layout is last, where it can be wrapped."""
    *numbers, layout = _COLUMNS
    header = ("GPU", *numbers, *_PRICE_HEADERS[by], layout)
    rows = [
        (*cells[:-1], *_price(sized, by), cells[-1]) for sized in found for cells in (_row(sized),)
    ]
    full = Sheet(header=header, rows=rows)
    forms = (full, full.without("TTFT", "TPOT"), full.without("LAYOUT"))
    return widest_that_fits(forms, width=width, indent=GAP)


def _wide(found: Sequence[Sized], request: Request) -> list[Line]:
    header = (
        "GPU",
        *_COLUMNS,
        "TOK/S/GPU",
        *_PRICE_HEADERS[Counted.RELATIVE],
        *_PRICE_HEADERS[Counted.STATED],
        "REASON",
    )
    rows = [
        (
            *_row(sized),
            _output_of_a_gpu(sized),
            *_price(sized, Counted.RELATIVE),
            "-" if sized.hour_price is None else f"{sized.hour_price:,.2f}",
            "" if sized.best else _code(sized.steps[-1], request),
        )
        for sized in found
    ]
    return whole_rows(header, rows)


def _output_of_a_gpu(sized: Sized) -> str:
    if sized.best is None or not isinstance(sized.best.outcome, Plan):
        return "-"
    each = sized.best.outcome.performance.output_tokens_per_second / sized.best.gpus
    return format_count(each)


def _near(sized: Sized) -> Iterator[SizedOutcome]:
    """Yield the largest step that falls short, and each that suffices and uses more GPUs."""
    yield from [step for step in sized.steps if not step.carries][-1:]
    most = 0
    for step in sized.steps:
        used = _used(step)
        if step.carries and used > most:
            most = used
            yield step


def _used(step: SizedOutcome) -> int:
    if isinstance(step.outcome, Plan):
        return step.outcome.layout.gpus
    return step.gpus


def _headline(model: str, found: Sequence[Sized], by: Counted) -> str:
    first = found[0]
    if first.best is None:
        outcome = first.steps[-1].outcome
        why = (
            of_option(outcome.problem).sentence()
            if isinstance(outcome, NoPlan)
            else "the load is more than they carry"
        )
        return f"{model}: {MOST_GPUS:,} GPUs are not enough. {why}"
    counted = f"{first.best.gpus} x {first.named.gpu.id}"
    if first.sliced:
        counted = f"{counted}, slices of {format_plural(first.whole_gpus, 'GPU')},"
    verb = "is" if first.best.gpus == 1 else "are"
    return f"{model}: {counted} {verb} enough{_beside(found, by)}"


def _beside(found: Sequence[Sized], by: Counted) -> str:
    """Return whether the first is cheapest, or which others cost the same within the error."""
    first, *others = [sized for sized in found if sized.best]
    if not others or by is Counted.GPUS:
        return ""
    equal = [sized.named.gpu.id for sized in others if _equal(first, sized, by)]
    if not equal:
        return _CHEAPEST[by]
    return f" (equal within the error: {', '.join(equal)})"


def _equal(first: Sized, other: Sized, by: Counted) -> bool:
    """Return whether the costs differ by less than half a band of the speeds that they rest on."""
    bands = (
        half_band(sized.best.outcome.performance)
        for sized in (first, other)
        if sized.best and isinstance(sized.best.outcome, Plan)
    )
    return other.counts(by) < first.counts(by) * (1 + min(bands))


def _row(sized: Sized) -> tuple[str, ...]:
    if sized.best is None:
        return (sized.named.gpu.id, *["-"] * len(_COLUMNS))
    gpus, *others = _cells(sized.best)
    if sized.sliced:
        gpus = format_plural(sized.best.gpus, "slice")
    return (sized.named.gpu.id, gpus, *others)


def _price(sized: Sized, by: Counted) -> tuple[str, ...]:
    relative = sized.relative_price
    if by is Counted.GPUS:
        return ()
    if relative is None:
        return ("-",)
    if by is Counted.STATED:
        return (f"{sized.hour_price:,.2f}",)
    return (f"{relative.per_hour:,.3g}{'*' if relative.basis is PriceBasis.ASSUMED else ''}",)


def _cells(step: SizedOutcome) -> tuple[str, ...]:
    if not isinstance(step.outcome, Plan):
        return (str(step.gpus), *["-"] * (len(_COLUMNS) - 1))
    performance, used = step.outcome.performance, _used(step)
    return (
        str(step.gpus) if used == step.gpus else f"{used} of {step.gpus}",
        format_served(performance, step.outcome.capacity),
        format_band(performance),
        format_seconds(performance.ttft_seconds),
        format_seconds(performance.tpot_seconds),
        copies(step.outcome.layout),
    )


def _why_not(sized: Sized, request: Request) -> str:
    return "" if sized.best else _shortfall(sized.steps[-1], request)


def _shortfall(step: SizedOutcome, request: Request) -> str:
    if step.carries:
        return ""
    if not isinstance(step.outcome, NoPlan):
        said = behind(step.outcome, request)
        # The sentence itself mentions missing headroom.
        alone = serves_rate(step.outcome, request)
        return said if alone else f"{_missed(step.outcome, request)}: {said}"
    problem = of_option(step.outcome.problem)
    return replace(problem, path="", remedy="").sentence()


def _missed(plan: Plan, request: Request) -> str:
    return "; ".join(missed(plan, request)) or Missed.LOAD.value


def _code(step: SizedOutcome, request: Request) -> str:
    outcome = step.outcome
    if isinstance(outcome, NoPlan):
        return outcome.problem.code
    return _missed(outcome, request)


def _document(arguments: Namespace, subject: Subject, found: Sequence[Sized]) -> dict[str, Any]:
    asked = request_document(subject)
    return {
        "model": {"id": arguments.model},
        "request": {name: asked[name] for name in ("workload", "engine", "objective")},
        "sizes": [
            {
                "gpu": sized.named.gpu.id,
                "gpus": sized.best.gpus if sized.best else None,
                "hourPrice": sized.hour_price,
                "relativePrice": _relative(sized),
                "steps": [_step(step) for step in sized.steps],
            }
            for sized in found
        ],
    }


def _relative(sized: Sized) -> dict[str, Any] | None:
    price = sized.relative_price
    return (
        None
        if price is None
        else {"h100Hours": float(f"{price.per_hour:.6g}"), "basis": price.basis.value}
    )


def _step(step: SizedOutcome) -> dict[str, Any]:
    if not isinstance(step.outcome, Plan):
        return {"gpus": step.gpus, "carriesLoad": False, "reason": step.outcome.problem.code}
    performance = step.outcome.performance
    return {
        "gpus": step.gpus,
        "carriesLoad": step.carries,
        "layout": copies(step.outcome.layout),
        "replicas": step.outcome.layout.replicas,
        "outputTokensPerSecond": round(performance.output_tokens_per_second),
        "ttftMilliseconds": to_milliseconds(performance.ttft_seconds),
        "tpotMilliseconds": to_milliseconds(performance.tpot_seconds),
        "tpotMicroseconds": to_microseconds(performance.tpot_seconds),
    }
