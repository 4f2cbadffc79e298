"""Plans as a table, and as documents for programs.

The command that follows: after ``size`` the plan for the GPUs it found, with the same options;
after ``plan`` the one that applies it, says how many GPUs are enough, or says more.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import join, quote
from typing import Any, Final

from shardwright.cli.inputs import STDIN
from shardwright.cli.named_gpus import NamedGpus, kind_of
from shardwright.cli.output import print_lines, print_yaml
from shardwright.cli.typed import OPTIONS, field_as_typed, names_live_model, of_option
from shardwright.costs.estimates import Performance
from shardwright.planning.phrases import copies
from shardwright.planning.report import NoPlan, Plan, Report, WaysOut, WithoutFields
from shardwright.planning.request import Request
from shardwright.reporting.figures import format_count, format_seconds, short_layout
from shardwright.reporting.lines import (
    Line,
    Role,
    Span,
    command_lines,
    line,
    paragraph,
    table,
    whole_rows,
)
from shardwright.reporting.shortfall import missed
from shardwright.units import format_plural


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A model's plan, or why there is none; None: there is one that cannot be read.

    The request is None if it is not known; ``shown_only`` models take no GPUs.
    """

    name: str
    outcome: Plan | NoPlan | None
    request: Request | None = None
    shown_only: bool = False


def plans_table(rows: Iterable[PlanRow]) -> list[Line]:
    """Return a line for each model with its plan, or why there is none."""
    header = ("NAME", "LAYOUT", "GPUS", "NODES", "PRODUCT", "TOK/S", "TTFT", "TPOT", "REASON")
    return whole_rows(header, [(row.name, *_row(row)) for row in rows])


def _row(row: PlanRow) -> tuple[str, ...]:
    outcome = row.outcome
    if not isinstance(outcome, Plan):
        return (*["-"] * 7, _shortfall(row))
    return (
        copies(outcome.layout),
        f"{outcome.layout.gpus:,}",
        f"{len({name for group in outcome.groups for name in group}):,}",
        outcome.product,
        *_speed(outcome.performance),
        _shortfall(row),
    )


def _speed(speed: Performance) -> tuple[str, str, str]:
    if not speed.promised:
        return ("-", "-", "-")
    return (
        format_count(speed.output_tokens_per_second),
        format_seconds(speed.ttft_seconds),
        format_seconds(speed.tpot_seconds),
    )


def plans_at_a_glance(rows: Sequence[PlanRow], width: int) -> Iterator[Line]:
    """Yield a line for each of several models, as a summary."""
    yield line(Span(_counted(rows), Role.SECTION))
    header = ("model", "GPUs", "layout", "output")
    cells = [(row.name, *_short_row(row.outcome)) for row in rows]
    yield from table(header, cells, width=width)
    yield from said_of_rows(((row.name, _shortfall(row)) for row in rows), width)


def said_of_rows(said: Iterable[tuple[str, str]], width: int) -> Iterator[Line]:
    """Yield, under a table, why some of its rows fall short."""
    for name, reason in said:
        if reason:
            first = [Span(f"  {name}: ", Role.FAINT)]
            yield from paragraph(reason, width=width, first=first, role=Role.FAINT)


def _counted(rows: Sequence[PlanRow]) -> str:
    planned = [row for row in rows if not isinstance(row.outcome, NoPlan)]
    taken = [
        row.outcome.layout.gpus
        for row in planned
        if isinstance(row.outcome, Plan) and not row.shown_only
    ]
    gpus, models = (format_plural(sum(taken), "GPU"), format_plural(len(rows), "model"))
    shown = sum(row.shown_only for row in planned)
    unread = sum(row.outcome is None for row in planned)
    none = len(rows) - len(planned)
    if not (none or shown or unread):
        return f"{models} on {gpus}"
    others = (
        f", {shown} only shown" if shown else "",
        f", {unread} whose plan cannot be read" if unread else "",
        f", {none} without a plan" if none else "",
    )
    return f"{models}: {len(taken)} planned on {gpus}{''.join(others)}"


def _short_row(outcome: Plan | NoPlan | None) -> tuple[str, ...]:
    if not isinstance(outcome, Plan):
        return ("-", "-", "-")
    layout = outcome.layout
    output, _, _ = _speed(outcome.performance)
    return (f"{layout.gpus:,} x {outcome.product}", short_layout(layout), f"{output} tok/s")


def _shortfall(row: PlanRow) -> str:
    match row.outcome:
        case None:
            return "planned; the plan cannot be read"
        case NoPlan(problem=problem):
            return problem.code
        case Plan() as plan:
            return "; ".join(missed(plan, row.request))


def print_names(names: Iterable[str]) -> None:
    """Print the name of each model as kubectl does."""
    print_lines(line(Span(f"shardedmodel.shardwright.io/{name}")) for name in names)


def name_of(item: Mapping[str, Any]) -> str:
    """Return the name of an object as kubectl prints it.

    >>> name_of({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}})
    'service/a'
    """
    group, slash, _ = item["apiVersion"].rpartition("/")
    kind = item["kind"].lower()
    return f"{kind}{'.' if slash else ''}{group}/{item['metadata']['name']}"


