"""Has a node the local disk for what its pods download? Each pod downloads for itself, also beside
others of its model; what other pods have on the disk is not known.

A kubelet that does not count its disk states none, and no pod may request any there.
"""

from collections.abc import Iterator
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.inventory import NodeExclusion, Pool
from shardwright.layouts.enumerate import Barred, none_barred
from shardwright.layouts.layout import Candidate, Layout, Withheld
from shardwright.layouts.placing import Spread
from shardwright.units import format_bytes

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


def barred_nodes(candidate: Candidate, pod_bytes: int) -> Iterator[NodeExclusion]:
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
