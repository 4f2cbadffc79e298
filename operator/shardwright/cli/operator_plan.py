"""``plan --server``: the operator plans a copy of a ShardedModel that runs nothing, and the copy is
deleted again.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from shardwright.api.conditions import ConditionType
from shardwright.api.names import API_VERSION, KIND
from shardwright.api.resource import parse_manifest
from shardwright.cli.clusters import Target
from shardwright.cli.exits import TERMINATED, Exit, UnreachableError
from shardwright.cli.inputs import Given, name_the_file, read_sources
from shardwright.cli.live_models import LiveModel, read_model
from shardwright.cli.namespaces import placed_in
from shardwright.cli.output import print_lines, print_yaml, width_of_output
from shardwright.cli.outputs import print_list
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.reporting.explanation import Explanation, Fact, explain
from shardwright.reporting.lines import Line, Role, Span, line, paragraph, table
from shardwright.reporting.text import to_lines

COPY_OF: Final = "shardwright.io/plan-of"
"""Annotation of a copy: the name of the ShardedModel that it is a copy of."""

NAME_LENGTH: Final = 40
"""Characters of a name that its copy keeps; names of objects are made of it."""

WAIT_SECONDS: Final = 120.0
"""How long the operator is waited for. Basis: assumed; it takes 1 to 2 s, and what costs too much
ends after a minute.
"""

LOOK_SECONDS: Final = 0.3
"""How often it is looked for. Basis: assumed."""


def plan_by_operator(arguments: Namespace) -> Exit:
    """Print the operator's plans for the ShardedModels of ``-f``; nothing of them is left in the
    cluster.
    """
    cluster: Target = arguments.target
    copies = [_copy(source, arguments, cluster) for source in _models(arguments)]
    try:
        found = cluster.ask(lambda client: _plan_all(client, copies))
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
    if arguments.output == "text":
        for index, model in enumerate(found):
            print_lines([*([Line()] if index else []), *_lines(model)])
    elif arguments.output == "yaml":
        print_yaml([document(model) for model in found])
    else:
        print_list("PlanReportList", [document(model) for model in found], "json")
    return (
        Exit.PLAN
        if all(is_planned(model.content) for model in found)
        else Exit.NOTHING_FITS
    )


def _models(arguments: Namespace) -> Sequence[Given]:
    found = [
        source for source in read_sources(arguments.filename) if source.kind == KIND
    ]
    if not found:
        files = ", ".join(arguments.filename)
        raise InputError(
            [
                Problem(
                    code="NoShardedModel",
                    path=files,
                    what="no ShardedModel is in it",
                    remedy="give one",
                )
            ]
        )
    return found


def _copy(source: Given, arguments: Namespace, cluster: Target) -> dict[str, Any]:
    """Return the copy of a manifest that is to be planned and runs nothing; nobody else has its
    name.
    """
    content = name_the_file(
        source.file,
        lambda: placed_in(
            source.content, arguments.namespace, lambda: cluster.namespace
        ),
    )
    metadata = name_the_file(source.file, lambda: parse_manifest(content)).metadata
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": f"{metadata.name[:NAME_LENGTH].rstrip('-.')}-plan-{secrets.token_hex(4)}",
            "namespace": metadata.namespace,
            "annotations": {COPY_OF: metadata.name},
        },
        "spec": {**content["spec"], "mode": "PlanOnly", "paused": False},
    }


async def _plan_all(
    client: Client, copies: Sequence[Mapping[str, Any]]
) -> list[LiveModel]:
    task = asyncio.current_task()
    if task:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return [await _plan(client, copy) for copy in copies]


async def _plan(client: Client, copy: Mapping[str, Any]) -> LiveModel:
    namespace, name = copy["metadata"]["namespace"], copy["metadata"]["name"]
    async with _created(client, copy):
        ends = monotonic() + WAIT_SECONDS
        while not _has_answer(
            content := await client.get(SHARDED_MODELS, namespace, name)
        ):
            if content is None or monotonic() > ends:
                why = (
                    "somebody has deleted it"
                    if content is None
                    else f"no operator has planned it within {WAIT_SECONDS:.0f} s"
                )
                raise UnreachableError(
                    _silent(copy["metadata"]["annotations"][COPY_OF], why)
                )
            await asyncio.sleep(LOOK_SECONDS)
        return await read_model(client, namespace, name)


def _silent(name: str, why: str) -> Problem:
    remedy = (
        "'kubectl get pods -A -l "
        "app.kubernetes.io/name=shardwright-operator' shows whether one runs"
    )
    return Problem(code="OperatorSilent", what=f"{name}: {why}", remedy=remedy)


@asynccontextmanager
async def _created(client: Client, copy: Mapping[str, Any]) -> AsyncIterator[None]:
    """Have an object for as long as it is needed; it is deleted whatever happens, an interrupt
    before the answer included.
    """
    namespace, name = copy["metadata"]["namespace"], copy["metadata"]["name"]
    creating = asyncio.ensure_future(client.create(SHARDED_MODELS, namespace, copy))
    try:
        await asyncio.shield(creating)
        yield
    finally:
        await asyncio.shield(
            asyncio.ensure_future(_delete(client, creating, namespace, name))
        )


async def _delete(
    client: Client, creating: asyncio.Future[dict[str, Any]], namespace: str, name: str
) -> None:
    try:
        content: Mapping[str, Any] | None = await creating
    except ApiError as error:
        content = (
            await client.get(SHARDED_MODELS, namespace, name)
            # No answer came: it may have been made all the same.
            if error.code == 0
            else None
        )
    if content is not None:
        await client.delete(
            SHARDED_MODELS, namespace, name, uid=content["metadata"]["uid"]
        )


def _has_answer(content: Mapping[str, Any] | None) -> bool:
    """Return whether the operator has looked at a copy, and knows its outcome by now."""
    if content is None:
        return False
    planned = _condition(content, ConditionType.PLANNED)
    known = content["metadata"]["generation"] == mapping(content.get("status")).get(
        "observedGeneration"
    )
    return known and planned.get("status") in {"True", "False"}


def is_planned(content: Mapping[str, Any]) -> bool:
    """Return whether there is a plan for the spec of a resource."""
    return _condition(content, ConditionType.PLANNED).get("status") == "True"


def _condition(content: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = mappings(mapping(content.get("status")).get("conditions"))
    return next((item for item in conditions if item.get("type") == kind), {})


def _name(model: LiveModel) -> str:
    metadata = model.content["metadata"]
    return text_or_empty(
        mapping(metadata.get("annotations")).get(COPY_OF)
    ) or text_or_empty(metadata["name"])


def _lines(model: LiveModel) -> list[Line]:
    width, content = width_of_output(), model.content
    if is_planned(content) and model.record:
        return to_lines(_explanation(model), title=_name(model), width=width)
    planned = _condition(content, ConditionType.PLANNED)
    role = Role.HEADLINE if is_planned(content) else Role.REFUSAL
    headline = f"{_name(model)}: {planned.get('message') or planned.get('reason')}"
    lines = paragraph(headline, width=width, role=role)
    excluded = mappings(
        mapping(mapping(content.get("status")).get("plan")).get("excluded")
    )
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
    return lines


def _explanation(model: LiveModel) -> Explanation:
    spec, engine = (
        model.content["spec"],
        mapping(mapping(model.content.get("status")).get("engine")),
    )
    if model.record is None:
        raise AssertionError("only a plan of record can be explained")
    explanation = explain(model.record.report())
    served = f"{spec['model']['id']}, on {engine.get('name')} {engine.get('version')}"
    return replace(
        explanation, facts=(Fact(label="Model", value=served), *explanation.facts)
    )


def document(model: LiveModel) -> dict[str, Any]:
    """Return the operator's view of a plan as a document for programs. It holds the answer of
    ``plan`` as far as the operator tells it.
    """
    status, planned = (
        mapping(model.content.get("status")),
        _condition(model.content, ConditionType.PLANNED),
    )
    problem = (
        {}
        if is_planned(model.content)
        else {
            "problem": {
                "code": planned.get("reason"),
                "message": planned.get("message"),
            }
        }
    )
    return {
        "apiVersion": API_VERSION,
        "kind": "PlanReport",
        "metadata": {
            "name": _name(model),
            "namespace": model.content["metadata"]["namespace"],
        },
        "model": {"id": model.content["spec"]["model"]["id"]},
        "engine": status.get("engine"),
        "reason": _condition(model.content, ConditionType.READY).get("reason"),
        **problem,
        "plan": status.get("plan"),
    }
