"""What the doctor reads of a cluster. A part that may not be read is None, never empty."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from shardwright.api.routing import ROUTER_ACCOUNT
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.clusters import unless_forbidden
from shardwright.cli.live import read_live_published
from shardwright.cli.present_states import (
    NodeState,
    Object,
    PresentState,
    SeenLease,
    read_node_state,
    read_present_state,
    watch_lease,
)
from shardwright.cli.trial import Measured, Trial, measure
from shardwright.cluster.claims import Installation, owner_of
from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.device_stock import NodeEntry
from shardwright.cluster.permissions import (
    Account,
    Duties,
    Needed,
    may_see_pods,
    missing_rights,
    needed,
)
from shardwright.cluster.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DISCOVERY,
    JOBS,
    NODES,
    PODS,
    SHARDED_MODELS,
    Resource,
)
from shardwright.errors import InputError
from shardwright.hardware.gpus import NODE_SET, NONE
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.rendering.fetch_job import JOB_LABELS

DEPLOYMENTS: Final = Resource(prefix="/apis/apps/v1", plural="deployments", kind="Deployment")
STORAGE_CLASSES: Final = Resource(
    prefix="/apis/storage.k8s.io/v1", plural="storageclasses", kind="StorageClass"
)
SERVICE_ACCOUNTS: Final = Resource(
    prefix="/api/v1", plural="serviceaccounts", kind="ServiceAccount"
)
OPERATORS: Final = "app.kubernetes.io/name=shardwright-operator"
"""Label of the chart's Deployments."""

