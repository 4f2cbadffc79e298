"""Models that are not built in: their files from a folder, or by id from the Hugging Face hub.

A built-in id asks nobody. Most models are, so HTTP and TLS are loaded only when needed.

The command ``fetch``: a model's small files on the hub as a ConfigMap that a ShardedModel may
name.

It writes nothing to a cluster, fetches no weights, and keeps what it has read for the other
commands.
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardwright.api.resource import ShardedModel
from shardwright.api.weights_source import COMMIT, HUB, MODEL_ID, commit_of, scheme_of
from shardwright.cli.exits import Exit, UnreachableError
from shardwright.cli.inputs import in_file, name_the_file, read_text
from shardwright.cli.output import print_json, print_note, print_yaml
from shardwright.cli.typed import of_option
from shardwright.errors import InputError, Problem
from shardwright.modelspec.catalogue import find_model, near_to
from shardwright.modelspec.checkpoint_files import index_of
from shardwright.modelspec.config_json import (
    CONFIG_FILE,
    INDEX_FILE,
    QUANTIZATION_FILE,
    folder_text,
    parse_config,
)
from shardwright.modelspec.read import read_model
from shardwright.rendering.fetch_job import HUB_COMMIT, HUB_MODEL
from shardwright.rendering.names import base_name
from shardwright.resolving.model import Question
from shardwright.units import format_bytes

if TYPE_CHECKING:
    from shardwright.hub.checkpoint import Checkpoint, KeptCheckpoint
    from shardwright.hub.places import Hub


Named = tuple[str, str | None]
"""A repository of the hub and its commit, None for the newest."""

_BY_CONFIG: Final = "--config FILE takes its config.json"
_BY_CONFIG_MAP: Final = (
    "spec.model.configMapRef a ConfigMap of it, which 'shardwright fetch' prints"
)


def problem_of(problem: Problem, file: str | None, config_file: str | None) -> Problem:
    """Return a problem of a model's field under the file that it comes from, the option if that is
    empty, or alone if it is None; with the ways to give a config to a model that is not built in.
    """
    of_config = "spec.model.id."
    if problem.code == "ModelUnknown" and problem.path == "spec.model.id":
        ways = (_BY_CONFIG, *((_BY_CONFIG_MAP,) if file else ()))
        problem = replace(problem, remedy=", ".join(ways))
    if config_file and problem.path.startswith(of_config):
        return in_file(config_file, replace(problem, path=problem.path.removeprefix(of_config)))
    if file is None:
        return problem
    return in_file(file, problem) if file else of_option(problem)


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


def with_config(question: Question, config_text: str) -> Question:
    """Return the question with the text of ``--config`` as the config of its model, built in or
    not.

    Raises:
        InputError: The manifest has a config of its own.
    """
    model = question.resource.spec.model
    if model.config is not None:
        raise InputError([_config_twice()])
    config = parse_config(config_text, source=model.id)
    catalogue = {**question.catalogue, model.id: config}
    return replace(question, config_text=config_text, catalogue=catalogue)


def fetch_one(model: str, revision: str | None) -> Checkpoint:
    """Return a checkpoint from the hub, and keep it.

    Raises:
        InputError: It is not there, may not be read, or is no checkpoint.
        UnreachableError: The hub cannot be asked now.
    """
    from shardwright.hub.checkpoint import fetch  # noqa: PLC0415 - see above
    from shardwright.hub.places import hub_of  # noqa: PLC0415 - see above
    from shardwright.hub.transfer import HubUnavailableError  # noqa: PLC0415 - see above

    hub = hub_of(os.environ)
    try:
        found = fetch(hub, model, revision)
    except HubUnavailableError as error:
        raise UnreachableError(error.problem) from None
    _keep(hub, (model, revision), found)
    return found


def read_unknown(
    resources: Iterable[tuple[str | None, ShardedModel, bool]], *, offline: bool
) -> Mapping[Named, Checkpoint]:
    """Return the checkpoints of models and draft models on the hub that have no config in the
    catalogue or their resource: as they were read before, or from the hub. What is found is said on
    stderr.

    Args:
        resources: Each with its file as for ``problem_of``, and whether there is a config for its
            model elsewhere.
        offline: Whether the hub must not be asked.

    Raises:
        InputError: For all of them, each with the file and the field that names the model.
        UnreachableError: The hub cannot be asked now.
    """
    found: dict[Named, Checkpoint] = {}
    problems: list[Problem] = []
    for file, resource, given in resources:
        unproven = resource.spec.model.unproven is not None
        for path, named in _unknown(resource, given=given):
            if named in found:
                continue
            try:
                found[named] = _read(named, offline=offline, sized=unproven)
            except (InputError, UnreachableError) as error:
                said = error.problems if isinstance(error, InputError) else (error.problem,)
                if unproven:  # what its user states may do without
                    print_note(f"{named[0]}: {said[0].sentence()}")
                    continue
                placed = [problem_of(one.under(path), file, None) for one in said]
                if isinstance(error, InputError):
                    problems += placed
                    continue
                # An id that is mistyped is never there, however good the connection.
                near = replace(placed[0], gap=placed[0].gap or near_to(named[0]))
                raise UnreachableError(near) from None
    if problems:
        raise InputError(problems)
    return found


def _read(named: Named, *, offline: bool, sized: bool) -> Checkpoint:
    from shardwright.hub.checkpoint import fetch, fetch_config, find_kept, kept_place  # noqa: PLC0415 - see above
    from shardwright.hub.places import hub_of  # noqa: PLC0415 - see above
    from shardwright.hub.transfer import HubUnavailableError  # noqa: PLC0415 - see above

    hub = hub_of(os.environ, offline=offline)
    kept = find_kept(kept_place(os.environ, hub), *named)
    if kept and (kept.checkpoint.tensor_bytes is not None or not sized or offline):
        print_note(_what_is_kept(named, kept))
        return kept.checkpoint
    try:
        found = fetch(hub, *named) if sized else fetch_config(hub, *named)
    except HubUnavailableError as error:
        raise UnreachableError(error.problem) from None
    print_note(_what_was_read(named, found))
    _keep(hub, named, found)
    return found


def _keep(hub: Hub, named: Named, checkpoint: Checkpoint) -> None:
    from shardwright.hub.checkpoint import keep, kept_place  # noqa: PLC0415 - see above

    model, revision = named
    if hub.offline:  # it is of a cache already
        return
    try:
        keep(kept_place(os.environ, hub), model, checkpoint, newest=revision is None)
    except OSError as error:
        print_note(f"{model}: its config cannot be kept: {error.strerror or error}")


def fetched_for(
    resource: ShardedModel, fetched: Mapping[Named, Checkpoint]
) -> dict[str, Mapping[str, object]]:
    """Return the configs of a resource by model id, as the catalogue has them."""
    named = [named for _, named in _unknown(resource, given=False)]
    return {
        one[0]: parse_config(fetched[one].config_text, source=one[0])
        for one in named
        if one in fetched
    }


def _unknown(resource: ShardedModel, *, given: bool) -> Iterator[tuple[str, Named]]:
    """Yield what is on the hub and not known here; ids of weights elsewhere are told nobody."""
    model = resource.spec.model
    speculation = resource.spec.engine.speculation
    draft = speculation.head if speculation else None
    if (
        not given
        and model.config is None
        and model.config_map_ref is None
        and find_model(model.id) is None
        and scheme_of(model.weights) == HUB
        and (model.unproven is None or model.unproven.weight_bytes is None)
    ):
        yield "spec.model.id", (model.id, model.revision)
    commit = commit_of(draft.uri) if draft is not None else None
    if (
        draft is not None
        and commit is not None
        and draft.config is None
        and draft.id != model.id
        and find_model(draft.id) is None
    ):
        pinned = commit[1] if commit[0] == draft.id else None
        yield "spec.engine.speculation.head.id", (draft.id, pinned)


def _what_is_kept(named: Named, kept: KeptCheckpoint) -> str:
    model, revision = named
    newest = "" if revision else f"; 'shardwright fetch {model}' reads the newest"
    return (
        f"{model}: config.json of commit {kept.checkpoint.commit}, read on "
        f"{kept.since.isoformat()}{newest}"
    )


def _what_was_read(named: Named, checkpoint: Checkpoint) -> str:
    model, revision = named
    pinned = "" if revision else ", the newest: spec.model.revision pins it"
    return f"{model}: {', '.join(checkpoint.files)} of commit {checkpoint.commit}{pinned}"


def sizes_of(model: str, checkpoint: Checkpoint) -> str:
    """Return how the tensors of a checkpoint compare with what is counted, empty without an index
    or where the config cannot be used.
    """
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
        f"its tensors have {whole} by {INDEX_FILE}, {format_bytes(counted)} are counted "
        "(without scales of quantization)"
    )


def _config_twice() -> Problem:
    return Problem(
        code="ConfigTwice",
        path="spec.model.config",
        what="the model's config is in the manifest and in --config",
        remedy="leave one of the two out",
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


_COMMIT_DIGITS: Final = 12
"""Digits of the commit in a ConfigMap's name: 48 bits tell the commits of a repository apart."""


