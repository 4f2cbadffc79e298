"""What may a shell offer next? Commands, options, and names from cluster, kubeconfig and
catalogue.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from argcomplete.completers import SuppressCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from shardwright.cli.commands import build_parser
from shardwright.cli.exits import Exit, UnreachableError
from shardwright.cli.output import print_text

if TYPE_CHECKING:
    from shardwright.cli.clusters import Target
    from shardwright.cluster.client import Client

PROGRAMS: Final = ("shardwright", "kubectl-shardwright")

PATIENCE_SECONDS: Final = 2.0
"""How long a cluster may take while the user waits after Tab. Basis: assumed."""

NO_FILES: Final = ":4"
ANY_FILES: Final = ":0"
"""The last line for kubectl: may the shell offer files? Source: cobra's ShellCompDirective."""

Completer = Callable[..., Iterable[str]]


def print_script(arguments: Namespace) -> Exit:
    """Print the script that completes our commands in a shell."""
    print_text(shellcode(list(PROGRAMS), shell=arguments.shell).strip())
    return Exit.PLAN


def complete_for_shell(parser: argparse.ArgumentParser) -> None:
    """Answer a shell's script, and end the process."""
    CompletionFinder()(_with_completers(parser), always_complete_options="long")


def complete_for_kubectl() -> int:
    """Answer kubectl, which passes the words so far, the last one incomplete."""
    words = sys.argv[1:] or [""]
    for found in completions(words):
        print_text(found)
    print_text(
        ANY_FILES
        if words[-2:-1] and words[-2] in {"-f", "--filename", "--nodes", "--kubeconfig"}
        else NO_FILES
    )
    return Exit.PLAN


def completions(words: list[str]) -> list[str]:
    """Return the words that complete the last one."""
    program = "kubectl shardwright"
    finder = CompletionFinder(
        _with_completers(build_parser(program)),
        always_complete_options="long",
        default_completer=SuppressCompleter(),
    )
    ask: Any = finder._get_completions  # noqa: SLF001 - it has no public name
    found = ask([program, *words[:-1]], words[-1], "", None)
    return [item.strip() for item in found]


def _with_completers(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    for command in _commands(parser):
        for action in command._actions:  # noqa: SLF001 - it has no public name
            completer = COMPLETERS.get(action.dest)
            # Several names are KIND/NAME, of kinds that are not ours.
            if completer and not (action.dest == "name" and action.nargs == "*"):
                action.completer = completer  # type: ignore[attr-defined]
    return parser


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - it has no public name
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no public name
            yield from action.choices.values()


def _aims(**_: Any) -> list[str]:
    from shardwright.planning.request import OptimizeFor  # noqa: PLC0415 - only where somebody waits for it

    return [aim.value for aim in OptimizeFor]


def _engines(**_: Any) -> list[str]:
    from shardwright.engines.registry import ENGINES  # noqa: PLC0415 - only where somebody waits for it

    # The others need an image, which cannot be typed.
    return [name for name, engine in ENGINES.items() if engine.releases.default_image]


def _models(parsed_args: Namespace, **_: Any) -> list[str]:
    from shardwright.cli.live_models import list_models  # noqa: PLC0415 - only where somebody waits for it

    def names(cluster: "Target") -> list[str]:
        found = cluster.ask(lambda client: list_models(client, cluster.namespace))
        return [item["metadata"]["name"] for item in found]

    return _of_cluster(parsed_args, names)


def _models_and_ids(prefix: str, parsed_args: Namespace, **_: Any) -> list[str]:
    """Return names of ShardedModels, or ids of the catalogue if one has been begun."""
    from shardwright.modelspec.catalogue import known_ids  # noqa: PLC0415 - only where somebody waits for it

    ids = [found for found in known_ids() if found.startswith(prefix)] if prefix else []
    return ids or _models(parsed_args)


def _namespaces(parsed_args: Namespace, **_: Any) -> list[str]:
    from shardwright.cluster.resources import Resource  # noqa: PLC0415 - only where somebody waits for it

    async def names(client: "Client") -> list[str]:
        found = await client.list(Resource(prefix="/api/v1", plural="namespaces", kind="Namespace"))
        return [item["metadata"]["name"] for item in found]

    return _of_cluster(parsed_args, lambda cluster: cluster.ask(names))


def _of_cluster(parsed_args: Namespace, asked: Callable[["Target"], list[str]]) -> list[str]:
    """Return a cluster's answer, empty if it fails: a shell cannot show the reason."""
    from dataclasses import replace  # noqa: PLC0415 - only where somebody waits for it

    from shardwright.cli.cluster_arguments import connection_of  # noqa: PLC0415 - same
    from shardwright.cli.clusters import Target  # noqa: PLC0415 - same

    try:
        return asked(
            Target(connection=replace(connection_of(parsed_args), request_seconds=PATIENCE_SECONDS))
        )
    except UnreachableError:
        return []


def _of_kubeconfig(part: str) -> Completer:
    def names(parsed_args: Namespace, **_: Any) -> list[str]:
        from shardwright.cluster.access import named_in_kubeconfig  # noqa: PLC0415 - only where somebody waits for it

        return named_in_kubeconfig(getattr(parsed_args, "kubeconfig", None), part)

    return names


def _gpus(prefix: str, **_: Any) -> list[str]:
    from shardwright.hardware.gpus import load_gpus  # noqa: PLC0415 - only where somebody waits for it

    before, comma, last = prefix.rpartition(",")
    count, times, _rest = last.partition("x")
    number = f"{count}x" if times and count.isdigit() else ""
    return [f"{before}{comma}{number}{found}" for found in load_gpus()]


COMPLETERS: Final[dict[str, Completer]] = {
    "name": _models,
    "model": _models_and_ids,
    "namespace": _namespaces,
    "context": _of_kubeconfig("contexts"),
    "cluster": _of_kubeconfig("clusters"),
    "user": _of_kubeconfig("users"),
    "gpus": _gpus,
    "engine": _engines,
    "optimize_for": _aims,
}
"""The completer of an argument's value, by its name among the parsed ones."""
