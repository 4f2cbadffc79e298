"""Nodes, pods and plans of a live cluster, as plans are made among them."""

from typing import Any, Final

from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.surroundings import (
    Surroundings,
    read_nodes,
    read_reservations,
    read_usage,
)
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import CONFIG_MAPS, NODES, PODS, SHARDED_MODELS
from shardwright.hardware.pods import GpuUsage
from shardwright.hardware.stated import NONE, Stated

NOT_FOUND: Final = 404
MANAGED: Final = "app.kubernetes.io/managed-by=shardwright"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


def read_surroundings_of(cluster: Target, stated: Stated = NONE) -> Surroundings:
    """Return what is there now; ``stated`` is what the settings say.

    Raises:
        UnreachableError: no answer, no credentials, or nodes may not be listed.
    """
    return cluster.ask(lambda client: read_live_surroundings(client, stated))


async def read_live_surroundings(client: Client, stated: Stated = NONE) -> Surroundings:
    """Return the nodes, and as far as they may be read the pods and plans of record."""
    nodes = [
        node async for page in client.pages(NODES) for node in read_nodes(page, stated)
    ]
    plans = await unless_forbidden(client.list(CONFIG_MAPS, labelSelector=MANAGED))
    return Surroundings(
        nodes=tuple(nodes),
        usage=await unless_forbidden(_read_usage(client)),
        reservations=read_reservations(
            plans or (), await unless_forbidden(_read_modes(client))
        ),
    )


async def _read_modes(client: Client) -> list[dict[str, Any]]:
    """Return of each ShardedModel which one it is, and its mode; none where the cluster has no such
    kind.
    """
    try:
        return [
            item
            async for page in client.pages(SHARDED_MODELS, project=_mode)
            for item in page
        ]
    except ApiError as error:
        if error.code == NOT_FOUND:
            return []
        raise


def _mode(model: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"uid": model["metadata"]["uid"]},
        "spec": {"mode": (model.get("spec") or {}).get("mode")},
    }


async def _read_usage(client: Client) -> tuple[GpuUsage, ...]:
    """Return what pods hold, page by page: only a few of a large cluster hold GPUs."""
    return tuple(
        [
            usage
            async for page in client.pages(PODS, fieldSelector=UNFINISHED)
            for usage in read_usage(page)
        ]
    )
