"""Carries out decisions: creates, applies by force what is ours, deletes by uid."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from shardwright.cluster.client import APPLY_PATCH, FIELD_MANAGER, JSON_PATCH, ApiError, Client
from shardwright.cluster.resources import BY_KIND, PODS, SECRETS, Resource
from shardwright.cluster.ssh_key import key_pair
from shardwright.errors import Problem
from shardwright.reconcile.decision import Apply, Create, CreateKey, Delete, Write
from shardwright.reconcile.drift import dropped_fields
from shardwright.reconcile.groups import template_hash
from shardwright.reconcile.observed import STATEFUL_SET, kind_of
from shardwright.reconcile.refusals import field_dropped, forbids_pods, pod_of, pod_security_forbids
from shardwright.rendering.ssh import PRIVATE_KEY, PUBLIC_KEY

CONFLICT: Final = 409
OWNING_ATTEMPTS: Final = 5  # an object's controller writes its status at the same time


NO_DRY_RUN: Final = "does not support dry run"  # says the API server of a webhook
UNPROCESSABLE: Final = 422


class RefusedError(ApiError):
    """The API server takes an object, and what was sent would not come to run; ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(UNPROCESSABLE, problem.code, problem.sentence())


async def carry_out(client: Client, writes: Sequence[Write]) -> None:
    """Write in order and stop at the first refusal.

    What starts pods is tried first: a group without a field that the API server drops would start all the same.

    Raises:
        ApiError: a write was refused; what was written before it stays, and the next decision goes on from there.
        RefusedError: what was sent is not what is, or would be, stored, or its pods would not be let in.
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
    resource, content = BY_KIND[kind_of(write.content)], write.content

    async def send(*, dry_run: bool) -> Mapping[str, Any]:
        return await client.create(resource, content["metadata"]["namespace"], content, dry_run=dry_run)

    await _keeping_all(client, send, content, try_first=content["kind"] == STATEFUL_SET)


async def _create_key(client: Client, write: CreateKey) -> None:
    """Make a key and create its Secret; 409 says that there is one, which is the key."""
    try:
        await client.create(SECRETS, write.content["metadata"]["namespace"], with_new_key(write.content))
    except ApiError as error:
        if error.code != CONFLICT:
            raise


def with_new_key(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Secret with a key in it that nobody has had before."""
    private, public = key_pair()
    data = {PRIVATE_KEY: private, PUBLIC_KEY: public}
    return {**secret, "data": {name: b64encode(text.encode()).decode() for name, text in data.items()}}


async def _apply(client: Client, write: Apply) -> None:
    """Apply with the uid as a precondition: an object that replaced ours meanwhile answers 409."""
    metadata = {**write.content["metadata"], "uid": write.uid}
    resource = BY_KIND[kind_of(write.content)]
    path = resource.path(metadata["namespace"], metadata["name"])
    live = await _owned_by_apply(client, resource, path, metadata)
    content = {**write.content, "metadata": metadata}

    async def send(*, dry_run: bool) -> Mapping[str, Any]:
        return await client.patch(resource, path, content, APPLY_PATCH, force=True, dry_run=dry_run)

    await _keeping_all(client, send, content, try_first=template_hash(live) != template_hash(content))


async def _keeping_all(
    client: Client, send: Callable[..., Awaitable[Mapping[str, Any]]], content: Mapping[str, Any], *, try_first: bool
) -> None:
    """Send an object and see that all of it was kept; where it is tried first, nothing has changed if it would not be."""
    if try_first:
        _check(content, await _tried(send, content))
        await _try_pod(client, content)
    _check(content, await send(dry_run=False))


async def _try_pod(client: Client, content: Mapping[str, Any]) -> None:
    """Ask whether Pod Security would let the pods of a StatefulSet in: it keeps pods out, not what makes them.

    Whatever else speaks against the pod today (a quota, a webhook) may be gone tomorrow and is the StatefulSet's to wait for.
    """
    try:
        await client.create(PODS, content["metadata"]["namespace"], pod_of(content), dry_run=True)
    except ApiError as error:
        if forbids_pods(str(error)):
            raise RefusedError(pod_security_forbids(content, str(error))) from error


async def _tried(send: Callable[..., Awaitable[Mapping[str, Any]]], content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what would be stored; a webhook that cannot be asked without consequences is not asked."""
    try:
        return await send(dry_run=True)
    except ApiError as error:
        if NO_DRY_RUN not in str(error):
            raise
        return content


def _check(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    if dropped := dropped_fields(sent, stored):
        raise RefusedError(field_dropped(sent, dropped))


async def _owned_by_apply(client: Client, resource: Resource, path: str, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the live object, whose fields are owned by an apply of ours now."""
    for attempts_left in reversed(range(OWNING_ATTEMPTS)):
        live = await client.get(resource, metadata["namespace"], metadata["name"]) or {"metadata": {}}
        try:
            await _own_by_apply(client, resource, path, live)
            break
        except ApiError as error:
            if error.code != CONFLICT or not attempts_left:
                raise
    return live


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
