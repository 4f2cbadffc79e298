"""The command ``doctor``: read a cluster, say what is wrong with the installation, and what to type."""

import sys
from argparse import Namespace
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

from shardwright import __version__
from shardwright.api.settings import read_settings
from shardwright.cli.arguments import program_name
from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.connecting import connection_of
from shardwright.cli.diagnosis import (
    Chart,
    DiagnosedModel,
    Examined,
    Finding,
    InstalledOperator,
    Result,
    examine,
    read_class,
    read_model,
    read_operator,
    read_version,
)
from shardwright.cli.exits import Exit
from shardwright.cli.output import print_lines, width_of_output
from shardwright.cli.outputs import print_document
from shardwright.cli.prescriptions import WORDS, command, sentence
from shardwright.cli.surroundings import read_nodes
from shardwright.cli.trial import Measured, Trial, measure
from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.permissions import Duties, missing_permissions, needed
from shardwright.cluster.resources import CONFIG_MAPS, DISCOVERY, LEASES, NODES, SHARDED_MODELS, Resource
from shardwright.errors import InputError, Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.stated import NONE, Stated
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.reporting.lines import Line, Role, Span, line, paragraph

DEPLOYMENTS: Final = Resource(prefix="/apis/apps/v1", plural="deployments", kind="Deployment")
STORAGE_CLASSES: Final = Resource(prefix="/apis/storage.k8s.io/v1", plural="storageclasses", kind="StorageClass")
OPERATORS: Final = "app.kubernetes.io/name=shardwright-operator"
"""Label of the Deployments that the chart makes."""

SETTINGS_KEY: Final = "settings.json"
NOT_FOUND: Final = 404

_UNREAD: Final = "not looked at: you may not read what it takes"
_SKIPPED: Final = "not measured: --network-policies does, with two short-lived pods"
_SIGNS: Final = {
    Result.FINE: "ok",
    Result.NOTED: "note",
    Result.WRONG: "WRONG",
    Result.UNREAD: "?",
    Result.SKIPPED: "-",
}
_ROLES: Final = {Result.FINE: Role.HEADLINE, Result.NOTED: Role.WARNING, Result.WRONG: Role.REFUSAL}


def doctor(arguments: Namespace) -> int:
    """Print what is found; 1 where something is wrong.

    Raises:
        InputError: something is said of pods that nobody has asked for.
        UnreachableError: no answer, or no credentials.
    """
    if problems := tuple(_problems_of_use(arguments)):
        raise InputError(problems)
    cluster = Target(connection=connection_of(arguments))
    chart = cluster.ask(lambda client: _read(client, arguments))
    examined = examine(chart, datetime.now(UTC))
    if arguments.output == "text":
        print_lines(lines_of(examined, width_of_output()))
    else:
        print_document("Diagnosis", document(examined), arguments.output)
    return Exit.SOMETHING_WRONG if any(one.result is Result.WRONG for one in examined) else Exit.PLAN


def _problems_of_use(arguments: Namespace) -> Iterator[Problem]:
    given = {"--trial-namespace": arguments.trial_namespace, "--image": arguments.image}
    what, remedy = "is of the pods that measure", "give --network-policies, too"
    if not arguments.network_policies:
        yield from (Problem(code="NotTogether", path=flag, what=what, remedy=remedy) for flag, said in given.items() if said)


def lines_of(examined: Sequence[Examined], width: int) -> Iterator[Line]:
    """Yield each check with its findings and what to type, for a person."""
    told = {Result.UNREAD: f" ({_UNREAD})", Result.SKIPPED: f" ({_SKIPPED})"}
    for one in examined:
        sign = Span(f"{_SIGNS[one.result]:<6}", _ROLES.get(one.result, Role.PLAIN))
        yield from paragraph(f"{WORDS[one.check]}{told.get(one.result, '')}", width=width, first=[sign])
        for finding in one.findings:
            result = Result.WRONG if finding.wrong else Result.NOTED
            yield from paragraph(sentence(finding), width=width, first=[Span(f"      {_SIGNS[result]}: ", _ROLES[result])])
            yield line(Span("        $ ", Role.FAINT), Span(command(finding, _program()), Role.COMMAND))


def _program() -> str:
    return program_name(sys.argv[0])


def document(examined: Sequence[Examined]) -> dict[str, Any]:
    """Return what was found, for a program."""
    return {"checks": [_as_json(one) for one in examined]}


def _as_json(one: Examined) -> dict[str, Any]:
    return {
        "check": one.check.value,
        "result": one.result.value,
        "findings": [_finding_as_json(finding) for finding in one.findings],
    }


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "reason": finding.ailment.value,
        "wrong": finding.wrong,
        "namespace": finding.namespace or None,
        "objects": list(finding.objects),
        "message": sentence(finding),
        "command": command(finding, _program()),
    }


