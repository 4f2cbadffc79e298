"""Planned restarts of several groups: no more of them are down at once than allowed."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from shardwright.reconcile.group import Group
from shardwright.reconcile.groups import GroupStep, outdated
from shardwright.reconcile.states import AT_ZERO
from shardwright.rendering.bundle import KubernetesObject


def turns_left(most: int, beside: int, elsewhere: int) -> int:
    """Return how many groups of a model may be down on purpose. ``most`` may be down over all
    models.

    ``beside`` are down of other models of its namespace, ``elsewhere`` of other namespaces. The
    last turn is for a namespace that has none. So a namespace with models that change all the time
    holds no other up by more than a restart.
    """
    free = most - beside - elsewhere
    # Without the last turn kept back, one namespace whose models change all the time held all of
    # them, and nobody else rolled or moved.
    return max(0, free - 1, min(free, 1 - beside))


def turn_is_gone(left: int | None, counted_on: int, *, goes_down: bool) -> bool:
    """Return whether others have taken a turn that a reconcile has counted on before it could take
    it.

    ``left`` is how many there are (None: any number), ``counted_on`` how many there were when it
    read; one that takes none misses none.
    """
    return left is not None and goes_down and left < counted_on


def one_after_another(
    groups: Sequence[Group],
    steps: Sequence[GroupStep],
    now: datetime,
    max_unavailable: int,
    most_moving: int | None = None,
) -> tuple[GroupStep, ...]:
    """Return the steps, with those left out that would end the service of one group too many.

    ``most_moving`` is how many groups may be down on purpose, however many ``max_unavailable``
    allows (None: any number).

    A group that does not serve may restart at any time. One that has restarted is up when it has
    been ready for long enough. If every group that is down waits for nodes that groups which serve
    still hold and are to leave, all of them would wait for ever: then one of those restarts beyond
    the limits, and a further one only if all would wait for ever again.
    """
    turns = max_unavailable - sum(
        not _is_up(group, step, now) for group, step in zip(groups, steps, strict=True)
    )
    if most_moving is not None:
        turns = min(
            turns,
            # Of this model alone: those of others are left out of most_moving already.
            most_moving - sum(step.state.moving and not step.planned for step in steps),
        )
    turns = max(turns, int(max_unavailable > 0 and _is_a_cycle(groups, steps)))
    return tuple(_restrained(groups, steps, now, turns, _in_the_way(groups, steps)))


def _is_up(group: Group, step: GroupStep, now: datetime) -> bool:
    """Return whether a group serves, and will after this reconcile but for its turn."""
    return step.planned or (group.available(now) and step.state.situation not in AT_ZERO)


def _restrained(
    groups: Sequence[Group],
    steps: Sequence[GroupStep],
    now: datetime,
    turns: int,
    first: frozenset[str],
) -> Iterator[GroupStep]:
    """Yield the steps in order of the groups; of those that are planned, the ones in the way of
    others have the first turns.
    """
    planned = [group.name for group, step in zip(groups, steps, strict=True) if step.planned]
    # The sort is stable: groups that are in nobody's way keep their order.
    chosen = sorted(planned, key=lambda name: name not in first)[: max(0, turns)]
    for group, step in zip(groups, steps, strict=True):
        yield (
            GroupStep(state=outdated(group, now))
            if step.planned and group.name not in chosen
            else step
        )


def _is_a_cycle(groups: Sequence[Group], steps: Sequence[GroupStep]) -> bool:
    """Return whether there are groups that are down, and none of them can start before one restarts
    that serves.
    """
    down = [(group, step) for group, step in zip(groups, steps, strict=True) if not group.complete]
    held = _held_in_the_way(groups, steps)
    # All of them: as long as one can start by itself, its nodes come free without a further outage.
    return bool(down) and all(
        step.state.unplaced and not _nodes(group).isdisjoint(held) for group, step in down
    )


def _in_the_way(groups: Sequence[Group], steps: Sequence[GroupStep]) -> frozenset[str]:
    """Return the names of the groups that are to leave nodes for which another one waits."""
    wanted = frozenset(
        node
        for group, step in zip(groups, steps, strict=True)
        if step.state.unplaced
        for node in _nodes(group)
    )
    return frozenset(group.name for group in groups if not wanted.isdisjoint(_to_be_left(group)))


def _held_in_the_way(groups: Sequence[Group], steps: Sequence[GroupStep]) -> frozenset[str]:
    """Return the nodes that groups leave by a planned restart."""
    leaving = (group for group, step in zip(groups, steps, strict=True) if step.planned)
    return frozenset(node for group in leaving for node in _to_be_left(group))


def _to_be_left(group: Group) -> frozenset[str]:
    # A pod without a node counts as on the node "", for which no group waits.
    return frozenset(member.node or "" for member in group.members) - _nodes(group)


def _nodes(group: Group) -> frozenset[str]:
    return planned_nodes(group.rendered)


def planned_nodes(stateful_set: KubernetesObject) -> frozenset[str]:
    """Return the nodes that the pods of a rendered group are bound to by name."""
    affinity = stateful_set["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", ()
    )
    fields = (field for term in terms for field in term.get("matchFields", ()))
    return frozenset(node for field in fields for node in field["values"])
