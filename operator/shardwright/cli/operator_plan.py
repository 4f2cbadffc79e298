"""``plan --server``: the operator plans a copy that runs nothing and is deleted again."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from json import dumps, loads
from time import monotonic
from typing import Any, Final

from shardwright.api.conditions import ConditionType
from shardwright.api.group_version import API_VERSION, KIND
from shardwright.api.record import PlanRecord, decode, encode
from shardwright.api.resource import read_stored
from shardwright.api.settings import Settings
from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.exits import TERMINATED, Exit, UnreachableError
from shardwright.cli.inputs import read_sources
from shardwright.cli.live import read_live_surroundings, read_subject
from shardwright.cli.live_models import LiveModel, condition_of, is_planned, read_model
from shardwright.cli.output import print_lines, print_list, print_yaml, width_of_output
from shardwright.cli.plan import PlannedModel, screen_of_answer
from shardwright.cli.plan_forms import (
    PlanRow,
    after_plan,
    is_short,
    plans_at_a_glance,
    plans_table,
    print_names,
)
from shardwright.cli.surroundings import GivenModel, Surroundings, given_models
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.planning.report import NoPlan
from shardwright.planning.request import Request
from shardwright.reporting.explanation import Fact
from shardwright.reporting.lines import Line, Role, Span, line, paragraph, table
from shardwright.reporting.screen import Screen, screen_of
from shardwright.reporting.screen_text import screen_lines
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject

COPY_OF: Final = "shardwright.io/plan-of"
"""Annotation of a copy: the name of the original ShardedModel."""

NAME_LENGTH: Final = 40
"""Characters of a name that its copy keeps; names of objects derive from it."""

WAIT_SECONDS: Final = 120.0
"""How long to wait for the operator. Basis: assumed; it takes 1 to 2 s, and stops after a
minute.
"""

_UNKNOWN: Final = (
    "not shown, and no nodes beside the plan's own: the config of the model is unknown here"
)
_NOT_SHOWN: Final = "GPUs of others, and nodes that are not used, are not shown"

FORBIDDEN: Final = "you may not list them"
UNREADABLE: Final = "they could not be read"
"""Why nodes other than the plan's are not shown."""

LOOK_SECONDS: Final = 0.3
"""How often to check. Basis: assumed."""


def plan_by_operator(arguments: Namespace) -> Exit:
    """Print the operator's plans for the ShardedModels of ``-f``; the cluster keeps nothing."""
    cluster: Target = arguments.target
    sources = read_sources(arguments.filename)
    models = given_models(
        sources, arguments.filename, arguments.namespace, lambda: cluster.namespace
    )
    copies = [_copy(model) for model in models]
    try:
        found = cluster.ask(lambda client: _plan_all(client, copies))
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
    if arguments.output == "text":
        planned = cluster.ask(lambda client: _all_with_surroundings(client, found))
        every, width = all(is_planned(live.content) for live in found), width_of_output()
        carried = not any(is_short(live.record.plan) for live in found if live.record)
        closing = after_plan(arguments, planned=every, carried=carried, width=width)
        for index, copy in enumerate(planned):
            last = closing if len(found) == 1 else ()
            print_lines([*([Line()] if index else []), *_lines(copy, last)])
        if len(found) > 1:
            rows = [
                row_of(copy.live, copy.subject.request if copy.subject else None)
                for copy in planned
            ]
            print_lines([Line(), *plans_at_a_glance(rows, width), *closing])
    elif arguments.output == "wide":
        print_lines(plans_table(map(row_of, found)))
    elif arguments.output == "name":
        print_names(_name(live) for live in found)
    elif arguments.output == "yaml":
        print_yaml([document(live) for live in found])
    else:
        print_list("PlanReportList", [document(live) for live in found], "json")
    return Exit.PLAN if all(is_planned(live.content) for live in found) else Exit.NOTHING_FITS


