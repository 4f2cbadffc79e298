"""Styled lines in a terminal: each role of a word has its colour."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from shardwright.reporting.lines import Line, Role
from shardwright.sinks import in_terminal

T = TypeVar("T")

STYLES: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.PLAIN: "",
        Role.HEADLINE: "bold green",
        Role.REFUSAL: "bold red",
        Role.SECTION: "bold",
        Role.LABEL: "cyan",
        Role.FAINT: "dim",
        Role.WARNING: "yellow",
        Role.COMMAND: "",
        Role.WEIGHTS: "blue",
        Role.ACTIVATIONS: "magenta",
        Role.OVERHEAD: "yellow",
        Role.KV_CACHE: "green",
        Role.STAGE_0: "bold blue",
        Role.STAGE_1: "bold magenta",
        Role.STAGE_2: "bold cyan",
        Role.STAGE_3: "bold yellow",
    }
)


def print_styled(lines: Iterable[Line]) -> None:
    """Print lines, made for the terminal's width, in colours."""
    forced = bool(os.environ.get("FORCE_COLOR"))
    console = Console(
        highlight=False,
        soft_wrap=True,
        force_terminal=forced or None,
        color_system="standard" if forced else "auto",
    )
    for line in lines:
        text = Text.assemble(*((in_terminal(span.text), STYLES[span.role]) for span in line.spans))
        text.rstrip()
        console.print(text)


def track(items: Iterable[T], noun: str) -> Iterator[T]:
    """Yield items while a line on stderr counts them."""
    columns = (SpinnerColumn(), TextColumn(f"{{task.completed:,}} {noun}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(items)


@contextmanager
def bar(total: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on stderr until the block ends.

    Yields:
        A function to call with the number done, and the present name.
    """
    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, what: progress.update(task, completed=done, description=what)
