"""Which planned groups have to leave their nodes, and why: the nodes died, take no pods, or are full.

What runs goes on wherever it is; only a lost node takes a group away that may still have pods elsewhere.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.planning.report import Plan
from shardwright.reconcile.generations import LOST_SECONDS
from shardwright.reconcile.groups import GroupState
from shardwright.reconcile.incidents import UNSCHEDULABLE, UNSCHEDULABLE_SECONDS
from shardwright.reconcile.members import Member
from shardwright.reconcile.standing import GRACE_SECONDS
from shardwright.rendering.names import generation_of, group_name

AWAY_SECONDS: Final = GRACE_SECONDS + LOST_SECONDS
"""How long a node is not ready before a group that needs a place there goes elsewhere. Basis: assumed; pods on such a node
are deleted after five minutes, and given up a minute after their grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What makes groups leave, beside what the inventory says.

    ``lost`` are nodes that died with pods of this model on them, ``away`` those that have not been ready for long.
    ``unsettled`` are the planned groups that need a place now, ``homeless`` those that found none where they are planned.
    """

    lost: frozenset[str] = frozenset()
    away: frozenset[str] = frozenset()
    unsettled: frozenset[int] = frozenset()
    homeless: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """Nodes that some groups (None: all) must leave; ``what`` is wrong with them, and the way ``back`` to them."""

    nodes: Collection[str]
    groups: Collection[int] | None
    what: str
    back: str

    def leaves(self, index: int, nodes: Sequence[str]) -> bool:
        return (self.groups is None or index in self.groups) and not set(nodes).isdisjoint(self.nodes)


def away_nodes(not_ready: Mapping[str, datetime | None], now: datetime) -> frozenset[str]:
    """Return the nodes that have not been ready for so long that no group waits for them; None: nobody knows how long."""
    limit = timedelta(seconds=AWAY_SECONDS)
    return frozenset(node for node, since in not_ready.items() if since is not None and now - since >= limit)


def homeless_groups(
    count: int, base: str, standing: Iterable[GroupState], members: Iterable[Member], now: datetime
) -> frozenset[int]:
    """Return which of ``count`` planned groups the scheduler has found no place for, however long they waited.

    A pod waits for one that is just ending, too: what is meant is a group of which one waits beyond that, or that has
    given its GPUs back because of it.
    """
    waited = timedelta(seconds=UNSCHEDULABLE_SECONDS)
    waiting = {member.group for member in members if member.unschedulable_since and now >= member.unschedulable_since + waited}
    found = {generation_of(name)[0] for name in (*waiting, *(state.name for state in standing if _gave_up(state)))}
    return frozenset(index for index in range(count) if group_name(base, index) in found)


def _gave_up(state: GroupState) -> bool:
    why = state.last_failure.reason if state.last_failure and state.failing else ""
    return why == UNSCHEDULABLE and state.situation in {"Stopping", "BackingOff"}


def leaving_groups(plan: Plan, inventory: Inventory, needs: Needs) -> frozenset[int]:
    """Return which planned groups go elsewhere: those with a lost node, and those that need a place and cannot have it there.

    What runs on a cordoned node goes on; what was evicted from it, or has ended there, would wait for it. So would what
    was to start on a node that died, or where somebody else took the GPUs.
    """
    causes = tuple(_causes(plan, inventory, needs))
    return frozenset(index for index, nodes in enumerate(plan.groups) if any(cause.leaves(index, nodes) for cause in causes))


def leaving_problem(plan: Plan, inventory: Inventory, needs: Needs) -> Problem | None:
    """Return what is wrong with a plan that some groups must leave, None where none must."""
    for cause in _causes(plan, inventory, needs):
        left = {node for index, nodes in enumerate(plan.groups) if cause.leaves(index, nodes) for node in nodes}
        names = sorted(left.intersection(cause.nodes))
        if names:
            return Problem(
                code="PlanInvalid",
                what=f"planned node {names[0]} {cause.what}",
                gap=f"as do {len(names) - 1} others" if names[1:] else "",
                remedy=f"the group is planned on other nodes; where there are none, {cause.back}",
            )
    return None


def _causes(plan: Plan, inventory: Inventory, needs: Needs) -> Iterator[_Cause]:
    """Yield why groups leave nodes, the worst first."""
    revive = "bring the node back or delete its Node object"
    cordoned = frozenset(item.node for item in inventory.excluded if item.problem.code == "Cordoned")
    homeless = needs.homeless.intersection(needs.unsettled)
    lost = "does not answer and holds pods that should be gone"
    away = f"has not been ready for {AWAY_SECONDS / 60:.0f} minutes, and a group waits for a place there"
    closed = "takes no pods, and a group waits for one there"
    full = "has too few free GPUs, and a group has found no place there"
    yield _Cause(nodes=needs.lost, groups=None, what=lost, back=revive)
    yield _Cause(nodes=needs.away, groups=needs.unsettled, what=away, back=revive)
    yield _Cause(nodes=cordoned, groups=needs.unsettled, what=closed, back="uncordon the node")
    yield _Cause(nodes=_full_nodes(plan, inventory), groups=homeless, what=full, back="free the GPUs of that node")


def _full_nodes(plan: Plan, inventory: Inventory) -> frozenset[str]:
    """Return the planned nodes on which others have left fewer GPUs free than the plan has there."""
    wanted = Counter(name for group in plan.groups for name in group)
    nodes = (node for pool in inventory.pools for node in pool.nodes if node.name in wanted)
    return frozenset(node.name for node in nodes if node.free < wanted[node.name] * plan.gpus_per_node)
