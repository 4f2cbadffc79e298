"""What is free, and which nodes are alike? Whatever pods and plans claim, no node has less than
nothing free.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.capabilities import Capability, Devices, RdmaRequest, Reach, reach
from shardwright.hardware.facts import GpuUsage, NodeFacts, is_held
from shardwright.hardware.gpus import Link
from shardwright.hardware.inventory import Inventory, KnownPods, Node, NodeExclusion, Pool
from shardwright.hardware.scheduling import NodeFilter, PodTerms
from shardwright.hardware.topology import DomainKind
from shardwright.units import GIGA

MEMORY_SPREAD: Final = 1.02
"""Nodes whose GPU memory differs by less than this factor are alike; the pool has the smallest.
Basis: assumed, driver versions move the label by less than 1%, product variants by 20% or more.
"""

_Place = tuple[tuple[str, str], str, str]
"""Owner, group and node."""

_PoolKey = tuple[str, str, int, DomainKind, int, str, str, str, float | None, tuple[str, ...]]


_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
"""When a node joined that does not say: dumps leave it out."""

ANYTHING: Final = PodTerms()
"""Any node that takes GPU pods, and whatever RDMA devices it offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """GPUs that the plan of record of ``owner`` (namespace, ShardedModel) keeps on a node, by group
    name.
    """

    owner: tuple[str, str]
    node: str
    gpus: int
    group: str = ""


def build_inventory(
    facts: Iterable[NodeFacts | NodeExclusion],
    usage: Iterable[GpuUsage] | None,
    *,
    reservations: Iterable[Reservation] = (),
    own: tuple[str, str] | None = None,
    terms: PodTerms = ANYTHING,
) -> Inventory:
    """Return the inventory for one model, the same for any order of the input.

    Free are allocatable GPUs minus those that pods of others hold, minus those that plans of others
    keep and have not bound yet. ``own`` is the planned model: its pods and plan do not count
    against it. ``usage`` is None if pods cannot be listed: then everything allocatable is free.
    ``terms`` say which nodes its pods may use and which RDMA devices they request, and so which
    links they reach.
    """
    known = KnownPods.NONE if usage is None else KnownPods.ALL
    usable, excluded = _divide(facts, terms)
    nodes = {node.name: node for node in usable}
    held = [item for item in usage or () if is_held(item, nodes.get(item.node))]
    taken = _taken(held, tuple(reservations), own)
    pools = sorted(_related(_pools(usable, taken, terms)), key=lambda pool: pool.name)
    excluded.sort(key=lambda exclusion: (exclusion.node, exclusion.problem.code))
    return Inventory(pools=tuple(pools), excluded=tuple(excluded), known_pods=known)


def _taken(
    usage: Sequence[GpuUsage], reservations: Sequence[Reservation], own: tuple[str, str] | None
) -> Counter[str]:
    """Return the GPUs per node that are not free for ``own``; a pod binds only GPUs kept for its
    own group.
    """
    taken: Counter[str] = Counter()
    bound: Counter[_Place] = Counter()
    for pod in usage:
        if pod.owner is None or pod.owner != own:
            taken[pod.node] += pod.gpus
        if pod.owner is not None:
            bound[pod.owner, pod.group, pod.node] += pod.gpus
    planned: Counter[_Place] = Counter()
    for reservation in reservations:
        if reservation.owner != own:
            planned[reservation.owner, reservation.group, reservation.node] += max(
                0, reservation.gpus
            )
    # A Counter's difference drops counts below zero: pods beyond a plan free nothing of another.
    for (_, _, node), gpus in (planned - bound).items():
        taken[node] += gpus
    return taken


def _divide(
    facts: Iterable[NodeFacts | NodeExclusion], terms: PodTerms
) -> tuple[list[NodeFacts], list[NodeExclusion]]:
    usable: list[NodeFacts] = []
    excluded: list[NodeExclusion] = []
    admission = NodeFilter(terms)
    for node in facts:
        if isinstance(node, NodeExclusion):
            excluded.append(node)
        elif problem := admission.keeps_out(node) or _unclaimable(node, terms):
            excluded.append(_excluded(node, problem))
        else:
            usable.append(node)
    return usable, excluded


def _unclaimable(node: NodeFacts, terms: PodTerms) -> Problem | None:
    if node.claimed is None or Capability.DEVICE_CLAIMS not in terms.lacking:
        return None
    return Problem(
        code="DeviceClaimsUnavailable",
        what="GPUs that pods claim from a DRA driver",
        limit="need ResourceClaimTemplates",
        gap="which this cluster does not serve",
        remedy="serve resource.k8s.io/v1, or offer the GPUs by a device plugin",
    )