def fetch_config_map(arguments: Namespace) -> Exit:
    """Print a model's ConfigMap, and on stderr how a ShardedModel names it."""
    model = arguments.model
    revision = arguments.revision
    problems = [
        *_not_matching(
            "MODEL", model, MODEL_ID, "must be the id of a repository of the hub, as org/name"
        )
    ]
    if revision is not None:
        problems += _not_matching(
            "--revision", revision, COMMIT, "must be a commit: 40 hexadecimal digits"
        )
    if problems:
        raise InputError(problems)
    checkpoint = fetch_one(model, revision)
    config_map = config_map_of(model, checkpoint)
    if arguments.output == "json":
        print_json(config_map)
    else:
        print_yaml([config_map])
    name = config_map["metadata"]["name"]
    print_note(
        f"set spec.model to {{id: {model}, revision: "
        f"{checkpoint.commit}, configMapRef: {{name: {name}}}}}"
    )
    if sizes := sizes_of(model, checkpoint):
        print_note(f"{model}: {sizes}")
    return Exit.PLAN


def config_map_of(model: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the ConfigMap of a checkpoint, named by id and commit, and immutable like it."""
    commit = checkpoint.commit or ""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{base_name(model)}-{commit[:_COMMIT_DIGITS]}",
            "annotations": {HUB_MODEL: model, HUB_COMMIT: commit},
        },
        "immutable": True,
        "data": {**checkpoint.files, **index_of(checkpoint.tensor_bytes)},
    }


def _not_matching(path: str, value: str, pattern: str, limit: str) -> list[Problem]:
    return (
        []
        if re.fullmatch(pattern, value)
        else [Problem(code="BadFormat", path=path, what=f"{value!r:.200}", limit=limit)]
    )
