"""Planned restarts of several groups: no more of them are down at once than allowed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.reconcile.groups import Group, Step, outdated
from shardwright.reconcile.incidents import UNSCHEDULABLE


def one_after_another(groups: Sequence[Group], steps: Sequence[Step], max_unavailable: int) -> tuple[Step, ...]:
    """Return the steps, with those left out that would end the service of one group too many.

    A group that does not serve may restart at any time. One that holds nodes which another group needs and cannot get, and
    is to leave them, restarts as well: else both would wait for ever.
    """
    needed = frozenset(node for group, step in zip(groups, steps, strict=True) for node in _needed(group, step))
    return tuple(_restrained(groups, steps, max_unavailable, needed))


def _restrained(groups: Sequence[Group], steps: Sequence[Step], most: int, needed: frozenset[str]) -> Iterator[Step]:
    down = sum(not group.complete for group in groups)
    for group, step in zip(groups, steps, strict=True):
        left = {member.node or "" for member in group.members} - planned_nodes(group.rendered)
        in_the_way = not needed.isdisjoint(left)
        if not step.planned:
            yield step
        elif down < most or in_the_way:
            down += 1
            yield step
        else:
            yield Step(state=outdated(group))


def _needed(group: Group, step: Step) -> frozenset[str]:
    """Return the nodes that a group is to run on while the scheduler finds no room for it."""
    return planned_nodes(group.rendered) if UNSCHEDULABLE in step.state.waiting else frozenset()


def planned_nodes(stateful_set: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes that the pods of a rendered group are bound to by name."""
    affinity = stateful_set["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    fields = (field for term in terms for field in term.get("matchFields", ()))
    return frozenset(node for field in fields for node in field["values"])
