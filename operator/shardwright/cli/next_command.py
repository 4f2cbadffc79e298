"""The command that follows ``size``: the plan for the GPUs it found, with the same options, as
another load would need another plan.
"""

from argparse import Namespace
from collections.abc import Iterator
from shlex import join

from shardwright.cli.named_gpus import NamedGpus
from shardwright.cli.typed import OPTIONS

_SHARED = ("nodes_of", "network", "settings", "config")
"""Options of both commands that stand for no field."""


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
