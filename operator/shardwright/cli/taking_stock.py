"""The doctor's reading of a cluster, as far as its user may read. A part that may not be read is
None, and never taken for nothing.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final

from shardwright import __version__
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.clusters import unless_forbidden
from shardwright.cli.diagnosis import (
    Chart,
    DiagnosedModel,
    read_class,
    read_model,
    read_version,
)
from shardwright.cli.fetch_jobs import DiagnosedFetch, read_fetch
from shardwright.cli.installations import InstalledOperator, Rights, read_operator
from shardwright.cli.live import read_live_published
from shardwright.cli.trial import Measured, Trial, measure
from shardwright.cluster.claims import owner_of
from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.device_stock import NodeEntry
from shardwright.cluster.permissions import Duties, may_see_pods, missing_rights, needed
from shardwright.cluster.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DISCOVERY,
    JOBS,
    LEASES,
    NODES,
    SHARDED_MODELS,
    Resource,
)
from shardwright.errors import InputError
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.stated import NODE_SET, NONE, Stated
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.rendering.fetch_job import JOB_LABELS

DEPLOYMENTS: Final = Resource(
    prefix="/apis/apps/v1", plural="deployments", kind="Deployment"
)
STORAGE_CLASSES: Final = Resource(
    prefix="/apis/storage.k8s.io/v1", plural="storageclasses", kind="StorageClass"
)
OPERATORS: Final = "app.kubernetes.io/name=shardwright-operator"
"""Label of the Deployments that the chart makes."""

SETTINGS_KEY: Final = "settings.json"


async def read_chart(client: Client, arguments: Namespace) -> Chart:
    """Return the state of the installation and of the cluster that ``doctor`` examines."""
    version = await client.send(
        Call(verb="get", resource=DISCOVERY, path="/version", method="GET")
    )
    served = await _is_served(client)
    deployments = await unless_forbidden(
        client.list(DEPLOYMENTS, labelSelector=OPERATORS)
    )
    found = [await _operator(client, item) for item in deployments or ()]
    operators = tuple(operator for operator, _ in found)
    measured = await _measured(client, arguments, deployments or ())
    nodes = await unless_forbidden(_nodes(client, found))
    return Chart(
        version=__version__,
        kubernetes=read_version(version),
        served=served,
        operators=None if deployments is None else operators,
        rights=await unless_forbidden(_rights(client, found))
        if deployments is not None
        else None,
        claims=await unless_forbidden(_claims(client, operators))
        if deployments is not None
        else None,
        nodes=None
        if nodes is None
        else tuple(node for several in nodes.values() for node in several),
        node_sets=None
        if nodes is None
        else {name: tuple(map(_name, several)) for name, several in nodes.items()},
        classes=await unless_forbidden(_classes(client)),
        models=await unless_forbidden(_models(client)) if served else (),
        fetches=await unless_forbidden(_fetches(client)) if served else (),
        measured=measured is not None,
        enforcement=measured.enforcement if measured else None,
        trouble=measured.trouble if measured else "",
    )


async def _is_served(client: Client) -> bool:
    call = Call(
        verb="get", resource=SHARDED_MODELS, path=SHARDED_MODELS.prefix, method="GET"
    )
    try:
        resources = mappings((await client.send(call)).get("resources"))
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    return {SHARDED_MODELS.plural, f"{SHARDED_MODELS.plural}/status"} <= {
        text_or_empty(item.get("name")) for item in resources
    }


async def _operator(
    client: Client, deployment: Mapping[str, Any]
) -> tuple[InstalledOperator, Settings | None]:
    """Return an operator, and its administrator's settings; None if that may not, or cannot, be
    read.
    """
    metadata = deployment["metadata"]
    try:
        lease, known = (
            await client.get(LEASES, metadata["namespace"], metadata["name"]),
            True,
        )
    except ApiError:
        lease, known = None, False
    settings = await _settings(client, metadata["namespace"], metadata["name"])
    node_set = settings.stated.node_set if settings else None
    return read_operator(
        deployment, lease, lease_known=known, node_set=node_set
    ), settings


async def _settings(client: Client, namespace: str, name: str) -> Settings | None:
    found = await unless_forbidden(
        client.get(CONFIG_MAPS, namespace, f"{name}-settings")
    )
    with suppress(InputError):
        return (
            read_settings(text_or_empty(mapping(found.get("data")).get(SETTINGS_KEY)))
            if found
            else None
        )
    return None


async def _rights(
    client: Client, found: Sequence[tuple[InstalledOperator, Settings | None]]
) -> Mapping[str, Rights]:
    """Return by service account its missing rights."""
    wanted = {
        (one.namespace, one.account): _duties(one, settings) for one, settings in found
    }
    return {
        f"system:serviceaccount:{account[0]}:{account[1]}": await _rights_of(
            client, duties, account
        )
        for account, duties in sorted(wanted.items(), key=itemgetter(0))
    }


def _duties(operator: InstalledOperator, settings: Settings | None) -> Duties:
    installation = operator.as_installation
    fetches = settings is not None and settings.config_fetch.enabled
    return Duties(
        namespaces=operator.watches,
        claims=installation.claims if installation else (),
        fetches=fetches,
    )


async def _rights_of(
    client: Client, duties: Duties, account: tuple[str, str]
) -> Rights:
    wanted = tuple(needed(duties))
    missing = frozenset(await missing_rights(client, wanted, account))
    held = {one.namespace for one in wanted if one not in missing}
    closed = tuple(name for name in duties.namespaces if name not in held)
    said = tuple(
        str(one) for one in wanted if one in missing and one.namespace not in closed
    )
    return Rights(
        missing=said, closed=closed, sees_pods=await may_see_pods(client, account)
    )


async def _claims(
    client: Client, operators: Sequence[InstalledOperator]
) -> Mapping[str, str]:
    """Return the installations that the claims of these operators are for, by claim."""
    names = {
        name
        for one in operators
        if (installation := one.as_installation)
        for name in installation.claims
    }
    roles = {
        name: await client.get(CLUSTER_ROLES, None, name, metadata_only=True)
        for name in sorted(names)
    }
    return {name: owner_of(role) for name, role in roles.items() if role}


async def _nodes(
    client: Client, found: Sequence[tuple[InstalledOperator, Settings | None]]
) -> Mapping[str, list[NodeEntry]]:
    """Return the nodes with GPUs by their set, each read with the statements of its installation's
    administrator about nodes.
    """
    stated = {one.node_set: settings.stated for one, settings in found if settings}
    sets: dict[str, list[NodeEntry]] = {}
    published = await read_live_published(client)
    async for page in client.pages(NODES):
        for node in page:
            name = text_or_empty(
                mapping(mapping(node.get("metadata")).get("labels")).get(NODE_SET)
            )
            if facts := published.read(
                node, stated.get(name) or _of_nobody(name, tuple(stated.values()))
            ):
                sets.setdefault(name, []).append(facts)
    return sets


def _of_nobody(node_set: str, stated: Sequence[Stated]) -> Stated:
    """Return the statements for nodes of no installation whose settings may be read: as if for the
    first one.
    """
    return replace(stated[0] if stated else NONE, node_set=node_set)


def _name(node: NodeEntry) -> str:
    return node.node if isinstance(node, NodeExclusion) else node.name


async def _fetches(client: Client) -> tuple[DiagnosedFetch, ...]:
    return tuple(
        map(
            read_fetch,
            await client.list(
                JOBS, labelSelector=",".join(map("=".join, JOB_LABELS.items()))
            ),
        )
    )


async def _classes(client: Client) -> Mapping[str, bool]:
    return dict([read_class(item) for item in await client.list(STORAGE_CLASSES)])


async def _models(client: Client) -> tuple[DiagnosedModel, ...]:
    pages = client.pages(SHARDED_MODELS, project=_without_what_is_large)
    return tuple([read_model(item) async for page in pages for item in page])


def _without_what_is_large(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that :func:`read_model` reads: a config may have a megabyte, the status of
    many groups a quarter.
    """
    weights = mapping(mapping(item.get("spec")).get("model")).get("weights")
    conditions = mapping(item.get("status")).get("conditions")
    return {
        "metadata": item.get("metadata"),
        "spec": {"model": {"weights": weights}},
        "status": {"conditions": conditions},
    }


async def _measured(
    client: Client, arguments: Namespace, deployments: Sequence[Mapping[str, Any]]
) -> Measured | None:
    """Return the measurements, None if nobody has asked for them."""
    if not arguments.network_policies:
        return None
    image = arguments.image or next(filter(None, map(_image, deployments)), "")
    return await measure(
        client, Trial(namespace=arguments.trial_namespace, image=image)
    )


def _image(deployment: Mapping[str, Any]) -> str:
    """Return the image of an operator: it has a Python, and nodes may have it already."""
    pods = mapping(mapping(mapping(deployment.get("spec")).get("template")).get("spec"))
    return next(
        (
            text_or_empty(container.get("image"))
            for container in mappings(pods.get("containers"))
        ),
        "",
    )
