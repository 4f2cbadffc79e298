"""Asks the API server for the user of a token, and whether that user may read the pages of this
process.

No answer is kept here: those who ask remember them for seconds.
"""

from collections.abc import Mapping
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import Call, Client
from shardwright.cluster.resources import SUBJECT_REVIEWS, TOKEN_REVIEWS, Resource

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
    return HTTPStatus.OK if may(client, who, asked, until) else HTTPStatus.FORBIDDEN


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


def may(client: Client, who: User, asked: Mapping[str, Any], until: float) -> bool:
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
