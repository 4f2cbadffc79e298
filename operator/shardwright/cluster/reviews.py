"""Asks the API server for the user of a token, and whether that user may read the pages of this
process.

No answer is kept here: a user who may no longer read is refused at the next request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import Call, Client
from shardwright.cluster.resources import SUBJECT_REVIEWS, TOKEN_REVIEWS, Resource

AUDIENCE: Final = "shardwright-metrics"
"""For whom a token must have been made: the port has no TLS, and such a token is worth nothing
anywhere else.
"""


PLANS_AUDIENCE: Final = "shardwright-plans"
"""The same for the pages of plans."""

User = Mapping[str, Any]
"""Who asks, as a SubjectAccessReview has it: user, uid, groups, extra."""


class TokenVerdict(Enum):
    """The API server's verdict on a token."""

    UNKNOWN = auto()
    FORBIDDEN = auto()
    ADMITTED = auto()


def may_read(client: Client, token: str, path: str, seconds: float) -> TokenVerdict:
    """Return whether the user of a token may GET a path that belongs to no resource. Blocking, no
    longer than this.

    Raises:
        ApiError: the API server did not say.
    """
    until = monotonic() + seconds
    # The identity first: a SubjectAccessReview believes any name that it is given.
    who = who_brings(client, token, AUDIENCE, seconds)
    if who is None:
        return TokenVerdict.UNKNOWN
    allowed = _asked(
        client,
        SUBJECT_REVIEWS,
        {**who, "nonResourceAttributes": {"path": path, "verb": "get"}},
        until,
    )
    return (
        TokenVerdict.ADMITTED
        if allowed.get("allowed") is True
        else TokenVerdict.FORBIDDEN
    )


def who_brings(
    client: Client, token: str, audience: str, seconds: float
) -> User | None:
    """Return the user of a token, as a SubjectAccessReview has it. None: nobody has it, or it is
    not for this audience. Blocking.

    Raises:
        ApiError: the API server did not say.
    """
    said = _asked(
        client,
        TOKEN_REVIEWS,
        {"token": token, "audiences": [audience]},
        monotonic() + seconds,
    )
    # The audience is checked here, too: an API server without audiences answers for its own.
    if said.get("authenticated") is not True or audience not in (
        said.get("audiences") or ()
    ):
        return None
    who = said.get("user") or {}
    return {
        "user": who.get("username", ""),
        **{field: who[field] for field in ("uid", "groups", "extra") if field in who},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """To get, list, ... (``verb``) objects of a kind in a namespace (empty: in all)."""

    verb: str
    resource: Resource
    namespace: str


def may(client: Client, who: User, deed: Deed, seconds: float) -> bool:
    """Return whether somebody may do something. Blocking.

    Raises:
        ApiError: the API server did not say.
    """
    asked = {
        "group": deed.resource.group,
        "resource": deed.resource.plural,
        "verb": deed.verb,
        "namespace": deed.namespace,
    }
    said = _asked(
        client,
        SUBJECT_REVIEWS,
        {**who, "resourceAttributes": asked},
        monotonic() + seconds,
    )
    return said.get("allowed") is True


def _asked(
    client: Client, resource: Resource, spec: Mapping[str, Any], until: float
) -> Mapping[str, Any]:
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "spec": spec,
    }
    call = Call(
        verb="create", resource=resource, path=resource.path(), method="POST", body=body
    )
    # One time for both questions: the scraper waits for no longer than its own timeout.
    return client.ask(call, until - monotonic()).get("status") or {}
