"""ShardedModels of a cluster, each with its plan of record, its objects and its pods.

Signatures of plans are not checked: the operator has the keys.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from shardwright.api.conditions import ConditionType
from shardwright.api.record import PlanRecord
from shardwright.cli.clusters import unless_forbidden
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.kinds import POD_GROUPS
from shardwright.cluster.resources import (
    CHILDREN,
    CONFIG_MAPS,
    OPTIONAL_CHILDREN,
    PODS,
    SHARDED_MODELS,
    Resource,
)
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping, mappings
from shardwright.reconcile.members import Member, read_member
from shardwright.reconcile.observed import controller_uid, object_key
from shardwright.reconcile.record_object import SigningKeys, read_record
from shardwright.reconcile.revisions import Former
from shardwright.reconcile.writes import ObjectKey
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import base_name, plan_configmap

_REFUSED: Final = frozenset({403, 404})

Content = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LiveModel:
    """A ShardedModel as the API server stores it, with its objects; a forbidden part is None.

    ``formers`` are the revisions that it may go back to, by hash.
    """

    content: Content
    record: PlanRecord | None = None
    objects: Mapping[ObjectKey, Content] = field(default_factory=dict)
    pods: tuple[Content, ...] | None = ()
    absent_kinds: frozenset[str] = frozenset()
    formers: Mapping[str, Former] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        """Return the owner of its objects."""
        return owner_of(self.content)

    @property
    def members(self) -> tuple[Member, ...]:
        """Return the model's pods that a StatefulSet controls."""
        return tuple(member for pod in self.pods or () if (member := read_member(pod)))


def owner_of(content: Content) -> Owner:
    """Return the owner of a stored ShardedModel's objects."""
    metadata = content["metadata"]
    return Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])


def is_planned(content: Mapping[str, Any]) -> bool:
    """Return whether a resource's spec has a plan."""
    return condition_of(content, ConditionType.PLANNED).get("status") == "True"


def condition_of(content: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a resource, empty if its status lacks it."""
    conditions = mappings(mapping(content.get("status")).get("conditions"))
    return next((item for item in conditions if item.get("type") == kind), {})


async def list_objects(
    client: Client, resource: Resource, namespace: str | None, **selectors: str
) -> list[Content]:
    """Return the objects of a kind, each with its kind, which a LIST leaves out."""
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**kind, **item} for item in await client.list(resource, namespace, **selectors)]


async def list_models(client: Client, namespace: str | None) -> list[Content]:
    """Return the ShardedModels of a namespace, or of all (None), by namespace and name."""
    found = await list_objects(client, SHARDED_MODELS, namespace)
    return sorted(found, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]))


async def read_model(client: Client, namespace: str, name: str) -> LiveModel:
    """Return a ShardedModel with its plan of record.

    Raises:
        InputError: it does not exist; one with a similar name is suggested.
    """
    content = await client.get(SHARDED_MODELS, namespace, name)
    if content is None:
        return await no_such_model(client, namespace, name)
    return LiveModel(content=content, record=await _record(client, owner_of(content)))


async def with_objects(client: Client, model: LiveModel) -> LiveModel:
    """Return a model with its objects and pods, as far as they may be read."""
    owner = model.owner
    objects = dict[ObjectKey, Content]()
    absent = set[str]()
    for resource in (*CHILDREN, *OPTIONAL_CHILDREN, *POD_GROUPS):
        found = await _listed(client, resource, owner)
        if found is None:
            absent.add(resource.kind)
        ours = (item for item in found or () if controller_uid(item) == owner.uid)
        objects |= {object_key(item): item for item in ours}
    pods = await _listed(client, PODS, owner)
    return LiveModel(
        content=model.content,
        record=model.record,
        objects=objects,
        pods=None if pods is None else tuple(pods),
        absent_kinds=frozenset(absent),
    )


async def _listed(client: Client, resource: Resource, owner: Owner) -> list[Content] | None:
    try:
        return await list_objects(
            client, resource, owner.namespace, labelSelector=f"{MODEL}={base_name(owner.name)}"
        )
    except ApiError as error:
        if error.code in _REFUSED:
            return None
        raise


async def _record(client: Client, owner: Owner) -> PlanRecord | None:
    name = plan_configmap(base_name(owner.name))
    kept = await unless_forbidden(client.get(CONFIG_MAPS, owner.namespace, name))
    stored = read_record(kept, owner.uid, SigningKeys())
    return stored.said if stored and isinstance(stored.said, PlanRecord) else None


async def no_such_model(client: Client, namespace: str, name: str) -> NoReturn:
    """Report that a ShardedModel does not exist.

    Raises:
        InputError: always; one with a similar name is suggested.
    """
    there = [
        item["metadata"]["name"]
        for item in await unless_forbidden(client.list(SHARDED_MODELS, namespace)) or ()
    ]
    near = difflib.get_close_matches(name, there, n=1)
    remedy = (
        f"did you mean {near[0]}?"
        if near
        else "'kubectl get smodel -A' lists all; -n names another namespace"
    )
    what = f"there is no ShardedModel {name} in namespace {namespace}"
    raise InputError([Problem(code="NoShardedModel", path="NAME", what=what, remedy=remedy)])