def _excluded(node: NodeFacts, problem: Problem) -> NodeExclusion:
    return NodeExclusion(node=node.name, problem=problem, product=node.product, ready=node.ready)


def _pools(usable: Sequence[NodeFacts], taken: Mapping[str, int], terms: PodTerms) -> list[Pool]:
    rdma = terms.rdma
    alike: defaultdict[_PoolKey, list[NodeFacts]] = defaultdict(list)
    for node in _believable_racks(usable, terms):
        alike[_key(node, rdma)].append(node)
    groups = [(key, group) for key, nodes in alike.items() for group in _by_memory(nodes)]
    names = Counter(_name(group[0], rdma) for _, group in groups)
    pools = []
    for key, group in groups:
        pool = _pool(sorted(group, key=lambda node: node.name), taken, rdma)
        pools.append(pool if names[pool.name] == 1 else replace(pool, name=_distinct(pool, key)))
    return pools


def _reach(node: NodeFacts, rdma: RdmaRequest) -> tuple[Link, Reach]:
    return reach(node.network, node.rdma, node.gpus, rdma, node.network_way)


def _name(node: NodeFacts, rdma: RdmaRequest) -> str:
    """From properties of the nodes alone, so that other pools do not change it."""
    network, _ = _reach(node, rdma)
    return f"{node.gpu.id.lower()}-{node.gpus}x-{network.bytes_per_second * 8 / GIGA:.4g}g"


def _distinct(pool: Pool, key: _PoolKey) -> str:
    """A digest of key and memory tells pools of one name apart."""
    return f"{pool.name}-{_digest(map(str, (*key, pool.gpu.memory_bytes // GIGA)))}"


def _digest(parts: Iterable[str]) -> str:
    return sha256("/".join(parts).encode()).hexdigest()[:6]


def _key(node: NodeFacts, rdma: RdmaRequest) -> _PoolKey:
    """Return everything that the planner considers, except memory, which is compared with a
    tolerance.

    Of RDMA devices only the names count: all pods of a group request the same ones.
    """
    network, how = _reach(node, rdma)
    return (
        node.gpu.id,
        node.product,
        node.gpus,
        node.domain.kind,
        node.domain.gpus,
        network.name,
        f"{node.claimed.device_class}/{node.claimed.product}" if node.claimed else node.resource,
        node.architecture,
        node.gpu_hour_price,
        how.names,
    )


def _related(pools: Sequence[Pool]) -> Iterator[Pool]:
    """Yield the pools with their families: those whose nodes are alike to an instance inside one of
    them, which crosses no network and takes no more than one has.
    """
    left = sorted(pools, key=lambda pool: (-pool.gpus_per_node, pool.name))
    families: list[list[Pool]] = []
    while left:
        families.append([pool for pool in left if _alike_inside(pool, left[0])])
        left = [pool for pool in left if pool not in families[-1]]
    names = Counter(family[0].gpu.id for family in families if len(family) > 1)
    for family in families:
        name = family[0].gpu.id.lower() if len(family) > 1 else ""
        if names[family[0].gpu.id] > 1 and name:
            name = f"{name}-{_digest(map(str, _kind(family[0])))}"
        yield from (replace(pool, family=name) for pool in family)


def _alike_inside(pool: Pool, largest: Pool) -> bool:
    one, other = sorted((pool.gpu.memory_bytes, largest.gpu.memory_bytes))
    # The same link joins as many ranks, as far as the smaller node has any.
    joined = {min(each.domain_gpus, pool.gpus_per_node) for each in (pool, largest)}
    return _kind(pool) == _kind(largest) and other <= one * MEMORY_SPREAD and len(joined) == 1


def _kind(pool: Pool) -> tuple[object, ...]:
    requested = pool.resource, pool.claimed
    return pool.gpu.id, pool.product, *requested, pool.architecture, pool.gpu_hour_price


