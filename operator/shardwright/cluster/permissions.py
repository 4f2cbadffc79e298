"""Which rights the service account lacks, asked at the start to name a missing rule.

A missing right stops nothing: the operator says so and goes on.

Asks the API server for the user of a token, and whether that user may read the pages of this
process.

No answer is kept here: those who ask remember them for seconds.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import Call, Client
from shardwright.cluster.resources import (
    ACCESS_REVIEWS,
    CHILDREN,
    CLUSTER_ROLES,
    COMPUTE_DOMAINS,
    CONTROLLER_REVISIONS,
    JOBS,
    LIMIT_RANGES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SHARDED_MODELS,
    SUBJECT_REVIEWS,
    TOKEN_REVIEWS,
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
    *(
        (resource, "", verb)
        for resource in (RESOURCE_QUOTAS, LIMIT_RANGES)
        for verb in ("list", "watch")
    ),
    *((SHARDED_MODELS, "", verb) for verb in ("get", "list", "watch")),
    (SHARDED_MODELS, "status", "patch"),
    (SECRETS, "", "create"),
    *((CONTROLLER_REVISIONS, "", verb) for verb in ("get", "create", "delete")),
    *(
        (child, "", verb)
        for child in CHILDREN
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    *(
        (child, "", verb)
        for child in (COMPUTE_DOMAINS,)
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
)
"""The same of each namespace with models. Kinds of resource.k8s.io are not among them: the chart's
``dra.enabled`` says whether they are for the operator, and it goes on without.
"""

OF_JOBS: Final[Sequence[Right]] = tuple((JOBS, "", verb) for verb in ("get", "create"))
"""The same where configs are read from the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """The work of an operator, as far as its rights follow from it.

    ``namespaces`` are the watched ones (empty: all), ``claims`` the ClusterRoles that state its
    scope; ``fetches``: it has configs read from the hub.
    """

    namespaces: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    fetches: bool = False


ANYWHERE: Final = Duties()


@dataclass(frozen=True, slots=True)
class Needed:
    """A needed right: in one namespace or all (None), on the object of this name or any (empty)."""

    right: Right
    namespace: str | None = None
    name: str = ""

    def __str__(self) -> str:
        """Return it as shown to users."""
        resource, subresource, verb = self.right
        part, name = (
            f"/{subresource}" if subresource else "",
            f" {self.name}" if self.name else "",
        )
        return f"{verb} {resource.plural}{part}{name}" + (
            f" in {self.namespace}" if self.namespace else ""
        )


Account = tuple[str, str]
"""Namespace and name of a service account."""


async def may(client: Client, wanted: Needed, account: Account | None = None) -> bool:
    """Return whether we, or a service account, have a right."""
    review = _review(wanted)
    if account is None:
        return _allowed(await client.create(ACCESS_REVIEWS, None, review))
    return _allowed(await client.create(SUBJECT_REVIEWS, None, _of_account(review, account)))


def may_now(
    client: Client, resource: Resource, verb: str, seconds: float, namespace: str | None = None
) -> bool:
    """Return whether we have a right; from any thread, blocking for ``seconds`` at most.

    Raises:
        ApiError: the API server did not say.
    """
    review = _review(Needed((resource, "", verb), namespace))
    call = Call(
        verb="create",
        resource=ACCESS_REVIEWS,
        path=ACCESS_REVIEWS.path(),
        method="POST",
        body=review,
    )
    return _allowed(client.ask(call, seconds))


def _review(wanted: Needed) -> dict[str, Any]:
    resource, subresource, verb = wanted.right
    group = resource.prefix.split("/")[2] if resource.prefix.startswith("/apis/") else ""
    attributes = {
        "group": group,
        "resource": resource.plural,
        "subresource": subresource,
        "verb": verb,
    }
    # Left out for all namespaces: a review without one asks for the right in each of them.
    namespace = {"namespace": wanted.namespace} if wanted.namespace else {}
    where = namespace | ({"name": wanted.name} if wanted.name else {})
    return {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes | where},
    }


