"""Asks the API server before starting what the service account may do, so that a missing rule has a clear name."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardwright.cluster.client import Call, Client
from shardwright.cluster.resources import (
    ACCESS_REVIEWS,
    CHILDREN,
    CONTROLLER_REVISIONS,
    LIMIT_RANGES,
    NODES,
    OPTIONAL_CHILDREN,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SHARDED_MODELS,
    SUBJECT_REVIEWS,
    Resource,
)

NEEDED: Final[Sequence[tuple[Resource, str, str]]] = (
    *((NODES, "", verb) for verb in ("get", "list", "watch")),
    (PODS, "", "get"),
    *((resource, "", verb) for resource in (PRIORITY_CLASSES, RESOURCE_QUOTAS, LIMIT_RANGES) for verb in ("list", "watch")),
    *((SHARDED_MODELS, "", verb) for verb in ("get", "list", "watch")),
    (SHARDED_MODELS, "status", "patch"),
    (SECRETS, "", "create"),
    *((CONTROLLER_REVISIONS, "", verb) for verb in ("get", "create", "delete")),
    *((child, "", verb) for child in CHILDREN for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((child, "", verb) for child in OPTIONAL_CHILDREN for verb in ("get", "list", "watch", "create", "patch", "delete")),
)
"""Resource, subresource and verb without which nothing works."""


Account = tuple[str, str]
"""Namespace and name of a service account."""


async def may(client: Client, resource: Resource, subresource: str, verb: str, account: Account | None = None) -> bool:
    """Return whether we, or a service account, may do this in all namespaces."""
    review = _review(resource, subresource, verb)
    if account is None:
        return _allowed(await client.create(ACCESS_REVIEWS, None, review))
    return _allowed(await client.create(SUBJECT_REVIEWS, None, _of_account(review, account)))


def may_now(client: Client, resource: Resource, verb: str, seconds: float) -> bool:
    """Return the same from any thread, blocking no longer than this.

    Raises:
        ApiError: the API server did not say.
    """
    review = _review(resource, "", verb)
    call = Call(verb="create", resource=ACCESS_REVIEWS, path=ACCESS_REVIEWS.path(), method="POST", body=review)
    return _allowed(client.ask(call, seconds))


def _review(resource: Resource, subresource: str, verb: str) -> dict[str, Any]:
    group = resource.prefix.split("/")[2] if resource.prefix.startswith("/apis/") else ""
    attributes = {"group": group, "resource": resource.plural, "subresource": subresource, "verb": verb}
    return {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }


def _of_account(review: Mapping[str, Any], account: Account) -> dict[str, Any]:
    namespace, name = account
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    who = {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    return {**review, "kind": SUBJECT_REVIEWS.kind, "spec": {**review["spec"], **who}}


def _allowed(review: Mapping[str, Any]) -> bool:
    return (review.get("status") or {}).get("allowed") is True


async def missing_permissions(client: Client, account: Account | None = None) -> tuple[str, ...]:
    """Return what the operator's service account, by default our own, may not do and must, as "verb resource"."""
    answers = await asyncio.gather(*(may(client, *needed, account) for needed in NEEDED))
    return tuple(
        f"{verb} {resource.plural}" + (f"/{subresource}" if subresource else "")
        for (resource, subresource, verb), allowed in zip(NEEDED, answers, strict=True)
        if not allowed
    )


async def may_see_pods(client: Client) -> bool:
    """Return whether the pods of all namespaces can be listed; without it free capacity is unknown."""
    return await may(client, PODS, "", "list") and await may(client, PODS, "", "watch")
