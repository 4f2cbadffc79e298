"""Nodes, pods and plans of a live cluster, for planning.

Without the right to list nodes there is nothing to plan; anything else that may not be read is left
out.

A cluster's ShardedModel as a question to the planner, with the config that the cluster holds.

``plan NAME``: a ShardedModel of the cluster with its current plan; one for an older generation
of its spec does not count.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel, read_stored
from shardwright.api.settings import Settings
from shardwright.cli.checkpoints import fetched_for, read_unknown
from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.exits import UnreachableError
from shardwright.cli.live_models import LiveModel, is_planned, read_model
from shardwright.cli.surroundings import Surroundings, read_nodes, read_reservations, read_usage
from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DISCOVERY,
    NODES,
    OPTIONAL_CHILDREN,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SHARDED_MODELS,
    Resource,
)
from shardwright.engines.vllm.releases import kept_default
from shardwright.hardware.capabilities import lacking
from shardwright.hardware.facts import GpuUsage, read_pod
from shardwright.hardware.gpus import NONE, Stated
from shardwright.hardware.nodes import PublishedDevices, read_published
from shardwright.hardware.untrusted import mappings
from shardwright.hardware.volume_claims import ClaimsByName, read_claims
from shardwright.modelspec.config_json import config_map_text
from shardwright.reconcile.observed import controller_uid
from shardwright.resolving.model import Question, source_of
from shardwright.resolving.subject import Subject, resolve

MANAGED: Final = "app.kubernetes.io/managed-by=shardwright"
_STORAGE_KINDS: Final = (
    Resource(prefix="/api/v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"),
    Resource(prefix="/api/v1", plural="persistentvolumes", kind="PersistentVolume"),
    Resource(prefix="/apis/storage.k8s.io/v1", plural="storageclasses", kind="StorageClass"),
)
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


def read_surroundings_of(cluster: Target, stated: Stated = NONE) -> Surroundings:
    """Return the surroundings in a cluster; ``stated`` comes from the settings.

    Raises:
        UnreachableError: no answer, no credentials, or nodes may not be listed.
    """
    return cluster.ask(lambda client: read_live_surroundings(client, stated))


async def read_live_surroundings(client: Client, stated: Stated = NONE) -> Surroundings:
    """Return the nodes, and the pods and plans of record as far as they may be read."""
    published = await read_live_published(client)
    nodes = [
        node async for page in client.pages(NODES) for node in read_nodes(page, stated, published)
    ]
    plans = await unless_forbidden(client.list(CONFIG_MAPS, labelSelector=MANAGED))
    absent = {kind.kind for kind in OPTIONAL_CHILDREN if not await _serves(client, kind)}
    return Surroundings(
        nodes=tuple(nodes),
        usage=await unless_forbidden(_read_usage(client)),
        reservations=read_reservations(plans or (), await unless_forbidden(_read_modes(client))),
        lacking=lacking(absent),
        claims=await _read_claims(client),
    )


async def _read_claims(client: Client) -> ClaimsByName:
    """Return the claims of the cluster, none if they may not be read."""
    claims, volumes, classes = [
        await unless_forbidden(_all(client, kind)) or () for kind in _STORAGE_KINDS
    ]
    return read_claims(claims, volumes, classes)


async def _serves(client: Client, resource: Resource) -> bool:
    """Return whether a cluster has a kind of object; one that does not say is taken to have it."""
    path = resource.prefix
    try:
        found = await client.send(Call(verb="get", resource=DISCOVERY, path=path, method="GET"))
    except ApiError as error:
        return error.code != HTTPStatus.NOT_FOUND
    return any(item.get("name") == resource.plural for item in mappings(found.get("resources")))


async def read_live_published(client: Client) -> PublishedDevices:
    """Return the devices that DRA drivers publish, none if they may not be read."""
    kinds = (RESOURCE_SLICES, DEVICE_CLASSES)
    slices, classes = [await unless_forbidden(_all(client, kind)) or () for kind in kinds]
    return read_published(slices, classes)


async def _all(client: Client, resource: Resource, **options: Any) -> list[dict[str, Any]]:
    try:
        return [item async for page in client.pages(resource, **options) for item in page]
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return []
        raise


async def _read_modes(client: Client) -> list[dict[str, Any]]:
    return await _all(client, SHARDED_MODELS, project=_mode)


def _mode(model: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"uid": model["metadata"]["uid"]},
        "spec": {"mode": (model.get("spec") or {}).get("mode")},
    }


async def _read_usage(client: Client) -> tuple[GpuUsage, ...]:
    """Return the GPUs that pods and claims hold; most pods of a large cluster hold none."""
    pages = client.pages(PODS, fieldSelector=UNFINISHED)
    pods = [
        pod
        async for page in pages
        for pod in page
        if read_pod(pod) or pod["spec"].get("resourceClaims")
    ]
    return read_usage(pods, await unless_forbidden(_all(client, RESOURCE_CLAIMS)) or ())


async def read_subject(
    client: Client, model: LiveModel, resource: ShardedModel, settings: Settings, *, offline: bool
) -> Subject:
    """Return the question of a resource, with its model's config from the cluster or the hub.

    Raises:
        InputError: it is wrong, or its model is not known.
        UnreachableError: the hub cannot be asked now.
    """
    source = source_of(resource)
    config_text = None
    if source is not None:
        name, key = source
        found = await client.get(CONFIG_MAPS, resource.metadata.namespace, name) or {"metadata": {}}
        if resource.spec.model.config_map_ref or controller_uid(found) == model.owner.uid:
            config_text = config_map_text(found, key)
    kept = kept_default(model.record.default_of_spec) if model.record else None
    unknown = read_unknown(((None, resource, config_text is not None),), offline=offline)
    question = Question(
        resource=resource,
        config_text=config_text,
        catalogue=fetched_for(resource, unknown),
        kept_version=kept,
        settings=settings,
        lacking=lacking(model.absent_kinds),
    )
    return resolve(question)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A ShardedModel of the cluster; ``record`` is the plan for its present spec."""

    resource: ShardedModel
    record: PlanRecord | None
    surroundings: Surroundings


def read_named(cluster: Target, name: str, stated: Stated) -> NamedModel:
    """Return a ShardedModel with the nodes around it.

    Raises:
        InputError: it does not exist, or its spec is wrong.
        UnreachableError: no answer, no credentials, or it has no plan and nodes may not be listed.
    """
    live = cluster.ask(lambda client: read_model(client, cluster.namespace, name))
    current = live.content["metadata"]["generation"] == (live.content.get("status") or {}).get(
        "observedGeneration"
    )
    record = live.record if current and is_planned(live.content) else None
    return NamedModel(
        resource=read_stored(live.content),
        record=record,
        surroundings=_around(cluster, record, stated),
    )


def _around(cluster: Target, record: PlanRecord | None, stated: Stated) -> Surroundings:
    """Return the surroundings, empty if nodes may not be listed but there is a plan to show."""
    try:
        return read_surroundings_of(cluster, stated)
    except UnreachableError as error:
        if record is None or not error.forbidden:
            raise
        return Surroundings(nodes=(), usage=())
