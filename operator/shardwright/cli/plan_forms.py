"""Plans as a table, and as documents for programs."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shardwright.cli.help_text import WORDS_PAGE
from shardwright.cli.output import print_lines, print_text, print_yaml
from shardwright.planning.report import NoPlan, Plan
from shardwright.reporting.explanation import Explanation
from shardwright.reporting.figures import (
    format_count,
    format_layout,
    format_plural,
    format_seconds,
    short_layout,
)
from shardwright.reporting.lines import (
    Line,
    Role,
    Span,
    line,
    paragraph,
    table,
    whole_rows,
)
from shardwright.reporting.shortfall import missed


def plans_table(plans: Iterable[tuple[str, Plan | NoPlan]]) -> list[Line]:
    """Return a line for each name and its plan, or why there is none."""
    header = (
        "NAME",
        "LAYOUT",
        "GPUS",
        "NODES",
        "PRODUCT",
        "TOK/S",
        "TTFT",
        "TPOT",
        "REASON",
    )
    return whole_rows(header, [(name, *_row(outcome)) for name, outcome in plans])


def _row(outcome: Plan | NoPlan) -> tuple[str, ...]:
    if isinstance(outcome, NoPlan):
        return (*["-"] * 7, _shortfall(outcome))
    speed = outcome.performance
    return (
        format_layout(outcome.layout),
        f"{outcome.layout.gpus:,}",
        f"{len({name for group in outcome.groups for name in group}):,}",
        outcome.product,
        format_count(speed.output_tokens_per_second),
        format_seconds(speed.ttft_seconds),
        format_seconds(speed.tpot_seconds),
        _shortfall(outcome),
    )


def plans_at_a_glance(
    plans: Sequence[tuple[str, Plan | NoPlan]],
    width: int,
    *,
    shown_only: Collection[str] = (),
) -> Iterator[Line]:
    """Yield a line for each of several models, to be read after all that is said of each; those
    that are ``shown_only`` take no GPUs.
    """
    yield line(Span(_counted(plans, shown_only), Role.SECTION))
    header = ("model", "GPUs", "layout", "output")
    rows = [(name, *_short_row(outcome)) for name, outcome in plans]
    yield from table(header, rows, width=width)
    yield from said_of_rows(
        ((name, _shortfall(outcome)) for name, outcome in plans), width
    )


def where_words_are_explained() -> list[Line]:
    """Return the page that explains the words of a plan, for a person at a terminal."""
    if not sys.stdout.isatty():
        return []
    said = Span(f"{WORDS_PAGE} explains each part and word", Role.FAINT)
    return [Line(), line(said)]


def said_of_rows(said: Iterable[tuple[str, str]], width: int) -> Iterator[Line]:
    """Yield under a table why some of its rows do not do what was asked for."""
    for name, reason in said:
        if reason:
            first = [Span(f"  {name}: ", Role.FAINT)]
            yield from paragraph(reason, width=width, first=first, role=Role.FAINT)


def _counted(
    outcomes: Sequence[tuple[str, Plan | NoPlan]], shown_only: Collection[str]
) -> str:
    plans = [(name, plan) for name, plan in outcomes if isinstance(plan, Plan)]
    taken = [plan.layout.gpus for name, plan in plans if name not in shown_only]
    gpus, models = (
        format_plural(sum(taken), "GPU"),
        format_plural(len(outcomes), "model"),
    )
    none, shown = len(outcomes) - len(plans), len(plans) - len(taken)
    if not (none or shown):
        return f"{models} on {gpus}"
    others = (
        f", {shown} only shown" if shown else "",
        f", {none} without a plan" if none else "",
    )
    return f"{models}: {len(taken)} planned on {gpus}{''.join(others)}"


def _short_row(outcome: Plan | NoPlan) -> tuple[str, ...]:
    if isinstance(outcome, NoPlan):
        return ("-", "-", "-")
    layout = outcome.layout
    output = format_count(outcome.performance.output_tokens_per_second)
    return (
        f"{layout.gpus:,} x {outcome.product}",
        short_layout(layout),
        f"{output} tok/s",
    )


def _shortfall(outcome: Plan | NoPlan) -> str:
    if isinstance(outcome, NoPlan):
        return outcome.problem.code
    return "; ".join(missed(outcome, None))


def print_names(plans: Iterable[tuple[str, Plan | NoPlan]]) -> None:
    """Print the name of each model, as kubectl prints it."""
    print_lines(line(Span(f"shardedmodel.shardwright.io/{name}")) for name, _ in plans)


def name_of(item: Mapping[str, Any]) -> str:
    """Return the name of an object, as kubectl prints it.

    >>> name_of({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}})
    'service/a'
    """
    group, slash, _ = item["apiVersion"].rpartition("/")
    kind = item["kind"].lower()
    return f"{kind}{'.' if slash else ''}{group}/{item['metadata']['name']}"


def print_pages(explained: Iterable[tuple[str, Explanation]]) -> None:
    """Print the explanation of each name as a page of Markdown."""
    from shardwright.reporting.markdown import to_markdown  # noqa: PLC0415 - only for this form

    pages = [to_markdown(explanation, title=name) for name, explanation in explained]
    print_text("\n".join(pages).removesuffix("\n"))


def print_documents(documents: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print a YAML document for each, or one JSON list, whatever is in it."""
    if form == "yaml":
        print_yaml(documents)
    else:
        from shardwright.cli.outputs import print_list  # noqa: PLC0415 - text does not pay for it

        print_list(f"{documents[0]['kind']}List", documents, form)