def _by_memory(nodes: Sequence[NodeFacts]) -> list[list[NodeFacts]]:
    by_bytes: defaultdict[int, list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        by_bytes[node.gpu.memory_bytes].append(node)
    runs: list[list[NodeFacts]] = []
    floor = 0
    for memory_bytes in sorted(by_bytes):
        # Against the smallest of the run: against the last, many small steps would join unlike
        # memories.
        if memory_bytes > floor * MEMORY_SPREAD:
            runs.append([])
            floor = memory_bytes
        runs[-1].extend(by_bytes[memory_bytes])
    return runs


def _believable_racks(usable: Sequence[NodeFacts], terms: PodTerms) -> Iterable[NodeFacts]:
    """Yield the nodes; surplus ones of a clique, or all that no pods shall or can share, as trays
    of their own.
    """
    unserved = Capability.COMPUTE_DOMAINS in terms.lacking
    cliques: defaultdict[str, list[NodeFacts]] = defaultdict(list)
    for node in usable:
        if node.domain.kind is DomainKind.CLIQUE:
            cliques[node.domain.name].append(node)
    beyond = {name: claim for nodes in cliques.values() for name, claim in _too_many(nodes)}
    for node in usable:
        if node.name in beyond:
            yield _as_tray(node, beyond[node.name])
        elif node.domain.kind is not DomainKind.CLIQUE:
            yield node
        elif not terms.compute_domains:
            yield _as_tray(node)
        else:
            yield _unopened(node) if unserved else node


def _too_many(clique: Sequence[NodeFacts]) -> Iterator[tuple[str, str]]:
    """Yield the nodes that joined a clique last and that it has no room for, each with a sentence.

    A node that copies the label of a full rack takes nothing from it: only the API server writes
    when a Node came.
    """
    size, room = (sum(node.gpus for node in clique), min(node.gpu.scale_up_gpus for node in clique))
    if size <= room:
        return
    claim = (
        f"NVLink domain {clique[0].domain.name} claims {size} GPUs, {room} at most are "
        "possible: the last to join are left out"
    )
    for node in sorted(clique, key=lambda node: (node.created or _EARLIEST, node.name)):
        if node.gpus > room:
            yield node.name, claim
        else:
            room -= node.gpus


def _as_tray(node: NodeFacts, *warnings: str) -> NodeFacts:
    domain = replace(node.domain, kind=DomainKind.NODE, name=node.name)
    return replace(node, domain=domain, warnings=(*node.warnings, *warnings))


def _unopened(node: NodeFacts) -> NodeFacts:
    tray = _as_tray(node)
    return replace(tray, domain=replace(tray.domain, unopened=node.domain.name))


def _pool(nodes: Sequence[NodeFacts], taken: Mapping[str, int], rdma: RdmaRequest) -> Pool:
    first = nodes[0]
    return Pool(
        name=_name(first, rdma),
        gpu=min((node.gpu for node in nodes), key=lambda gpu: gpu.memory_bytes),
        product=first.product,
        gpus_per_node=first.gpus,
        domain_gpus=_domain_gpus(nodes),
        network=_reach(first, rdma)[0],
        resource=first.resource,
        architecture=first.architecture,
        nodes=tuple(_node(node, taken) for node in nodes),
        warnings=_warnings(nodes),
        gpu_hour_price=first.gpu_hour_price,
        reach=_common_reach([_reach(node, rdma)[1] for node in nodes]),
        joins_pods=first.domain.kind is DomainKind.CLIQUE,
        claimed=first.claimed,
    )


def _common_reach(found: Sequence[Reach]) -> Reach:
    devices, unused = (_fewest(how.devices for how in found), _fewest(how.unused for how in found))
    missing = next((how for how in found if how.missed), found[0])
    return replace(missing, devices=devices, unused=unused)


def _fewest(offered: Iterable[Devices]) -> Devices:
    return tuple(min(same) for same in zip(*offered, strict=True))


def _domain_gpus(nodes: Sequence[NodeFacts]) -> int:
    if nodes[0].domain.kind is not DomainKind.CLIQUE:
        return nodes[0].domain.gpus
    sizes: Counter[str] = Counter()
    for node in nodes:
        sizes[node.domain.name] += node.gpus
    return max(sizes.values())


def _node(node: NodeFacts, taken: Mapping[str, int]) -> Node:
    return Node(
        name=node.name,
        gpus=node.gpus,
        # An unhealthy GPU may still be held: allocatable falls below what pods have.
        free=max(0, node.gpus - taken.get(node.name, 0)),
        domain=node.domain.name,
        path=node.path,
        labels=node.labels,
        host_bytes=node.host_bytes,
        unopened=node.domain.unopened,
        disk_bytes=node.disk_bytes,
        sick=node.sick,
    )


def _warnings(nodes: Sequence[NodeFacts]) -> tuple[str, ...]:
    counts = Counter(warning for node in nodes for warning in node.warnings)
    every = len(nodes)
    return tuple(
        text if count == every else f"{text} ({count} of {every} nodes)"
        for text, count in sorted(counts.items())
    )
