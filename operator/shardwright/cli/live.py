"""Read a live cluster: its objects, and nodes, pods and plans as plans are made among them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any, Final, TypeVar

from shardwright.cli.exits import UnreachableError
from shardwright.cli.surroundings import Surroundings, read_nodes, read_reservations, read_usage
from shardwright.cli.unreachable import unreachable
from shardwright.cluster.access import AccessError
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.connection import Connection
from shardwright.cluster.resources import CONFIG_MAPS, NODES, PODS
from shardwright.cluster.user_access import UserAccess, open_connection
from shardwright.errors import Problem
from shardwright.hardware.pods import GpuUsage
from shardwright.hardware.stated import NONE, Stated

FORBIDDEN: Final = 403
MANAGED: Final = "app.kubernetes.io/managed-by=shardwright"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
THREADS: Final = 8  # requests at once

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster that a connection means; ``without`` says what to do where there is none."""

    connection: Connection
    without: str = ""

    @cached_property
    def access(self) -> UserAccess:
        """Return the way to it.

        Raises:
            UnreachableError: no kubeconfig names it.
        """
        try:
            return open_connection(self.connection)
        except AccessError as error:
            remedy = self.without or "name one with --kubeconfig or $KUBECONFIG"
            problem = Problem(code="NoKubeconfig", what=f"no access to a cluster: {error}", remedy=remedy)
            raise UnreachableError(problem) from None

    @property
    def namespace(self) -> str:
        """Return the namespace that is meant where nothing else says so."""
        return self.access.namespace

    def ask(self, asking: Callable[[Client], Awaitable[T]]) -> T:
        """Return what somebody asks of the API server.

        Raises:
            UnreachableError: no answer, no credentials, or no right.
        """
        return asyncio.run(self._ask(asking))

    def read_surroundings(self, stated: Stated = NONE) -> Surroundings:
        """Return what is there now; ``stated`` is what the settings say.

        Raises:
            UnreachableError: no answer, no credentials, or nodes may not be listed.
        """
        return self.ask(lambda client: read_live_surroundings(client, stated))

    def read_config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ConfigMap, None where there is none.

        Raises:
            UnreachableError: no answer, no credentials, or it may not be read.
        """
        return self.ask(lambda client: client.get(CONFIG_MAPS, namespace, name))

    async def _ask(self, asking: Callable[[Client], Awaitable[T]]) -> T:
        async with self.client() as client:
            return await asking(client)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Open a client; what the API server refuses ends as what to say of it."""
        access, seconds = self.access, self.connection.request_seconds
        client = Client(access.access, THREADS).impatient()
        try:
            yield client.until(monotonic() + seconds) if seconds else client
        except ApiError as error:
            raise unreachable(error, access.server, access.context) from None
        finally:
            client.close()


async def read_live_surroundings(client: Client, stated: Stated = NONE) -> Surroundings:
    """Return the nodes, and as far as they may be read the pods and plans of record."""
    nodes = [node async for page in client.pages(NODES) for node in read_nodes(page, stated)]
    plans = await unless_forbidden(client.list(CONFIG_MAPS, labelSelector=MANAGED))
    return Surroundings(
        nodes=tuple(nodes), usage=await unless_forbidden(_read_usage(client)), reservations=read_reservations(plans or ())
    )


async def _read_usage(client: Client) -> tuple[GpuUsage, ...]:
    """Return what pods hold, page by page: only a few of a large cluster hold GPUs."""
    return tuple([usage async for page in client.pages(PODS, fieldSelector=UNFINISHED) for usage in read_usage(page)])


async def unless_forbidden(reading: Awaitable[T]) -> T | None:
    """Return what is read, None where it may not be."""
    try:
        return await reading
    except ApiError as error:
        if error.code == FORBIDDEN:
            return None
        raise
