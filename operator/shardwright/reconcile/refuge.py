"""Which group goes elsewhere at once, because it is down and its place is refused to it? It is made
beside what is left of it, as its next generation, where there is a free place: whichever is up
first stays, and no group that serves is touched.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.planning.report import Plan
from shardwright.planning.validity import NodeFault, Unfit
from shardwright.reconcile.annotations import read_annotations
from shardwright.reconcile.drift import asked_by
from shardwright.reconcile.group import serving_on
from shardwright.reconcile.members import GroupState
from shardwright.reconcile.observed import STATEFUL_SET, Observed
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import generation_name, generation_of, group_names

REFUSED_AFTER_SECONDS: Final = 10.0
"""How long the fault of a place must be known until a group that is down there goes elsewhere.
Basis: chosen; what a node says of itself comes in several steps, a second or two apart.
"""

_REFUSES: Final = frozenset(
    {
        NodeFault.NOT_READY,
        NodeFault.IN_CHANGE,
        NodeFault.TAINTED,
        NodeFault.DESELECTED,
        NodeFault.CHANGED,
        NodeFault.DEGRADED,
        NodeFault.UNUSABLE,
    }
)
"""Faults by which a node takes no pod, while it may come back. One without a Node object registers
again within seconds, and keeps its own patience.
"""


def refused_since(
    plan: Plan,
    base: str,
    standing: Sequence[GroupState],
    unfit: Iterable[Unfit],
    since: Mapping[str, datetime],
) -> dict[int, datetime]:
    """Return the groups of a plan that are down and whose place is refused, by index, and since
    when that is known; ``since`` is when the fault of each ``unfit`` node was first seen.
    """
    faults = {item.node: item.fault for item in unfit if item.fault in _REFUSES}
    by_root: dict[str, list[GroupState]] = {}
    for state in standing if faults else ():
        by_root.setdefault(generation_of(state.name)[0], []).append(state)
    found = {}
    for index, root in enumerate(group_names(base, plan.group_numbers)):
        states = by_root.get(root, ())
        # One that has two generations has its refuge, or is about to be replaced.
        if len(states) != 1 or states[0].serves:
            continue
        times = [
            since[node]
            for node in plan.groups[index]
            if node in faults and _keeps_down(faults[node], states[0], plan.nodes_per_replica)
        ]
        if times:
            found[index] = min(times)
    return found


def _keeps_down(fault: NodeFault, state: GroupState, pods: int) -> bool:
    # A pod that is bound goes on there, whatever its node says to others; not on a silent one, and
    # not where it failed.
    return fault is NodeFault.NOT_READY or state.failing or not state.settled(pods)


def refused_long(refused: Mapping[int, datetime], now: datetime) -> tuple[int, ...]:
    """Return the groups whose place has been refused for long enough."""
    limit = timedelta(seconds=REFUSED_AFTER_SECONDS)
    return tuple(index for index, since in sorted(refused.items()) if now - since >= limit)


def due_at(refused: Mapping[int, datetime], now: datetime) -> datetime | None:
    """Return when the next of these groups goes elsewhere, if there is a place; None: none does."""
    limit = timedelta(seconds=REFUSED_AFTER_SECONDS)
    return min((at for since in refused.values() if (at := since + limit) > now), default=None)


def _is_refuge(live: KubernetesObject) -> bool:
    # A surge means no outage: only a group that is down has one to remember.
    remembered = read_annotations(live)
    starts = bool(live["spec"].get("replicas")) and not remembered.stopped_for
    return starts and remembered.stopped_at is not None


def come_back(
    observed: Observed,
    base: str,
    record: PlanRecord,
    made_for: Callable[[PlanRecord, int], str],
    restart_asked: str,
) -> PlanRecord | None:
    """Return the record after the first group that serves again where it was is planned there,
    before its refuge has come up; None if there is none.

    ``made_for`` returns the hash of the request for a group of a record: one of which others are
    asked, or a restart, is on its way out.
    """
    for index, root in enumerate(group_names(base, record.plan.group_numbers)):
        latest = max(observed.generations.get(root, {}), default=0)
        refuge = observed.objects.get((STATEFUL_SET, generation_name(root, latest)))
        if not latest or refuge is None or not _is_refuge(refuge):
            continue
        former = generation_name(root, latest - 1)
        nodes = serving_on(observed, former)
        others = {
            node for at, place in enumerate(record.plan.groups) if at != index for node in place
        }
        # What it left may be the place of another group by now.
        if nodes and others.isdisjoint(nodes):
            moved = record.moved(index, nodes, latest - 1)
            live = observed.objects[STATEFUL_SET, former]
            stays = read_annotations(live).restarted_for == restart_asked or not restart_asked
            if stays and asked_by(live) == made_for(moved, index):
                return moved
    return None
