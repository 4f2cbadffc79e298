"""An explanation as lines of text: overview, drawing, memory bars, reasons, runners-up, exclusions.

A section that has nothing to say is left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_uppercase
from types import MappingProxyType
from typing import Final

from shardwright.reporting.explanation import DrawnNode, Explanation, MemoryBar
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
from shardwright.reporting.times import TimeSplit
from shardwright.units import GIB

MOST_NODES: Final = 20  #: drawn at most; the rest is counted
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
_SETTLED_LATER: Final = "which node gets which stage is decided when the pods start"
STAGE_ROLES: Final = (
    Role.STAGE_0,
    Role.STAGE_1,
    Role.STAGE_2,
    Role.STAGE_3,
)


def to_lines(
    explanation: Explanation, *, title: str, width: int, full: bool = False
) -> list[Line]:
    """Return the explanation, ready to print; sections that have nothing to say are left out.

    ``full`` adds the parts of a token's time and how sure the figures are.
    """
    sections = (
        _headline(explanation, title, width),
        _drawing(explanation.nodes, width),
        _memory(explanation.memory, width),
        _bullets("Why this one", explanation.reasons, width),
        _bullets("Warnings", explanation.warnings, width, role=Role.WARNING),
        _alternatives(explanation, width),
        _times(explanation.times, width) if full else [],
        _bullets("How sure", explanation.sure, width) if full else [],
        _ruled_out(explanation, width),
        _bullets("Nodes not used", explanation.unusable, width),
    )
    said = [section for section in sections if section]
    return [
        one
        for index, section in enumerate(said)
        for one in ([Line()] * (index > 0) + section)
    ]


def _headline(explanation: Explanation, title: str, width: int) -> list[Line]:
    role = Role.HEADLINE if explanation.fits else Role.REFUSAL
    if explanation.misses:
        role = Role.WARNING
    lines = paragraph(
        explanation.headline,
        width=width,
        first=[Span(f"{title}: ", Role.LABEL)] if title else [],
        role=role,
    )
    room = (
        max(len(fact.label) for fact in explanation.facts) if explanation.facts else 0
    )
    for fact in explanation.facts:
        lines += paragraph(
            fact.value,
            width=width,
            first=[Span(f"  {fact.label:{room}}  ", Role.LABEL)],
        )
    return lines


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


def _drawing(nodes: tuple[DrawnNode, ...], width: int) -> list[Line]:
    """Draw each node as its GPUs, one sign per GPU: the number of its stage (a square if there is
    one stage), a cross if it is somebody else's, else a dot.
    """
    if not nodes:
        return []
    drawn = nodes[:MOST_NODES]
    replicas = len({node.group for node in nodes})
    stages = len(
        {stage for node in nodes for stage in node.stages if stage is not None}
    )
    indent = 14 if replicas > 1 else 2
    room = min(
        max(len(node.name) for node in drawn),
        max(width - indent - 2 * len(drawn[0].stages) - 18, 12),
    )
    lines = [_section("Placement")]
    for node, before in zip(drawn, (None, *drawn), strict=False):
        label = (
            f"  replica {node.group}"
            if replicas > 1 and (before is None or before.group != node.group)
            else ""
        )
        name = f"{label:{indent}}{_elide(node.name, room):{room}}"
        lines.append(
            line(f"{name}  [", *_signs(node, stages), " ]", _stages(node, stages))
        )
    hidden = len(nodes) - len(drawn)
    if hidden:
        lines.append(
            line(Span(f"  and {hidden:,} more nodes of the same kind", Role.FAINT))
        )
    if (
        stages > 1
        and len({node.name for node in nodes if node.group == nodes[0].group}) > 1
    ):
        lines += paragraph(
            _SETTLED_LATER, width=width, first=[Span("  ")], role=Role.FAINT
        )
    return lines


def _signs(node: DrawnNode, stages: int) -> Iterable[Span]:
    """Yield the sign of every GPU; those of somebody else come last: which ones they are is not
    known.
    """
    for index, stage in enumerate(node.stages):
        other = (
            "\N{MULTIPLICATION SIGN}"
            if index >= len(node.stages) - node.held
            else "\N{MIDDLE DOT}"
        )
        own = "\N{BLACK SQUARE}" if stages == 1 else str(stage)
        yield (
            Span(f" {other}", Role.FAINT)
            if stage is None
            else Span(f" {own}", _stage_role(stage))
        )


def _stages(node: DrawnNode, stages: int) -> Span:
    held = sorted({stage for stage in node.stages if stage is not None})
    if stages == 1 or not held:
        return Span("")
    return Span(
        f"  stage {held[0]}"
        if len(held) == 1
        else f"  stages {held[0]}\N{EN DASH}{held[-1]}",
        Role.FAINT,
    )


def _stage_role(stage: int) -> Role:
    return STAGE_ROLES[stage % len(STAGE_ROLES)]


def _elide(name: str, room: int) -> str:
    """Return a name cut in its middle: both ends tell nodes apart.

    >>> _elide("ip-10-0-1-10.us-west-2.compute.internal", 20)
    'ip-10-0-1-….internal'
    """
    if len(name) <= room:
        return name
    tail = (room - 1) // 2
    return f"{name[: room - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{name[-tail:]}"


def _memory(bars: tuple[MemoryBar, ...], width: int) -> list[Line]:
    """Draw a bar for each stage beside its figures: under the names of the parts if they have room,
    else under their signs.
    """
    if not bars:
        return []
    named = ("stage", "layers", "", *(f"{name} {BLOCKS[role]}" for name, role in PARTS))
    signed = ("stage", "layers", "", *(BLOCKS[role] for _, role in PARTS))
    wide = (*named, "GiB")
    narrow = (*signed, "of")
    if table_width(wide, _memory_rows(bars, BAR_CELLS, "of ")) <= width:
        legend, shown = (
            [],
            table(wide, _memory_rows(bars, BAR_CELLS, "of "), width=width),
        )
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
    """Return the meanings of the signs of a bar."""
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
    """Return the bar of a stage: as many signs as cells, at least one for each part that holds
    anything.

    The part with the most signs gives up those that the smallest ones are given.
    """
    parts = [(role, max(count, 0)) for role, count in _parts(bar)]
    total = sum(count for _, count in parts) or 1
    signs = {
        role: max(round(cells * count / total), min(count, 1)) for role, count in parts
    }
    largest = max(signs, key=lambda role: signs[role])
    signs[largest] += cells - sum(signs.values())
    return tuple(Span(BLOCKS[role] * count, role) for role, count in signs.items())


def _alternatives(explanation: Explanation, width: int) -> list[Line]:
    """List the runners-up; pools and prices have a column if they tell layouts apart."""
    others = explanation.alternatives
    if not others:
        return []
    columns = (
        ("layout", [other.layout for other in others]),
        *(
            (("pool", [other.pool for other in others]),)
            if {other.pool for other in others} != {explanation.pool}
            else ()
        ),
        ("output", [other.output for other in others]),
        ("per token", [other.per_token for other in others]),
        *(
            (name, values)
            for name, values in (
                ("cost", [other.cost for other in others]),
                ("price", [other.price for other in others]),
            )
            if any(values)
        ),
        ("against the plan", [other.loses for other in others]),
    )
    header, cells = zip(*columns, strict=True)
    return [
        _section("What else would run"),
        *table(header, list(zip(*cells, strict=True)), width=width),
    ]


def _times(times: TimeSplit | None, width: int) -> list[Line]:
    """Compare layouts part by part, each runner-up under a letter; those that have no room beside
    the others stand below them.
    """
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
    """Yield the columns that have room beside the first one, as many at a time as have."""
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
    rows = [
        (f"{item.count:,}", item.code, item.nearest_miss or item.example)
        for item in explanation.exclusions
    ]
    return [*lines, *table(("count", "rule", "nearest miss"), rows, width=width)]
