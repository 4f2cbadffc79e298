"""How much K/V fits into the memory of the nodes, and how does the engine divide it among its
ranks?

As in vLLM 0.32 and 0.33 (``v1/kv_offload/cpu/spec.py``, ``shared_offload_region.py``): an engine is
told the sum over its ranks. It lies in ``/dev/shm``, in files as large as all of it on every node,
of which each rank fills its part. Ranks of latent attention that hold the same keep one copy;
attention replicas are engines of their own. ``/dev/shm`` must have that much, and the kubelet gives
it no more than the node has (``pkg/volume/emptydir/empty_dir.go``,
``calculateEmptyDirMemorySize``): so an engine over several nodes keeps no more than one of them has
room for.

Has a node the local disk for what its pods download? Each pod downloads for itself, also beside
others of its model; what other pods have on the disk is not known.

A kubelet that does not count its disk states none, and no pod may request any there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from shardwright.costs.estimates import Estimate
from shardwright.costs.host import host_memory_bytes
from shardwright.costs.workload import KvOffload
from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, NodeExclusion, Pool
from shardwright.layouts.enumerate import Barred, none_barred
from shardwright.layouts.layout import Candidate, Layout, Withheld
from shardwright.layouts.placing import Spread
from shardwright.modelspec.model_spec import LatentAttention, ModelSpec
from shardwright.units import GIB, format_bytes

PATH: Final = "spec.engine.kvOffload.hostMemory"

OTHERS_SHARE: Final = 0.1
"""Share of a node's memory that is left to pods without GPUs: agents, drivers, storage. Basis:
assumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCache:
    """K/V in the memory of the nodes: bytes requested for a pod, told to one engine, in a pod's
    files.

    ``tokens`` is about how many of one replica fit.
    """

    pod_bytes: int
    engine_bytes: int
    region_bytes: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """``engines`` of a pod; ``pods`` among which one engine deals out the kept K/V."""

    engines: int
    pods: int
    one_copy: bool

    @classmethod
    def of(cls, layout: Layout, nodes: int, model: ModelSpec) -> "_Parts":
        kinds = [layer.attention for layer in model.layers if layer.attention]
        # As vLLM decides whether ranks hold the same: latent attention without stages (ADR 33).
        alike = (
            layout.tensor > 1
            and layout.pipeline == 1
            and all(isinstance(kind, LatentAttention) for kind in kinds)
        )
        dealt = nodes if layout.attention_data == 1 and not alike else 1
        return cls(engines=max(1, layout.attention_data // nodes), pods=dealt, one_copy=alike)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """A pod's part of a node: ``gpus``, and memory beside K/V; replicas span ``nodes``."""

    layout: Layout
    nodes: int
    gpus: int
    beside_bytes: int

    @classmethod
    def of(cls, layout: Layout, nodes: int, wanted: KvOffload, *, over_ray: bool) -> Self:
        """Return the shape of a layout's pods with ``nodes`` a replica."""
        gpus = layout.gpus_per_replica // nodes
        beside = max(wanted.beside_bytes, host_memory_bytes(gpus, over_ray=over_ray))
        return cls(layout=layout, nodes=nodes, gpus=gpus, beside_bytes=beside)

    def room_bytes(self, host_bytes: int, of_gpus: int, model: ModelSpec) -> int:
        """Return the bytes for a pod's K/V on a node of this memory and GPUs, whole GiB for each
        engine.

        A pod gets the share of its GPUs: others on the node may want as much.
        """
        parts, share = (
            _Parts.of(self.layout, self.nodes, model),
            host_bytes * (1 - OTHERS_SHARE) * self.gpus / of_gpus,
        )
        left = max(0, int(share - self.beside_bytes))
        # vLLM takes whole GiB: the rest of one is lost.
        return left // parts.pods // parts.engines // GIB * GIB * parts.engines


def room_bytes(
    candidate: Candidate, wanted: KvOffload, model: ModelSpec, *, over_ray: bool
) -> int | None:
    """Return the bytes for a pod's K/V in the memory of its nodes, None if a node does not state
    its memory.
    """
    leanest = candidate.pool.leanest
    if leanest is None or leanest.host_bytes is None:
        return None
    own = leanest.host_bytes, leanest.gpus
    return _room_of(candidate, own, wanted, model, over_ray=over_ray)


def _room_of(
    candidate: Candidate,
    own: tuple[int, int],
    wanted: KvOffload,
    model: ModelSpec,
    *,
    over_ray: bool,
) -> int:
    """Return the room for a pod on a node whose ``own`` are memory and GPUs."""
    nodes = candidate.placement.nodes_per_replica
    shape = PodShape.of(candidate.layout, nodes, wanted, over_ray=over_ray)
    return shape.room_bytes(*own, model)


def too_small(wanted: KvOffload | None, model: ModelSpec, *, over_ray: bool) -> Barred:
    """Return which nodes of a pool have less memory for a pod's K/V than wanted; unknown memory
    bars none.
    """
    if wanted is None or wanted.pod_bytes is None:
        return none_barred
    pod_bytes = wanted.pod_bytes

    def withheld(pool: Pool, layout: Layout) -> Withheld:
        nodes = Spread.of(layout, pool.gpus_per_node).nodes
        shape = PodShape.of(layout, nodes, wanted, over_ray=over_ray)
        enough = {
            (size, gpus): size is None or shape.room_bytes(size, gpus, model) >= pod_bytes
            # By size, as a pool of thousands of nodes has a few; many of a dump state none.
            for size, gpus in {(node.host_bytes, node.gpus) for node in pool.nodes}
        }
        return frozenset(
            (node.name, node.gpus) for node in pool.nodes if not enough[node.host_bytes, node.gpus]
        )

    return withheld


def barred_nodes(
    candidate: Candidate, wanted: KvOffload | None, model: ModelSpec, *, over_ray: bool
) -> Iterator[NodeExclusion]:
    """Return the nodes with free GPUs that a candidate goes without for lack of memory."""
    if wanted is None or wanted.pod_bytes is None:
        return
    for node in candidate.pool.nodes:
        if not node.free or node.host_bytes is None:
            continue
        own = node.host_bytes, node.gpus
        room = _room_of(candidate, own, wanted, model, over_ray=over_ray)
        if room >= wanted.pod_bytes:
            continue
        problem = Problem(
            code="NodeMemoryTooSmall",
            what=f"{format_bytes(room)} of memory left for the K/V of a pod",
            limit=f"must be at least the {format_bytes(wanted.pod_bytes)} of {PATH}",
            gap=f"{format_bytes(wanted.pod_bytes - room)} short",
            remedy="lower that, or say Auto",
        )
        yield NodeExclusion(node=node.name, problem=problem, product=candidate.pool.product)


def with_room(inventory: Inventory, pod_bytes: int, shape: PodShape, model: ModelSpec) -> Inventory:
    """Return the nodes that have room for so much K/V in a pod, or do not state their memory."""
    roomy = {
        node.name
        for pool in inventory.pools
        for node in pool.nodes
        if node.host_bytes is None
        or shape.room_bytes(node.host_bytes, node.gpus, model) >= pod_bytes
    }
    return inventory.of_nodes(roomy)


def host_cache(
    candidate: Candidate,
    estimate: Estimate,
    wanted: KvOffload | None,
    model: ModelSpec,
    *,
    over_ray: bool,
) -> HostCache | None:
    """Return the cache beside the GPUs, None if none is wanted or has room."""
    if wanted is None:
        return None
    layout, pod_bytes = candidate.layout, wanted.pod_bytes
    parts = _Parts.of(layout, candidate.placement.nodes_per_replica, model)
    if pod_bytes is None:
        # Any node of the pool may get a group (ADR 33).
        pod_bytes = room_bytes(candidate, wanted, model, over_ray=over_ray) or 0
    own_bytes = pod_bytes // parts.engines // GIB * GIB  # of an engine, on one node
    if not own_bytes:
        return None
    engine_bytes = own_bytes * parts.pods
    token_bytes = sum(stage.kv_bytes_per_token for stage in estimate.stages) * (
        1 if parts.one_copy else layout.tensor
    )
    return HostCache(
        pod_bytes=own_bytes * parts.engines,
        engine_bytes=engine_bytes,
        region_bytes=engine_bytes * parts.engines,
        tokens=engine_bytes * layout.attention_data // max(1, token_bytes),
    )


def host_problems(
    candidate: Candidate,
    wanted: KvOffload | None,
    model: ModelSpec,
    *,
    over_ray: bool,
    barred: bool,
) -> Iterator[Problem]:
    """Return that too few nodes have the wanted memory (if nodes are ``barred``), or that a pod's
    engines get less than a GiB each.
    """
    if wanted is None or wanted.pod_bytes is None:
        return
    engines = _Parts.of(candidate.layout, candidate.placement.nodes_per_replica, model).engines
    if wanted.pod_bytes < engines * GIB:
        yield Problem(
            code="KvOffloadTooSmall",
            what=f"{format_bytes(wanted.pod_bytes)} of memory per pod for K/V",
            limit=f"must be at least {engines} Gi with {engines} "
            "engines in a pod: each is told whole GiB",
            gap=f"{format_bytes(engines * GIB - wanted.pod_bytes)} short",
            remedy="raise it, or say Auto",
            path=PATH,
        )
    rooms = _rooms(candidate, wanted, model, over_ray=over_ray) if barred else ()
    room = max((room for room in rooms if room < wanted.pod_bytes), default=None)
    if room is None:
        return
    yield Problem(
        code="HostMemoryTooSmall",
        what=f"{format_bytes(wanted.pod_bytes)} of memory per pod for K/V",
        limit=f"must be at most the {format_bytes(room)} that a node of {candidate.pool.name} has "
        "left for a pod",
        gap=f"{format_bytes(wanted.pod_bytes - room)} short",
        remedy="lower it, or say Auto",
        path=PATH,
    )


def _rooms(
    candidate: Candidate, wanted: KvOffload, model: ModelSpec, *, over_ray: bool
) -> Iterator[int]:
    sizes = {(node.host_bytes, node.gpus) for node in candidate.pool.nodes}
    for size, gpus in sizes:
        if size is not None:
            yield _room_of(candidate, (size, gpus), wanted, model, over_ray=over_ray)


WEIGHTS: Final = "spec.model.weights"
_REMEDY: Final = f"keep downloads on a claim ({WEIGHTS}.cache), or take weights from one (pvc://)"


def too_little(pod_bytes: int) -> Barred:
    """Return how many GPUs of a pool's nodes lack the disk for pods that request so much."""
    if not pod_bytes:
        return none_barred
    found: dict[tuple[str, int], Withheld] = {}

    def withheld(pool: Pool, layout: Layout) -> Withheld:
        gpus = Spread.of(layout, pool.gpus_per_node).gpus
        # By name: pools of one inventory have different ones, and most layouts have the same pods.
        if (pool.name, gpus) not in found:
            found[pool.name, gpus] = _withheld(pool, gpus, pod_bytes)
        return found[pool.name, gpus]

    return withheld


def _withheld(pool: Pool, gpus: int, pod_bytes: int) -> Withheld:
    # By size, as a pool of thousands of nodes has a few.
    room = {
        size: size // pod_bytes * gpus
        for size in {node.disk_bytes for node in pool.nodes}
        if size is not None
    }
    if all(most >= pool.gpus_per_node for most in room.values()):
        return frozenset()
    return frozenset(
        (node.name, node.free - room[node.disk_bytes])
        for node in pool.nodes
        if node.disk_bytes is not None and node.free > room[node.disk_bytes]
    )


def request_bytes(candidate: Candidate, pod_bytes: int) -> int:
    """Return what each pod requests: nothing, if a node of the pool does not state its disk."""
    stated = all(node.disk_bytes is not None for node in candidate.pool.nodes)
    return pod_bytes if stated else 0


def nodes_without_disk(candidate: Candidate, pod_bytes: int) -> Iterator[NodeExclusion]:
    """Return the nodes with free GPUs that have too little disk for a single pod."""
    for node in candidate.pool.nodes:
        if not node.free or node.disk_bytes is None or node.disk_bytes >= pod_bytes:
            continue
        problem = Problem(
            code="NodeDiskTooSmall",
            what=f"{format_bytes(node.disk_bytes)} of local disk",
            limit=f"must be at least the {format_bytes(pod_bytes)} that a pod downloads",
            gap=f"{format_bytes(pod_bytes - node.disk_bytes)} short",
            remedy=_REMEDY,
        )
        yield NodeExclusion(node=node.name, problem=problem, product=candidate.pool.product)


def disk_problems(candidate: Candidate, pod_bytes: int) -> Iterator[Problem]:
    """Return that the nodes of a pool have too little disk for a layout's pods."""
    known = [node.disk_bytes for node in candidate.pool.nodes if node.disk_bytes is not None]
    gpus = candidate.placement.gpus_per_node
    if not pod_bytes or not known or not too_little(pod_bytes)(candidate.pool, candidate.layout):
        return
    most = max(known)
    pods = max(1, min(candidate.pool.gpus_per_node // gpus, candidate.layout.replicas))
    wanted = pod_bytes if most < pod_bytes else pods * pod_bytes
    yield Problem(
        code="DiskTooSmall",
        what=f"{format_bytes(pod_bytes)} of local disk for what each pod downloads",
        limit=f"must fit the {format_bytes(most)} that a node of {candidate.pool.name} has",
        gap=f"{format_bytes(wanted - most)} short{'' if wanted == pod_bytes else f' for {pods}'}",
        remedy=_REMEDY,
        path=WEIGHTS,
    )
