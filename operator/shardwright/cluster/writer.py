"""Carries out decisions: creates, applies by force what is ours, deletes by uid."""

import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardwright.cluster.client import APPLY_PATCH, FIELD_MANAGER, JSON_PATCH, ApiError, Client
from shardwright.cluster.resources import BY_KIND, SECRETS, Resource
from shardwright.cluster.ssh_key import SEED_BYTES, key_pair
from shardwright.reconcile.decision import Apply, Create, CreateKey, Delete, Write
from shardwright.rendering.ssh import PRIVATE_KEY, PUBLIC_KEY

CONFLICT: Final = 409
OWNING_ATTEMPTS: Final = 5  # an object's controller writes its status at the same time


async def carry_out(client: Client, writes: Sequence[Write]) -> None:
    """Write in order and stop at the first refusal.

    Raises:
        ApiError: a write was refused; what was written before it stays, and the next decision goes on from there.
    """
    for write in writes:
        match write:
            case Create():
                await _create(client, write)
            case CreateKey():
                await _create_key(client, write)
            case Apply():
                await _apply(client, write)
            case Delete():
                resource = BY_KIND[write.kind]
                await client.delete(resource, write.namespace, write.name, uid=write.uid, grace_seconds=write.grace_seconds)


async def _create(client: Client, write: Create) -> None:
    resource = BY_KIND[write.content["kind"]]
    await client.create(resource, write.content["metadata"]["namespace"], write.content)


async def _create_key(client: Client, write: CreateKey) -> None:
    """Make a key and create its Secret; 409 says that there is one, which is the key."""
    private, public = key_pair(secrets.token_bytes(SEED_BYTES))
    data = {PRIVATE_KEY: private, PUBLIC_KEY: public}
    encoded = {name: b64encode(text.encode()).decode() for name, text in data.items()}
    try:
        await client.create(SECRETS, write.content["metadata"]["namespace"], {**write.content, "data": encoded})
    except ApiError as error:
        if error.code != CONFLICT:
            raise


async def _apply(client: Client, write: Apply) -> None:
    """Apply with the uid as a precondition: an object that replaced ours meanwhile answers 409."""
    metadata = {**write.content["metadata"], "uid": write.uid}
    resource = BY_KIND[write.content["kind"]]
    path = resource.path(metadata["namespace"], metadata["name"])
    for attempts_left in reversed(range(OWNING_ATTEMPTS)):
        live = await client.get(resource, metadata["namespace"], metadata["name"])
        try:
            await _own_by_apply(client, resource, path, live or {"metadata": {}})
            break
        except ApiError as error:
            if error.code != CONFLICT or not attempts_left:
                raise
    await client.patch(resource, path, {**write.content, "metadata": metadata}, APPLY_PATCH, force=True)


async def _own_by_apply(client: Client, resource: Resource, path: str, live: Mapping[str, Any]) -> None:
    """Turn the field ownership of our POST into that of an apply, once.

    Otherwise no apply could remove a field again: the POST would still own it. The version that was read is
    replaced, not tested: out of date it answers 409, where a test that fails answers 422 as a real refusal does.
    """
    managers = live["metadata"].get("managedFields") or ()
    index = next((i for i, m in enumerate(managers) if _posted_by_us(m)), None)
    if index is None:
        return
    operations = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": f"/metadata/managedFields/{index}/operation", "value": "Apply"},
    ]
    await client.patch(resource, path, operations, JSON_PATCH)


def _posted_by_us(manager: Mapping[str, Any]) -> bool:
    return manager.get("manager") == FIELD_MANAGER and manager.get("operation") == "Update" and not manager.get("subresource")
