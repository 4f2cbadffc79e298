"""Lines of words with roles: how paragraphs and tables become lines of a given width. Colours are
the terminal's business.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap
from typing import Final
from unicodedata import combining, east_asian_width

GAP: Final = "  "  #: between columns
NARROWEST_TEXT: Final = 16  #: columns of a paragraph, whatever precedes it
UNDER: Final = 4  #: columns of indentation under a beginning that leaves no room beside it
ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
_WIDE: Final = frozenset({"W", "F"})
NARROWEST_LAST_COLUMN: Final = 24  #: a narrower table is written as records, one cell per line

ASCII: Final = str.maketrans(
    {
        "\N{FULL BLOCK}": "#",
        "\N{BLACK SQUARE}": "#",
        "\N{DARK SHADE}": "%",
        "\N{MEDIUM SHADE}": "=",
        "\N{LIGHT SHADE}": ".",
        "\N{EN DASH}": "-",
        "\N{MIDDLE DOT}": ".",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{BULLET}": "*",
        "\N{HORIZONTAL ELLIPSIS}": "...",
    }
)
"""The substitutes, by ``text.translate(ASCII)``, for a stream that cannot encode our signs."""


class Role(StrEnum):
    """The role of a word; a terminal gives each a colour, plain text drops it."""

    PLAIN = "plain"
    HEADLINE = "headline"
    REFUSAL = "refusal"
    SECTION = "section"
    LABEL = "label"
    FAINT = "faint"
    WARNING = "warning"
    COMMAND = "command"  #: to be copied, so never cut off
    WEIGHTS = "weights"
    ACTIVATIONS = "activations"
    OVERHEAD = "overhead"
    KV_CACHE = "kv_cache"
    STAGE_0 = "stage_0"
    STAGE_1 = "stage_1"
    STAGE_2 = "stage_2"
    STAGE_3 = "stage_3"


@dataclass(frozen=True, slots=True)
class Span:
    """Words of one role."""

    text: str
    role: Role = Role.PLAIN


@dataclass(frozen=True, slots=True)
class Line:
    """A line of spans, without its line end; a ``whole`` one is never cut off."""

    spans: tuple[Span, ...] = ()
    whole: bool = False

    def plain(self) -> str:
        """Return the words without roles and trailing blanks."""
        return "".join(span.text for span in self.spans).rstrip()


Cell = str | tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """Return a line of strings and spans."""
    return Line(tuple(Span(part) if isinstance(part, str) else part for part in parts))


def columns(text: str) -> int:
    """Return the number of terminal columns that a text takes.

    >>> columns("abc"), columns("\u6a21\u578b"), columns("e\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(sign) else 2 if east_asian_width(sign) in _WIDE else 1 for sign in text
    )


def paragraph(
    text: str, *, width: int, first: Sequence[Span] = (), role: Role = Role.PLAIN
) -> list[Line]:
    """Return text wrapped beside ``first``, or under it if it is long.

    >>> [
    ...     one.plain()
    ...     for one in paragraph("a line that is too long", width=22, first=[Span("  - ")])
    ... ]
    ['  - a line that is too', '    long']
    """
    indent = _length(tuple(first))
    if indent and width - indent < min(columns(text), NARROWEST_TEXT):
        return [
            Line(tuple(first)),
            *paragraph(text, width=width, first=[Span(" " * UNDER)], role=role),
        ]
    rows = _wrapped(text, max(width - indent, NARROWEST_TEXT)) or [""]
    head = Line((*first, Span(rows[0], role)))
    return [head, *(Line((Span(" " * indent), Span(row, role))) for row in rows[1:])]


_COMMAND: Final = re.compile(r"(?:^|\s+)(?:and\s+)?`([^`]+ [^`]+)`")


def with_commands(
    text: str, *, width: int, first: Sequence[Span], role: Role = Role.PLAIN
) -> list[Line]:
    """Return a paragraph whose commands (in backticks) have lines of their own, so that they can be
    copied; long ones are continued with a backslash.

    >>> said = "until you run `kubectl get pods -A -o wide` and `kubectl get nodes`"
    >>> lines = with_commands(said, width=38, first=[Span("- ")])
    >>> [one.plain() for one in lines]
    ['- until you run', '      kubectl get pods -A -o wide', '      kubectl get nodes']
    """
    indent = " " * (_length(tuple(first)) + UNDER)
    lines: list[Line] = []
    for index, part in enumerate(_COMMAND.split(text)):
        if index % 2:
            lines += command_lines(part, width=width, indent=len(indent))
        elif part:
            before = [Span(" " * _length(tuple(first)))] if lines else first
            lines += paragraph(part.strip(), width=width, first=before, role=role)
    return lines


def command_lines(command: str, *, width: int, indent: int) -> list[Line]:
    """Return a command on lines of its own, to be copied."""
    return [
        Line((Span(" " * indent), Span(row, Role.COMMAND)))
        for row in _continued(command, width - indent)
    ]


