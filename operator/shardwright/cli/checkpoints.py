"""Models that are not built in: their files from a folder, or by id from the Hugging Face hub.

Most models are built in, so HTTP and TLS are loaded only when needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from shardwright.api.resource import ShardedModel
from shardwright.api.weights import commit_of
from shardwright.cli.exits import UnreachableError
from shardwright.cli.inputs import in_file, name_the_file, read_text
from shardwright.cli.output import print_note
from shardwright.cli.typed import of_option
from shardwright.errors import InputError, Problem
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.checkpoint_files import INDEX_FILE
from shardwright.modelspec.parse import CONFIG_FILE, QUANTIZATION_FILE, folder_text, parse_config
from shardwright.modelspec.read import read_model
from shardwright.units import format_bytes

if TYPE_CHECKING:
    from shardwright.hub.checkpoint import Checkpoint
    from shardwright.hub.places import Hub

Named = tuple[str, str | None]
"""A repository of the hub and its commit, None for the newest."""

NOTHING: Final[Mapping[Named, Checkpoint]] = MappingProxyType({})

BY_FETCH: Final = "--fetch reads it from the hub"
BY_CONFIG: Final = "--config FILE takes its config.json"
BY_CONFIG_MAP: Final = "spec.model.configMapRef a ConfigMap of it, which 'shardwright fetch' prints"


def with_ways_to_read(problem: Problem, *ways: str) -> Problem:
    """Return a problem, with the ways to give a config if its model is not built in."""
    if problem.code != "ModelUnknown" or problem.path != "spec.model.id":
        return problem
    return replace(problem, remedy=", ".join(ways))


def read_config(place: str) -> str:
    """Return the text of ``--config``: a file, a checkpoint's folder, or a model's folder in the
    hub's cache.

    Raises:
        InputError: There is no config in it, under the name of the file.
    """
    if os.path.isdir(place):  # noqa: PTH112  # Path raises where a name is too long
        return _of_folder(place).config_text
    beside = Path(place).with_name(QUANTIZATION_FILE)
    files = {CONFIG_FILE: read_text(place)}
    if Path(place).name == CONFIG_FILE and beside.is_file():
        files[QUANTIZATION_FILE] = read_text(str(beside))
    config_text = folder_text(files) or ""
    name_the_file(place, lambda: parse_config(config_text, source="the text"))
    return config_text


def fetch_one(hub: Hub, model: str, revision: str | None) -> Checkpoint:
    """Return a checkpoint from the hub.

    Raises:
        InputError: It is not there, may not be read, or is no checkpoint.
        UnreachableError: The hub cannot be asked now.
    """
    from shardwright.hub.checkpoint import fetch  # noqa: PLC0415 - see above
    from shardwright.hub.refusals import HubUnavailableError  # noqa: PLC0415 - see above

    try:
        return fetch(hub, model, revision)
    except HubUnavailableError as error:
        raise UnreachableError(error.problem) from None


def fetch_unknown(resources: Iterable[tuple[str, ShardedModel]]) -> Mapping[Named, Checkpoint]:
    """Return the checkpoints of models and draft models that have no config in the catalogue or
    their resource.

    Raises:
        InputError: For all of them, each with the file and the field that names the model.
        UnreachableError: The hub cannot be asked now.
    """
    from shardwright.hub.places import hub_of  # noqa: PLC0415 - only where a hub is named

    hub = hub_of(os.environ)
    fetched: dict[Named, Checkpoint] = {}
    problems: list[Problem] = []
    for file, resource in resources:
        for path, named in _unknown(resource):
            if named in fetched:
                continue
            try:
                fetched[named] = fetch_one(hub, *named)
                print_note(_what_was_fetched(named, fetched[named]))
            except InputError as error:
                problems += [_located(problem.under(path), file) for problem in error.problems]
    if problems:
        raise InputError(problems)
    return fetched


def _located(problem: Problem, file: str) -> Problem:
    return in_file(file, problem) if file else of_option(problem)


def fetched_for(
    resource: ShardedModel, fetched: Mapping[Named, Checkpoint]
) -> dict[str, Mapping[str, object]]:
    """Return the configs of a resource by model id, as the catalogue has them."""
    named = [named for _, named in _unknown(resource)]
    return {
        one[0]: parse_config(fetched[one].config_text, source=one[0])
        for one in named
        if one in fetched
    }


def _unknown(resource: ShardedModel) -> Iterator[tuple[str, Named]]:
    model = resource.spec.model
    speculation = resource.spec.engine.speculation
    draft = speculation.head if speculation else None
    if model.config is None and model.config_map_ref is None and find_model(model.id) is None:
        yield "spec.model.id", (model.id, model.revision)
    if (
        draft is not None
        and draft.config is None
        and draft.id != model.id
        and find_model(draft.id) is None
    ):
        commit = commit_of(draft.uri)
        pinned = commit[1] if commit and commit[0] == draft.id else None
        yield "spec.engine.speculation.head.id", (draft.id, pinned)


def _what_was_fetched(named: Named, checkpoint: Checkpoint) -> str:
    model, revision = named
    pinned = "" if revision else ", the newest: spec.model.revision pins it"
    return (
        f"{model}: {', '.join(checkpoint.files)} of commit "
        f"{checkpoint.commit}{pinned}{_sizes(model, checkpoint)}"
    )


def _sizes(model: str, checkpoint: Checkpoint) -> str:
    if checkpoint.tensor_bytes is None:
        return ""
    try:
        counted = read_model(
            parse_config(checkpoint.config_text, source=model), source=model
        ).least_bytes
    except InputError:  # reported where the model is read
        return ""
    whole = format_bytes(checkpoint.tensor_bytes)
    return (
        f"; its tensors have {whole} by {INDEX_FILE}, {format_bytes(counted)} are counted "
        "(without scales of quantization)"
    )


def _of_folder(folder: str) -> Checkpoint:
    from shardwright.hub.checkpoint import read_folder  # noqa: PLC0415 - see above

    try:
        found = name_the_file(folder, lambda: read_folder(Path(folder)))
    except OSError as error:
        raise InputError([_unreadable(folder, error.strerror or str(error))]) from None
    if found is None:
        raise InputError([_unreadable(folder, f"no {CONFIG_FILE} is in it")])
    return found


def _unreadable(folder: str, what: str) -> Problem:
    remedy = "give the folder of a checkpoint, or models--ORG--NAME of the cache of the hub"
    return in_file(folder, Problem(code="FileUnreadable", what=what, remedy=remedy))
