"""Plans as a table, and as documents for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardwright.cli.output import print_lines, print_text, print_yaml
from shardwright.planning.report import NoPlan, Plan
from shardwright.reporting.explanation import Explanation
from shardwright.reporting.figures import format_count, format_layout, format_seconds
from shardwright.reporting.lines import Line, Span, line, whole_rows


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
        return (*["-"] * 7, outcome.problem.code)
    speed = outcome.performance
    return (
        format_layout(outcome.layout),
        f"{outcome.layout.gpus:,}",
        f"{len({name for group in outcome.groups for name in group}):,}",
        outcome.product,
        format_count(speed.output_tokens_per_second),
        format_seconds(speed.ttft_seconds),
        format_seconds(speed.tpot_seconds),
        "",
    )


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
