"""An explanation as lines of text: overview, drawing, memory, reasons, runners-up, exclusions."""

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from types import MappingProxyType
from typing import Final

from shardwright.planning.report import Exclusion
from shardwright.reporting.explanation import Explanation, Fact, MemoryBar
from shardwright.reporting.figures import format_seconds
from shardwright.reporting.lines import (
    GAP,
    Cell,
    Line,
    Role,
    Span,
    line,
    paragraph,
    table,
    table_width,
    with_commands,
)
from shardwright.reporting.placement import draw_placement
from shardwright.reporting.times import TimeSplit
from shardwright.units import GIB

BAR_CELLS: Final = 30
FEWEST_BAR_CELLS: Final = 6

BLOCKS: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.WEIGHTS: "\N{FULL BLOCK}",
        Role.ACTIVATIONS: "\N{DARK SHADE}",
        Role.OVERHEAD: "\N{MEDIUM SHADE}",
        Role.KV_CACHE: "\N{LIGHT SHADE}",
    }
)
PARTS: Final = (
    ("weights", Role.WEIGHTS),
    ("activations", Role.ACTIVATIONS),
    ("overhead", Role.OVERHEAD),
    ("K/V cache", Role.KV_CACHE),
)


def to_lines(explanation: Explanation, *, title: str, width: int) -> list[Line]:
    """Return an explanation, ready to print, without sections that have nothing to say."""
    sections = (
        _headline(explanation, title, width),
        draw_placement(explanation.nodes, width),
        _memory(explanation.memory, width),
        _bullets("Why this one", explanation.reasons, width),
        _bullets("Warnings", explanation.warnings, width, role=Role.WARNING),
        _alternatives(explanation, width),
        _bullets("What own fields cost", explanation.costly, width),
        _times(explanation.times, width),
        _bullets("How sure", explanation.sure, width),
        _ruled_out(explanation, width),
        _bullets("Nodes not used", explanation.unusable, width),
    )
    said = [section for section in sections if section]
    return [one for index, section in enumerate(said) for one in ([Line()] * (index > 0) + section)]


def _headline(explanation: Explanation, title: str, width: int) -> list[Line]:
    lines = headline_lines(
        explanation.headline,
        title=title,
        fits=explanation.fits,
        short=bool(explanation.misses),
        width=width,
    )
    return [*lines, *fact_lines(explanation.facts, width)]


def headline_lines(said: str, *, title: str, fits: bool, short: bool, width: int) -> list[Line]:
    """Return the answer in one sentence; ``short``: it misses something that was asked for."""
    role = Role.WARNING if short else Role.HEADLINE if fits else Role.REFUSAL
    first = [Span(f"{title}: ", Role.LABEL)] if title else []
    return paragraph(said, width=width, first=first, role=role)


def fact_lines(facts: Sequence[Fact], width: int) -> list[Line]:
    """Return a line for each fact, with the values aligned."""
    room = max((len(fact.label) for fact in facts), default=0)
    return [
        one
        for fact in facts
        for one in paragraph(
            fact.value, width=width, first=[Span(f"  {fact.label:{room}}  ", Role.LABEL)]
        )
    ]


def _section(name: str) -> Line:
    return line(Span(name, Role.SECTION))


def _bullets(
    name: str, sentences: Sequence[str], width: int, *, role: Role = Role.PLAIN
) -> list[Line]:
    if not sentences:
        return []
    first = [Span("  \N{BULLET} ", Role.FAINT)]
    return [
        _section(name),
        *(
            one
            for sentence in sentences
            for one in with_commands(sentence, width=width, first=first, role=role)
        ),
    ]


def _memory(bars: tuple[MemoryBar, ...], width: int) -> list[Line]:
    """Draw a bar per stage; columns are named if there is room, else headed by their signs."""
    if not bars:
        return []
    named = ("stage", "layers", "", *(f"{name} {BLOCKS[role]}" for name, role in PARTS))
    signed = ("stage", "layers", "", *(BLOCKS[role] for _, role in PARTS))
    wide = (*named, "GiB")
    narrow = (*signed, "of")
    if table_width(wide, _memory_rows(bars, BAR_CELLS, "of ")) <= width:
        legend, shown = ([], table(wide, _memory_rows(bars, BAR_CELLS, "of "), width=width))
    else:
        spare = width - table_width(narrow, _memory_rows(bars, BAR_CELLS, ""))
        cells = min(max(BAR_CELLS + spare, FEWEST_BAR_CELLS), BAR_CELLS)
        legend = [_legend()]
        shown = table(narrow, _memory_rows(bars, cells, ""), width=width)
    return [_section("Memory of the fullest GPU"), *legend, *shown]