def print_documents(documents: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print a YAML document for each, or one JSON list."""
    if form == "yaml":
        print_yaml(documents)
    else:
        from shardwright.cli.output import print_list  # noqa: PLC0415 - text does not pay for it

        print_list(f"{documents[0]['kind']}List", documents, form)


def as_typed(report: Report) -> Report:
    """Return a report that names the fields of a typed model by their options."""
    outcome, costly = report.outcome, tuple(map(_named_as_typed, report.costly))
    if isinstance(outcome, Plan):
        return replace(report, costly=costly)
    ways = outcome.ways_out or WaysOut()
    ways = replace(ways, without=tuple(map(_named_as_typed, ways.without)))
    return replace(
        report, outcome=replace(outcome, problem=of_option(outcome.problem), ways_out=ways)
    )


def _named_as_typed(found: WithoutFields) -> WithoutFields:
    return replace(found, fields=tuple(map(field_as_typed, found.fields)))


_SHARED = ("nodes_of", "network", "settings", "config")
"""Options of both commands that stand for no field."""

_NEXT: Final = "Next  "
_REST: Final = "explain instead of plan says why, and has every layout and warning"


def after_plan(
    arguments: Namespace, *, planned: bool, carried: bool, width: int, rendered: bool = False
) -> list[Line]:
    """Return the last lines of a plan: the command that applies it, if every model has one that is
    ``carried``, else that which says how many GPUs are enough, and where the rest is. ``rendered``:
    what is applied are not the models of files, but what ``render`` makes of them.
    """
    command = ""
    if planned:
        command = _apply(arguments, rendered=rendered) if carried else _enough(arguments)
    rest = not arguments.by_operator and STDIN not in (arguments.filename or ())
    if not command and rest:
        command = _typed(_instead(arguments.words, "explain"))
        rest = False
    pointer = [line(Span(f"{' ' * len(_NEXT)}{_REST}", Role.FAINT))] if rest else []
    return [*next_lines(command, width), *pointer]


def is_short(outcome: Plan | NoPlan | None) -> bool:
    """Return whether there is a plan with groups that does not carry its load."""
    return isinstance(outcome, Plan) and bool(outcome.groups) and not outcome.carries_load


def next_lines(command: str, width: int) -> list[Line]:
    """Return the lines that name the next command, none if it is empty."""
    told = command_lines(command, width=width, indent=len(_NEXT)) if command else []
    named = [Line((Span(_NEXT, Role.SECTION), *one.spans[1:])) for one in told[:1]]
    return [*named, *told[1:]]


def _enough(arguments: Namespace) -> str:
    return size_command(arguments) if arguments.model is not None else ""


def size_command(arguments: Namespace) -> str:
    """Return the command that says how many of the named GPUs are enough, empty without names."""
    kinds = dict.fromkeys(kind_of(text) for text in arguments.gpus)
    if not kinds or STDIN in (arguments.settings, arguments.config):
        return ""
    asked = Namespace(**{**vars(arguments), "replicas": None, "disaggregation": None})
    return _command(asked, "size", ",".join(kinds))


def _apply(arguments: Namespace, *, rendered: bool) -> str:
    files = arguments.filename or ()
    if STDIN in files or names_live_model(arguments):
        return ""
    if not files:
        return f"{_typed(arguments.words)} -o manifest | kubectl apply -f -"
    if rendered:
        return f"{_typed(_instead(arguments.words, 'render'))} | kubectl apply -f -"
    namespace = f" -n {quote(arguments.namespace)}" if arguments.namespace else ""
    return f"kubectl apply{namespace}{''.join(f' -f {quote(file)}' for file in files)}"


def _instead(words: Sequence[str], command: str) -> list[str]:
    """Return words of a command line with another command.

    >>> _instead(["shardwright", "plan", "--gpus", "8xH100"], "explain")
    ['shardwright', 'explain', '--gpus', '8xH100']
    """
    at = list(words).index("plan")
    return [*words[:at], command, *words[at + 1 :]]


def plan_command(arguments: Namespace, gpus: int, named: NamedGpus) -> str:
    """Return the command that plans for a number of GPUs."""
    return _command(arguments, "plan", f"{gpus}x{named.gpu.id}")


def _command(arguments: Namespace, name: str, gpus: str) -> str:
    words = [arguments.words[0], name, arguments.model, "--gpus", gpus]
    return _typed([*words, *_repeated(arguments)])


def _typed(words: Sequence[str]) -> str:
    """Return a command line; the program may be two words.

    >>> _typed(["kubectl shardwright", "plan", "a b"])
    "kubectl shardwright plan 'a b'"
    """
    program, *others = words
    return f"{program} {join(others)}"


def _repeated(arguments: Namespace) -> Iterator[str]:
    for name in (*(option.attribute for option in OPTIONS), *_SHARED):
        value = getattr(arguments, name, None)
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            yield from (f"--{name.replace('_', '-')}", text)
    if arguments.offline:
        yield "--offline"