def row_of(live: LiveModel, request: Request | None = None) -> PlanRow:
    """Return the original's name with its plan, or with the operator's reason for having none; the
    request is None if the model is not known here.
    """
    if is_planned(live.content):
        # Without a record: the caller may not read it, or a later release wrote it.
        plan = live.record.plan if live.record else None
        return PlanRow(name=_name(live), outcome=plan, request=request)
    planned = condition_of(live.content, ConditionType.PLANNED)
    problem = Problem(
        code=text_or_empty(planned.get("reason")), what=text_or_empty(planned.get("message"))
    )
    outcome = NoPlan(problem=problem, heals_by_itself=False)
    return PlanRow(name=_name(live), outcome=outcome)


def _copy(model: GivenModel) -> dict[str, Any]:
    metadata = model.resource.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": f"{metadata.name[:NAME_LENGTH].rstrip('-.')}-plan-{secrets.token_hex(4)}",
            "namespace": metadata.namespace,
            "annotations": {COPY_OF: metadata.name},
        },
        "spec": {**model.content["spec"], "mode": "PlanOnly", "paused": False},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCopy:
    """A copy that the operator planned, its subject if its model is known here, and the nodes
    around it or why they are not known.
    """

    live: LiveModel
    subject: Subject | None
    surroundings: Surroundings | str


async def _plan_all(client: Client, copies: Sequence[Mapping[str, Any]]) -> list[LiveModel]:
    task = asyncio.current_task()
    if task:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return [await _plan(client, copy) for copy in copies]


async def _plan(client: Client, copy: Mapping[str, Any]) -> LiveModel:
    namespace, name = copy["metadata"]["namespace"], copy["metadata"]["name"]
    async with _created(client, copy):
        ends = monotonic() + WAIT_SECONDS
        while not _has_answer(content := await client.get(SHARDED_MODELS, namespace, name)):
            if content is None or monotonic() > ends:
                raise UnreachableError(_silent(copy, deleted=content is None))
            await asyncio.sleep(LOOK_SECONDS)
        return _said_of_the_original(await read_model(client, namespace, name), copy)


def _said_of_the_original(live: LiveModel, copy: Mapping[str, Any]) -> LiveModel:
    """Return a planned copy whose texts name the original, as the copy will be gone."""
    name, original = copy["metadata"]["name"], copy["metadata"]["annotations"][COPY_OF]
    record = decode(encode(live.record).replace(name, original)) if live.record else None
    return replace(
        live,
        content={
            **live.content,
            "status": loads(dumps(live.content["status"]).replace(name, original)),
        },
        record=None if isinstance(record, Problem) else record,
    )


async def _all_with_surroundings(client: Client, found: Sequence[LiveModel]) -> list[PlannedCopy]:
    around: Surroundings | str = UNREADABLE
    with suppress(ApiError):
        around = await unless_forbidden(read_live_surroundings(client)) or FORBIDDEN
    return [
        PlannedCopy(live=live, subject=await _subject(client, live), surroundings=around)
        for live in found
    ]


async def _subject(client: Client, live: LiveModel) -> Subject | None:
    with suppress(ApiError, InputError):
        return await read_subject(client, live, read_stored(live.content), Settings(), offline=True)
    return None


def _silent(copy: Mapping[str, Any], *, deleted: bool) -> Problem:
    why = (
        "somebody has deleted it"
        if deleted
        else f"no operator has planned it within {WAIT_SECONDS:.0f} s"
    )
    return Problem(
        code="OperatorSilent",
        what=f"{copy['metadata']['annotations'][COPY_OF]}: {why}",
        remedy="'kubectl get pods -A -l app.kubernetes.io/name=shardwright-operator' shows "
        "whether one runs",
    )


@asynccontextmanager
async def _created(client: Client, copy: Mapping[str, Any]) -> AsyncIterator[None]:
    """Keep an object while it is needed, and delete it even if an interrupt precedes the answer."""
    namespace, name = copy["metadata"]["namespace"], copy["metadata"]["name"]
    creating = asyncio.ensure_future(client.create(SHARDED_MODELS, namespace, copy))
    try:
        await asyncio.shield(creating)
        yield
    finally:
        await asyncio.shield(asyncio.ensure_future(_delete(client, creating, namespace, name)))