def _memory_rows(
    bars: tuple[MemoryBar, ...], cells: int, before_budget: str
) -> list[tuple[Cell, ...]]:
    return [
        (
            bar.label,
            bar.layers,
            _bar(bar, cells),
            *(_gib(count) for _, count in _parts(bar)),
            f"{before_budget}{_gib(bar.budget_bytes)}",
        )
        for bar in bars
    ]


def _legend() -> Line:
    said = (
        (Span(f"{', ' if index else ''}{name} "), Span(BLOCKS[role], role))
        for index, (name, role) in enumerate(PARTS)
    )
    return line("  GiB of ", *(span for pair in said for span in pair))


def _parts(bar: MemoryBar) -> tuple[tuple[Role, int], ...]:
    return (
        (Role.WEIGHTS, bar.weights_bytes),
        (Role.ACTIVATIONS, bar.activations_bytes),
        (Role.OVERHEAD, bar.overhead_bytes),
        (Role.KV_CACHE, bar.kv_cache_bytes),
    )


def _gib(count: int) -> str:
    return f"{count / GIB:,.1f}"


def _bar(bar: MemoryBar, cells: int) -> tuple[Span, ...]:
    """Return as many signs as cells, at least one for each part that holds anything.

    The part with the most signs gives up those that the smallest are given.
    """
    parts = [(role, max(count, 0)) for role, count in _parts(bar)]
    total = sum(count for _, count in parts) or 1
    signs = {role: max(round(cells * count / total), min(count, 1)) for role, count in parts}
    largest = max(signs, key=lambda role: signs[role])
    signs[largest] += cells - sum(signs.values())
    return tuple(Span(BLOCKS[role] * count, role) for role, count in signs.items())


def _alternatives(explanation: Explanation, width: int) -> list[Line]:
    """List the runners-up; pools and prices get a column only if they tell layouts apart."""
    others = explanation.alternatives
    if not others:
        return []
    elsewhere = {other.pool for other in others} != {explanation.pool}
    columns = {
        "layout": [other.layout for other in others],
        "pool": [other.pool for other in others if elsewhere],
        "can serve": [other.output for other in others],
        "per token": [other.per_token for other in others],
        "cost": [other.cost for other in others],
        "price": [other.price for other in others],
        "against the plan": [other.loses for other in others],
    }
    header, cells = zip(
        *((name, column) for name, column in columns.items() if any(column)), strict=True
    )
    return [
        _section("What else would run"),
        *table(header, list(zip(*cells, strict=True)), width=width),
    ]


def _times(times: TimeSplit | None, width: int) -> list[Line]:
    """Compare layouts part by part; runners-up without room beside the others stand below."""
    if times is None or not times.rows:
        return []
    rows = [
        (row.part, *map(_time, row.seconds))
        for row in (*times.rows, times.token, times.first_token)
    ]
    names = ("plan", *ascii_uppercase[: len(times.layouts) - 1])
    lines = [_section("Where the time of a token goes")]
    for name, layout in zip(names[1:], times.layouts[1:], strict=True):
        lines += paragraph(layout, width=width, first=[Span(f"  {name}  ", Role.LABEL)])
    for columns in _side_by_side(("", *names), rows, width):
        shown = [[row[0], *(row[index] for index in columns)] for row in rows]
        header = ("", *(names[index - 1] for index in columns))
        lines += table(header, shown, width=width)
    return lines


def _side_by_side(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Iterator[Sequence[int]]:
    first, *others = (
        max(len(row[index]) for row in (header, *rows)) for index in range(len(header))
    )
    each = len(GAP) + max(others)
    count = max((width - len(GAP) - first) // each, 1)
    for start in range(1, len(header), count):
        yield range(start, min(start + count, len(header)))


def _time(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "-"


def _ruled_out(explanation: Explanation, width: int) -> list[Line]:
    if not explanation.ruled_out:
        return []
    lines = [
        _section("Ruled out"),
        *paragraph(explanation.ruled_out, width=width, first=[Span("  ")]),
    ]
    if not explanation.exclusions:
        return lines
    return [*lines, *exclusion_lines(explanation.exclusions, width)]


def exclusion_lines(exclusions: Sequence[Exclusion], width: int) -> list[Line]:
    """Return a row for each reason, one for all degrees that do not divide the model."""
    undivided = [item for item in exclusions if item.nearest is None]
    rows = [
        (f"{item.count:,}", item.code, item.nearest_miss or item.example)
        for item in exclusions
        if item.nearest is not None
    ]
    if undivided:
        count = sum(item.count for item in undivided)
        rules = ", ".join(item.code for item in undivided)
        rows.append((f"{count:,}", "degrees that do not divide the model", rules))
    return table(("count", "rule", "nearest miss"), rows, width=width)
