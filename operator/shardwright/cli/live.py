"""Nodes, pods and plans of a live cluster, as plans are made among them."""

from typing import Final

from shardwright.cli.clusters import Cluster, unless_forbidden
from shardwright.cli.surroundings import Surroundings, read_nodes, read_reservations, read_usage
from shardwright.cluster.client import Client
from shardwright.cluster.resources import CONFIG_MAPS, NODES, PODS
from shardwright.hardware.pods import GpuUsage
from shardwright.hardware.stated import NONE, Stated

MANAGED: Final = "app.kubernetes.io/managed-by=shardwright"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


def read_surroundings_of(cluster: Cluster, stated: Stated = NONE) -> Surroundings:
    """Return what is there now; ``stated`` is what the settings say.

    Raises:
        UnreachableError: no answer, no credentials, or nodes may not be listed.
    """
    return cluster.ask(lambda client: read_live_surroundings(client, stated))


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
