"""The command ``diff``: what an edit or this release would change, and which groups it would
restart.

It writes nothing, and answers for this release alone.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from shardwright.api.resource import ShardedModel, parse_manifest, read_stored
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.changed_values import FieldChange, changed_values
from shardwright.cli.clusters import Target
from shardwright.cli.diff_text import difference_document, difference_lines
from shardwright.cli.inputs import name_the_file, read_sources, read_text
from shardwright.cli.live import read_live_surroundings
from shardwright.cli.live_models import LiveModel, read_model, with_objects
from shardwright.cli.live_subjects import read_subject
from shardwright.cli.namespaces import given_models
from shardwright.cli.output import print_lines, width_of_output
from shardwright.cli.outputs import print_list
from shardwright.cli.rehearsal import ModelDifference, Rehearsal, Rehearsed, rehearse, rehearsed_of
from shardwright.cli.revisions import read_formers
from shardwright.cli.surroundings import Surroundings
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.kinds import BY_KIND
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.reconcile.sentences import WEBHOOK
from shardwright.reconcile.writes import ObjectKey, kind_of
from shardwright.rendering.bundle import KubernetesObject
from shardwright.reporting.lines import Line
from shardwright.resolving.subject import Subject

_NOBODY: Final = "00000000-0000-0000-0000-000000000000"
"""The uid of a resource that is not in the cluster yet."""


class Differs(IntEnum):
    """The exit codes of ``diff``; 2 and 3 are the same as for all commands."""

    NO = 0
    YES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedModel:
    """A ShardedModel as it should be; ``content`` is None to compare it as it is in the cluster."""

    namespace: str
    name: str
    content: Mapping[str, Any] | None = None


def diff(arguments: Namespace) -> int:
    """Print the changes; the exit code says whether there are any."""
    cluster: Target = arguments.target
    file = arguments.settings
    settings = name_the_file(file, partial(read_settings, read_text(file))) if file else Settings()
    wanted = tuple(_wanted(arguments, cluster))
    offline: bool = arguments.offline
    differences = cluster.ask(
        lambda client: _differences(client, wanted, settings, offline=offline)
    )
    if arguments.output == "text":
        for index, difference in enumerate(differences):
            print_lines(
                [*([Line()] if index else []), *difference_lines(difference, width_of_output())]
            )
    else:
        print_list(
            "ModelDiffList", [difference_document(item) for item in differences], arguments.output
        )
    return Differs.YES if any(item.differs for item in differences) else Differs.NO


def _wanted(arguments: Namespace, cluster: Target) -> Iterator[WantedModel]:
    if arguments.name:
        yield WantedModel(namespace=cluster.namespace, name=arguments.name)
        return
    sources = read_sources(arguments.filename)
    for one in given_models(
        sources, arguments.filename, arguments.namespace, lambda: cluster.namespace
    ):
        metadata = one.resource.metadata
        yield WantedModel(namespace=metadata.namespace, name=metadata.name, content=one.content)


async def _differences(
    client: Client, wanted: tuple[WantedModel, ...], settings: Settings, *, offline: bool
) -> list[ModelDifference]:
    around = await read_live_surroundings(client, settings.stated)
    return [await _difference(client, item, settings, around, offline=offline) for item in wanted]


async def _difference(
    client: Client, wanted: WantedModel, settings: Settings, around: Surroundings, *, offline: bool
) -> ModelDifference:
    live = await _live(client, wanted)
    before = None
    if live:
        before = await _resolved(client, live, read_stored(live.content), settings, offline=offline)
    model = live or LiveModel(content=_as_new(wanted))
    after = before
    if wanted.content is not None:
        resource = _as_wanted(wanted.content, model)
        after = await _resolved(client, model, resource, settings, offline=offline)
    if after is None:
        raise InputError([_not_there(wanted.name)])
    fields = tuple(changed_fields(before[0], after[0])) if before else ()
    now = datetime.now(UTC)
    generation = model.content["metadata"].get("generation", 1) + bool(fields)
    spec = (wanted.content or model.content).get("spec") or {}
    formers = await read_formers(client, model, spec, settings)
    model = replace(model, formers=formers)
    rehearsed = await outcome_by_dry_run(client, rehearse(model, after[1], around, generation, now))
    anyway = None
    if before and fields:
        asked = rehearse(model, before[1], around, generation, now)
        anyway = await outcome_by_dry_run(client, asked)
    return ModelDifference(
        name=wanted.name,
        namespace=wanted.namespace,
        exists=live is not None,
        fields=fields,
        plan_before=live.record.plan if live and live.record else None,
        rehearsed=rehearsed,
        restarts_anyway=anyway.restarts if anyway else (),
    )


async def outcome_by_dry_run(client: Client, rehearsal: Rehearsal) -> Rehearsed:
    """Return the outcome, with changed objects as the API server's dry run has them."""
    stored = dict[ObjectKey, KubernetesObject]()
    refused = dict[str, None]()
    for key, content in rehearsal.applies.items():
        try:
            stored[key] = await as_stored(client, content)
        except ApiError as error:
            if not _is_refusal(error):
                raise
            refused[str(error)] = None
    return replace(rehearsed_of(rehearsal, stored), refused=tuple(refused))


def _is_refusal(error: ApiError) -> bool:
    """Return whether the API server refuses an object, by rights, rules or a webhook, for good."""
    by_webhook = error.code == HTTPStatus.BAD_REQUEST and WEBHOOK in str(error)
    return by_webhook or error.code in {HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY}


async def as_stored(client: Client, content: KubernetesObject) -> KubernetesObject:
    """Return an object as it would be stored if it were new: an apply keeps fields of our POST."""
    metadata = content["metadata"]
    new = {
        "generateName": "shardwright-diff-",
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
    }
    body = {**content, "metadata": new}
    resource = BY_KIND[kind_of(content)]
    return await client.create(resource, metadata["namespace"], body, dry_run=True)


def _as_wanted(manifest: Mapping[str, Any], model: LiveModel) -> ShardedModel:
    # Names and owner references of objects derive from it, and a manifest has none.
    uid = {"uid": model.content["metadata"]["uid"]}
    return parse_manifest({**manifest, "metadata": {**manifest["metadata"], **uid}})


def _not_there(name: str) -> Problem:
    return Problem(code="NoShardedModel", path="NAME", what=f"there is no ShardedModel {name}")


async def _live(client: Client, wanted: WantedModel) -> LiveModel | None:
    if (
        wanted.content is not None
        and await client.get(SHARDED_MODELS, wanted.namespace, wanted.name) is None
    ):
        return None
    return await with_objects(client, await read_model(client, wanted.namespace, wanted.name))


def _as_new(wanted: WantedModel) -> dict[str, Any]:
    metadata = {"name": wanted.name, "namespace": wanted.namespace, "uid": _NOBODY, "generation": 1}
    return {"metadata": metadata, "status": {}}


async def _resolved(
    client: Client, model: LiveModel, resource: ShardedModel, settings: Settings, *, offline: bool
) -> tuple[ShardedModel, Subject]:
    return resource, await read_subject(client, model, resource, settings, offline=offline)


def changed_fields(before: ShardedModel, after: ShardedModel) -> Iterator[FieldChange]:
    """Yield the spec's fields that differ between two resources, with defaults filled in."""
    was, wanted = (item.spec.model_dump(mode="json", by_alias=True) for item in (before, after))
    yield from changed_values(was, wanted, "spec")
