"""Which planned groups leave their nodes, and why? Running groups go on wherever they are: a group
leaves when it needs a place and cannot have it where it is planned, once the fault of its own nodes
has lasted; only a node that does not give its pods back takes a group away that may still have pods
elsewhere.

Which groups go if fewer are wanted? Those that cost least to end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from shardwright.errors import Problem
from shardwright.planning.report import Plan
from shardwright.planning.validity import NodeFault, Unfit
from shardwright.reconcile.annotations import NODES_COME_SECONDS, UNSCHEDULABLE_SECONDS
from shardwright.reconcile.group import overdue
from shardwright.reconcile.members import GroupState, Member, Situation
from shardwright.rendering.names import generation_of, group_names

GRACE_SECONDS: Final = 300.0
"""How long a fault that may be a slip must last before a group that needs a place leaves the node.
Basis: assumed; a node reboots, a device plugin restarts and labels come back within it.
"""

AWAY_SECONDS: Final = GRACE_SECONDS + 60
"""The same for a node that is not ready. Basis: assumed; pods on such a node are deleted after five
minutes, and given up a minute after their grace.
"""

REGISTERED_AGAIN_SECONDS: Final = 60.0
"""The same for a node without a Node object. Basis: assumed; a kubelet that starts registers its
node within seconds.
"""

PATIENCE_SECONDS: Final[Mapping[NodeFault, float]] = {
    NodeFault.GONE: REGISTERED_AGAIN_SECONDS,
    NodeFault.TO_COME: NODES_COME_SECONDS,
    NodeFault.NOT_READY: AWAY_SECONDS,
    NodeFault.IN_CHANGE: AWAY_SECONDS,
    NodeFault.LEAVING: 0.0,
    NodeFault.CORDONED: 0.0,
    NodeFault.TAINTED: GRACE_SECONDS,
    NodeFault.DESELECTED: GRACE_SECONDS,
    NodeFault.CHANGED: GRACE_SECONDS,
    NodeFault.DEGRADED: GRACE_SECONDS,
    NodeFault.UNUSABLE: GRACE_SECONDS,
}
"""How long each fault must last."""

_BACK: Final[Mapping[NodeFault, str]] = {
    NodeFault.NOT_READY: "bring the node back or delete its Node object",
    NodeFault.CORDONED: "uncordon the node",
    NodeFault.TO_COME: "look at what its autoscaler says of the pods",
    NodeFault.LEAVING: "wait for its replacement",
    NodeFault.TAINTED: "remove the taint or tolerate it (spec.placement.tolerations)",
    NodeFault.DESELECTED: "give the node its labels back or change spec.placement.nodeSelector",
}
"""The way back to the node, if there is one beside repairing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Known facts of a plan's nodes and of the groups on them.

    ``unfit`` are planned nodes with a fault, ``since`` when it was first seen, by node. ``lost``
    nodes do not give pods of this model back; ``hanging`` are the planned groups of those pods.
    ``free`` is how many GPUs others leave on each planned node. ``unsettled`` planned groups need a
    place now; ``homeless`` ones have long found none.
    """

    unfit: Sequence[Unfit] = ()
    since: Mapping[str, datetime] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    hanging: frozenset[int] = frozenset()
    free: Mapping[str, int] = field(default_factory=dict)
    unsettled: frozenset[int] = frozenset()
    homeless: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A node that a group leaves; ``what`` is wrong with it, and the way ``back`` to it."""

    group: int
    node: str
    what: str
    back: str


def departures(plan: Plan, seen: Occupancy, now: datetime) -> tuple[Departure, ...]:
    """Return the groups that go elsewhere, each with the first node that is a reason."""
    full = _full_nodes(plan, seen.free)
    faults = {item.node: item for item in seen.unfit if now >= _patience_ends(item, seen)}
    return tuple(
        departure
        for index, nodes in enumerate(plan.groups)
        # One reason a group: the first node that says why is the one to look at.
        if (departure := next(_reasons(index, nodes, seen, faults, full), None))
    )


def _reasons(
    index: int,
    nodes: Sequence[str],
    seen: Occupancy,
    faults: Mapping[str, Unfit],
    full: frozenset[str],
) -> Iterator[Departure]:
    for node in nodes:
        # First: its StatefulSet waits for that pod and never reaches zero (ADR 3).
        if node in seen.lost and index in seen.hanging:
            what = "holds pods that should be gone, and does not give them back"
            yield Departure(
                group=index,
                node=node,
                what=what,
                back="bring the node back or delete its Node object",
            )
    # It runs where it is. A fault of its nodes counts from when it needs a place.
    if index not in seen.unsettled:
        return
    for node in nodes:
        if fault := faults.get(node):
            what = f"{fault.says}, and a group waits for a place there"
            yield Departure(
                group=index, node=node, what=what, back=_BACK.get(fault.fault, "repair the node")
            )
    # Full nodes alone move nobody: they empty by themselves, and only a group that found no place
    # for long goes elsewhere.
    if index in seen.homeless:
        for node in nodes:
            if node in full:
                what = "has too few free GPUs, and a group has found no place there"
                yield Departure(
                    group=index, node=node, what=what, back="free the GPUs of that node"
                )


