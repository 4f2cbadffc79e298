"""ShardedModels of files, each in the namespace of its manifest, a flag, or the context."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardwright.api.names import KIND
from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.cli.inputs import Given, name_the_file
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel:
    """A ShardedModel of a file, as written and as read."""

    file: str
    content: Mapping[str, Any]
    resource: ShardedModel


def given_models(
    sources: Sequence[Given], files: Sequence[str], flag: str, otherwise: Callable[[], str]
) -> list[GivenModel]:
    """Return the ShardedModels among the objects of files.

    Raises:
        InputError: there is none, or the problems of all of them.
    """
    found: list[GivenModel] = []
    problems: list[Problem] = []
    for source in sources:
        if source.kind == KIND:
            read = partial(_given, source, flag, otherwise)
            try:
                found.append(name_the_file(source.file, read))
            except InputError as error:
                problems += error.problems
    if not (found or problems):
        problems.append(_no_model(", ".join(files), sources))
    if problems:
        raise InputError(problems)
    return found


def _given(source: Given, flag: str, otherwise: Callable[[], str]) -> GivenModel:
    content = placed_in(source.content, flag, otherwise)
    return GivenModel(file=source.file, content=content, resource=parse_manifest(content))


def _no_model(files: str, sources: Sequence[Given]) -> Problem:
    kinds = sorted({source.kind for source in sources if source.kind})
    return Problem(
        code="NoShardedModel",
        path=files,
        what="no ShardedModel is in it",
        gap=f"found {', '.join(kinds[:5])}" if kinds else "",
        remedy="write one with apiVersion shardwright.io/v1alpha1 and kind ShardedModel",
    )


def placed_in(
    content: Mapping[str, Any], flag: str, otherwise: Callable[[], str]
) -> Mapping[str, Any]:
    """Return a manifest with its namespace: its own, that of ``-n`` (empty: not given), or the
    result of ``otherwise``.

    Raises:
        InputError: its own differs from the flag's, which kubectl refuses, too.
    """
    metadata = mapping(content.get("metadata"))
    named = metadata.get("namespace")
    if flag and named is not None and named != flag:
        what = f"{named!r:.80} is not the namespace of -n, {flag}"
        raise InputError(
            [
                Problem(
                    code="NotTogether",
                    path="metadata.namespace",
                    what=what,
                    remedy="leave one of the two out",
                )
            ]
        )
    namespace = flag or (otherwise() if named is None else "")
    return (
        {**content, "metadata": {**metadata, "namespace": namespace}}
        if named is None and namespace
        else content
    )
