"""Read a live cluster once: nodes, pods, single ConfigMaps and models; writes nothing but annotations of a model."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from shardwright.cli.exits import UnreachableError
from shardwright.cli.surroundings import Surroundings, read_nodes, read_reservations, read_usage
from shardwright.cluster.access import AccessError, open_access
from shardwright.cluster.client import MERGE_PATCH, ApiError, Client
from shardwright.cluster.resources import CONFIG_MAPS, NODES, PODS, SHARDED_MODELS
from shardwright.hardware.pods import GpuUsage
from shardwright.hardware.stated import NONE, Stated

FORBIDDEN: Final = 403
DEFAULT_KUBECONFIG: Final = "~/.kube/config"
MANAGED: Final = "app.kubernetes.io/managed-by=shardwright"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Which cluster is meant; without a context it is the kubeconfig's current one."""

    context: str | None
    kubeconfig: str | None

    def read_surroundings(self, stated: Stated = NONE) -> Surroundings:
        """Return what is there now; ``stated`` is what the settings say.

        Raises:
            UnreachableError: no answer, no credentials, or nodes may not be listed.
        """
        return asyncio.run(self._read_surroundings(stated))

    def read_config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ConfigMap, None where there is none.

        Raises:
            UnreachableError: no answer, no credentials, or it may not be read.
        """
        return asyncio.run(self._read_config_map(namespace, name))

    def read_model(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ShardedModel, None where there is none.

        Raises:
            UnreachableError: no answer, no credentials, or it may not be read.
        """
        return asyncio.run(self._read_model(namespace, name))

    def annotate_model(self, live: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
        """Set annotations of exactly the ShardedModel that was read.

        Raises:
            UnreachableError: no answer, or it may not be written, or another one has its name by now.
        """
        asyncio.run(self._annotate_model(live["metadata"], annotations))

    async def _read_model(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        async with self._client() as client:
            return await client.get(SHARDED_MODELS, namespace, name)

    async def _annotate_model(self, metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
        async with self._client() as client:
            body = {"metadata": {"uid": metadata["uid"], "annotations": dict(annotations)}}
            path = SHARDED_MODELS.path(metadata["namespace"], metadata["name"])
            await client.patch(SHARDED_MODELS, path, body, MERGE_PATCH)

    async def _read_surroundings(self, stated: Stated) -> Surroundings:
        async with self._client() as client:
            nodes = [node async for page in client.pages(NODES) for node in read_nodes(page, stated)]
            plans = await _unless_forbidden(client.list(CONFIG_MAPS, labelSelector=MANAGED))
            return Surroundings(
                nodes=tuple(nodes),
                usage=await _unless_forbidden(_read_usage(client)),
                reservations=read_reservations(plans or ()),
            )

    async def _read_config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        async with self._client() as client:
            return await client.get(CONFIG_MAPS, namespace, name)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        client = self._open()
        try:
            yield client
        except ApiError as error:
            raise UnreachableError(f"the cluster cannot be read: {error}") from None
        finally:
            client.close()

    def _open(self) -> Client:
        kubeconfig = Path(self.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG).expanduser()
        try:
            return Client(open_access(kubeconfig, self.context))
        except AccessError as error:
            raise UnreachableError(f"{str(error).rstrip('.')}; give --nodes to plan without a cluster") from None


async def _read_usage(client: Client) -> tuple[GpuUsage, ...]:
    """Return what pods hold, page by page: only a few of a large cluster hold GPUs."""
    return tuple([usage async for page in client.pages(PODS, fieldSelector=UNFINISHED) for usage in read_usage(page)])


async def _unless_forbidden(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except ApiError as error:
        if error.code == FORBIDDEN:
            return None
        raise
