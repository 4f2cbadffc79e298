"""Asks the API server who brings a token, and whether he may read what this process serves."""

from collections.abc import Mapping
from enum import Enum, auto
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import Call, Client
from shardwright.cluster.resources import SUBJECT_REVIEWS, TOKEN_REVIEWS, Resource

AUDIENCE: Final = "shardwright-metrics"
"""For whom a token must have been made: the port has no TLS, and such a token is worth nothing anywhere else."""


class Verdict(Enum):
    """What the API server says of a token."""

    UNKNOWN = auto()
    FORBIDDEN = auto()
    ADMITTED = auto()


def may_read(client: Client, token: str, path: str, seconds: float) -> Verdict:
    """Return whether who has a token may GET a path that belongs to no resource; blocking, no longer than this.

    Raises:
        ApiError: the API server did not say.
    """
    until = monotonic() + seconds
    said = _asked(client, TOKEN_REVIEWS, {"token": token, "audiences": [AUDIENCE]}, until)
    if said.get("authenticated") is not True or AUDIENCE not in (said.get("audiences") or ()):
        return Verdict.UNKNOWN
    who = said.get("user") or {}
    user = {"user": who.get("username", ""), **{field: who[field] for field in ("uid", "groups", "extra") if field in who}}
    allowed = _asked(client, SUBJECT_REVIEWS, {**user, "nonResourceAttributes": {"path": path, "verb": "get"}}, until)
    return Verdict.ADMITTED if allowed.get("allowed") is True else Verdict.FORBIDDEN


def _asked(client: Client, resource: Resource, spec: Mapping[str, Any], until: float) -> Mapping[str, Any]:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
    call = Call(verb="create", resource=resource, path=resource.path(), method="POST", body=body)
    return client.ask(call, until - monotonic()).get("status") or {}
