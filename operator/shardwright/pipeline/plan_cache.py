"""Was this question planned before on such stock? The choice of a layout depends on the question
and on each pool's room, not on which of its nodes are free; so it is cached by both, and only the
nodes are chosen anew.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import GpuQuota
from shardwright.pipeline.replanning import planned_again
from shardwright.planning.planner import most_instances
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.resolving.subject import Subject

REMEMBERED_MAX: Final = 512
"""How many questions are remembered; the one asked longest ago goes first. Basis: assumed, a few
MiB.
"""

NODES_MAX: Final = 64
"""Free nodes of a pool that are counted for one replica: more of them change no choice. Basis:
assumed, more than any replica is cut over.
"""

DOMAINS_MAX: Final = 8
"""Scale-up domains that are counted for one replica: one that so many others surpass changes no
choice. Basis: assumed, more than any replica is cut over: 8 racks of NVL72 have 576 GPUs.
"""

SAME: Final = 1.005
"""Factor by which a prediction may differ on other nodes before all layouts are compared again.
Basis: assumed, below what tells layouts apart.
"""


FreeCounts = tuple[tuple[int, int], ...]
"""Pairs of GPUs and the number of nodes with at least as many free, most GPUs first."""


class PlanCache:
    """Reports by question and stock."""

    def __init__(self) -> None:
        self._reports: OrderedDict[tuple[Any, ...], Report] = OrderedDict()

    def recall(
        self, subject: Subject, inventory: Inventory, quotas: tuple[GpuQuota, ...] = ()
    ) -> Report | None:
        """Return the known plan within quotas, or None."""
        key = _key(subject, inventory, quotas)
        known = self._reports.get(key)
        # The nodes are chosen anew each time: those that were free then may be taken by now.
        again = _again(subject, known.outcome, inventory) if known else None
        if known is None or again is None:
            return None
        self._reports.move_to_end(key)
        return replace(known, outcome=again)

    def keep(
        self,
        subject: Subject,
        inventory: Inventory,
        report: Report,
        quotas: tuple[GpuQuota, ...] = (),
    ) -> None:
        """Remember the plan within quotas."""
        key = _key(subject, inventory, quotas)
        self._reports[key] = report
        self._reports.move_to_end(key)
        # A namespace can ask any number of different questions.
        while len(self._reports) > REMEMBERED_MAX:
            self._reports.popitem(last=False)


def _key(subject: Subject, inventory: Inventory, quotas: tuple[GpuQuota, ...]) -> tuple[Any, ...]:
    space, beside_gpus = (subject.request.space, subject.request.workload.kv_offload is not None)
    # Memory beside GPUs differs by node, so the choice depends on which nodes are free.
    host = (
        tuple(
            (node.name, node.host_bytes, node.free)
            for pool in inventory.pools
            for node in pool.nodes
        )
        if beside_gpus
        else ()
    )
    return (
        _question(subject),
        quotas,
        _short_of_disk(inventory, subject.request.disk_bytes),
        stock_of(inventory, space.replicas or most_instances(subject.request)),
        host,
    )


def _short_of_disk(inventory: Inventory, pod_bytes: int) -> tuple[Any, ...]:
    """Return the nodes whose disk may matter to the choice: few, in most clusters none."""
    return tuple(
        (node.name, node.disk_bytes, node.free)
        for pool in inventory.pools
        for node in pool.nodes
        if pod_bytes and node.disk_bytes is not None and node.disk_bytes < pod_bytes * node.gpus
    )


def _question(subject: Subject) -> tuple[Any, ...]:
    intent = subject.intent
    asked = subject.terms.lacking, subject.traits.support.takes_first
    wanted = intent.replicas, intent.min_groups, intent.bounds
    return subject.cut_hash, *wanted, subject.request.deploy, *asked


def _again(subject: Subject, plan: Plan | NoPlan, inventory: Inventory) -> Plan | NoPlan | None:
    # It names no node, so there is nothing to choose anew.
    if isinstance(plan, NoPlan) or not plan.groups:
        return plan
    found = planned_again(subject, plan, inventory)
    if found is None:
        return None
    was, now = plan.performance, found.performance
    pairs = ((was.ttft_seconds, now.ttft_seconds), (was.tpot_seconds, now.tpot_seconds))
    same = all(max(one, other) <= SAME * min(one, other) for one, other in pairs)
    alike = (plan.tensor_link, plan.pipeline_link) == (found.tensor_link, found.pipeline_link)
    return replace(plan, groups=found.groups) if same and alike else None


def stock_of(inventory: Inventory, replicas: int) -> tuple[Any, ...]:
    """Return the part of each pool's room that can change the choice of a layout: the number of
    nodes for each number of free GPUs, up to a limit; where a scale-up link joins nodes, by domain.
    """
    pools = tuple(
        (pool.name, pool.gpu_hour_price, pool.warnings, *_room(pool, replicas))
        for pool in inventory.pools
    )
    excluded = tuple(
        sorted(Counter((item.problem.code, item.product) for item in inventory.excluded).items())
    )
    return pools, excluded, inventory.known_pods


def _room(pool: Pool, copies: int) -> Iterator[Any]:
    # More nodes than all copies can use change no choice, so nodes that come and go there cost no
    # new plan (ADR 6: 12 to 16 ms instead of 50 to 290 on 5,000 nodes).
    most = NODES_MAX * copies
    yield min(most, len(pool.nodes))
    yield _counted((node.free for node in pool.nodes), most)
    if pool.crosses_nodes:
        yield _domains(pool, DOMAINS_MAX * copies)


def _counted(free: Iterable[int], most: int) -> FreeCounts:
    # For each number of free GPUs: how many nodes have at least as many.
    counts, total, levels = Counter(free), 0, []
    for gpus in sorted((number for number in counts if number > 0), reverse=True):
        total += counts[gpus]
        levels.append((gpus, min(total, most)))
        if total >= most:
            break
    return tuple(levels)


def _domains(pool: Pool, most: int) -> tuple[tuple[FreeCounts, int], ...]:
    by_name: dict[str, list[int]] = {}
    for node in pool.nodes:
        by_name.setdefault(node.domain, []).append(node.free)
    counts = Counter(_counted(free, len(free)) for free in by_name.values())
    surpassed = {
        room: sum(counts[other] for other in counts if other != room and _surpasses(other, room))
        for room in counts
    }
    return tuple(
        sorted(
            (room, min(counts[room], most - surpassed[room]))
            for room in counts
            if surpassed[room] < most
        )
    )


def _surpasses(domain: FreeCounts, other: FreeCounts) -> bool:
    return all(
        any(free >= gpus and nodes >= wanted for free, nodes in domain) for gpus, wanted in other
    )
