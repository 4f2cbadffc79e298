"""How do groups ask an autoscaler for nodes, and which nodes have they got? Only pods ask for
nodes; ``hardware.provisioning`` knows the autoscaler's pools.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from shardwright.api.record import PlanRecord
from shardwright.hardware.provisioning import Sought, Turnout, is_provisioned_later
from shardwright.reconcile.members import Member
from shardwright.reconcile.observed import STATEFUL_SET, Observed
from shardwright.reconcile.templates import asks_the_same, template_hash
from shardwright.rendering.bundle import KubernetesObject, of_kind


def seeking(
    record: PlanRecord, before: PlanRecord | None, turnouts: Sequence[Turnout]
) -> PlanRecord:
    """Return a new plan of record that says how its groups ask for nodes; ``before`` is the one it
    replaces, ``turnouts`` are the existing nodes of each pool.

    A group that stays where it is goes on asking as it did: its pods restart for a change of that.
    One that moves off nodes it had asked for asks for them no more.
    """
    numbers, groups = (before.plan.group_numbers, before.plan.groups) if before else ((), ())
    earlier = (
        {numbers[item.group]: item for item in before.sought if item.group < len(numbers)}
        if before
        else {}
    )
    stood = dict(zip(numbers, groups, strict=True))
    sought = []
    for index, (number, nodes) in enumerate(
        zip(record.plan.group_numbers, record.plan.groups, strict=True)
    ):
        known = earlier.get(number)
        if known and stood.get(number) == nodes:
            # Another number would be another template, and the group would roll.
            sought.append(replace(known, group=index))
        # Counted up: a group that asks again must be of another template.
        elif any(map(is_provisioned_later, nodes)):
            others = {
                node
                for other, named in enumerate(record.plan.groups)
                if other != index
                for node in named
            }
            sought.append(_sought(index, nodes, others, turnouts, known.number + 1 if known else 1))
    return replace(record, sought=tuple(sought))


def _sought(
    group: int,
    nodes: Sequence[str],
    others: Collection[str],
    turnouts: Sequence[Turnout],
    number: int,
) -> Sought:
    # Existing nodes are named, unless they are of the pools that the others come from, or of
    # Karpenter, which passes over pods that name nodes.
    pools = [turnout for turnout in turnouts if not set(turnout.pool.names()).isdisjoint(nodes)]
    there = {name for turnout in pools for name in turnout.there}
    # Karpenter ignores a pod whose required terms have matchFields or name a host (ADR 14).
    bare = any(turnout.pool.is_karpenters for turnout in pools)
    named = (
        ()
        if bare
        else tuple(node for node in nodes if not is_provisioned_later(node) and node not in there)
    )
    terms = tuple(turnout.term(nodes, others) for turnout in pools)
    return Sought(group=group, named=named, terms=terms, number=number)


def following(
    record: PlanRecord, rendered: Iterable[KubernetesObject], observed: Observed
) -> PlanRecord:
    """Return the plan of record with the nodes that pods are bound to by now.

    ``rendered`` are the objects of the record: only pods that ask as they do count.
    """
    # Only groups that ask for nodes follow their pods: in any other group a pod elsewhere is a
    # fault.
    asking = {item.group for item in record.sought}
    sets = dict(enumerate(of_kind(rendered, STATEFUL_SET)))
    groups = tuple(
        _followed(nodes, _bound(sets[index], observed))
        if index in asking and index in sets
        else nodes
        for index, nodes in enumerate(record.plan.groups)
    )
    return (
        record
        if groups == record.plan.groups
        else replace(record, plan=replace(record.plan, groups=groups))
    )


def _bound(rendered: KubernetesObject, observed: Observed) -> Iterator[str]:
    # Pods of another release count if they were made for the present request.
    live = observed.objects.get((STATEFUL_SET, rendered["metadata"]["name"]), {})
    wanted, same = template_hash(rendered), asks_the_same(rendered, live)
    members: Iterable[Member] = observed.members_of(rendered["metadata"]["name"])
    yield from (
        m.node
        for m in members
        # A pod that is ending leaves its node, and one made for an earlier request is on nodes of
        # an earlier search.
        if m.node and (same or m.template_hash == wanted) and not m.deleting
    )


def _followed(nodes: tuple[str, ...], bound: Iterable[str]) -> tuple[str, ...]:
    """Return planned nodes with the nodes of pods in place of others, of those to come first.

    >>> _followed(("a", "~spot-0", "~spot-1"), ("b", "a"))
    ('a', 'b', '~spot-1')
    >>> _followed(("a", "~spot-0"), ("b", "c"))
    ('c', 'b')
    """
    got = tuple(bound)
    spare = sorted(
        (node for node in nodes if node not in got),
        # Nodes that do not exist give way first; those that exist may still get their pod.
        key=lambda node: not is_provisioned_later(node),
    )
    swapped = dict(
        # Not strict: some pods may not be bound yet.
        zip(spare, (node for node in got if node not in nodes), strict=False)
    )
    return tuple(swapped.get(node, node) for node in nodes)
