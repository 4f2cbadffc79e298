"""A live cluster: access to it, and requests to it.

Imports no planner, and the cluster library only with a kubeconfig: a user without access should
learn that within a second.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shardwright.cli.exits import UnreachableError
from shardwright.cli.output import print_note
from shardwright.cli.unreachable import unreachable
from shardwright.cluster.calls import ApiError
from shardwright.cluster.connection import AccessError, Connection, LoginError, kubeconfigs_of
from shardwright.cluster.resources import CONFIG_MAPS
from shardwright.errors import Problem

if TYPE_CHECKING:
    from shardwright.cluster.client import Client
    from shardwright.cluster.user_access import UserAccess

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
            from shardwright.cluster.user_access import open_connection  # noqa: PLC0415 - takes half a second to load

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
