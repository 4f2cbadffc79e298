"""Which groups may restart on purpose now, so that no more are down at once than allowed?"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from shardwright.reconcile.group import Group
from shardwright.reconcile.groups import GroupStep, outdated
from shardwright.reconcile.states import AT_ZERO
from shardwright.rendering.bundle import KubernetesObject


def turns_left(most: int, beside: int, elsewhere: int) -> int:
    """Return how many groups of a model may be down on purpose, of ``most`` over all models.

    ``beside`` are down in other models of its namespace, ``elsewhere`` in other namespaces. The
    last turn is for a namespace that has none, so that one whose models change all the time holds
    up no other for longer than a restart.
    """
    free = most - beside - elsewhere
    # Without it one namespace whose models change all the time held all turns, and nobody else
    # rolled or moved.
    return max(0, free - 1, min(free, 1 - beside))


def turn_is_gone(left: int | None, counted_on: int, *, goes_down: bool) -> bool:
    """Return whether others have taken a turn that a reconcile relied on before it could take it.

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
    """Return the steps without those that would end the service of one group too many.

    ``most_moving`` is how many groups may be down on purpose, whatever ``max_unavailable`` allows
    (None: any number). A group that does not serve may restart at any time; a restarted one is up
    when it has been ready for long enough. If every group that is down waits for nodes that serving
    groups are to leave, all would wait for ever: then one of those restarts beyond the limits, and
    another only if all would wait for ever again.
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
    return step.planned or (group.available(now) and step.state.situation not in AT_ZERO)


def _restrained(
    groups: Sequence[Group],
    steps: Sequence[GroupStep],
    now: datetime,
    turns: int,
    first: frozenset[str],
) -> Iterator[GroupStep]:
    # Those in the way of others have the first turns.
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
    down = [(group, step) for group, step in zip(groups, steps, strict=True) if not group.complete]
    held = _held_in_the_way(groups, steps)
    # All of them: while one can start by itself, its nodes come free without a further outage.
    return bool(down) and all(
        step.state.unplaced and not _nodes(group).isdisjoint(held) for group, step in down
    )


def _in_the_way(groups: Sequence[Group], steps: Sequence[GroupStep]) -> frozenset[str]:
    wanted = frozenset(
        node
        for group, step in zip(groups, steps, strict=True)
        if step.state.unplaced
        for node in _nodes(group)
    )
    return frozenset(group.name for group in groups if not wanted.isdisjoint(_to_be_left(group)))


def _held_in_the_way(groups: Sequence[Group], steps: Sequence[GroupStep]) -> frozenset[str]:
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
