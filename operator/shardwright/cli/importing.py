"""The command ``import``: LeaderWorkerSets, Deployments and models of KServe or KAITO as
ShardedModels.

It refuses objects that start no vLLM or do not name their model, prints the others, and writes
nothing to a cluster.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shardwright.api.resource import parse_manifest
from shardwright.cli.exits import FORBIDDEN, Exit, UnreachableError
from shardwright.cli.imports.draft import Content, Imported
from shardwright.cli.imports.objects import READERS, ImportOptions, import_object, importable
from shardwright.cli.inputs import Given, name_the_file, read_sources
from shardwright.cli.output import print_error, print_list, print_note, print_yaml
from shardwright.cli.typed import KINDS, ImportedKind, kind_and_name
from shardwright.errors import InputError, Problem

if TYPE_CHECKING:
    from shardwright.cli.clusters import Target
    from shardwright.cluster.client import Client


def import_models(arguments: Namespace) -> Exit:
    """Print the ShardedModels, and on stderr what each leaves out and what cannot be imported.

    Raises:
        InputError: nothing that is named can be imported.
        UnreachableError: the cluster cannot be reached, does not know us, or lets us read nothing
            that can be imported.
    """
    found, problems = _in_turn(
        _from_cluster(arguments) if arguments.name else _from_files(arguments)
    )
    forbidden = [problem for problem in problems if problem.code == FORBIDDEN]
    if not found:
        raise UnreachableError(*problems) if forbidden else InputError(problems)
    _print(found, arguments.output)
    for problem in problems:
        print_error(problem.sentence(), problem.code)
    if forbidden:
        return Exit.FAULT
    return Exit.BAD_INPUT if problems else Exit.PLAN


def _in_turn(readings: Iterable[Callable[[], Imported]]) -> tuple[list[Imported], list[Problem]]:
    found: list[Imported] = []
    problems: list[Problem] = []
    for reading in readings:
        try:
            found.append(reading())
        except InputError as error:
            problems += error.problems
        except UnreachableError as error:
            if not error.forbidden:
                raise
            problems.append(error.problem)
    return found, problems


def _print(found: Sequence[Imported], form: str) -> None:
    if form == "json":
        items = [
            {"source": item.source, "manifest": item.manifest, "leftOut": _left_out(item)}
            for item in found
        ]
        print_list("ImportList", items, "json")
        return
    print_yaml([item.manifest for item in found])
    for item in found:
        for left in item.left_out:
            print_note(f"{item.source}: {left.path} was left out: {left.why}")


def _left_out(item: Imported) -> list[dict[str, str]]:
    return [{"path": left.path, "why": left.why} for left in item.left_out]


def _options(arguments: Namespace) -> ImportOptions:
    return ImportOptions(pins=arguments.pin, model=arguments.model)


def _from_files(arguments: Namespace) -> Iterator[Callable[[], Imported]]:
    sources = read_sources(arguments.filename)
    others = [source.content for source in sources]
    wanted = [source for source in sources if importable(source.content)]
    if not wanted:
        kinds = sorted({source.kind for source in sources if source.kind})
        raise InputError([_nothing(", ".join(arguments.filename), kinds)])
    for source in wanted:
        yield partial(name_the_file, source.file, partial(_read_file, source, others, arguments))


def _read_file(source: Given, others: Sequence[Content], arguments: Namespace) -> Imported:
    return checked(import_object(source.content, others, _options(arguments)))


def checked(item: Imported) -> Imported:
    """Return the imported model if it is a valid ShardedModel.

    Raises:
        InputError: it is not, with the changes to make.
    """
    parse_manifest(item.manifest)
    return item


def _nothing(files: str, kinds: Sequence[str]) -> Problem:
    gap = f"found {', '.join(kinds[:5])}" if kinds else ""
    remedy = f"give one of {', '.join(READERS)}"
    return Problem(
        code="ImportUnclear",
        path=files,
        what="nothing in it can be imported",
        gap=gap,
        remedy=remedy,
    )


def _from_cluster(arguments: Namespace) -> Iterator[Callable[[], Imported]]:
    names = [kind_and_name(word) for word in arguments.name]
    for kind, name in names:
        yield partial(_imported, arguments, KINDS[kind], name)


def _imported(arguments: Namespace, kind: ImportedKind, name: str) -> Imported:
    cluster: Target = arguments.target
    content, others = cluster.ask(partial(_read, kind=kind, namespace=cluster.namespace, name=name))
    return checked(import_object(content, others, _options(arguments)))


async def _read(
    client: Client, kind: ImportedKind, namespace: str, name: str
) -> tuple[Content, list[Any]]:
    from shardwright.cluster.resources import CONFIG_MAPS  # noqa: PLC0415 - files need no cluster

    found = await _object(client, kind, namespace, name)
    config = (found.get("inference") or {}).get("config")
    kept = (
        await client.get(CONFIG_MAPS, namespace, config)
        if isinstance(config, str) and config
        else None
    )
    return {"kind": kind.kind, **found}, [{"kind": "ConfigMap", **kept}] if kept else []


async def _object(
    client: Client, kind: ImportedKind, namespace: str, name: str
) -> Mapping[str, Any]:
    """Return an object in the newest version that is served.

    Raises:
        InputError: there is none of the name, or the cluster does not have the kind.
    """
    from shardwright.cluster.calls import UNKNOWN_PATH, ApiError  # noqa: PLC0415 - files need no cluster
    from shardwright.cluster.resources import Resource  # noqa: PLC0415 - same

    for version in kind.versions:
        resource = Resource(
            prefix=f"/apis/{kind.group}/{version}", plural=kind.plural, kind=kind.kind
        )
        try:
            found = await client.get(resource, namespace, name)
        except ApiError as error:
            if error.reason != UNKNOWN_PATH:
                raise
            continue
        if found is None:
            what = f"there is no {kind.kind} {name} in namespace {namespace}"
            raise InputError([_unclear(what, "-n names another namespace")])
        return dict(found)
    what = f"{kind.brought_by} is not installed in this cluster: it has no {kind.kind} {name}"
    raise InputError([_unclear(what, "--context names another cluster, -f a file")])


def _unclear(what: str, remedy: str) -> Problem:
    return Problem(code="ImportUnclear", path="KIND/NAME", what=what, remedy=remedy)
