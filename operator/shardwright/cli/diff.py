"""The command ``diff``: what an edit or this release would change, and which groups it would
restart.

It writes nothing, and answers for this release alone.

A difference in words and as data: the spec, the plan, and which groups restart for how long.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from shardwright import __version__
from shardwright.api.plan_status import planned_nodes
from shardwright.api.resource import ShardedModel, parse_manifest, read_stored
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.changed_values import FieldChange, changed_values
from shardwright.cli.clusters import Target
from shardwright.cli.inputs import name_the_file, read_sources, read_text
from shardwright.cli.live import read_live_surroundings, read_subject
from shardwright.cli.live_models import LiveModel, read_model, with_objects
from shardwright.cli.output import print_lines, print_list, width_of_output
from shardwright.cli.rehearsal import (
    Fate,
    GroupFate,
    ModelDifference,
    ObjectChange,
    Rehearsal,
    Rehearsed,
    rehearse,
    rehearsed_of,
)
from shardwright.cli.rollout import read_formers
from shardwright.cli.surroundings import Surroundings, given_models
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.kinds import BY_KIND
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.pipeline.documents import to_camel
from shardwright.planning.phrases import copies
from shardwright.planning.report import Plan, Report
from shardwright.reconcile.wording import WEBHOOK
from shardwright.reconcile.writes import ObjectKey, kind_of
from shardwright.rendering.bundle import KubernetesObject
from shardwright.reporting.explanation import explain
from shardwright.reporting.figures import format_seconds
from shardwright.reporting.lines import Line, Role, Span, line, paragraph, table
from shardwright.resolving.subject import Subject
from shardwright.units import format_plural

SHOWN_FIELDS: Final = 3
"""Fields of an object named in text; JSON has all. Basis: assumed, the first tell which
part it is.
"""

SHOWN_VALUE: Final = 60
"""Characters of a value of the spec in text. Basis: assumed, an image fits."""

FATES: Final[Mapping[Fate, str]] = {
    Fate.STAYS: "stays",
    Fate.RESTARTS: "restarts",
    Fate.BESIDE: "starts anew beside its running pods",
    Fate.KEEPS: "keeps its pods",
    Fate.STARTS: "starts",
    Fate.ENDS: "ends",
    Fate.UNKNOWN: "may restart",
}


def difference_lines(difference: ModelDifference, width: int) -> Iterator[Line]:
    """Yield the changes, for a person."""
    restarts = len(difference.rehearsed.restarts)
    role = Role.WARNING if restarts else Role.HEADLINE
    yield from paragraph(f"{difference.name}: {_headline(difference)}", width=width, role=role)
    if difference.fields:
        yield _section("Spec")
        yield from table(
            ("FIELD", "NOW", "THEN"), [_field(change) for change in difference.fields], width=width
        )
    if difference.differs:
        yield _section("Plan")
        yield from paragraph(_plan(difference), width=width, first=[Span("  ")])
    yield from _groups(difference, width)
    if difference.rehearsed.objects:
        yield _section("Other objects")
        rows = [
            (f"{item.kind}/{item.name}", item.how, _some(item))
            for item in difference.rehearsed.objects
        ]
        yield from table(("OBJECT", "IS", "FIELDS"), rows, width=width)
    yield Line()
    for note in _notes(difference):
        yield from paragraph(note, width=width, role=Role.FAINT)


def _headline(difference: ModelDifference) -> str:
    restarts = len(difference.rehearsed.restarts)
    groups = difference.rehearsed.groups
    if not difference.exists:
        return "is not in the cluster; would be created"
    if not difference.differs:
        return "nothing changes"
    ends = sum(group.fate is Fate.ENDS for group in groups)
    may = sum(group.fate is Fate.UNKNOWN for group in groups)
    says = "may change" if difference.rehearsed.refused else "changes"
    parts = [
        (
            f"{restarts} of {format_plural(len(groups), 'group')} "
            f"{'restarts' if restarts == 1 else 'restart'}"
        )
        if restarts
        else "",
        f"{format_plural(ends, 'group')} {'ends' if ends == 1 else 'end'}" if ends else "",
        f"{format_plural(may, 'group')} may restart" if may else "",
    ]
    return ", ".join(filter(None, parts)) or f"{says}, and restarts nothing"


def _field(change: FieldChange) -> tuple[str, str, str]:
    return change.path, _value(change.before), _value(change.after)


def _value(value: Any) -> str:
    text = (
        "-"
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= SHOWN_VALUE else text[: SHOWN_VALUE - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _plan(difference: ModelDifference) -> str:
    before, after, found = (
        difference.plan_before,
        difference.plan_after,
        difference.rehearsed.published.found,
    )
    if found.no_plan:
        return f"there is none: {found.no_plan.problem.sentence()}"
    if found.problems:
        return found.problems[0].sentence()
    if after is None:
        return "there is none"
    return _change_of_plan(before, after)


def _change_of_plan(before: Plan | None, after: Plan) -> str:
    then = said_of(after)
    if before is None:
        return then
    if before == after:
        return f"stays: {then}"
    was = said_of(before)
    return (
        f"{then}, now on {', '.join(planned_nodes(after))}"
        if was == then
        else f"{was} becomes {then}"
    )


def said_of(plan: Plan) -> str:
    """Return a plan in one line."""
    return explain(Report(outcome=plan, alternatives=(), excluded=(), considered=0)).headline


def _groups(difference: ModelDifference, width: int) -> Iterator[Line]:
    groups = difference.rehearsed.groups
    seconds = difference.rehearsed.start_seconds
    if not groups or not difference.differs:
        return
    yield _section("Groups")
    rows = [
        (group.name, FATES[group.fate], _down(group, seconds), _some(group)) for group in groups
    ]
    yield from table(("GROUP", "WHAT", "DOWN FOR", "FIELDS OF ITS PODS"), rows, width=width)


def _down(group: GroupFate, seconds: int | None) -> str:
    """Say for how long a group does not serve: its limit, and its last time."""
    if group.fate not in {Fate.RESTARTS, Fate.UNKNOWN}:
        return "for good" if group.fate is Fate.ENDS else "-"
    most = f"at most {format_seconds(seconds)}" if seconds else "?"
    return (
        most
        if group.last_outage_seconds is None
        else f"{most}, {format_seconds(group.last_outage_seconds)} last time"
    )


def _some(item: GroupFate | ObjectChange) -> str:
    fields = [f"{path} (removed)" if path in item.removed else path for path in item.fields]
    more = f", {len(fields) - SHOWN_FIELDS} more" if len(fields) > SHOWN_FIELDS else ""
    return ", ".join(fields[:SHOWN_FIELDS]) + more or "-"


def _notes(difference: ModelDifference) -> Iterator[str]:
    waits = [
        group for group in difference.rehearsed.groups if group.fate is Fate.STAYS and group.fields
    ]
    if waits:
        yield (
            "Groups that stay take changed fields on with their next restart, whatever its cause."
        )
    if any(group.fate is Fate.BESIDE for group in difference.rehearsed.groups):
        yield (
            "A group starts anew beside its running pods where GPUs are free when its turn "
            "comes; else it restarts."
        )
    if difference.rehearsed.restarts:
        yield (
            "Groups restart one after another, as spec.rollout says. A start that takes longer "
            "than that time counts as failed."
        )
    for said in difference.rehearsed.refused:
        yield f"Fields that would be removed are not known: {said}"
    if difference.restarts_anyway:
        names = ", ".join(difference.restarts_anyway)
        yield (
            f"{names} would restart for the spec in the cluster, too: the operator's settings "
            "are not known here (--settings)."
        )
    yield f"As release {__version__} plans and renders; nothing was written."


def _section(name: str) -> Line:
    return line(Span(name, Role.SECTION))


def difference_document(difference: ModelDifference) -> dict[str, Any]:
    """Return the changes as a document for programs."""
    rehearsed = difference.rehearsed
    return {
        "metadata": {"name": difference.name, "namespace": difference.namespace},
        "exists": difference.exists,
        "differs": difference.differs,
        "operatorVersion": __version__,
        "spec": [asdict(change) for change in difference.fields],
        "plan": {"before": _shown(difference.plan_before), "after": _shown(difference.plan_after)},
        "startSeconds": rehearsed.start_seconds,
        "groups": [_camel(group) for group in rehearsed.groups],
        "objects": [_camel(change) for change in rehearsed.objects],
        "restartsAnyway": list(difference.restarts_anyway),
        "refused": list(rehearsed.refused),
    }


def _shown(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "layout": copies(plan.layout),
        "product": plan.product,
        "nodes": list(planned_nodes(plan)),
    }


def _camel(item: GroupFate | ObjectChange) -> dict[str, Any]:
    return {to_camel(name): value for name, value in asdict(item).items()}


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
