"""Why does a cluster not answer us? One problem in one line, with a remedy."""

import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from shardwright.cli.exits import UnreachableError
from shardwright.cluster.calls import (
    DEADLINE_EXCEEDED,
    NOT_A_STATUS,
    TOO_LARGE,
    UNKNOWN_PATH,
    ApiError,
)
from shardwright.errors import Problem

_OPERATOR_PLANS: Final = (
    "ask for the right to list nodes and pods, or let the operator plan: 'plan --server -f "
    "FILE' needs no right to see nodes"
)
_ASK_FOR_IT: Final = (
    "ask your administrator for this right; 'kubectl auth can-i --list' shows those that you have"
)


def unreachable(error: ApiError, server: str, context: str) -> UnreachableError:
    """Return the error for a failed request; ``context`` is empty if flags name the server."""
    return UnreachableError(problem_of(error, server, context))


def problem_of(error: ApiError, server: str, context: str) -> Problem:
    """Return why a request failed."""
    whose = f"context {context}" if context else "the command line"
    if error.code == HTTPStatus.UNAUTHORIZED:
        what = (
            f"{server} does not accept the credentials of "
            f"{whose} (401 {error.reason or 'Unauthorized'})"
        )
        return Problem(
            code="CredentialsRefused",
            what=what,
            remedy="log in again; 'kubectl auth whoami' shows who you are",
        )
    if error.code == HTTPStatus.FORBIDDEN:
        of_nodes = str(error).startswith("nodes is forbidden")
        return Problem(
            code="NotAllowedInCluster",
            what=str(error),
            remedy=_OPERATOR_PLANS if of_nodes else _ASK_FOR_IT,
        )
    if error.code == HTTPStatus.NOT_FOUND and error.reason == UNKNOWN_PATH:
        return _not_installed(error, server)
    if error.code == 0 and error.reason not in {NOT_A_STATUS, TOO_LARGE, "NotJson"}:
        return _no_answer(error, server, whose)
    if error.code == 0:
        remedy = "correct its server, or leave out the proxy that answers instead"
        return Problem(
            code="NotAnApiServer",
            what=f"what answers at {server} is not an API server: {error}",
            remedy=remedy,
        )
    return Problem(code="ApiUnavailable", what=f"{server} fails: {error}", remedy="try again")


def _not_installed(error: ApiError, server: str) -> Problem:
    what = f"{server} does not know ShardedModels" if "shardedmodels" in str(error) else str(error)
    return Problem(
        code="NotInstalled",
        what=what,
        remedy="install the operator, or name another cluster with --context",
    )


def _no_answer(error: ApiError, server: str, whose: str) -> Problem:
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        what = f"the certificate of {server} is not accepted: {cause.verify_message}"
        remedy = f"name who has signed it with --certificate-authority, or correct it in {whose}"
        return Problem(code="CertificateRefused", what=what, remedy=remedy)
    if isinstance(cause, ssl.SSLError):
        what = f"{server} does not speak TLS with us: {cause.reason or cause}"
        return Problem(
            code="CertificateRefused", what=what, remedy=f"check server and certificates of {whose}"
        )
    if error.reason == DEADLINE_EXCEEDED or isinstance(cause, TimeoutError):
        why = "it is silent"
    else:
        host = urlsplit(server).hostname
        why = {
            "gaierror": f"no address is known of {host}",
            "ConnectionRefusedError": "nobody listens there",
        }.get(type(cause).__name__, " ".join(str(cause or error).split()))
    remedy = (
        f"check that the cluster runs, a VPN, and the server of {whose}; --context names another"
    )
    return Problem(code="NoAnswer", what=f"{server} does not answer: {why}", remedy=remedy)


def _cause(error: BaseException) -> BaseException | None:
    cause = error.__cause__ or error.__context__
    while cause is not None and (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return cause
