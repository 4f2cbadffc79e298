"""Which GPUs has the cluster, and which are free? CPU and memory that pods take are not counted."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shardwright.errors import Problem
from shardwright.hardware.capabilities import Reach
from shardwright.hardware.devices import ClaimedDevices
from shardwright.hardware.gpus import Gpu, GpuPrice, Link, PriceBasis, relative_price


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One usable node: ``gpus`` are healthy (allocatable), ``free`` those that no pod and no plan
    holds.

    ``domain`` names the scale-up domain (on NVL72 the full clique label, the node's name if the
    link ends there, ``""`` for PCIe only). ``path`` is the topology above it, closest first, as
    (label key, value). ``host_bytes`` is its memory for pods, ``disk_bytes`` its local disk for
    them (None: it does not say). ``unopened`` is the domain that a ComputeDomain would open to its
    pods, which the cluster lacks. ``sick`` are further GPUs that it has and that are not healthy.
    """

    name: str
    gpus: int
    free: int
    domain: str
    path: tuple[tuple[str, str], ...]
    labels: Mapping[str, str] = field(hash=False)
    host_bytes: int | None = None
    disk_bytes: int | None = None
    unopened: str = ""
    sick: int = 0

    def less(self, gpus: int) -> "Node":
        """Return the node with so many GPUs fewer free."""
        return replace(self, free=max(0, self.free - gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes that are alike in everything that the planner considers.

    ``gpu`` is the catalogue row with the ``memory_bytes`` of the nodes' labels. ``domain_gpus`` is
    how many GPUs of one node (or, across nodes, of one clique) the scale-up link joins: 1 for PCIe
    only, 2 for bridged pairs, 8 for HGX, 72 for a full NVL72 rack. ``network`` is the link between
    nodes per GPU as pods reach it, ``reach`` how they do. ``resource`` is what pods request for
    GPUs, ``architecture`` amd64 or arm64. ``nodes`` are sorted by name; ``joins_pods``: a
    ComputeDomain can join pods on several of them. ``gpu_hour_price`` is the price of one GPU for
    an hour, in a currency of the owner's choice (None: not stated). ``claimed`` are the devices
    that pods claim for GPUs (None: they request ``resource``). ``family`` names the pools that are
    alike inside a node (empty: there is no other); one that joins them has it as its ``name``, and
    ``gpus_per_node`` of its largest nodes.
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
    family: str = ""

    def without(self, taken: Mapping[str, int]) -> "Pool":
        """Return the pool without the ``taken`` GPUs, never below zero; other nodes stay the same
        objects.
        """
        left = tuple(
            node if not taken.get(node.name) else node.less(taken[node.name]) for node in self.nodes
        )
        return replace(self, nodes=left)

    def without_nodes(self, names: Collection[str]) -> "Pool":
        """Return the pool with no GPU of these nodes free."""
        return self.without({node.name: node.gpus for node in self.nodes if node.name in names})

    def idle(self) -> "Pool":
        """Return the pool with every healthy GPU free."""
        return replace(self, nodes=tuple(replace(node, free=node.gpus) for node in self.nodes))

    @property
    def price(self) -> GpuPrice:
        """Return the price of one GPU for an hour: its owner's, or else hours of an H100."""
        if self.gpu_hour_price is None:
            return relative_price(self.gpu)
        return GpuPrice(per_hour=self.gpu_hour_price, basis=PriceBasis.STATED)

    @property
    def leanest(self) -> Node | None:
        """Return the node with the least memory for pods beside a GPU, among those with free GPUs,
        or among all if none is free (None: one does not say).
        """
        nodes = [node for node in self.nodes if node.free] or self.nodes
        said = [
            (node.host_bytes / node.gpus, node) for node in nodes if node.host_bytes is not None
        ]
        if not said or len(said) < len(nodes):
            return None
        return min(said, key=lambda item: item[0])[1]

    @property
    def only_inside_nodes(self) -> bool:
        """Return whether it joins a family, whose nodes are alike to instances inside a node
        alone.
        """
        return self.name == self.family

    @property
    def crosses_nodes(self) -> bool:
        """Return whether the scale-up domain is larger than a node."""
        return self.domain_gpus > self.gpus_per_node


def _joined(family: Sequence[Pool]) -> Pool:
    """Return the pool of a family's nodes, as its largest nodes are, with the smallest memory."""
    largest = min(family, key=lambda pool: (-pool.gpus_per_node, pool.name))
    everywhere = set(largest.warnings).intersection(*(pool.warnings for pool in family))
    own = (
        f"{pool.name}: {text}"
        for pool in family
        for text in pool.warnings
        if text not in everywhere
    )
    return replace(
        largest,
        name=largest.family,
        gpu=min((pool.gpu for pool in family), key=lambda gpu: gpu.memory_bytes),
        domain_gpus=max(pool.domain_gpus for pool in family),
        nodes=tuple(
            sorted((node for pool in family for node in pool.nodes), key=lambda node: node.name)
        ),
        warnings=(*sorted(everywhere), *own),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExclusion:
    """A node with GPUs that the planner cannot use, and why; ``product`` is empty if unreadable.

    ``ready`` is the node's, whatever else keeps it out.
    """

    node: str
    problem: Problem
    product: str = ""
    ready: bool = True


class KnownPods(StrEnum):
    """Which pods are known: GPUs that others hold count as free."""

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
        """Return whether no node has GPUs: under an autoscaler that is a cluster at rest."""
        return not self.pools and not self.excluded

    @property
    def joined(self) -> tuple[Pool, ...]:
        """Return the pools that instances inside a node have: the nodes of each family of several.

        Their nodes are those of ``pools`` once more.
        """
        families: defaultdict[str, list[Pool]] = defaultdict(list)
        for pool in self.pools:
            families[pool.family].append(pool)
        families.pop("", None)
        return tuple(_joined(family) for family in families.values() if len(family) > 1)

    def named(self, name: str) -> Pool | None:
        """Return the pool of a plan by its name, None if it is gone."""
        found = (pool for pool in self.pools if pool.name == name)
        return next(found, None) or next((pool for pool in self.joined if pool.name == name), None)

    def without(self, taken: Mapping[str, int]) -> "Inventory":
        """Return the inventory without the ``taken`` GPUs, by node; nothing may have been taken
        before.
        """
        return replace(self, pools=tuple(pool.without(taken) for pool in self.pools))

    def without_nodes(self, names: Collection[str]) -> "Inventory":
        """Return the inventory in which no GPU of these nodes is free."""
        if not names:
            return self
        pools = tuple(pool.without_nodes(names) for pool in self.pools)
        return replace(self, pools=pools)

    def of_nodes(self, names: Collection[str]) -> "Inventory":
        """Return the inventory of these nodes alone, without pools that have none of them."""
        pools = (
            replace(pool, nodes=tuple(node for node in pool.nodes if node.name in names))
            for pool in self.pools
        )
        return replace(self, pools=tuple(pool for pool in pools if pool.nodes))
