"""A live cluster: access to it, and requests to it.

Imports no planner, and the cluster library only with a kubeconfig: a user without access should
learn that within a second.

Why does a cluster not answer us? One problem in one line, with a remedy.
"""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from shardwright.cli.exits import UnreachableError
from shardwright.cli.output import print_note
from shardwright.cluster.calls import (
    DEADLINE_EXCEEDED,
    NOT_A_STATUS,
    TOO_LARGE,
    UNKNOWN_PATH,
    ApiError,
)
from shardwright.cluster.connection import AccessError, Connection, LoginError, kubeconfigs_of
from shardwright.cluster.resources import CONFIG_MAPS
from shardwright.errors import Problem

if TYPE_CHECKING:
    from shardwright.cluster.access import UserAccess
    from shardwright.cluster.client import Client


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


CLIENT: Final = "kubernetes"  # the library that talks to a cluster
SILENCE_SECONDS: Final = 1.0
"""Seconds of silence before the terminal says what we wait for. Basis: assumed."""

THREADS: Final = 8  # requests at once

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The cluster of a connection; ``without`` says what to do without one."""

    connection: Connection
    without: str = ""

    @cached_property
    def access(self) -> "UserAccess":
        """Return the access to the cluster.

        Raises:
            UnreachableError: no kubeconfig names it.
            ModuleNotFoundError: the library that talks to a cluster is not installed.
        """
        if find_spec(CLIENT) is None:
            raise ModuleNotFoundError(f"no module {CLIENT}", name=CLIENT)
        try:
            kubeconfigs_of(self.connection)
            from shardwright.cluster.access import open_connection  # noqa: PLC0415 - takes half a second to load

            return open_connection(self.connection)
        except LoginError as error:
            problem = Problem(
                code="LoginFailed",
                what=f"no credentials: {error}",
                remedy=error.hint or "log in again; 'kubectl get nodes' asks the same program",
            )
            raise UnreachableError(problem) from None
        except AccessError as error:
            remedy = error.hint or self.without or "name one with --kubeconfig or $KUBECONFIG"
            problem = Problem(
                code="NoKubeconfig", what=f"no access to a cluster: {error}", remedy=remedy
            )
            raise UnreachableError(problem) from None

    @property
    def namespace(self) -> str:
        """Return the default namespace."""
        return self.access.namespace

    def ask(self, asking: "Callable[[Client], Awaitable[T]]") -> T:
        """Return what the API server answers.

        Raises:
            UnreachableError: no answer, no credentials, or no right.
        """
        return asyncio.run(self._ask(asking))

    def read_config_map(
        self, namespace: str, name: str, *, must: bool = True
    ) -> Mapping[str, Any] | None:
        """Return a ConfigMap, None if it does not exist, or may not be read unless it ``must``.

        Raises:
            UnreachableError: no answer, no credentials, or it may not be read.
        """

        def asking(client: "Client") -> Awaitable[dict[str, Any] | None]:
            reading = client.get(CONFIG_MAPS, namespace, name)
            return reading if must else unless_forbidden(reading)

        return self.ask(asking)

    async def _ask(self, asking: "Callable[[Client], Awaitable[T]]") -> T:
        async with self.client() as client:
            loop = asyncio.get_running_loop()
            silence = loop.call_later(SILENCE_SECONDS, self._say_who_is_awaited)
            try:
                return await asking(client)
            finally:
                silence.cancel()

    def _say_who_is_awaited(self) -> None:
        if sys.stderr.isatty():
            print_note(f"waiting for {self.access.server}")

    @asynccontextmanager
    async def client(self) -> "AsyncIterator[Client]":
        """Yield a client; an error of the API server becomes a sentence about it."""
        access = self.access
        seconds = self.connection.request_seconds
        from shardwright.cluster.client import Client  # noqa: PLC0415 - see access

        client = Client(access.access, THREADS).impatient()
        try:
            yield client.until(monotonic() + seconds) if seconds else client
        except ApiError as error:
            raise unreachable(error, access.server, access.context) from None
        finally:
            client.close()


async def unless_forbidden(reading: Awaitable[T]) -> T | None:
    """Return the result of a read, None if it is forbidden."""
    try:
        return await reading
    except ApiError as error:
        if error.code == HTTPStatus.FORBIDDEN:
            return None
        raise
