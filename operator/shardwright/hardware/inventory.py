"""The inventory: the GPUs of the cluster and those of them that are free, collapsed into pools of
alike nodes.

The CPU and memory that pods take of a node are not counted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shardwright.errors import Problem
from shardwright.hardware.devices import ClaimedDevices
from shardwright.hardware.gpus import Gpu, Link
from shardwright.hardware.prices import GpuPrice, PriceBasis, relative_price
from shardwright.hardware.rdma import Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint that a pod must tolerate."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One usable node: ``gpus`` are healthy (allocatable), ``free`` those that no pod and no plan
    holds.

    ``domain`` names the scale-up domain (the full clique label on NVL72, the node's own name if the
    link ends at the node, ``""`` if GPUs are joined by PCIe only). ``path`` is the topology above
    it, closest first, as (label key, value). ``host_bytes`` is its memory for pods (None: it does
    not say).
    """

    name: str
    gpus: int
    free: int
    domain: str
    path: tuple[tuple[str, str], ...]
    labels: Mapping[str, str] = field(hash=False)
    taints: tuple[Taint, ...] = ()
    host_bytes: int | None = None

    def less(self, gpus: int) -> "Node":
        """Return the node with so many GPUs fewer free."""
        return replace(self, free=max(0, self.free - gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes that are alike in everything that the planner looks at.

    ``gpu`` is the catalogue row with the ``memory_bytes`` of the nodes' labels. ``domain_gpus`` is
    how many GPUs of one node (or, across nodes, of one clique) the scale-up link joins: 1 for PCIe
    only, 2 for bridged pairs, 8 for HGX, 72 for a full NVL72 rack. ``network`` is the link between
    nodes per GPU as pods reach it, ``reach`` how they do. ``resource`` is the one that pods request
    for GPUs, ``architecture`` amd64 or arm64. ``nodes`` are sorted by name, ``joins_pods`` says
    that a ComputeDomain can join pods on several of them. ``gpu_hour_price`` is the price of one
    GPU for an hour, as the nodes' owner states it in a currency of their choice (None: not stated).
    ``claimed`` are the devices that pods claim for GPUs (None: they request ``resource``).
    """

    name: str
    gpu: Gpu
    product: str
    gpus_per_node: int
    domain_gpus: int
    network: Link
    resource: str
    architecture: str
    nodes: tuple[Node, ...]
    warnings: tuple[str, ...] = ()
    gpu_hour_price: float | None = None
    reach: Reach = field(default_factory=Reach)
    joins_pods: bool = False
    claimed: ClaimedDevices | None = None

    def without(self, taken: Mapping[str, int]) -> "Pool":
        """Return the pool with the GPUs that are left of it, never below zero; nodes of which
        nothing is taken stay as they are.
        """
        left = tuple(
            node if not taken.get(node.name) else node.less(taken[node.name]) for node in self.nodes
        )
        return replace(self, nodes=left)

    def without_nodes(self, names: Collection[str]) -> "Pool":
        """Return the pool with no GPU of these nodes free."""
        return self.without({node.name: node.gpus for node in self.nodes if node.name in names})

    @property
    def price(self) -> GpuPrice:
        """Return the price of one GPU for an hour: the price its owner states, or else hours of an
        H100.
        """
        if self.gpu_hour_price is None:
            return relative_price(self.gpu)
        return GpuPrice(per_hour=self.gpu_hour_price, basis=PriceBasis.STATED)

    @property
    def host_bytes(self) -> int | None:
        """Return the memory for pods of the node that has the least, of those with free GPUs if any
        (None: one does not say).
        """
        known = [node.host_bytes for node in self.nodes if node.free] or [
            node.host_bytes for node in self.nodes
        ]
        return (
            min((size for size in known if size is not None), default=None)
            if None not in known
            else None
        )

    @property
    def crosses_nodes(self) -> bool:
        """Return whether the scale-up domain is larger than a node."""
        return self.domain_gpus > self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExclusion:
    """A node with GPUs that the planner cannot use, and why; ``product`` is empty if it could not
    be read.

    ``ready`` is that of the node, whatever else keeps it out.
    """

    node: str
    problem: Problem
    product: str = ""
    ready: bool = True


class KnownPods(StrEnum):
    """Which pods are known: the GPUs that others hold count as free."""

    ALL = "All"
    WATCHED = "Watched"  #: those of the namespaces that the operator watches
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs of the cluster, as far as the pods that hold them are known."""

    pools: tuple[Pool, ...]
    excluded: tuple[NodeExclusion, ...] = ()
    known_pods: KnownPods = KnownPods.ALL

    @property
    def empty(self) -> bool:
        """Return whether there is no node with GPUs at all: under an autoscaler that is a cluster
        at rest.
        """
        return not self.pools and not self.excluded

    def without(self, taken: Mapping[str, int]) -> "Inventory":
        """Return the inventory without the ``taken`` GPUs, by node. Nothing of this inventory may
        be taken before.
        """
        return replace(self, pools=tuple(pool.without(taken) for pool in self.pools))

    def without_nodes(self, names: Collection[str]) -> "Inventory":
        """Return the inventory in which no GPU of these nodes is free."""
        if not names:
            return self
        pools = tuple(pool.without_nodes(names) for pool in self.pools)
        return replace(self, pools=pools)

    def of_nodes(self, names: Collection[str]) -> "Inventory":
        """Return the inventory of these nodes alone. A pool without any of them is left out."""
        pools = (
            replace(pool, nodes=tuple(node for node in pool.nodes if node.name in names))
            for pool in self.pools
        )
        return replace(self, pools=tuple(pool for pool in pools if pool.nodes))
