"""Misuse that shows without a command's modules: words that do not go together, missing files, a
malformed KIND/NAME, number or time.

It is reported before a cluster is asked. The content of files, and whether a number suits its
field, is checked later, when the command has been loaded.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

from shardwright import __version__
from shardwright.cli.imports.names import kind_and_name
from shardwright.cli.inputs import missing_files
from shardwright.cli.typed import is_file, mistyped_options, options_beside_files, typed_options
from shardwright.errors import InputError, Problem


def refuse_misuse(arguments: Namespace) -> None:
    """Refuse words of a command that do not go together or have no meaning.

    Raises:
        InputError: with a problem for each.
    """
    of_command = (
        _of_server
        if getattr(arguments, "by_operator", False)
        else _OF_COMMAND.get(arguments.command)
    )
    misused = tuple(of_command(arguments)) if of_command else ()
    # Files last: of words that do not go together it is unclear which are meant.
    if problems := misused or tuple(_of_files(arguments)):
        raise InputError(problems)


def _of_files(arguments: Namespace) -> Iterator[Problem]:
    given = (getattr(arguments, name, None) for name in ("settings", "config"))
    many = (getattr(arguments, name, None) or () for name in ("filename", "nodes"))
    yield from missing_files((*chain(*many), *filter(None, given)))


def _of_model(arguments: Namespace) -> Iterator[Problem]:
    model = arguments.model
    files = arguments.filename or ()
    if model is None and not files:
        yield Problem(
            code="NoShardedModel",
            what="no model is named",
            remedy="give its id, or a manifest with -f FILE",
        )
    elif model is None:
        yield from map(_of_files_only, options_beside_files(arguments))
        yield from _manifest_of_files(arguments)
    elif files:
        yield Problem(
            code="NotTogether",
            path="MODEL",
            what=f"the model {model} is named beside -f",
            remedy="give one of the two",
        )
    elif is_file(model):
        yield Problem(
            code="NotAllowed",
            path="MODEL",
            what=f"{model} is a file, not the id of a model",
            remedy=f"write -f {model}",
        )
    else:
        yield from mistyped_options(arguments)
    yield from _of_gpus(arguments)


def _of_predict(arguments: Namespace) -> Iterator[Problem]:
    what, remedy = "describes a model that is not named", "name it, or give cases with --input"
    if arguments.model is None:
        given = [*typed_options(arguments), *(["--gpus"] if arguments.gpus else ())]
        for flag in given:
            yield Problem(code="NotTogether", path=flag, what=what, remedy=remedy)
        return
    for flag, file in (("--input", arguments.input), ("--output", arguments.output)):
        if file is not None:
            said = "is for cases, and a model is named"
            yield Problem(
                code="NotTogether", path=flag, what=said, remedy="leave one of the two out"
            )
    if not arguments.gpus:
        yield Problem(
            code="NotTogether",
            path="MODEL",
            what="no GPUs are named",
            remedy="name them, for example with --gpus 16xH100",
        )
    yield from mistyped_options(arguments)


def _of_search(arguments: Namespace) -> Iterator[Problem]:
    if arguments.search and arguments.searched:
        yield Problem(
            code="NotAllowed",
            path="--search",
            what=f"{arguments.search!r:.80} is searched for beside it",
            remedy="give one of the two",
        )


def _of_report(arguments: Namespace) -> Iterator[Problem]:
    if sys.stdout.isatty():
        yield Problem(
            code="NotAllowed",
            what="the page is HTML for a browser, not for a terminal",
            remedy="redirect it: > plan.html",
        )
    yield from _of_model(arguments)


def _of_files_only(flag: str) -> Problem:
    what, limit = (
        "describes a model that is named on the command line",
        "and the manifest of -f says it itself",
    )
    return Problem(
        code="NotTogether", path=flag, what=what, limit=limit, remedy="write it into the manifest"
    )


def _manifest_of_files(arguments: Namespace) -> tuple[Problem, ...]:
    if arguments.output != "manifest":
        return ()
    what = "is for a model that is named on the command line"
    return (
        Problem(
            code="NotTogether",
            path="-o manifest",
            what=what,
            remedy="the manifest of -f is there already",
        ),
    )


def _of_gpus(arguments: Namespace) -> Iterator[Problem]:
    given = {"--nodes-of": arguments.nodes_of, "--network": arguments.network}
    what, remedy = (
        "describes GPUs that are not named",
        "name them, for example with --gpus 16xH100",
    )
    if not arguments.gpus:
        yield from (
            Problem(code="NotTogether", path=flag, what=what, remedy=remedy)
            for flag, value in given.items()
            if value is not None
        )


def _of_diff(arguments: Namespace) -> Iterator[Problem]:
    if bool(arguments.name) == bool(arguments.filename):
        what = (
            "a name and a file are given"
            if arguments.name
            else "neither a name nor a file is given"
        )
        yield Problem(
            code="NotTogether",
            path="NAME",
            what=what,
            remedy="give one of them: diff NAME, or diff -f FILE",
        )
    version = arguments.operator_version
    if version and version.removeprefix("v") != __version__:
        what, limit = (f"this program renders as release {__version__} does", "and as no other")
        remedy = (
            f"install the command line of {version} beside it, for example into a virtual "
            "environment, and ask that"
        )
        yield Problem(
            code="NotAllowed", path="--operator-version", what=what, limit=limit, remedy=remedy
        )


def _of_status(arguments: Namespace) -> Iterator[Problem]:
    if arguments.name and arguments.all_namespaces:
        what = "a name is given beside -A"
        remedy = "name its namespace with -n"
        yield Problem(code="NotTogether", path="NAME", what=what, remedy=remedy)
    if arguments.watch and arguments.output not in {"text", "wide"}:
        what, remedy = (
            "shows text that changes",
            "leave -o out, or ask again and again without --watch",
        )
        yield Problem(code="NotTogether", path="--watch", what=what, remedy=remedy)


def _of_rollout(arguments: Namespace) -> Iterator[Problem]:
    if arguments.to_revision is not None and arguments.action != "undo":
        what, remedy = (f"{arguments.action} takes no revision", "leave it out, or write undo")
        yield Problem(code="NotTogether", path="--to-revision", what=what, remedy=remedy)
    if arguments.output != "text" and arguments.action != "history":
        what, remedy = (f"{arguments.action} prints no document", "leave -o out, or write history")
        yield Problem(code="NotTogether", path="--output", what=what, remedy=remedy)


def _of_doctor(arguments: Namespace) -> Iterator[Problem]:
    given = {"--trial-namespace": arguments.trial_namespace, "--image": arguments.image}
    what = "is of the pod that measures"
    remedy = "give --network-policies, too"
    if not arguments.network_policies:
        yield from (
            Problem(code="NotTogether", path=flag, what=what, remedy=remedy)
            for flag, said in given.items()
            if said
        )


def _of_server(arguments: Namespace) -> Iterator[Problem]:
    if not arguments.filename:
        what, remedy = (
            "is for manifests",
            "name one with -f; 'plan NAME' shows the plan of one that is in the cluster",
        )
        yield Problem(code="NotTogether", path="--server", what=what, remedy=remedy)
    given = {
        "MODEL": arguments.model,
        "--nodes": arguments.nodes,
        "--gpus": arguments.gpus,
        "--config": arguments.config,
        "--offline": arguments.offline,
        "--settings": arguments.settings,
        "-o manifest": arguments.output == "manifest",
        **dict.fromkeys(typed_options(arguments), True),
    }
    for path in (name for name, value in given.items() if value):
        what, limit = ("is for a plan that is made here", "and with --server the operator makes it")
        yield Problem(
            code="NotTogether", path=path, what=what, limit=limit, remedy="leave one of the two out"
        )


def _of_import(arguments: Namespace) -> Iterator[Problem]:
    if bool(arguments.filename) == bool(arguments.name):
        what, remedy = (
            "give files, or objects of the cluster",
            "import -f FILE, or import deployment/NAME",
        )
        yield Problem(code="NotTogether", path="KIND/NAME", what=what, remedy=remedy)
    for word in arguments.name:
        try:
            kind_and_name(word)
        except InputError as error:
            yield from error.problems


_OF_COMMAND: Final[Mapping[str, Callable[[Namespace], Iterator[Problem]]]] = MappingProxyType(
    {
        "plan": _of_model,
        "explain": _of_model,
        "report": _of_report,
        "render": _of_model,
        "diff": _of_diff,
        "status": _of_status,
        "rollout": _of_rollout,
        "doctor": _of_doctor,
        "import": _of_import,
        "predict": _of_predict,
        "models": _of_search,
        "gpus": _of_search,
    }
)
