"""The command that follows: after ``size`` the plan for the GPUs it found, with the same options;
after ``plan`` the one that applies it, or says more.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from shlex import join, quote
from typing import Final

from shardwright.cli.inputs import STDIN
from shardwright.cli.named_gpus import NamedGpus
from shardwright.cli.typed import OPTIONS, names_live_model
from shardwright.reporting.lines import Line, Role, Span, command_lines, line

_SHARED = ("nodes_of", "network", "settings", "config")
"""Options of both commands that stand for no field."""

_NEXT: Final = "Next  "
_REST: Final = "explain instead of plan says why, and has every layout and warning"


def after_plan(arguments: Namespace, *, planned: bool, width: int) -> list[Line]:
    """Return the last lines of a plan: the command that applies it, if every model has one, and
    where the rest is.
    """
    command = _apply(arguments) if planned else ""
    rest = not arguments.by_operator and STDIN not in (arguments.filename or ())
    if not command and rest:
        command = join(_instead(arguments.words, "explain"))
        rest = False
    told = command_lines(command, width=width, indent=len(_NEXT)) if command else []
    named = [Line((Span(_NEXT, Role.SECTION), *one.spans[1:])) for one in told[:1]]
    pointer = [line(Span(f"{' ' * len(_NEXT)}{_REST}", Role.FAINT))] if rest else []
    return [*named, *told[1:], *pointer]


def _apply(arguments: Namespace) -> str:
    files = arguments.filename or ()
    if STDIN in files or names_live_model(arguments):
        return ""
    if not files:
        return f"{join(arguments.words)} -o manifest | kubectl apply -f -"
    namespace = f" -n {quote(arguments.namespace)}" if arguments.namespace else ""
    return f"kubectl apply{namespace}{''.join(f' -f {quote(file)}' for file in files)}"


def _instead(words: Sequence[str], command: str) -> list[str]:
    """Return words of a command line with another command.

    >>> _instead(["shardwright", "plan", "--gpus", "8xH100"], "explain")
    ['shardwright', 'explain', '--gpus', '8xH100']
    """
    at = list(words).index("plan")
    return [*words[:at], command, *words[at + 1 :]]


def plan_command(arguments: Namespace, gpus: int, named: NamedGpus) -> str:
    """Return the command that plans for a number of GPUs."""
    words = ["shardwright", "plan", arguments.model]
    words += ["--gpus", f"{gpus}x{named.gpu.id}", *_repeated(arguments)]
    return join(words)


def _repeated(arguments: Namespace) -> Iterator[str]:
    for name in (*(option.attribute for option in OPTIONS), *_SHARED):
        value = getattr(arguments, name, None)
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            yield from (f"--{name.replace('_', '-')}", text)
    if arguments.offline:
        yield "--offline"
