"""The command ``import``: other controllers' models as ShardedModels.

It refuses objects that start no vLLM or do not name their model, prints the others, and writes
nothing to a cluster.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shardwright.cli.exits import FORBIDDEN, Exit, UnreachableError
from shardwright.cli.imports.draft import Content, Imported
from shardwright.cli.imports.kaito import config_of
from shardwright.cli.imports.objects import (
    READERS,
    ImportOptions,
    import_object,
    importable,
    models_in,
)
from shardwright.cli.imports.source import LeftOut
from shardwright.cli.inputs import Given, name_the_file, read_sources
from shardwright.cli.output import print_error, print_list, print_note, print_yaml
from shardwright.cli.typed import KINDS, ImportedKind, kind_and_name
from shardwright.errors import InputError, Problem

_BESIDE: Final = "only models are imported; keep it or delete it"

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
    given = () if arguments.name else read_sources(arguments.filename)
    found, problems = _in_turn(
        _from_cluster(arguments) if arguments.name else _from_files(given, arguments)
    )
    forbidden = [problem for problem in problems if problem.code == FORBIDDEN]
    if not found:
        raise UnreachableError(*problems) if forbidden else InputError(problems)
    _print(_with_the_rest(found, given), arguments.output)
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
        for why, paths in _by_reason(item).items():
            said = ", ".join(paths)
            were = "were" if ", " in said else "was"
            print_note(f"{item.source}: {said} {were} left out: {why}")


def _by_reason(item: Imported) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for left in item.left_out:
        paths.setdefault(left.why, []).append(left.path)
    return paths


def _left_out(item: Imported) -> list[dict[str, str]]:
    return [{"path": left.path, "why": left.why} for left in item.left_out]


def _options(arguments: Namespace) -> ImportOptions:
    return ImportOptions(pins=arguments.pin, model=arguments.model)


def _from_files(given: Sequence[Given], arguments: Namespace) -> Iterator[Callable[[], Imported]]:
    others = [source.content for source in given]
    models = [
        (source.file, content)
        for source in given
        if importable(source.content)
        for content in models_in(source.content)
    ]
    if not models:
        kinds = sorted({source.kind for source in given if source.kind})
        raise InputError([_nothing(", ".join(arguments.filename), kinds)])
    for file, content in models:
        read = partial(import_object, content, others, _options(arguments))
        yield partial(name_the_file, file, read)


def _with_the_rest(found: Sequence[Imported], given: Sequence[Given]) -> Sequence[Imported]:
    """Return the models; the last one lists the objects beside them that nothing was read of."""
    read = {name for item in found for name in item.read}
    beside = [_said(source) for source in given if not importable(source.content)]
    left = [LeftOut(path=said, why=_BESIDE) for said in beside if said not in read]
    last = replace(found[-1], left_out=(*found[-1].left_out, *left))
    return (*found[:-1], last)


def _said(source: Given) -> str:
    metadata = source.content.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return f"{source.kind or 'object without a kind'} {name}".strip()


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
    return import_object(content, others, _options(arguments))


async def _read(
    client: Client, kind: ImportedKind, namespace: str, name: str
) -> tuple[Content, list[Any]]:
    from shardwright.cluster.resources import CONFIG_MAPS  # noqa: PLC0415 - files need no cluster

    found = await _object(client, kind, namespace, name)
    config = config_of(found)
    kept = await client.get(CONFIG_MAPS, namespace, config) if config else None
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
