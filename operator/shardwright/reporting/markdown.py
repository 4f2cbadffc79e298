"""An explanation as Markdown: the same sections as the text, for an issue, a review or a page.

Bars and colours are not in it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from shardwright.reporting.explanation import DrawnNode, Explanation, MemoryBar
from shardwright.reporting.figures import format_seconds
from shardwright.reporting.times import TimeSplit
from shardwright.sinks import in_markdown, visible
from shardwright.units import GIB


def to_markdown(explanation: Explanation, *, title: str) -> str:
    """Return the whole explanation; sections that have nothing to say are left out."""
    sections = (
        _overview(explanation, title),
        _bullets("Why this one", explanation.reasons),
        _bullets("Warnings", explanation.warnings),
        _placement(explanation),
        _memory(explanation.memory),
        _alternatives(explanation),
        _times(explanation.times),
        _bullets("How sure", explanation.sure),
        _ruled_out(explanation),
        _bullets("Nodes not used", explanation.unusable),
    )
    return (
        "\n\n".join("\n".join(section) for section in map(list, sections) if section)
        + "\n"
    )


def _overview(explanation: Explanation, title: str) -> Iterator[str]:
    yield f"# {in_markdown(title)}"
    yield ""
    yield f"**{in_markdown(explanation.headline)}**"
    yield ""
    yield from _table(
        ("", ""), ((fact.label, fact.value) for fact in explanation.facts)
    )


def _bullets(name: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield from (f"## {name}", "")
        yield from (f"- {_with_code(sentence)}" for sentence in sentences)


_COMMAND: Final = re.compile(r"(?<!\S)`([^`\n]+ [^`\n]+)`")


def _with_code(sentence: str) -> str:
    r"""Return a sentence whose commands (words in backticks) stay code, to be copied.

    >>> _with_code("run `kubectl get pods -A`, not *")
    'run `kubectl get pods -A`, not \\*'
    """
    return "".join(
        f"`{visible(part)}`" if index % 2 else _between_commands(part)
        for index, part in enumerate(_COMMAND.split(sentence))
    )


def _between_commands(text: str) -> str:
    before, after = (" " * sign.isspace() for sign in (text[:1], text[-1:]))
    return f"{before}{in_markdown(text)}{after}"


def _placement(explanation: Explanation) -> Iterator[str]:
    if explanation.nodes:
        yield from ("## Placement", "")
        rows = (
            (str(node.group), node.name, " ".join(_signs(node)))
            for node in explanation.nodes
        )
        yield from _table(("replica", "node", "stage of each GPU"), rows)


def _signs(node: DrawnNode) -> Iterator[str]:
    for index, stage in enumerate(node.stages):
        other = (
            "\N{MULTIPLICATION SIGN}" if index >= len(node.stages) - node.held else "."
        )
        yield other if stage is None else str(stage)


def _memory(bars: Sequence[MemoryBar]) -> Iterator[str]:
    if bars:
        yield from ("## Memory of the fullest GPU, GiB", "")
        header = (
            "stage",
            "layers",
            "weights",
            "activations",
            "overhead",
            "K/V cache",
            "of",
            "K/V may be off by",
        )
        yield from _table(
            header, ((bar.label, bar.layers, *map(_gib, _bytes(bar))) for bar in bars)
        )


def _bytes(bar: MemoryBar) -> tuple[int, ...]:
    return (
        bar.weights_bytes,
        bar.activations_bytes,
        bar.overhead_bytes,
        bar.kv_cache_bytes,
        bar.budget_bytes,
        bar.band_bytes,
    )


def _alternatives(explanation: Explanation) -> Iterator[str]:
    if explanation.alternatives:
        yield from ("## What else would run", "")
        rows = (
            (o.layout, o.pool, o.output, o.per_token, o.cost, o.price, o.loses)
            for o in explanation.alternatives
        )
        names = ("layout", "pool", "output", "per token", "cost", "price")
        columns = zip(
            (*names, "against the plan"), zip(*rows, strict=True), strict=True
        )
        header, cells = zip(
            *((name, column) for name, column in columns if any(column)), strict=True
        )
        yield from _table(header, zip(*cells, strict=True))


def _times(times: TimeSplit | None) -> Iterator[str]:
    if times is not None and times.rows:
        yield from ("## Where the time of a token goes", "")
        rows = (*times.rows, times.token, times.first_token)
        yield from _table(
            ("", *times.layouts),
            ((row.part, *map(format_seconds, row.seconds)) for row in rows),
        )


def _ruled_out(explanation: Explanation) -> Iterator[str]:
    if explanation.ruled_out:
        yield from ("## Ruled out", "", in_markdown(explanation.ruled_out))
    if explanation.exclusions:
        yield ""
        rows = (
            (f"{item.count:,}", f"{item.code}", item.nearest_miss or item.example)
            for item in explanation.exclusions
        )
        yield from _table(("count", "rule", "nearest miss"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"
    yield from (f"| {' | '.join(map(in_markdown, row))} |" for row in rows)


def _gib(count: int) -> str:
    return f"{count / GIB:,.1f}"
