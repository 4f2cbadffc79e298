"""Documents in lines of 120 columns: what ``make fmt`` wraps, and what
`tests/contracts/test_pages.py` asks for.

Paragraphs and items of lists are wrapped anew where a line of them is too long, and only there, so
that a diff shows what was changed. Tables, headings and fenced blocks stay as they are: their lines
cannot be broken.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

WIDTH = 120
RAGGED = 20
"""Columns by which a line may end too soon. Basis: chosen; a word that was changed by hand moves no
other line.
"""
AS_WRITTEN = ("docs/decisions/",)
"""Logs and records: their lines are nobody's to wrap anew."""

FENCE = re.compile(r"^\s*```")
ITEM = re.compile(r"^(\s*)([-*]|\d+\.)\s+")
WORD = re.compile(r"(?:`[^`]*`|[^\s`])+")  # a span of code is not broken: tests read it as one
LOOKS_LIKE_MARKUP = re.compile(r"^(?:[-+*>|]|#+|\d+\.)$")  # at the beginning of a line
INDENT_OF_CODE = 4


def wrapped(text: str) -> str:
    """Return a document with no line of prose wider than ``WIDTH``, where words allow it."""
    return "\n".join(
        line
        for block, prose in _blocks(text.split("\n"))
        for line in (_fitted(block) if prose else block)
    )


def _blocks(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Yield paragraphs and items whole, and every line that is neither alone; with whether it is
    prose.
    """
    block: list[str] = []
    fenced = False
    for line in lines:
        fence = FENCE.match(line) is not None
        alone = (
            fenced or fence or _stays(line) or (not block and line.startswith(" " * INDENT_OF_CODE))
        )
        if block and (alone or ITEM.match(line)):
            yield block, True
            block = []
        if alone:
            yield [line], False
        else:
            block.append(line)
        fenced = fenced != fence
    if block:
        yield block, True


def _stays(line: str) -> bool:
    return (
        not line.strip()
        or line.lstrip().startswith(("|", "#", "<", "!["))
        or FENCE.match(line) is not None
    )


def _fitted(block: list[str]) -> list[str]:
    if not any(map(_is_ragged, block, [*block[1:], ""])):
        return block
    item = ITEM.match(block[0])
    first = item[0] if item else block[0][: len(block[0]) - len(block[0].lstrip())]
    rest = " " * len(first)
    words = WORD.findall(" ".join([block[0][len(first) :], *block[1:]]))
    return _filled(words, first, rest)


def _is_ragged(line: str, following: str) -> bool:
    """Return whether a line is too wide, or ends long before the next one's first word has to."""
    word = next(iter(WORD.findall(following)), "")
    return len(line) > WIDTH or bool(word and len(f"{line} {word}") <= WIDTH - RAGGED)


def _filled(words: list[str], first: str, rest: str) -> list[str]:
    lines = [first + words[0]]
    for word in words[1:]:
        line = f"{lines[-1]} {word}"
        if len(line) <= WIDTH:
            lines[-1] = line
        elif LOOKS_LIKE_MARKUP.match(word):
            lines[-1], _, before = lines[-1].rpartition(" ")
            lines.append(f"{rest}{before} {word}")
        else:
            lines.append(rest + word)
    return lines


def main(files: list[str]) -> None:
    """Wrap these documents where they stand."""
    for file in (Path(name) for name in files if not name.startswith(AS_WRITTEN)):
        text = file.read_text()
        if (fitted := wrapped(text)) != text:
            file.write_text(fitted)


if __name__ == "__main__":
    main(sys.argv[1:])
