"""The first screen as lines of text: at most :data:`MOST_LINES`, whatever there is to say."""

from collections.abc import Iterable, Sequence
from typing import Final

from shardwright.reporting.lines import (
    UNDER,
    Line,
    Role,
    Span,
    clipped,
    command_lines,
    line,
    paragraph,
    table,
    table_width,
)
from shardwright.reporting.screen import Rival, Screen
from shardwright.reporting.text import fact_lines, headline_lines

MOST_LINES: Final = 24
"""Lines of the first screen. Basis: assumed, a terminal of 80 x 25, with a note on stderr."""

_DROPPED: Final = ((), ("FIRST TOKEN",), ("FIRST TOKEN", "COST"), ("FIRST TOKEN", "COST", "SURE"))
"""Columns of the runners-up that narrow terminals go without, in this order."""


def screen_lines(
    screen: Screen, *, title: str, width: int, closing: Sequence[Line] = ()
) -> list[Line]:
    """Return the first screen; ``closing`` are its last lines.

    Of what is too much for it the runners-up that are least give way, and reasons for no plan.
    """
    answer = [
        *headline_lines(
            screen.headline, title=title, fits=screen.fits, short=screen.short, width=width
        ),
        *fact_lines(screen.facts, width),
    ]
    due = _points(screen, width)
    room = MOST_LINES - len(answer) - len(due) - len(closing)
    middle = _others(screen, width, room)
    return one_screen((answer, middle, due, closing))


def one_screen(sections: Iterable[Sequence[Line]]) -> list[Line]:
    """Return sections with blank lines between them, without if a screen has no room for these."""
    filled = [list(section) for section in sections if section]
    total = sum(map(len, filled))
    gap = [Line()] if total + len(filled) - 1 <= MOST_LINES else []
    return [
        one for index, section in enumerate(filled) for one in ((gap if index else []) + section)
    ]


def _points(screen: Screen, width: int) -> list[Line]:
    if not screen.points:
        return []
    lines = [line(Span("Before you apply", Role.SECTION))]
    for number, point in enumerate(screen.points, start=1):
        first = [Span(f"  {number} ", Role.FAINT)]
        lines += paragraph(point.said, width=width, first=first, role=Role.WARNING)
        if point.command:
            lines += command_lines(point.command, width=width, indent=UNDER)
    return lines


def _others(screen: Screen, width: int, room: int) -> list[Line]:
    """Return the runners-up and what was ruled out, in at most ``room`` lines."""
    out = (
        paragraph(screen.ruled_out, width=width, first=[Span("  ")], role=Role.FAINT)
        if screen.ruled_out
        else []
    )
    rows = [*_table(screen.rivals, width), *_refusals(screen, width)]
    kept = rows[: max(room - len(out), 0)]
    # A header without a row says nothing.
    return [*(kept if kept[1:] else []), *out[: max(room, 0)]]


def _refusals(screen: Screen, width: int) -> list[Line]:
    if not screen.refusals:
        return []
    header = ("LAYOUTS", "RULE", "NEAREST MISS")
    return _whole(header, [(one.count, one.rule, one.nearest) for one in screen.refusals], width)


def _table(rivals: Sequence[Rival], width: int) -> list[Line]:
    if not rivals:
        return []
    columns = {
        "LAYOUT": [rival.layout for rival in rivals],
        "GPUS": [rival.gpus for rival in rivals],
        "CAN SERVE": [rival.serves for rival in rivals],
        "SURE": [rival.sure for rival in rivals],
        "FIRST TOKEN": [rival.first_token for rival in rivals],
        "PER TOKEN": [rival.per_token for rival in rivals],
        "COST": [rival.cost for rival in rivals],
        "WHY NOT": [rival.why_not for rival in rivals],
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    forms = ({name: filled[name] for name in filled if name not in lost} for lost in _DROPPED)
    chosen = next((form for form in forms if _width(form) <= width), None) or {
        name: filled[name] for name in filled if name not in _DROPPED[-1]
    }
    return _whole(tuple(chosen), list(zip(*chosen.values(), strict=True)), width)


def _whole(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Return a table with one line for each row, cut off at the width."""
    lines = table(header, rows, width=max(width, table_width(header, rows)))
    return [clipped(one, width) for one in lines]


def _width(form: dict[str, list[str]]) -> int:
    return table_width(tuple(form), list(zip(*form.values(), strict=True)))