SETTINGS_KEY: Final = "settings.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledOperator:
    """An installation: its Deployment, its Lease and its pods (None: may not be read).

    ``watches`` are its namespaces, empty for all. ``installation`` is its name in claims, empty if
    it has none; ``settings`` are None if they cannot be read.
    """

    namespace: str
    name: str
    version: str
    account: str
    wanted: int
    ready: int
    lease: SeenLease | None
    pods: frozenset[str] | None = None
    watches: tuple[str, ...] = ()
    installation: str = ""
    settings: Settings | None = None

    @property
    def as_installation(self) -> Installation | None:
        """Return the operator as an installation, None if its name or node set is unknown."""
        if not self.installation or self.settings is None:
            return None
        return Installation(
            name=self.installation, node_set=self.settings.stated.node_set, namespaces=self.watches
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The missing rights of a service account; ``closed`` are watched namespaces where it has none.

    ``sees_pods`` is about all namespaces.
    """

    missing: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    sees_pods: bool = True


@dataclass(frozen=True, slots=True)
class RouterAccount:
    """A service account of routers: whether it is there, and may list and watch the pods of its
    namespace.
    """

    namespace: str
    name: str
    exists: bool = True
    sees_pods: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenStock:
    """What was read of a cluster; None stands for a part that may not be read or was not asked for.

    ``rights`` are by service account; ``claims`` maps each to its installation; ``nodes`` has those
    with GPUs by node set (empty: in none), ``node_states`` all nodes. ``program`` is the name the
    user calls us by.
    """

    now: datetime
    program: str
    version: Object
    served: bool
    operators: tuple[InstalledOperator, ...] | None = None
    rights: Mapping[str, Rights] | None = None
    claims: Mapping[str, str] | None = None
    nodes: Mapping[str, Sequence[NodeEntry]] | None = None
    node_states: Mapping[str, NodeState] | None = None
    present: PresentState = field(default_factory=PresentState)
    classes: Sequence[Object] | None = None
    models: Sequence[Object] | None = None
    router_accounts: Sequence[RouterAccount] | None = None
    fetches: Sequence[Object] | None = None
    measured: Measured | None = None


def at(value: object, *path: str) -> Object:
    """Return the mapping at a path inside an object, empty if there is none."""
    for key in path:
        value = mapping(value).get(key)
    return mapping(value)


async def take_stock(client: Client, arguments: Namespace, program: str) -> TakenStock:
    """Return the state of the installation and the cluster that ``doctor`` examines."""
    version = await client.send(Call(verb="get", resource=DISCOVERY, path="/version", method="GET"))
    served = await is_served(client)
    deployments = await unless_forbidden(client.list(DEPLOYMENTS, labelSelector=OPERATORS))
    known = deployments is not None
    operators, present = await asyncio.gather(
        _operators(client, deployments or ()), read_present_state(client)
    )
    nodes = await unless_forbidden(_nodes(client, operators))
    measured = await _measured(client, arguments, deployments or ())
    models = await unless_forbidden(_models(client)) if served else ()
    return TakenStock(
        now=datetime.now(UTC),
        program=program,
        version=version,
        served=served,
        operators=operators if known else None,
        rights=await unless_forbidden(_rights(client, operators)) if known else None,
        claims=await unless_forbidden(_claims(client, operators)) if known else None,
        nodes=nodes.sets if nodes else None,
        node_states=nodes.states if nodes else None,
        present=present,
        classes=await unless_forbidden(client.list(STORAGE_CLASSES)),
        models=models,
        router_accounts=None
        if models is None
        else await unless_forbidden(_router_accounts(client, models)),
        fetches=await unless_forbidden(_fetches(client)) if served else (),
        measured=measured,
    )


async def is_served(client: Client) -> bool:
    """Return whether the API server serves ShardedModels, with their status."""
    call = Call(verb="get", resource=SHARDED_MODELS, path=SHARDED_MODELS.prefix, method="GET")
    try:
        resources = mappings((await client.send(call)).get("resources"))
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    return {SHARDED_MODELS.plural, f"{SHARDED_MODELS.plural}/status"} <= {
        text_or_empty(item.get("name")) for item in resources
    }


async def _operators(
    client: Client, deployments: Sequence[Object]
) -> tuple[InstalledOperator, ...]:
    return tuple(await asyncio.gather(*(_operator(client, item) for item in deployments)))


async def _operator(client: Client, deployment: Object) -> InstalledOperator:
    metadata = deployment["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    lease = None
    with suppress(ApiError):
        lease = await watch_lease(client, namespace, name)
    settings = await unless_forbidden(client.get(CONFIG_MAPS, namespace, f"{name}-settings"))
    pods = await unless_forbidden(client.list(PODS, namespace, labelSelector=OPERATORS))
    found = read_operator(deployment, lease, settings)
    names = (text_or_empty(at(pod, "metadata").get("name")) for pod in pods or ())
    return found if pods is None else replace(found, pods=frozenset(names))


def read_operator(
    deployment: Object, lease: SeenLease | None, settings: Object | None
) -> InstalledOperator:
    """Return an operator from its Deployment and the ConfigMap of its settings."""
    metadata, pods = (at(deployment, "metadata"), at(deployment, "spec", "template", "spec"))
    labels = at(metadata, "labels")
    wanted = at(deployment, "spec").get("replicas", 1)
    ready = at(deployment, "status").get("readyReplicas", 0)
    return InstalledOperator(
        namespace=text_or_empty(metadata.get("namespace")),
        name=text_or_empty(metadata.get("name")),
        version=text_or_empty(labels.get("app.kubernetes.io/version")),
        account=text_or_empty(pods.get("serviceAccountName")),
        wanted=wanted if isinstance(wanted, int) else 1,
        ready=ready if isinstance(ready, int) else 0,
        lease=lease,
        watches=tuple(filter(None, _told(pods, "--watch-namespaces=").split(","))),
        installation=_told(pods, "--installation="),
        settings=_settings(settings),
    )


def _told(pods: Object, option: str) -> str:
    words = (
        str(word)
        for container in mappings(pods.get("containers"))
        for word in container.get("args") or ()
    )
    return next((word.removeprefix(option) for word in words if word.startswith(option)), "")


def _settings(config_map: Object | None) -> Settings | None:
    if config_map is not None:
        with suppress(InputError):
            return read_settings(text_or_empty(at(config_map, "data").get(SETTINGS_KEY)))
    return None


async def _rights(client: Client, operators: Sequence[InstalledOperator]) -> Mapping[str, Rights]:
    duties = {(one.namespace, one.account): _duties(one) for one in operators}
    return {
        f"system:serviceaccount:{':'.join(account)}": await rights_of(
            client, duties[account], account
        )
        for account in sorted(duties)
    }


def _duties(operator: InstalledOperator) -> Duties:
    installation, settings = operator.as_installation, operator.settings
    return Duties(
        namespaces=operator.watches,
        claims=installation.claims if installation else (),
        fetches=settings is not None and settings.config_fetch.enabled,
    )


async def rights_of(client: Client, duties: Duties, account: Account | None) -> Rights:
    """Return the missing rights of a service account, or our own for None."""
    wanted = tuple(needed(duties))
    missing = frozenset(await missing_rights(client, wanted, account))
    held = {one.namespace for one in wanted if one not in missing}
    closed = tuple(name for name in duties.namespaces if name not in held)
    said = tuple(str(one) for one in wanted if one in missing and one.namespace not in closed)
    return Rights(missing=said, closed=closed, sees_pods=await may_see_pods(client, account))


async def _claims(client: Client, operators: Sequence[InstalledOperator]) -> Mapping[str, str]:
    installations = filter(None, (one.as_installation for one in operators))
    claims = {name for one in installations for name in one.claims}
    roles = {
        name: await client.get(CLUSTER_ROLES, None, name, metadata_only=True)
        for name in sorted(claims)
    }
    return {name: owner_of(role) for name, role in roles.items() if role}


@dataclass(frozen=True, slots=True)
class _Nodes:
    sets: Mapping[str, Sequence[NodeEntry]]
    states: Mapping[str, NodeState]


async def _nodes(client: Client, operators: Sequence[InstalledOperator]) -> _Nodes:
    """Return all nodes' states, and the nodes with GPUs by node set, each read with its
    installation's statements about nodes; others with those of the first readable installation.
    """
    known = [one.settings.stated for one in operators if one.settings]
    stated = {one.node_set: one for one in known}
    sets: dict[str, list[NodeEntry]] = {}
    states: dict[str, NodeState] = {}
    published = await read_live_published(client)
    async for page in client.pages(NODES):
        for node in page:
            states[text_or_empty(at(node, "metadata").get("name"))] = read_node_state(node)
            name = text_or_empty(at(node, "metadata", "labels").get(NODE_SET))
            others = replace(next(iter(known), NONE), node_set=name)
            if facts := published.read(node, stated.get(name, others)):
                sets.setdefault(name, []).append(facts)
    return _Nodes(sets, states)


async def _fetches(client: Client) -> Sequence[Object]:
    labels = ",".join(map("=".join, JOB_LABELS.items()))
    return await client.list(JOBS, labelSelector=labels)


async def _models(client: Client) -> tuple[Object, ...]:
    pages = client.pages(SHARDED_MODELS, project=_without_what_is_large)
    return tuple([item async for page in pages for item in page])


def _without_what_is_large(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that checks read: a config may have 1 MB, a status a quarter of it."""
    status, groups = at(item, "status"), mappings(at(item, "status").get("groups"))
    kept = ("name", "ready", "nodes")
    return {
        "metadata": item.get("metadata"),
        "spec": {
            "model": {"weights": at(item, "spec", "model", "weights")},
            "routing": at(item, "spec", "routing"),
        },
        "status": {
            "conditions": status.get("conditions"),
            "groups": [{field: group.get(field) for field in kept} for group in groups],
        },
    }


async def _router_accounts(client: Client, models: Sequence[Object]) -> Sequence[RouterAccount]:
    named = {
        (
            text_or_empty(at(model, "metadata").get("namespace")),
            text_or_empty(at(model, "spec", "routing").get("serviceAccountName")) or ROUTER_ACCOUNT,
        )
        for model in models
        if at(model, "spec", "routing").get("mode") == "Router"
    }
    return [await _router_account(client, account) for account in sorted(named)]


async def _router_account(client: Client, account: Account) -> RouterAccount:
    namespace, name = account
    there = await client.get(SERVICE_ACCOUNTS, namespace, name, metadata_only=True)
    asked = tuple(Needed((PODS, "", verb), namespace) for verb in ("list", "watch"))
    missing = await missing_rights(client, asked, account)
    return RouterAccount(namespace, name, exists=there is not None, sees_pods=not missing)


async def _measured(
    client: Client, arguments: Namespace, deployments: Sequence[Object]
) -> Measured | None:
    if not arguments.network_policies:
        return None
    # The operator's has Python, and nodes may already have it.
    images = (
        text_or_empty(container.get("image"))
        for item in deployments
        for container in mappings(at(item, "spec", "template", "spec").get("containers"))
    )
    image = arguments.image or next(filter(None, images), "")
    return await measure(client, Trial(namespace=arguments.trial_namespace, image=image))
