"""A pinned layout and the best one side by side, as lines of text."""

from collections.abc import Iterator
from typing import Final

from shardwright.planning.comparison import Comparison, Standing
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.select import most_served
from shardwright.reporting.figures import format_count, format_seconds, short_layout
from shardwright.reporting.lines import Line, Role, Span, line, paragraph, table

_SAID: Final = {
    Standing.BEST: "The pinned layout is the best one on these GPUs.",
    Standing.AS_GOOD: "The best layout is no better than predictions tell apart.",
    Standing.NOTHING: "Only the best layout has a plan.",
}

_TWICE: Final = 2.0
"""From here on a ratio is said as a multiple, and not as a share. Basis: chosen."""

_SAME: Final = 0.005
"""Share that rounds to no percent."""


def side_by_side(pinned: Plan | NoPlan, found: Comparison, width: int) -> list[Line]:
    """Return the figures of a pinned plan over those of the best one, and what these gain."""
    said = paragraph(comparison_sentence(found), width=width, first=[Span("  ")])
    title = line(Span("Beside the best layout", Role.SECTION))
    if found.standing is Standing.BEST:
        return [title, *said]
    rate = found.best.capacity is not None
    rows = [_row("best", found.best)]
    if isinstance(pinned, Plan):
        rows.insert(0, _row("pinned", pinned))
    priced = any(row[-1] for row in rows)
    end = None if priced else -1
    serves = "serves at most" if rate else "output"
    header = ("", "layout", "GPUs", serves, "first token", "per token", "per M tokens")[:end]
    return [title, *table(header, [row[:end] for row in rows], width=width), *said]


def best_sentence(found: Comparison) -> str:
    """Return the best layout beside a pinned one, and what it gains and costs."""
    best = f"{short_layout(found.best.layout)} on {found.best.layout.gpus:,} {found.best.product}"
    match found.standing:
        case Standing.BEST:
            return f"this one, of all layouts, by {found.objective}"
        case Standing.AS_GOOD:
            return f"{best} by {found.objective}, no better than predictions tell apart"
        case Standing.NOTHING:
            return f"{best} by {found.objective}; the pinned layout has no plan"
        case _:
            return f"{best} by {found.objective}: {', '.join(_gains(found))}"


def comparison_sentence(found: Comparison) -> str:
    """Return what the best plan gains over the pinned one, and what it costs.

    What it serves is set against its price: of what costs a quarter, half as much is much.
    """
    if found.standing in _SAID:
        return _SAID[found.standing]
    return f"The best by {found.objective} {', '.join(_gains(found))}."


def _gains(found: Comparison) -> Iterator[str]:
    if found.cost is not None:
        yield f"costs {_change(found.cost, 'as much')}"
    if found.cost is not None and found.served is not None:
        most = "serves {} at most" if found.best.capacity is not None else "brings {} output"
        yield f"{most.format(_change(found.served / found.cost, 'as much'))} for its price"
    if found.seconds is not None:
        yield f"answers in {_change(found.seconds, 'the')} time"


def _change(ratio: float, much: str) -> str:
    """Return a multiple in words.

    >>> _change(3.52, "as much"), _change(1.24, "as much"), _change(0.25, "the")
    ('3.5 times as much', '24% more', '75% less')
    """
    if abs(ratio - 1) < _SAME:
        return "the same"
    if ratio >= _TWICE:
        return f"{format_count(ratio, digits=2)} times {much}"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}"


def _row(name: str, plan: Plan) -> tuple[str, ...]:
    speed, cost = plan.performance, plan.million_tokens_price
    served = format_count(most_served(speed, plan.capacity))
    return (
        name,
        short_layout(plan.layout),
        f"{plan.layout.gpus:,} x {plan.product}",
        f"{served} {'tok/s' if plan.capacity is None else 'requests/s'}",
        format_seconds(speed.ttft_seconds),
        format_seconds(speed.tpot_seconds),
        "" if cost is None else format_count(cost),
    )
