"""Which nodes have died with pods on them, and which groups go on under their next generation?

A StatefulSet never replaces a pod that is still there, and the pod of a dead node stays until the
node comes back or its Node object goes. So the group goes on under the name of its next generation,
on other nodes; nothing is deleted by force.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from shardwright.reconcile.annotations import HELD_BACK, UNSCHEDULABLE_SECONDS, read_annotations
from shardwright.reconcile.drift import made_anew
from shardwright.reconcile.group import Group
from shardwright.reconcile.members import GroupState, Member
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.writes import Why
from shardwright.rendering.bundle import KubernetesObject, of_kind
from shardwright.rendering.names import GENERATION_MAX, generation_name, generation_of, group_names

LOST_SECONDS: Final = 60
"""How long after its grace a pod of a node that is not ready is given up. Basis: assumed;
source: a kubelet that comes back ends its pods within seconds.
"""


HANGING_SECONDS: Final = 240
"""The same on a node that answers. Basis: assumed; a stuck unmount or a GPU process that cannot be
killed rarely ends after minutes, and what ends late by itself mostly has.
"""


def lost_nodes(members: Iterable[Member], silent: Collection[str], now: datetime) -> frozenset[str]:
    """Return the nodes with pods that should be gone: silent nodes soon, others later."""
    return frozenset(
        member.node
        for member in members
        if member.node
        and overdue(
            # A kubelet that answers may still be ending the pod: a stuck unmount takes minutes, so
            # it gets four times as long.
            member,
            now,
            LOST_SECONDS if member.node in silent else HANGING_SECONDS,
        )
    )


def given_up_at(members: Iterable[Member], now: datetime) -> datetime | None:
    """Return when to check overdue pods again, as no event says that one is given up."""
    waits = [member.gone_by for member in members if member.node and member.gone_by]
    times = (
        by + timedelta(seconds=seconds)
        for by in waits
        # Which of the two counts is known only then: a node may fall silent in between.
        for seconds in (LOST_SECONDS, HANGING_SECONDS)
    )
    return min((time for time in times if time > now), default=None)


def unsettled_groups(
    groups: Sequence[Sequence[str]],
    base: str,
    standing: Iterable[GroupState],
    numbers: Sequence[int] = (),
) -> frozenset[int]:
    """Return the planned groups that need a place now: absent, restarting, or with unbound pods."""
    roots = group_names(base, numbers or range(len(groups)))
    pods = {root: len(nodes) for root, nodes in zip(roots, groups, strict=True)}
    settled = {
        root
        for state in standing
        if state.settled(pods.get(root := generation_of(state.name)[0], 0))
    }
    return frozenset(index for index, root in enumerate(roots) if root not in settled)


def generations(
    groups: Mapping[str, Sequence[str]],
    observed: Observed,
    owner_uid: str,
    lost: Collection[str],
    least: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return the generation under which each planned group is to exist.

    It is the existing one, or the next if that one is at zero, only pods on lost nodes are left of
    it, and the group is planned elsewhere by now; never less than the record's (``least``).
    ``groups`` are their nodes by name without generation.
    """
    floors = (*least, *(0 for _ in groups))
    found = (_generation(root, nodes, observed, owner_uid, lost) for root, nodes in groups.items())
    return tuple(
        # A record may have more or fewer generations than there are groups.
        max(number, floor)
        for number, floor in zip(found, floors, strict=False)
    )


def following_generations(
    rendered: Iterable[KubernetesObject], numbers: Sequence[int], observed: Observed
) -> tuple[int, ...]:
    """Return each group's generation, the next one if an empty StatefulSet must give way."""
    sets = of_kind(rendered, STATEFUL_SET)
    return tuple(
        number + 1
        # At the last number the name would no longer fit the revision label of a StatefulSet (52
        # characters, ADR 3).
        if number < GENERATION_MAX and _gives_way(content, observed)
        else number
        for content, number in zip(sets, numbers, strict=True)
    )


def _gives_way(rendered: KubernetesObject, observed: Observed) -> bool:
    # It gives way if it is ours and was stopped for a change: one that failed may be held, and is
    # to start again as it was.
    name = rendered["metadata"]["name"]
    live = observed.objects.get((STATEFUL_SET, name))
    # With a pod left, the next generation would meet it on the GPUs of its own place.
    if live is None or live["spec"].get("replicas") != 0 or observed.members_of(name):
        return False
    ours = controller_uid(live) == controller_uid(rendered)
    why = read_annotations(live).stopped_for
    return ours and (
        why == HELD_BACK or (why in {"", Why.ROLLOUT} and bool(made_anew(rendered, live)))
    )


def former_generations(
    root: str, generation: int, observed: Observed, owner_uid: str, now: datetime
) -> frozenset[str]:
    """Return a group's earlier generations with a StatefulSet, or pods that can end."""
    numbers = observed.generations.get(root, {})
    earlier = {
        generation_name(root, number): uid for number, uid in numbers.items() if number < generation
    }
    return frozenset(
        name
        for name, uid in earlier.items()
        # Pods without a StatefulSet of ours count too while they can end: they hold GPUs that the
        # next group needs.
        if uid == owner_uid or not all(overdue(member, now) for member in observed.members_of(name))
    )


def _generation(
    root: str, nodes: Sequence[str], observed: Observed, owner_uid: str, lost: Collection[str]
) -> int:
    numbers = observed.generations.get(root, {})
    latest = max(
        # None: that generation has only pods, and their StatefulSet may have been ours.
        (number for number, uid in numbers.items() if uid in (None, owner_uid)),
        default=0,
    )
    current = generation_name(root, latest)
    left = observed.members_of(current)
    # All of them: one pod that ends by itself is waited for, and a group never has pods of two
    # generations without need.
    stuck = bool(left) and all(member.deleting and member.node in lost for member in left)
    live = observed.objects.get((STATEFUL_SET, current))
    stopped = live is None or live["spec"].get("replicas") == 0
    moves = (
        stuck
        and stopped
        # Moved first: a next generation planned on the lost node would hang there as the last one
        # does.
        and not set(nodes).intersection(lost)
        and latest < GENERATION_MAX
    )
    return latest + 1 if moves else latest


def overdue(member: Member, now: datetime, seconds: float = LOST_SECONDS) -> bool:
    """Return whether a pod should have been gone for so long that nobody waits for it any more."""
    return member.gone_by is not None and now >= member.gone_by + timedelta(seconds=seconds)


def finds_no_place(group: Group, now: datetime) -> bool:
    """Return whether the pods of a surge have waited long enough for places.

    The planner knows GPUs only: a quota, CPU, memory or a volume may say no. Pods missing because
    the group restarts do not count.
    """
    if group.live is None or not group.live["spec"].get("replicas"):
        return False
    waiting = [member.unschedulable_since for member in group.members if member.unschedulable_since]
    # A group that has been up had its place: missing pods are those of a restart.
    first_start = group.remembered.stopped_at is None and not group.remembered.members
    if group.short_since and first_start and len(group.members) < group.size:
        waiting.append(group.short_since)
    return any(now >= since + timedelta(seconds=UNSCHEDULABLE_SECONDS) for since in waiting)
