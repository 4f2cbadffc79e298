"""Reads what exists of one ShardedModel, fresh from the API server: what is not there is really not there."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import BY_KIND, CHILDREN, OPTIONAL_CHILDREN, PODS, Resource
from shardwright.reconcile.decision import ObjectKey
from shardwright.reconcile.members import read_member
from shardwright.reconcile.observed import Observed, object_key

_ABSENT: Final = frozenset({403, 404})


async def observe(client: Client, namespace: str, selector: str, more: Sequence[Resource] = ()) -> Observed:
    """Return the objects and the pods that carry the model's label; ``more`` are kinds beside those of every cluster."""
    optional = (*OPTIONAL_CHILDREN, *more)
    pods, *listed = await asyncio.gather(
        client.list(PODS, namespace, labelSelector=selector),
        *(_children(client, resource, namespace, selector) for resource in CHILDREN),
        *(_if_there(client, resource, namespace, selector) for resource in optional),
    )
    absent = (kind.kind for kind, items in zip((*CHILDREN, *optional), listed, strict=True) if items is None)
    objects = {object_key(item): item for items in listed for item in items or ()}
    read = [(pod["metadata"]["name"], read_member(pod)) for pod in pods]
    strangers = tuple(sorted(name for name, member in read if member is None))
    members = tuple(member for _, member in read if member is not None)
    return Observed(objects=objects, members=members, absent_kinds=frozenset(absent), strangers=strangers)


async def complete(client: Client, namespace: str, observed: Observed, wanted: Collection[ObjectKey]) -> Observed:
    """Return the observed objects and those of the wanted names, whatever labels they carry and whoever owns them."""
    missing = [key for key in wanted if key not in observed.objects and BY_KIND[key[0]].kind not in observed.absent_kinds]
    found = await asyncio.gather(*(client.get(BY_KIND[kind], namespace, name) for kind, name in missing))
    named = {key: item for key, item in zip(missing, found, strict=True) if item is not None}
    return replace(observed, objects={**observed.objects, **named})


async def _if_there(client: Client, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]] | None:
    """Return the objects of a kind, None where the cluster does not have it (any more), or does not let us see it."""
    try:
        return await _children(client, resource, namespace, selector)
    except ApiError as error:
        if error.code not in _ABSENT:
            raise
        return None


async def _children(client: Client, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
    items = await client.list(resource, namespace, labelSelector=selector)
    return [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