def recheck_at(plan: Plan, seen: Occupancy, now: datetime) -> datetime | None:
    """Return when the next fault will have lasted long enough for a waiting group, or None."""
    # A running group is looked at when it needs a place; nothing needs to wake it before.
    waiting = {
        node for index in seen.unsettled if index < len(plan.groups) for node in plan.groups[index]
    }
    ends = (_patience_ends(item, seen) for item in seen.unfit if item.node in waiting)
    return min((end for end in ends if end > now), default=None)


def late_nodes(plan: Plan, seen: Occupancy, now: datetime) -> frozenset[str]:
    """Return the nodes in provisioning that groups have waited for in vain."""
    waiting = {
        node for index in seen.unsettled if index < len(plan.groups) for node in plan.groups[index]
    }
    awaited = (
        item for item in seen.unfit if item.fault is NodeFault.TO_COME and item.node in waiting
    )
    return frozenset(item.node for item in awaited if now >= _patience_ends(item, seen))


def _patience_ends(item: Unfit, seen: Occupancy) -> datetime:
    return seen.since[item.node] + timedelta(seconds=PATIENCE_SECONDS[item.fault])


def departure_problem(leaving: Sequence[Departure]) -> Problem | None:
    """Return the problem of a plan that some groups must leave, or None."""
    if not leaving:
        return None
    names = sorted({item.node for item in leaving})
    first = next(item for item in leaving if item.node == names[0])
    return Problem(
        code="PlanInvalid",
        what=f"planned node {names[0]} {first.what}",
        gap=f"as do {len(names) - 1} more nodes"
        if len(names) > 2  # noqa: PLR2004 - one is named, a second beside it
        else f"as does {names[1]}"
        if names[1:]
        else "",
        remedy=f"the group is planned on other nodes; where there are none, {first.back}",
    )


def homeless_groups(
    roots: Sequence[str], standing: Iterable[GroupState], members: Iterable[Member], now: datetime
) -> frozenset[int]:
    """Return the indices of groups in ``roots`` that have long found no place.

    A pod also waits for one that is just ending. So only a longer wait counts, or a group that has
    given its GPUs back because of it.
    """
    waited = timedelta(seconds=UNSCHEDULABLE_SECONDS)
    waiting = {
        member.group
        for member in members
        if member.unschedulable_since and now >= member.unschedulable_since + waited
    }
    gave_up = (state.name for state in standing if state.gave_its_place_back)
    found = {generation_of(name)[0] for name in (*waiting, *gave_up)}
    return frozenset(index for index, root in enumerate(roots) if root in found)


def hanging_groups(
    roots: Sequence[str], members: Iterable[Member], lost: frozenset[str], now: datetime
) -> frozenset[int]:
    """Return the indices of groups in ``roots`` with overdue pods on lost nodes."""
    found = {
        generation_of(member.group)[0]
        for member in members
        if member.node in lost and overdue(member, now)
    }
    return frozenset(index for index, root in enumerate(roots) if root in found)


def crowded_out(
    plan: Plan, base: str, free: Mapping[str, int], healthy: Mapping[str, int]
) -> frozenset[str]:
    """Return the planned groups on whose nodes others leave too few GPUs, by root name.

    A node with too few healthy GPUs, held or free, has a fault instead: those have their own
    patience.
    """
    full = _full_nodes(plan, free) - _full_nodes(plan, healthy)
    roots = group_names(base, plan.group_numbers)
    return frozenset(
        root for root, nodes in zip(roots, plan.groups, strict=True) if not full.isdisjoint(nodes)
    )


def _full_nodes(plan: Plan, free: Mapping[str, int]) -> frozenset[str]:
    wanted = Counter(name for group in plan.groups for name in group)
    return frozenset(
        name
        for name, count in wanted.items()
        if name in free and free[name] < count * plan.gpus_per_node
    )


_BROKEN: Final = frozenset({Situation.BACKING_OFF, Situation.STOPPED, Situation.UNREADY})
"""Situations of a group that does not serve and was to."""


class Worth(IntEnum):
    """The cost of ending a group, the least first."""

    BROKEN = 0  #: it has failed, or cannot go on where it is
    NOT_READY = 1  #: it is starting, or has not been made
    SERVES = 2  #: it is ready, or its former generation is


def worst_first(
    roots: Sequence[str],
    numbers: Sequence[int],
    standing: Iterable[GroupState],
    leaving: Iterable[Departure],
) -> tuple[int, ...]:
    """Return group numbers in the order to drop: broken, not ready, then the highest.

    ``roots`` are the groups' names without generation, in the order of ``numbers``. ``standing``
    are existing groups of all generations. ``leaving`` are the groups, by index, that cannot go on
    where they are.
    """
    states: dict[str, list[GroupState]] = {}
    for state in standing:
        states.setdefault(generation_of(state.name)[0], []).append(state)
    moves = {item.group for item in leaving}
    worth = [
        # The highest number goes first, as with a StatefulSet; monitors that know groups by name
        # find the others again (ADR 3).
        (_worth(states.get(root, ()), moves=index in moves), -numbers[index])
        for index, root in enumerate(roots)
    ]
    return tuple(-number for _, number in sorted(worth))


def _worth(states: Sequence[GroupState], *, moves: bool) -> Worth:
    # Any generation: while the next one starts, the former one serves.
    if any(state.ready for state in states):
        return Worth.SERVES
    broken = moves or any(state.failing or state.situation in _BROKEN for state in states)
    return Worth.BROKEN if broken else Worth.NOT_READY
