"""The nodes of a plan as lines of text, with a sign for each GPU.

The sign tells the GPUs of a replica apart: the pipeline stage, else the attention-data rank, else a
square.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final

from shardwright.reporting.explanation import DrawnNode
from shardwright.reporting.lines import ELLIPSIS, Line, Role, Span, line, paragraph

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
