"""Plans as a table, and as documents for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardwright.cli.output import print_yaml
from shardwright.planning.report import NoPlan, Plan
from shardwright.reporting.figures import format_count, format_layout, format_seconds
from shardwright.reporting.lines import Line, whole_rows


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


def print_documents(documents: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print a YAML document for each, or one JSON list, whatever is in it."""
    if form == "yaml":
        print_yaml(documents)
    else:
        from shardwright.cli.outputs import print_list  # noqa: PLC0415 - text does not pay for it

        print_list(f"{documents[0]['kind']}List", documents, form)
