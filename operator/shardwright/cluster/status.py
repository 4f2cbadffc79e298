"""Writes the status of a ShardedModel: only on change, all of it, and again until it is there."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.kept_model import kept_metadata, project_model
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.rendering.bundle import KubernetesObject

ATTEMPTS: Final = 5


async def write_status(
    client: Client, live: KubernetesObject, status: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Write ``status`` to a live object and return it as stored, None if nothing was written.

    Fields missing in the new status are removed. A resource that is gone or replaced is fine; one
    that changed at the same moment is read and written again.

    Raises:
        ApiError: it could not be written, or it changed at every attempt.
    """
    metadata = live["metadata"]
    # A write that changes nothing still costs a request.
    if (live.get("status") or {}) == status:
        return None
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return await _patch(client, live, status)
        except ApiError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                break
            if error.code != HTTPStatus.CONFLICT or not attempts_left:
                raise
        found = await client.get(SHARDED_MODELS, metadata["namespace"], metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            break
        # Read again for its status: the patch is the difference to the present one.
        live = project_model(found)
    return None


async def _patch(
    client: Client, live: KubernetesObject, status: Mapping[str, Any]
) -> dict[str, Any]:
    metadata = live["metadata"]
    body = {
        # A precondition: a resource of the same name that is made meanwhile answers 409.
        "metadata": {"uid": metadata["uid"]},
        "status": merge_patch(live.get("status") or {}, status),
    }
    answer = await client.patch_status(
        SHARDED_MODELS, metadata["namespace"], metadata["name"], body
    )
    return {
        **live,
        # Only the metadata came back: with an inline config the whole object has up to 1.5 MB.
        "metadata": kept_metadata(answer["metadata"]),
        "status": dict(status),
    }


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that turns one object into the other.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 5}})
    {'b': {'c': 5, 'd': None}, 'a': None}
    """
    patch: dict[str, Any] = {}
    for key, value in after.items():
        if isinstance(value, Mapping) and isinstance(before.get(key), Mapping):
            inner = merge_patch(before[key], value)
            patch |= {key: inner} if inner else {}
        elif key not in before or before[key] != value:
            patch[key] = value
    # None removes a field, by RFC 7386.
    return patch | dict.fromkeys(before.keys() - after.keys())