def _continued(command: str, width: int) -> list[str]:
    r"""Return a command as rows that a shell reads as one, broken before options.

    >>> _continued("kubectl patch smodel m --type merge -p 'a - b'", 38)
    ['kubectl patch smodel m --type merge \\', "  -p 'a - b'"]
    """
    first, *options = re.split(r" (?=-)", command)
    rows = [first]
    for option in options:
        longer = f"{rows[-1]} {option}"
        quoted = rows[-1].count("'") % 2
        if quoted or columns(longer) + len(" \\") <= width:
            rows[-1] = longer
        else:
            rows[-1] += " \\"
            rows.append(f"  {option}")
    return rows


def _wrapped(text: str, width: int) -> list[str]:
    """Return text in rows of at most ``width`` columns; with wide characters half as many."""
    return wrap(text, width if columns(text) == len(text) else width // 2, break_on_hyphens=False)


def clipped(one: Line, width: int) -> Line:
    """Return a line no wider than ``width``, cut with an ellipsis; commands and whole lines stay.

    >>> (clipped(line("tensor ", "eight"), 9).plain(), clipped(line("tensor  "), 6).plain())
    ('tensor e\u2026', 'tensor')
    """
    if one.whole or any(span.role is Role.COMMAND for span in one.spans):
        return one
    if columns(one.plain()) <= width:
        return one
    spans: list[Span] = []
    room = width - 1
    for span in one.spans:
        kept = ""
        for sign in span.text:
            if columns(kept + sign) > room:
                return Line((*spans, Span(f"{kept}{ELLIPSIS}", span.role)))
            kept += sign
        spans.append(span)
        room -= columns(kept)
    return one


def table(
    header: Sequence[str], rows: Iterable[Sequence[Cell]], *, width: int, indent: str = GAP
) -> list[Line]:
    """Return rows under their header, the last column wrapped, or records if the width does not
    suffice.

    Cells of all other columns stay whole.
    """
    cells = [[_spans(cell) for cell in row] for row in rows]
    if not fits(header, cells, width=width, indent=indent):
        return _records(header, cells, width=width, indent=indent)
    widths = _widths(header, cells)
    heads: list[tuple[Span, ...]] = [(Span(name, Role.LABEL),) for name in header]
    return [one for row in (heads, *cells) for one in _row(row, widths, width=width, indent=indent)]


def fits(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, width: int, indent: str) -> bool:
    """Return whether rows fit the width as a table, at worst with the last column wrapped."""
    widths = _widths(header, [[_spans(cell) for cell in row] for row in rows])
    taken = len(indent) + sum(widths[:-1]) + len(GAP) * (len(header) - 1)
    return taken + min(widths[-1], NARROWEST_LAST_COLUMN) <= width


def whole_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Line]:
    """Return rows under their header, each on one line of any width: for ``-o wide``.

    >>> [one.plain() for one in whole_rows(("ID", "SOURCE"), [("a", "b c"), ("de", "")])]
    ['ID  SOURCE', 'a   b c', 'de']
    """
    cells = [[_spans(cell) for cell in row] for row in rows]
    widths = _widths(header, cells)
    head = _padded([(Span(name, Role.LABEL),) for name in header], widths)
    return [Line(row, whole=True) for row in (head, *(_padded(row, widths) for row in cells))]


def table_width(header: Sequence[str], rows: Iterable[Sequence[Cell]], *, indent: str = GAP) -> int:
    """Return the columns that a table takes if nothing is wrapped.

    >>> table_width(("name", "GPUs"), [("llama-405b", "16")])
    18
    """
    widths = _widths(header, [[_spans(cell) for cell in row] for row in rows])
    return len(indent) + sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(header: Sequence[str], rows: Sequence[Sequence[tuple[Span, ...]]]) -> list[int]:
    return [
        max(columns(name), *(_length(row[i]) for row in rows), 0) for i, name in enumerate(header)
    ]


def _row(
    row: Sequence[tuple[Span, ...]], widths: Sequence[int], *, width: int, indent: str
) -> list[Line]:
    *whole, last = row
    front = (Span(indent), *_padded(whole, widths), Span(GAP if whole else ""))
    return _behind(front, last, width)


def _records(
    header: Sequence[str], rows: Iterable[Sequence[tuple[Span, ...]]], *, width: int, indent: str
) -> list[Line]:
    label_width = max(len(name) for name in header)
    lines: list[Line] = []
    for row in rows:
        for name, cell in zip(header, row, strict=True):
            front = Span(f"{indent}{name:{label_width}}{GAP}", Role.LABEL)
            lines += _behind((front,), cell, width)
        lines.append(Line())
    return lines[:-1]


def _behind(front: tuple[Span, ...], cell: tuple[Span, ...], width: int) -> list[Line]:
    if len(cell) != 1:
        return [Line((*front, *cell))]
    return paragraph(cell[0].text, width=width, first=front, role=cell[0].role)


def _padded(cells: Sequence[tuple[Span, ...]], widths: Sequence[int]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for cell, room in zip(cells, widths, strict=False):
        spans += [*([Span(GAP)] if spans else []), *cell, Span(" " * (room - _length(cell)))]
    return tuple(spans)


def _spans(cell: Cell) -> tuple[Span, ...]:
    return (Span(cell),) if isinstance(cell, str) else cell


def _length(cell: tuple[Span, ...]) -> int:
    return sum(columns(span.text) for span in cell)