async def _read(client: Client, arguments: Namespace) -> Chart:
    version = await client.send(Call(verb="get", resource=DISCOVERY, path="/version", method="GET"))
    served = await _is_served(client)
    deployments = await unless_forbidden(client.list(DEPLOYMENTS, labelSelector=OPERATORS))
    operators = None if deployments is None else tuple([await _operator(client, item) for item in deployments])
    measured = await _measured(client, arguments, deployments or ())
    return Chart(
        version=__version__,
        kubernetes=read_version(version),
        served=served,
        operators=operators,
        missing_rights=await unless_forbidden(_missing_rights(client, operators)) if operators is not None else None,
        nodes=await unless_forbidden(_nodes(client, await _stated(client, operators or ()))),
        classes=await unless_forbidden(_classes(client)),
        models=await unless_forbidden(_models(client)) if served else (),
        measured=measured is not None,
        enforcement=measured.enforcement if measured else None,
        trouble=measured.trouble if measured else "",
    )


async def _is_served(client: Client) -> bool:
    call = Call(verb="get", resource=SHARDED_MODELS, path=SHARDED_MODELS.prefix, method="GET")
    try:
        resources = mappings((await client.send(call)).get("resources"))
    except ApiError as error:
        if error.code == NOT_FOUND:
            return False
        raise
    return {SHARDED_MODELS.plural, f"{SHARDED_MODELS.plural}/status"} <= {text_or_empty(item.get("name")) for item in resources}


async def _operator(client: Client, deployment: Mapping[str, Any]) -> InstalledOperator:
    metadata = deployment["metadata"]
    try:
        lease, known = await client.get(LEASES, metadata["namespace"], metadata["name"]), True
    except ApiError:
        lease, known = None, False
    return read_operator(deployment, lease, lease_known=known)


async def _missing_rights(client: Client, operators: Sequence[InstalledOperator]) -> Mapping[str, tuple[str, ...]]:
    """Return by service account what it may not do and must."""
    wanted = {(one.namespace, one.account): needed(Duties(namespaces=one.watches)) for one in operators}
    return {
        f"system:serviceaccount:{place}:{name}": await missing_permissions(client, rights, (place, name))
        for (place, name), rights in sorted(wanted.items(), key=itemgetter(0))
    }


async def _stated(client: Client, operators: Sequence[InstalledOperator]) -> Stated:
    """Return what the administrator states of nodes; nothing where that may not, or cannot, be read."""
    for one in operators:
        found = await _or_none(client.get(CONFIG_MAPS, one.namespace, f"{one.name}-settings"))
        with suppress(InputError):
            return read_settings(text_or_empty(mapping((found or {}).get("data")).get(SETTINGS_KEY))).stated
    return NONE


async def _or_none(reading: Awaitable[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    return await unless_forbidden(reading)


async def _nodes(client: Client, stated: Stated) -> tuple[NodeFacts | NodeExclusion, ...]:
    return tuple([node async for page in client.pages(NODES) for node in read_nodes(page, stated)])


async def _classes(client: Client) -> Mapping[str, bool]:
    return dict([read_class(item) for item in await client.list(STORAGE_CLASSES)])


async def _models(client: Client) -> tuple[DiagnosedModel, ...]:
    pages = client.pages(SHARDED_MODELS, project=_without_what_is_large)
    return tuple([read_model(item) async for page in pages for item in page])


def _without_what_is_large(item: dict[str, Any]) -> dict[str, Any]:
    """Return what :func:`read_model` reads: a config may have a megabyte, the status of many groups a quarter."""
    weights = mapping(mapping(item.get("spec")).get("model")).get("weights")
    conditions = mapping(item.get("status")).get("conditions")
    return {"metadata": item.get("metadata"), "spec": {"model": {"weights": weights}}, "status": {"conditions": conditions}}


async def _measured(client: Client, arguments: Namespace, deployments: Sequence[Mapping[str, Any]]) -> Measured | None:
    """Return what was measured, None where nobody has asked for it."""
    if not arguments.network_policies:
        return None
    image = arguments.image or next(filter(None, map(_image, deployments)), "")
    return await measure(client, Trial(namespace=arguments.trial_namespace, image=image))


def _image(deployment: Mapping[str, Any]) -> str:
    """Return the image of an operator: it has a Python, and nodes may have it already."""
    pods = mapping(mapping(mapping(deployment.get("spec")).get("template")).get("spec"))
    return next((text_or_empty(container.get("image")) for container in mappings(pods.get("containers"))), "")