async def _delete(
    client: Client, creating: asyncio.Future[dict[str, Any]], namespace: str, name: str
) -> None:
    try:
        content: Mapping[str, Any] | None = await creating
    except ApiError as error:
        content = (
            await client.get(SHARDED_MODELS, namespace, name)
            # Without an answer it may have been created all the same.
            if error.code == 0
            else None
        )
    if content is not None:
        await client.delete(SHARDED_MODELS, namespace, name, uid=content["metadata"]["uid"])


def _has_answer(content: Mapping[str, Any] | None) -> bool:
    if content is None:
        return False
    planned = condition_of(content, ConditionType.PLANNED)
    known = content["metadata"]["generation"] == mapping(content.get("status")).get(
        "observedGeneration"
    )
    return known and planned.get("status") in {"True", "False"}


def _name(model: LiveModel) -> str:
    metadata = model.content["metadata"]
    return text_or_empty(mapping(metadata.get("annotations")).get(COPY_OF)) or text_or_empty(
        metadata["name"]
    )


def _lines(copy: PlannedCopy, closing: Sequence[Line]) -> list[Line]:
    model = copy.live
    width = width_of_output()
    content = model.content
    if is_planned(content) and model.record:
        screen = screen_of_copy(copy, model.record)
        return screen_lines(screen, title=_name(model), width=width, closing=closing)
    planned = condition_of(content, ConditionType.PLANNED)
    role = Role.HEADLINE if is_planned(content) else Role.REFUSAL
    headline = f"{_name(model)}: {planned.get('message') or planned.get('reason')}"
    lines = paragraph(headline, width=width, role=role)
    excluded = mappings(mapping(mapping(content.get("status")).get("plan")).get("excluded"))
    if excluded:
        rows = [
            (
                text_or_empty(item.get("code")),
                str(item.get("count")),
                text_or_empty(item.get("nearestMiss")),
            )
            for item in excluded
        ]
        lines += [
            Line(),
            line(Span("Ruled out", Role.SECTION)),
            *table(("REASON", "LAYOUTS", "NEAREST MISS"), rows, width=width),
        ]
    return [*lines, *closing]


def screen_of_copy(copy: PlannedCopy, record: PlanRecord) -> Screen:
    """Return the first screen of the operator's plan, with what this program does not know said."""
    live, subject, report = copy.live, copy.subject, record.report()
    if subject is None:
        engine = mapping(mapping(live.content.get("status")).get("engine"))
        model = live.content["spec"]["model"]["id"]
        served = f"{model}, on {engine.get('name')} {engine.get('version')}"
        facts = Fact(label="Model", value=served), Fact(label="Load", value=_UNKNOWN)
        screen = screen_of(report)
        return replace(screen, facts=(*facts, *screen.facts))
    around = copy.surroundings
    seen = around if isinstance(around, Surroundings) else Surroundings(nodes=(), usage=())
    inventory = take_stock(subject, seen.nodes, seen.usage, list(seen.reservations))
    screen = screen_of_answer(PlannedModel(subject=subject, inventory=inventory, report=report))
    if isinstance(around, Surroundings):
        return screen
    said = Fact(label="Nodes", value=f"{around}: {_NOT_SHOWN}")
    return replace(screen, facts=(*screen.facts, said))


def document(model: LiveModel) -> dict[str, Any]:
    """Return the operator's plan as a document: the part of ``plan``'s that it publishes."""
    content = model.content
    status = mapping(content.get("status"))
    planned = condition_of(content, ConditionType.PLANNED)
    problem = {"code": planned.get("reason"), "message": planned.get("message")}
    return {
        "apiVersion": API_VERSION,
        "kind": "PlanReport",
        "metadata": {"name": _name(model), "namespace": content["metadata"]["namespace"]},
        "model": {"id": content["spec"]["model"]["id"]},
        "engine": status.get("engine"),
        "reason": condition_of(content, ConditionType.READY).get("reason"),
        **({} if is_planned(content) else {"problem": problem}),
        "plan": status.get("plan"),
    }
