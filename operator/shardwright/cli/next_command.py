"""The command that follows: after ``size`` the plan for the GPUs it found, with the same options;
after ``plan`` the one that applies it, says how many GPUs are enough, or says more.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from shlex import join, quote
from typing import Final

from shardwright.cli.inputs import STDIN
from shardwright.cli.named_gpus import NamedGpus, kind_of
from shardwright.cli.typed import OPTIONS, names_live_model
from shardwright.reporting.lines import Line, Role, Span, command_lines, line

_SHARED = ("nodes_of", "network", "settings", "config")
"""Options of both commands that stand for no field."""

_NEXT: Final = "Next  "
_REST: Final = "explain instead of plan says why, and has every layout and warning"


def after_plan(arguments: Namespace, *, planned: bool, carried: bool, width: int) -> list[Line]:
    """Return the last lines of a plan: the command that applies it, if every model has one that is
    ``carried``, else that which says how many GPUs are enough, and where the rest is.
    """
    command = ""
    if planned:
        command = _apply(arguments) if carried else _enough(arguments)
    rest = not arguments.by_operator and STDIN not in (arguments.filename or ())
    if not command and rest:
        command = _typed(_instead(arguments.words, "explain"))
        rest = False
    pointer = [line(Span(f"{' ' * len(_NEXT)}{_REST}", Role.FAINT))] if rest else []
    return [*next_lines(command, width), *pointer]


def next_lines(command: str, width: int) -> list[Line]:
    """Return the lines that name the next command, none if it is empty."""
    told = command_lines(command, width=width, indent=len(_NEXT)) if command else []
    named = [Line((Span(_NEXT, Role.SECTION), *one.spans[1:])) for one in told[:1]]
    return [*named, *told[1:]]


def _enough(arguments: Namespace) -> str:
    return size_command(arguments) if arguments.model is not None else ""


def size_command(arguments: Namespace) -> str:
    """Return the command that says how many of the named GPUs are enough, empty without names."""
    kinds = dict.fromkeys(kind_of(text) for text in arguments.gpus)
    if not kinds or STDIN in (arguments.settings, arguments.config):
        return ""
    asked = Namespace(**{**vars(arguments), "replicas": None})
    return _command(asked, "size", ",".join(kinds))


def _apply(arguments: Namespace) -> str:
    files = arguments.filename or ()
    if STDIN in files or names_live_model(arguments):
        return ""
    if not files:
        return f"{_typed(arguments.words)} -o manifest | kubectl apply -f -"
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
    return _command(arguments, "plan", f"{gpus}x{named.gpu.id}")


def _command(arguments: Namespace, name: str, gpus: str) -> str:
    words = [arguments.words[0], name, arguments.model, "--gpus", gpus]
    return _typed([*words, *_repeated(arguments)])


def _typed(words: Sequence[str]) -> str:
    """Return a command line; the program may be two words.

    >>> _typed(["kubectl shardwright", "plan", "a b"])
    "kubectl shardwright plan 'a b'"
    """
    program, *others = words
    return f"{program} {join(others)}"


def _repeated(arguments: Namespace) -> Iterator[str]:
    for name in (*(option.attribute for option in OPTIONS), *_SHARED):
        value = getattr(arguments, name, None)
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            yield from (f"--{name.replace('_', '-')}", text)
    if arguments.offline:
        yield "--offline"
