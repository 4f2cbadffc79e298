"""The commands that a page shows in its console blocks, each with the output below it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ABRIDGED = "..."
CUT = "…"
"""The end of a line that is longer than a page is wide."""

AGE = re.compile(r"\b\d+[smhd](\d+[smhd])?\b")


@dataclass
class Step:
    """A command of a console block, on one line or several, and the output that is shown below it."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(text: str) -> Iterator[Step]:
    """Yield the commands of one block."""
    step = None
    for line in text.splitlines():
        if line.startswith("$ "):
            if step is not None:
                yield step
            step = Step(command=line.removeprefix("$ "))
        elif step is not None and step.command.endswith("\\"):
            step.command += f"\n{line}"
        elif step is not None:
            step.shown.append(line)
    if step is not None:
        yield step


def not_printed(shown: list[str], printed: str) -> list[str]:
    """Return the lines of a page that a command has not printed, but for ages and the widths of
    columns.

    >>> not_printed(["NAME   AGE", "llama  3s", "..."], "NAME    AGE\\nllama   12s\\n")
    []
    >>> not_printed(["a message …"], "a message of many words\\n")
    []
    >>> not_printed(["qwen  3s"], "llama  3s\\n")
    ['qwen  3s']
    """
    lines = [_without_ages(line) for line in printed.splitlines()]
    return [line for line in shown if line != ABRIDGED and not _is_among(line, lines)]


def _is_among(line: str, lines: list[str]) -> bool:
    if line.endswith(CUT):
        start = _without_ages(line.removesuffix(CUT))
        return any(one.startswith(start) for one in lines)
    return _without_ages(line) in lines


def _without_ages(line: str) -> str:
    return " ".join(AGE.sub("AGE", line).split())
