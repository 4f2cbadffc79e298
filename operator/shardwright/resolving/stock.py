"""Which GPUs does the cluster have for a subject, and which does its plan keep, by group and
generation? Pods that cannot be listed are no error: their GPUs count as free.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardwright.hardware.facts import GpuUsage, NodeFacts
from shardwright.hardware.inventory import Inventory, NodeExclusion
from shardwright.hardware.pools import Reservation, build_inventory
from shardwright.planning.report import Plan
from shardwright.rendering.names import (
    base_name,
    generation_name,
    generation_of,
    group_name,
    group_names,
)
from shardwright.resolving.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGpus:
    """Which GPUs of its own are free for a model: its groups', but for former generations.

    ``beside`` is the number of a group that is to surge: then all pods of its own hold their GPUs,
    too. ``vacated``: former generations of its groups count as gone.
    """

    beside: int | None = None
    vacated: bool = False


AS_THEY_STAND: Final = OwnGpus()


def take_stock(
    subject: Subject,
    facts: Iterable[NodeFacts | NodeExclusion],
    usage: Iterable[GpuUsage] | None,
    reservations: Iterable[Reservation] = (),
    own_gpus: OwnGpus = AS_THEY_STAND,
) -> Inventory:
    """Return the nodes that a subject selects and tolerates, without the GPUs that others hold.

    ``usage`` are GPUs that bound pods hold (None: pods are not known). ``reservations`` are GPUs
    that plans of record keep, its own among them.
    """
    # As in the labels of pods.
    own = (subject.owner.namespace, base_name(subject.owner.name))
    # GPUs that its plan keeps and no pod of it has bound yet may be the place of its surge.
    if own_gpus.beside is not None:
        group = group_name(own[1], own_gpus.beside)
        reservations = [
            item
            for item in reservations
            if (item.owner, generation_of(item.group)[0]) != (own, group)
        ]
    pods, kept = _by_generation(
        tuple(usage or ()), tuple(reservations), None if own_gpus.vacated else own
    )
    return build_inventory(
        facts,
        None if usage is None else pods,
        reservations=kept,
        # Nobody's own: the former generation goes on serving and holds its GPUs.
        own=own if own_gpus.beside is None else None,
        terms=subject.terms,
    )


def reservations_of(
    owner: tuple[str, str],
    plan: Plan,
    generations: Sequence[int] = (),
    released: Collection[int] = (),
) -> Iterator[Reservation]:
    """Yield the GPUs that a plan keeps for ``owner`` (namespace, base name), by group and node.

    ``generations`` are the least ones of its groups (empty: the first), ``released`` the groups, by
    index, that gave their GPUs back.
    """
    for group, (root, nodes) in enumerate(
        zip(group_names(owner[1], plan.group_numbers), plan.groups, strict=True)
    ):
        if group in released:
            continue
        name = generation_name(root, generations[group] if group < len(generations) else 0)
        for node in nodes:
            yield Reservation(owner=owner, node=node, gpus=plan.gpus_per_node, group=name)


def _by_generation(
    usage: Sequence[GpuUsage], reservations: Sequence[Reservation], own: tuple[str, str] | None
) -> tuple[list[GpuUsage], list[Reservation]]:
    # A plan keeps GPUs for the latest generation of a group. Pods of earlier generations of ``own``
    # count as anybody's: their GPUs are not free for it.
    latest: dict[tuple[tuple[str, str] | None, str], int] = {}
    for owner, group in (
        (item.owner, item.group) for items in (usage, reservations) for item in items
    ):
        root, number = generation_of(group)
        latest[owner, root] = max(number, latest.get((owner, root), 0))

    def name_of_latest(item: GpuUsage | Reservation) -> str:
        root, _ = generation_of(item.group)
        return generation_name(root, latest[item.owner, root])

    pods = [
        replace(pod, owner=None) if pod.owner == own and pod.group != name_of_latest(pod) else pod
        for pod in usage
    ]
    return pods, [replace(item, group=name_of_latest(item)) for item in reservations]