def _of_account(review: Mapping[str, Any], account: Account) -> dict[str, Any]:
    namespace, name = account
    # A SubjectAccessReview knows nobody's groups: those of a service account must be said, or no
    # binding to them counts.
    groups = [
        "system:authenticated",
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
    ]
    who = {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    return {**review, "kind": SUBJECT_REVIEWS.kind, "spec": {**review["spec"], **who}}


def _allowed(review: Mapping[str, Any]) -> bool:
    return (review.get("status") or {}).get("allowed") is True


def needed(duties: Duties = ANYWHERE) -> Iterator[Needed]:
    """Yield each right without which something does not work."""
    # Without them an installation does not know what is its own.
    yield from (Needed((CLUSTER_ROLES, "", "list"), name=name) for name in duties.claims)
    yield from (Needed(right) for right in OF_THE_CLUSTER)
    rights = (*OF_NAMESPACES, *(OF_JOBS if duties.fetches else ()))
    yield from (
        Needed(right, namespace) for namespace in duties.namespaces or (None,) for right in rights
    )


async def missing_permissions(client: Client, wanted: Iterable[Needed]) -> tuple[str, ...]:
    """Return which of these rights we lack, as "verb resource"."""
    return tuple(map(str, await missing_rights(client, wanted)))


async def missing_rights(
    client: Client, wanted: Iterable[Needed], account: Account | None = None
) -> tuple[Needed, ...]:
    """Return which of these rights the account (default: our own) lacks."""
    asked = tuple(wanted)
    # At once: one after another some fifty questions would hold up the start.
    answers = await asyncio.gather(*(may(client, one, account) for one in asked))
    return tuple(one for one, allowed in zip(asked, answers, strict=True) if not allowed)


async def may_see_pods(client: Client, account: Account | None = None) -> bool:
    """Return whether all namespaces' pods may be listed; if not, free capacity is unknown."""
    return not await missing_rights(
        client, (Needed((PODS, "", verb)) for verb in ("list", "watch")), account
    )


AUDIENCE: Final = "shardwright-metrics"
"""A token's audience: the port has no TLS, and such a token is worthless elsewhere."""

PLANS_AUDIENCE: Final = "shardwright-plans"
"""The same for the pages of plans."""

User = Mapping[str, Any]
"""Who asks, as a SubjectAccessReview has it: user, uid, groups, extra."""


def may_read(client: Client, token: str, path: str, seconds: float) -> HTTPStatus:
    """Return whether a token's user may GET a non-resource path: OK, FORBIDDEN or UNAUTHORIZED.

    Blocks for ``seconds`` at most.

    Raises:
        ApiError: the API server did not say.
    """
    # One time for both questions: the scraper waits for no longer than its own timeout.
    until = monotonic() + seconds
    # The identity first: a SubjectAccessReview believes any name that it is given.
    who = who_brings(client, token, AUDIENCE, until)
    if who is None:
        return HTTPStatus.UNAUTHORIZED
    asked = {"nonResourceAttributes": {"path": path, "verb": "get"}}
    return HTTPStatus.OK if user_may(client, who, asked, until) else HTTPStatus.FORBIDDEN


def who_brings(client: Client, token: str, audience: str, until: float) -> User | None:
    """Return a token's user for a SubjectAccessReview, None if nobody's or not for this audience.

    Blocks until that moment of the monotonic clock.

    Raises:
        ApiError: the API server did not say.
    """
    asked = {"token": token, "audiences": [audience]}
    said = _asked(client, TOKEN_REVIEWS, asked, until)
    # The audience is checked here, too: an API server without audiences answers for its own.
    if said.get("authenticated") is not True or audience not in (said.get("audiences") or ()):
        return None
    who = said.get("user") or {}
    return {
        "user": who.get("username", ""),
        **{field: who[field] for field in ("uid", "groups", "extra") if field in who},
    }


def user_may(client: Client, who: User, asked: Mapping[str, Any], until: float) -> bool:
    """Return whether a user may do what is asked; blocks until that moment of the monotonic clock.

    Raises:
        ApiError: the API server did not say.
    """
    said = _asked(client, SUBJECT_REVIEWS, {**who, **asked}, until)
    return said.get("allowed") is True


def _asked(
    client: Client, resource: Resource, spec: Mapping[str, Any], until: float
) -> Mapping[str, Any]:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
    call = Call(verb="create", resource=resource, path=resource.path(), method="POST", body=body)
    return client.ask(call, until - monotonic()).get("status") or {}
