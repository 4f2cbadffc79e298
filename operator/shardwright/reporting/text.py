"""An explanation as lines of text: overview, drawing, memory, reasons, runners-up, exclusions.

The nodes of a plan as lines of text, with a sign for each GPU.

The sign tells the GPUs of a replica apart: the pipeline stage, else the attention-data rank, else a
square.

A pinned layout and the best one side by side, as lines of text.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from string import ascii_uppercase
from types import MappingProxyType
from typing import Final

from shardwright.planning.comparison import Comparison, Standing
from shardwright.planning.report import Exclusion, NoPlan, Plan
from shardwright.planning.select import most_served
from shardwright.reporting.drawings import TimeSplit
from shardwright.reporting.explanation import DrawnNode, Explanation, Fact, MemoryBar
from shardwright.reporting.figures import format_count, format_seconds, short_layout
from shardwright.reporting.lines import (
    ELLIPSIS,
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
from shardwright.units import GIB

MOST_NODES: Final = 20  #: drawn; the rest are counted
_INDENT: Final = 2
_INDENT_OF_REPLICAS: Final = 14
_SHORTEST_NAME: Final = 12
_BEHIND: Final = 18  #: columns after the signs, for what a node holds
_STAGE_ROLES: Final = (Role.STAGE_0, Role.STAGE_1, Role.STAGE_2, Role.STAGE_3)
_SQUARE: Final = "\N{BLACK SQUARE}"
_CROSS: Final = "\N{MULTIPLICATION SIGN}"
_DOT: Final = "\N{MIDDLE DOT}"
_SETTLED_LATER: Final = "which node gets which stage is decided when the pods start"
_RANKS: Final = (
    "a number is the attention-data rank (DP) of a GPU; shardwright report draws what each holds"
)


class Told(Enum):
    """What the sign of a GPU tells."""

    STAGE = auto()
    ATTENTION = auto()
    NOTHING = auto()


def draw_placement(nodes: Sequence[DrawnNode], width: int) -> list[Line]:
    """Return a line for each node; a cross is a GPU that others hold, a dot a free one."""
    if not nodes:
        return []
    drawn = nodes[:MOST_NODES]
    told = _told(nodes)
    digits = _digits(nodes, told)
    several = len({node.group for node in nodes}) > 1
    indent = _INDENT_OF_REPLICAS if several else _INDENT
    taken = indent + (1 + digits) * len(drawn[0].stages) + _BEHIND
    longest = max(len(node.name) for node in drawn)
    room = min(longest, max(width - taken, _SHORTEST_NAME))
    lines = [line(Span("Placement", Role.SECTION))]
    before = None
    for node in drawn:
        label = f"  replica {node.group}" if several and node.group != before else ""
        before = node.group
        lines.append(
            line(
                f"{label:{indent}}{_elide(node.name, room):{room}}  [",
                *_signs(node, told, digits),
                " ]",
                Span(_holds(node, told), Role.FAINT),
            )
        )
    return [*lines, *_notes(nodes, told, width)]


def _told(nodes: Sequence[DrawnNode]) -> Told:
    stages = {stage for node in nodes for stage in node.stages}
    stages.discard(None)
    if len(stages) > 1:
        return Told.STAGE
    if any(node.attention for node in nodes):
        return Told.ATTENTION
    return Told.NOTHING


def _numbers(node: DrawnNode, told: Told) -> tuple[int | None, ...]:
    return node.attention if told is Told.ATTENTION else node.stages


def _digits(nodes: Sequence[DrawnNode], told: Told) -> int:
    if told is not Told.ATTENTION:
        return 1
    numbers = (number for node in nodes for number in node.attention)
    return max(len(str(number)) for number in numbers if number is not None)


def _signs(node: DrawnNode, told: Told, digits: int) -> Iterator[Span]:
    """Yield a sign for every GPU, those that others hold last: which ones they are is not known."""
    numbers = _numbers(node, told)
    first_held = len(numbers) - node.held
    for index, number in enumerate(numbers):
        if number is None:
            other = _CROSS if index >= first_held else _DOT
            yield Span(f" {other:>{digits}}", Role.FAINT)
            continue
        own = _SQUARE if told is Told.NOTHING else str(number)
        role = _STAGE_ROLES[number % len(_STAGE_ROLES)]
        yield Span(f" {own:>{digits}}", role)


def _holds(node: DrawnNode, told: Told) -> str:
    if told is Told.NOTHING:
        return ""
    if told is Told.ATTENTION:
        return f"  EP {_span(node.experts)}" if node.experts else ""
    held = sorted({stage for stage in node.stages if stage is not None})
    if not held:
        return ""
    noun = "stage" if len(held) == 1 else "stages"
    return f"  {noun} {_span((held[0], held[-1]))}"


def _span(ends: tuple[int, int]) -> str:
    first, last = ends
    return str(first) if first == last else f"{first}\N{EN DASH}{last}"


def _notes(nodes: Sequence[DrawnNode], told: Told, width: int) -> Iterator[Line]:
    hidden = len(nodes) - MOST_NODES
    if hidden > 0:
        more = f"  and {hidden:,} more nodes of the same kind"
        yield line(Span(more, Role.FAINT))
    said = ""
    if told is Told.ATTENTION:
        said = _RANKS
    of_a_replica = {node.name for node in nodes if node.group == nodes[0].group}
    if told is Told.STAGE and len(of_a_replica) > 1:
        said = _SETTLED_LATER
    if said:
        yield from paragraph(said, width=width, first=[Span("  ")], role=Role.FAINT)


def _elide(name: str, room: int) -> str:
    """Return a name cut in its middle: both ends tell nodes apart.

    >>> _elide("ip-10-0-1-10.us-west-2.compute.internal", 20)
    'ip-10-0-1-….internal'
    """
    if len(name) <= room:
        return name
    tail = (room - 1) // 2
    return f"{name[: room - 1 - tail]}{ELLIPSIS}{name[-tail:]}"


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
