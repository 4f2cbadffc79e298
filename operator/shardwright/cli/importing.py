"""The command ``import``: models of LeaderWorkerSets, KServe, KAITO or Deployments, as
ShardedModels.

Refuses an object that starts no vLLM, and one that does not tell which model it serves; writes
nothing to a cluster.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shardwright.api.resource import parse_manifest
from shardwright.cli.exits import Exit
from shardwright.cli.imports.draft import Content, Imported
from shardwright.cli.imports.kinds import (
    READERS,
    ImportOptions,
    import_object,
    importable,
)
from shardwright.cli.imports.names import KINDS, kind_and_name
from shardwright.cli.inputs import name_the_file, read_sources
from shardwright.cli.output import print_note, print_yaml
from shardwright.cli.outputs import print_list
from shardwright.errors import InputError, Problem

if TYPE_CHECKING:
    from shardwright.cli.clusters import Target
    from shardwright.cluster.client import Client


def import_models(arguments: Namespace) -> Exit:
    """Print the ShardedModels, and on stderr the left-out parts of each."""
    found = list(_from_cluster(arguments) if arguments.name else _from_files(arguments))
    if arguments.output == "json":
        items = [
            {
                "source": item.source,
                "manifest": item.manifest,
                "leftOut": _left_out(item),
            }
            for item in found
        ]
        print_list("ImportList", items, "json")
        return Exit.PLAN
    print_yaml([item.manifest for item in found])
    for item in found:
        for left in item.left_out:
            print_note(f"{item.source}: {left.path} was left out: {left.why}")
    return Exit.PLAN


def _left_out(item: Imported) -> list[dict[str, str]]:
    return [{"path": left.path, "why": left.why} for left in item.left_out]


def _options(arguments: Namespace) -> ImportOptions:
    return ImportOptions(pins=arguments.pin, model=arguments.model)


def _from_files(arguments: Namespace) -> Iterator[Imported]:
    sources = read_sources(arguments.filename)
    others = [source.content for source in sources]
    wanted = [source for source in sources if importable(source.content)]
    if not wanted:
        kinds = sorted({source.kind for source in sources if source.kind})
        raise InputError([_nothing(", ".join(arguments.filename), kinds)])
    for source in wanted:
        yield name_the_file(
            source.file,
            lambda source=source: checked(
                import_object(source.content, others, _options(arguments))
            ),  # type: ignore[misc]
        )


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


def _from_cluster(arguments: Namespace) -> Iterator[Imported]:
    names = [kind_and_name(word) for word in arguments.name]
    cluster: Target = arguments.target
    for kind, name in names:
        content, others = cluster.ask(
            partial(_read, kind=kind, namespace=cluster.namespace, name=name)
        )
        yield checked(import_object(content, others, _options(arguments)))


async def _read(
    client: Client, kind: str, namespace: str, name: str
) -> tuple[Content, list[Any]]:
    """Return an object of the cluster, and the ConfigMap that it refers to."""
    from shardwright.cluster.client import ApiError  # noqa: PLC0415 - files need no cluster
    from shardwright.cluster.resources import CONFIG_MAPS, Resource  # noqa: PLC0415 - same

    ours, group, plural, versions = KINDS[kind]
    for version in versions:
        resource = Resource(prefix=f"/apis/{group}/{version}", plural=plural, kind=ours)
        try:
            found = await client.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404 and version != versions[-1]:  # noqa: PLR2004 - this version is not served
                continue
            raise
        if found is None:
            what = f"there is no {ours} {name} in namespace {namespace}"
            raise InputError(
                [
                    Problem(
                        code="ImportUnclear",
                        path="KIND/NAME",
                        what=what,
                        remedy="-n names another namespace",
                    )
                ]
            )
        config = (found.get("inference") or {}).get("config")
        kept = (
            await client.get(CONFIG_MAPS, namespace, config)
            if isinstance(config, str) and config
            else None
        )
        return {"kind": ours, **found}, [{"kind": "ConfigMap", **kept}] if kept else []
    raise AssertionError("every kind has a version")
