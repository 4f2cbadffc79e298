"""The command ``size``: how many GPUs of each product does a load need?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, inf
from typing import Any, Final

from shardwright.api.plan_status import plan_status
from shardwright.api.settings import Settings
from shardwright.cli.checkpoints import (
    fetched_for,
    problem_of,
    read_config,
    read_unknown,
    with_config,
)
from shardwright.cli.exits import Exit
from shardwright.cli.inputs import STDIN, name_the_file, read_text
from shardwright.cli.named_gpus import (
    NamedGpus,
    kind_of,
    nodes_of,
    on_named_slices,
    read_named_gpus,
)
from shardwright.cli.output import (
    Sheet,
    print_document,
    print_lines,
    print_text,
    widest_that_fits,
    width_of_output,
    with_bar,
)
from shardwright.cli.plan_forms import next_lines, plan_command, said_of_rows, size_command
from shardwright.cli.sized_gpus import Counted, Sized, counted_by, equals
from shardwright.cli.surroundings import read_nodes
from shardwright.cli.typed import of_option, read_typed, typed_manifest
from shardwright.errors import InputError
from shardwright.hardware.gpus import PriceBasis, Stated
from shardwright.pipeline.assembly import compared
from shardwright.pipeline.documents import best_document, request_document
from shardwright.planning.arrivals import Prices, estimator_of
from shardwright.planning.phrases import copies, spell
from shardwright.planning.planner import choose, consider
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.request import Request
from shardwright.planning.select import most_served
from shardwright.planning.sizing import LoadStep, steps_of
from shardwright.reporting.explanation import Fact
from shardwright.reporting.figures import format_band, format_count, format_seconds
from shardwright.reporting.lines import GAP, Line, Role, Span, line, paragraph, table, whole_rows
from shardwright.reporting.screen import asked_facts
from shardwright.reporting.screen_text import MOST_LINES, one_screen
from shardwright.reporting.shortfall import Missed, behind, missed
from shardwright.reporting.text import best_sentence, fact_lines
from shardwright.resolving.model import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject, resolve
from shardwright.units import format_plural, to_microseconds, to_milliseconds

USUAL: Final = ("L40S-48GB", "H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "MI300X-192GB")
"""Products that are compared by default. Basis: assumed, one of each price that clouds rent out;
the whole catalogue would take minutes.
"""

ABOUT_USUAL: Final = "--gpus compares others."

ABOUT_PRICES: Final = "PRICE: an hour, one H100 = 1, by public lists (*: assumed)."

ABOUT_NODES: Final = "BOUGHT: of the whole nodes."

ABOUT_SLICES: Final = "MIG: slices cost as much as the whole GPUs that they are cut from."

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


def print_size(arguments: Namespace) -> Exit:
    """Print the GPUs of each product that carry the load, as ``plan`` takes them; 1 if none do."""
    settings = _settings(arguments)
    named = _of_one_kind(
        read_named_gpus(
            arguments.gpus or USUAL,
            gpus_per_node=arguments.nodes_of,
            network_gbps_per_gpu=arguments.network,
        )
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
                if sized.plan:
                    print_text(f"{sized.bought}x{sized.named.gpu.id}")
        case form:
            print_document("GpuSizes", _document(arguments, subject, found, by), form)
    return Exit.PLAN if any(sized.plan for sized in found) else Exit.NOTHING_FITS


def _settings(arguments: Namespace) -> Settings:
    from shardwright.api.settings import read_settings  # noqa: PLC0415 - most people have none

    file = arguments.settings
    return name_the_file(file, partial(read_settings, read_text(file))) if file else Settings()


def _subject(arguments: Namespace, settings: Settings) -> Subject:
    """Return the question for any number of GPUs.

    Raises:
        InputError: The model is not known, or does not take the load.
    """
    resource = read_typed(typed_manifest(arguments))
    config = read_config(arguments.config) if arguments.config else None
    unknown = ((("", resource, config is not None)),)
    fetched = fetched_for(resource, read_unknown(unknown, offline=arguments.offline))
    question = Question(resource=resource, settings=settings, catalogue=fetched)
    try:
        return resolve(question if config is None else with_config(question, config))
    except InputError as error:
        raise InputError(
            problem_of(problem, "", arguments.config) for problem in error.problems
        ) from None


def _of_one_kind(named: Sequence[NamedGpus]) -> tuple[NamedGpus, ...]:
    """Return the GPUs with those of one kind counted together."""
    found: dict[str, NamedGpus] = {}
    for gpus in named:
        before = found.get(gpus.gpu.id)
        found[gpus.gpu.id] = replace(gpus, count=gpus.count + (before.count if before else 0))
    return tuple(found.values())


def _size(
    subject: Subject, prices: Prices, named: NamedGpus, stated: Stated, tell: Callable[[str], None]
) -> Sized:
    """Return what ``plan`` would take of a product.

    ``prices``, of this model and load, are computed once for all products.
    """
    tell(named.gpu.id)
    asked = on_named_slices(subject, [named])
    stock = take_stock(asked, read_nodes(nodes_of([named]), stated), (), ())
    considered = consider(subject.model, stock, subject.request, subject.traits, prices)
    price = stated.price_of(named.gpu)
    report = choose(considered)
    best = compared(asked, stock, report)
    return Sized(named=named, report=report, gpu_hour_price=price, comparison=best)


def _lines(
    arguments: Namespace, request: Request, found: Sequence[Sized], by: Counted
) -> list[Line]:
    """Return one screen; the steps of the load take what room is left."""
    width, first = width_of_output(), found[0]
    role = Role.HEADLINE if first.plan else Role.REFUSAL
    head = [
        *paragraph(_headline(arguments.model, found, by), width=width, role=role),
        *fact_lines((*asked_facts(request), *_best(first)), width),
    ]
    said = ((sized.named.gpu.id, _said(sized, found, request, by)) for sized in found)
    products = [*_products(found, request, by, width), *said_of_rows(said, width)]
    about = " ".join(_notes(arguments, found, by))
    notes = paragraph(about, width=width, role=Role.FAINT) if about else []
    closing = next_lines(_next(arguments, first), width)
    room = MOST_LINES - sum(map(len, (head, products, notes, closing)))
    growth = _growth(first, request, by, width, room) if first.plan else ()
    return one_screen((head, products, notes, growth, closing))


def _best(first: Sized) -> Iterator[Fact]:
    if first.comparison:
        yield Fact(label="Best", value=best_sentence(first.comparison))


def _notes(arguments: Namespace, found: Sequence[Sized], by: Counted) -> Iterator[str]:
    if by is Counted.RELATIVE:
        yield ABOUT_PRICES
    if by is not Counted.GPUS:
        yield ABOUT_NODES
    if any(sized.sliced for sized in found):
        yield ABOUT_SLICES
    if not arguments.gpus:
        yield ABOUT_USUAL


def _next(arguments: Namespace, first: Sized) -> str:
    """Return the command that plans for the cheapest; if nothing is enough, that which says how
    many would be.
    """
    if first.plan is None:
        counted = any(kind_of(text) != text.strip() for text in arguments.gpus)
        return size_command(arguments) if counted else ""
    # Stdin cannot be read again.
    if arguments.settings == STDIN:
        return ""
    return plan_command(arguments, first.bought, first.named)


def _growth(first: Sized, request: Request, by: Counted, width: int, room: int) -> list[Line]:
    """Return up to which load numbers of instances of the first product carry, those nearest to the
    planned number.
    """
    plan = first.plan
    if plan is None:
        return []
    sure = f"{format_band(plan.performance)}, {plan.performance.basis}"
    title = line(Span(f"More and less load on {first.named.gpu.id} ({sure})", Role.SECTION))
    held = _held(plan, request, width)
    steps = _nearest(steps_of(plan), plan.layout.replicas, room - len(held) - 2)
    if not steps:
        return []
    rated = request.workload.requests_per_second is not None
    prices = () if by is Counted.GPUS else _PRICE_HEADERS[by]
    header = ("INSTANCES", "SLICES" if first.sliced else "GPUS", *prices, "CARRY UP TO")
    unit = "requests/s" if rated else "in flight"
    rows = [
        (
            f"{step.instances:,}",
            f"{step.gpus:,}",
            *(_money(first.price(by, step.gpus), by) for _ in prices),
            f"{format_count(step.load)} {unit}",
        )
        for step in steps
    ]
    return [title, *table(header, rows, width=width), *held]


def _held(plan: Plan, request: Request, width: int) -> list[Line]:
    if not plan.replica_requests:
        return []
    held = format_plural(plan.replica_requests, "request")
    limits = " within the limits" if request.objective.limited else ""
    said = f"one instance just holds {held} in flight{limits}"
    return paragraph(said, width=width, first=[Span("  ")], role=Role.FAINT)


def _nearest(steps: Sequence[LoadStep], instances: int, count: int) -> Sequence[LoadStep]:
    """Return at most ``count`` steps in a row, with that of a number of instances in the middle."""
    at = sum(step.instances < instances for step in steps)
    first = max(0, min(at - count // 2, len(steps) - count))
    return steps[first : first + max(count, 0)]


def _serves(request: Request) -> str:
    return "TOK/S" if request.workload.requests_per_second is None else "CAN SERVE"


def _products(found: Sequence[Sized], request: Request, by: Counted, width: int) -> list[Line]:
    """Return a row for each product; the layout is last, where it can be wrapped."""
    header = ("GPU", "GPUS", _serves(request), "SURE", "TTFT", "TPOT", *_PRICE_HEADERS[by], "NODES")
    bought = () if by is Counted.GPUS else ("BOUGHT",)
    rows = [
        (
            sized.named.gpu.id,
            *_figures(sized),
            *_price(sized, by, sized.gpus),
            _nodes_of(sized),
            *_price(sized, by, sized.bought),
            _layout_of(sized),
        )
        for sized in found
    ]
    full = Sheet(header=(*header, *bought, "LAYOUT"), rows=rows)
    times = full.without("TTFT", "TPOT")
    forms = (full, times, times.without("SURE"), times.without("SURE", "LAYOUT"))
    return widest_that_fits(forms, width=width, indent=GAP)


def _wide(found: Sequence[Sized], request: Request) -> list[Line]:
    header = (
        *("GPU", "GPUS", _serves(request), "SURE", "TTFT", "TPOT", "LAYOUT", "NODES", "TOK/S/GPU"),
        *_PRICE_HEADERS[Counted.RELATIVE],
        *_PRICE_HEADERS[Counted.STATED],
        "REASON",
    )
    rows = [
        (
            sized.named.gpu.id,
            *_figures(sized),
            _layout_of(sized),
            _nodes_of(sized),
            _output_of_a_gpu(sized),
            *_price(sized, Counted.RELATIVE, sized.gpus),
            *_price(sized, Counted.STATED, sized.gpus),
            "" if sized.plan else _code(sized, request),
        )
        for sized in found
    ]
    return whole_rows(header, rows)


def _output_of_a_gpu(sized: Sized) -> str:
    if sized.plan is None:
        return "-"
    return format_count(sized.plan.performance.output_tokens_per_second / sized.gpus)


def _headline(model: str, found: Sequence[Sized], by: Counted) -> str:
    first = found[0]
    if first.plan is None:
        if isinstance(first.outcome, NoPlan):
            why = of_option(first.outcome.problem).sentence()
            return f"{model}: {_all_of(found)} not enough. {why}"
        return f"{model}: {_all_of(found)} not enough for the load"
    cheapest = _CHEAPEST[by] if sum(sized.plan is not None for sized in found) > 1 else ""
    counted = f"{first.gpus} x {first.named.gpu.id}"
    if first.sliced:
        whole = ceil(first.gpus / first.named.gpu.slices)
        counted = f"{counted}, slices of {format_plural(whole, 'GPU')},"
    verb = "is" if first.gpus == 1 else "are"
    return f"{model}: {counted} {verb} enough{cheapest}"


def _all_of(found: Sequence[Sized]) -> str:
    """Return all GPUs that were asked about, with a verb."""
    if len(found) > 1:
        return "these are"
    named = found[0].named
    return f"{named.count:,} {named.gpu.id} {'is' if named.count == 1 else 'are'}"


def _figures(sized: Sized) -> tuple[str, ...]:
    """Return GPUs (if they are enough), what they serve with its band, how sure that is, and the
    times.
    """
    plan = sized.outcome
    if isinstance(plan, NoPlan):
        return ("-",) * 5
    speed = plan.performance
    most = most_served(speed, plan.capacity)
    low, high = (most * end / speed.output_tokens_per_second for end in (speed.low, speed.high))
    band = f"{format_count(low, digits=2)}\N{EN DASH}{format_count(high, digits=2)}"
    unit = "" if plan.capacity is None else "/s"
    return (
        _counted(sized),
        f"{format_count(most)}{unit} ({band})",
        speed.basis,
        format_seconds(speed.ttft_seconds),
        format_seconds(speed.tpot_seconds),
    )


def _counted(sized: Sized) -> str:
    if sized.plan is None:
        return "-"
    return format_plural(sized.gpus, "slice") if sized.sliced else f"{sized.gpus:,}"


def _layout_of(sized: Sized) -> str:
    return "-" if isinstance(sized.outcome, NoPlan) else copies(sized.outcome.layout)


def _nodes_of(sized: Sized) -> str:
    return f"{sized.nodes} x {sized.named.gpus_per_node}" if sized.plan else "-"


def _price(sized: Sized, by: Counted, gpus: int) -> tuple[str, ...]:
    if by is Counted.GPUS:
        return ()
    if sized.plan is None or (by is Counted.STATED and sized.gpu_hour_price is None):
        return ("-",)
    assumed = by is Counted.RELATIVE and sized.relative_price.basis is PriceBasis.ASSUMED
    return (f"{_money(sized.price(by, gpus), by)}{'*' if assumed else ''}",)


def _money(cost: float, by: Counted) -> str:
    return f"{cost:,.2f}" if by is Counted.STATED else f"{cost:,.3g}"


def _said(sized: Sized, found: Sequence[Sized], request: Request, by: Counted) -> str:
    if sized.plan is None:
        return _why_not(sized, request)
    if sized in equals(found, by):
        return "costs the same within the error"
    cheapest = min(found, key=lambda other: other.price(by, other.bought) or inf)
    if sized is cheapest and sized is not found[0] and by is not Counted.GPUS:
        return "cheapest in whole nodes"
    return ""


def _why_not(sized: Sized, request: Request) -> str:
    """Return why no number of a product carries the load."""
    if isinstance(sized.outcome, NoPlan):
        problem = sized.outcome.problem
        return ", ".join(filter(None, (spell(problem.code), problem.gap)))
    said = behind(sized.outcome, request)
    if sized.outcome.enough is None:
        return said
    layout = sized.outcome.enough.layout
    return f"{said}; {copies(layout)} on {layout.gpus:,} GPUs would do"


def _missed(plan: Plan, request: Request) -> str:
    return "; ".join(missed(plan, request)) or Missed.LOAD.value


def _code(sized: Sized, request: Request) -> str:
    if isinstance(sized.outcome, NoPlan):
        return sized.outcome.problem.code
    return _missed(sized.outcome, request)


def _document(
    arguments: Namespace, subject: Subject, found: Sequence[Sized], by: Counted
) -> dict[str, Any]:
    asked = request_document(subject)
    same = {id(sized) for sized in (found[0], *equals(found, by)) if sized.plan}
    return {
        "model": {"id": arguments.model},
        "request": {name: asked[name] for name in ("workload", "engine", "objective")},
        "sizes": [_size_document(sized, best=id(sized) in same) for sized in found],
    }


def _size_document(sized: Sized, *, best: bool) -> dict[str, Any]:
    each = {"gpu": sized.named.gpu.id, "carriesLoad": sized.plan is not None}
    if sized.plan is None:
        code = sized.outcome.problem.code if isinstance(sized.outcome, NoPlan) else Missed.LOAD.name
        return {**each, "gpus": None, "reason": code}
    shown = plan_status(sized.report)
    return {
        **each,
        "gpus": sized.gpus,
        "cheapest": best,
        **_prices_document(sized, sized.gpus),
        "nodes": {
            "count": sized.nodes,
            "gpusPerNode": sized.named.gpus_per_node,
            "gpus": sized.bought,
            **_prices_document(sized, sized.bought),
        },
        **_speed_document(sized.plan),
        "instance": _instance_document(sized.plan),
        "overLoad": [
            {**step, **_prices_document(sized, step["gpus"])} for step in shown.get("overLoad", ())
        ],
        "overSpeed": shown["overSpeed"],
        **best_document(sized.comparison),
    }


def _prices_document(sized: Sized, gpus: int) -> dict[str, Any]:
    stated = sized.gpu_hour_price
    return {
        "hourPrice": None if stated is None else stated * gpus,
        "relativePrice": {
            "h100Hours": _short(sized.price(Counted.RELATIVE, gpus)),
            "basis": sized.relative_price.basis.value,
        },
    }


def _speed_document(plan: Plan) -> dict[str, Any]:
    speed = plan.performance
    return {
        "layout": copies(plan.layout),
        "replicas": plan.layout.replicas,
        "outputTokensPerSecond": {
            "predicted": round(speed.output_tokens_per_second),
            "low": round(speed.low),
            "high": round(speed.high),
            "basis": speed.basis,
        },
        "requestsPerSecondAtMost": None if plan.capacity is None else _short(plan.capacity),
        "ttftMilliseconds": to_milliseconds(speed.ttft_seconds),
        "tpotMilliseconds": to_milliseconds(speed.tpot_seconds),
        "tpotMicroseconds": to_microseconds(speed.tpot_seconds),
    }


def _instance_document(plan: Plan) -> dict[str, Any] | None:
    if not plan.replica_requests:
        return None
    return {"requests": plan.replica_requests, "requestsPerSecond": _short(plan.replica_rate)}


def _short(value: float) -> float:
    return float(f"{value:.6g}")
