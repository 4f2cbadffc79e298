"""Asks the API server before starting what the service account may do, so that a missing rule has a clear name."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
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

Right = tuple[Resource, str, str]
"""Resource, subresource and verb."""

OF_THE_CLUSTER: Final[Sequence[Right]] = (
    *((NODES, "", verb) for verb in ("get", "list", "watch")),
    *((PRIORITY_CLASSES, "", verb) for verb in ("list", "watch")),
)
"""Without which nothing works, of what no namespace has."""

OF_NAMESPACES: Final[Sequence[Right]] = (
    (PODS, "", "get"),
    *((resource, "", verb) for resource in (RESOURCE_QUOTAS, LIMIT_RANGES) for verb in ("list", "watch")),
    *((SHARDED_MODELS, "", verb) for verb in ("get", "list", "watch")),
    (SHARDED_MODELS, "status", "patch"),
    (SECRETS, "", "create"),
    *((CONTROLLER_REVISIONS, "", verb) for verb in ("get", "create", "delete")),
    *((child, "", verb) for child in CHILDREN for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((child, "", verb) for child in OPTIONAL_CHILDREN for verb in ("get", "list", "watch", "create", "patch", "delete")),
)
"""The same of each namespace with models."""


Account = tuple[str, str]
"""Namespace and name of a service account."""


async def may(
    client: Client,
    resource: Resource,
    subresource: str,
    verb: str,
    account: Account | None = None,
    namespace: str | None = None,
) -> bool:
    """Return whether we, or a service account, may do this in all namespaces, or in one."""
    review = _review(resource, subresource, verb, namespace)
    if account is None:
        return _allowed(await client.create(ACCESS_REVIEWS, None, review))
    return _allowed(await client.create(SUBJECT_REVIEWS, None, _of_account(review, account)))


def may_now(client: Client, resource: Resource, verb: str, seconds: float, namespace: str | None = None) -> bool:
    """Return the same from any thread, blocking no longer than this.

    Raises:
        ApiError: the API server did not say.
    """
    review = _review(resource, "", verb, namespace)
    call = Call(verb="create", resource=ACCESS_REVIEWS, path=ACCESS_REVIEWS.path(), method="POST", body=review)
    return _allowed(client.ask(call, seconds))


def _review(resource: Resource, subresource: str, verb: str, namespace: str | None) -> dict[str, Any]:
    group = resource.prefix.split("/")[2] if resource.prefix.startswith("/apis/") else ""
    attributes = {"group": group, "resource": resource.plural, "subresource": subresource, "verb": verb}
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes | where},
    }


def _of_account(review: Mapping[str, Any], account: Account) -> dict[str, Any]:
    namespace, name = account
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    who = {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    return {**review, "kind": SUBJECT_REVIEWS.kind, "spec": {**review["spec"], **who}}


def _allowed(review: Mapping[str, Any]) -> bool:
    return (review.get("status") or {}).get("allowed") is True


def needed(namespaces: Collection[str] = ()) -> Iterator[tuple[Right, str | None]]:
    """Yield each right without which nothing works, and its namespace, None for all; ``namespaces``: those watched, or all."""
    yield from ((right, None) for right in OF_THE_CLUSTER)
    yield from ((right, namespace) for namespace in (tuple(namespaces) or (None,)) for right in OF_NAMESPACES)


async def missing_permissions(
    client: Client, account: Account | None = None, namespaces: Collection[str] = ()
) -> tuple[str, ...]:
    """Return what the operator's service account, by default our own, may not do and must, as "verb resource".

    ``namespaces`` are those that it watches, all where none is named.
    """
    asked = tuple(needed(namespaces))
    answers = await asyncio.gather(*(may(client, *right, account, namespace) for right, namespace in asked))
    return tuple(
        f"{verb} {resource.plural}" + (f"/{subresource}" if subresource else "") + (f" in {namespace}" if namespace else "")
        for ((resource, subresource, verb), namespace), allowed in zip(asked, answers, strict=True)
        if not allowed
    )


async def may_see_pods(client: Client) -> bool:
    """Return whether the pods of all namespaces can be listed; without it free capacity is unknown."""
    return await may(client, PODS, "", "list") and await may(client, PODS, "", "watch")
