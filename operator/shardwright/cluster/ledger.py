"""Who holds the GPUs of each node: bound pods, or plans whose pods are still to come?

A plan keeps GPUs on a node for a group until pods of that group are bound there; a pod takes GPUs
kept for its own group alone. So no GPU is promised twice: GPUs are kept only where others have left
room. Everything is counted as it changes; no question walks all nodes or all models.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from shardwright.hardware.facts import GpuUsage
from shardwright.hardware.pools import Reservation
from shardwright.rendering.names import generation_of

OwnerKey = tuple[str, str]
"""Namespace and base name of a model: what its pods are labelled with."""

PodKey = tuple[str, str]
"""Namespace and name of a pod, or of a claim of devices, with a slash after it."""


@dataclass(slots=True)
class _Place:
    """The GPUs of one group on one node, by generation: kept by the plan, and bound by pods."""

    kept_by: Counter[int] = field(default_factory=Counter)
    bound_by: Counter[int] = field(default_factory=Counter)

    @property
    def kept(self) -> int:
        # For the latest generation, whichever it was made for.
        return sum(self.kept_by.values())

    def bound(self, latest: int) -> int:
        return self.bound_by[latest]

    def taken(self, latest: int) -> int:
        earlier = sum(gpus for number, gpus in self.bound_by.items() if number != latest)
        # Pods bind the GPUs that are kept for their own group: the sum would count those twice.
        return max(self.kept, self.bound(latest)) + earlier

    def generations(self) -> frozenset[int]:
        return frozenset(
            number
            for gpus_by in (self.kept_by, self.bound_by)
            for number, gpus in gpus_by.items()
            if gpus > 0
        )


class Ledger:
    """The holders of all GPUs; never the only copy: pods and plans of record can be reread."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, GpuUsage] = {}
        self._kept: dict[OwnerKey, tuple[Reservation, ...]] = {}
        self._kept_in: Counter[str] = Counter()  # by namespace
        # By node: GPUs of pods of nobody's model.
        self._foreign: Counter[str] = Counter()
        # By owner and group, by node.
        self._places: defaultdict[tuple[OwnerKey, str], dict[str, _Place]] = defaultdict(dict)
        # Names of groups without their generation.
        self._groups: defaultdict[OwnerKey, set[str]] = defaultdict(set)
        self._latest: dict[tuple[OwnerKey, str], int] = {}
        self._taken: Counter[str] = Counter()  # by node, of all models

    def bind(self, pod: PodKey, usage: GpuUsage | None) -> frozenset[str]:
        """Book the GPUs that a pod holds now (None: none) and return nodes with freed GPUs."""
        before = self._pods.pop(pod, None)
        if usage is not None:
            self._pods[pod] = usage
        # Most pod events change nothing that is held, and each recount walks the places of a group.
        if before == usage:
            return frozenset()
        return self._changed((usage, 1), (before, -1))

    def bound(self, pod: PodKey) -> GpuUsage | None:
        """Return the GPUs that a pod holds, or None."""
        return self._pods.get(pod)

    def keep(
        self,
        owner: OwnerKey,
        wanted: Iterable[Reservation],
        gpus_of: Mapping[str, int] | None = None,
        most: int | None = None,
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the groups without room, and the nodes on which GPUs came free, after keeping GPUs
        for a plan instead of its former ones.

        ``wanted`` are the plan's reservations; a group for which others leave no room on one of its
        nodes is left out whole. The model's own pods that a new plan has no place for are going:
        they are in nobody's way but the scheduler's. ``gpus_of`` are healthy GPUs by node; a node
        that is not in it never lacks room. ``most`` is how many GPUs the plans of the namespace may
        keep (None: any number); a plan that needs more is left out whole, and the former GPUs stay
        kept.
        """
        wanted = tuple(wanted)
        if wanted == self._kept.get(owner, ()):
            return frozenset(), frozenset()
        # Judged where it is booked: of two at once the last finds the limit used up (ADR 13).
        if not self._within(owner, sum(item.gpus for item in wanted), most):
            return frozenset(item.group for item in wanted), frozenset()
        before = self._kept.pop(owner, ())
        free_before = {item.node: self._total(item.node) for item in before}
        for item in before:
            self._keep(item, -item.gpus)
        room = self._room(owner, {item.node for item in wanted}, gpus_of or {})
        refused = set()
        taken_in: list[Reservation] = []
        by_group: defaultdict[str, list[Reservation]] = defaultdict(list)
        for item in wanted:
            by_group[item.group].append(item)
        for group, items in by_group.items():
            needed = _by_node(items)
            if any(room[node] < gpus for node, gpus in needed.items()):
                refused.add(group)
                continue
            for item in items:
                self._keep(item, item.gpus)
                room[item.node] -= item.gpus
            taken_in += items
        if taken_in:
            self._kept[owner] = tuple(taken_in)
        freed = frozenset(node for node, count in free_before.items() if self._total(node) < count)
        return frozenset(refused), freed

    def _within(self, owner: OwnerKey, gpus: int, most: int | None) -> bool:
        own = self._kept_of(owner)
        # A lowered limit ends nothing, as with Kubernetes' own quotas.
        return most is None or gpus <= own or self.kept_beside(owner) + gpus <= most

    def kept_beside(self, owner: OwnerKey) -> int:
        """Return the number of GPUs kept for the other models of a namespace."""
        return self._kept_in[owner[0]] - self._kept_of(owner)

    def _kept_of(self, owner: OwnerKey) -> int:
        return sum(item.gpus for item in self._kept.get(owner, ()))

    def forget(self, owner: OwnerKey) -> frozenset[str]:
        """Release the reservations of a model and return the nodes on which GPUs came free."""
        return self.keep(owner, ())[1]

    def kept(self, owner: OwnerKey) -> tuple[Reservation, ...]:
        """Return the reservations of a model."""
        return self._kept.get(owner, ())

    def owners(self) -> frozenset[OwnerKey]:
        """Return the models with reservations."""
        return frozenset(self._kept)

    def reservations(self) -> Iterator[Reservation]:
        """Yield the reservations of all models."""
        for items in self._kept.values():
            yield from items

    def taken(
        self, owner: OwnerKey | None = None, *, beside: str | None = None, vacated: bool = False
    ) -> Counter[str]:
        """Return the GPUs by node that are not free for a model (None: for a new one).

        Its own do not count against it, except pods of former generations of its groups
        (``vacated``: not even those). With ``beside``, a surge of that group is to be placed: then
        all its own count but those kept for the surge.
        """
        taken = self._taken + self._foreign
        if owner is None:
            return taken
        for node, count in self._own(owner, beside=beside, vacated=vacated).items():
            taken[node] -= count
        # Unary plus leaves out nodes of which nothing is taken.
        return +taken

    def taken_on(self, nodes: Iterable[str], owner: OwnerKey | None = None) -> dict[str, int]:
        """Return the GPUs that are not free for a model on these nodes."""
        own = self._own(owner, beside=None, vacated=False) if owner else Counter[str]()
        return {node: self._total(node) - own[node] for node in nodes}

    def holders(self, nodes: Collection[str]) -> dict[OwnerKey, Counter[str]]:
        """Return the GPUs by node of the models that hold or keep some on one of these nodes."""
        found: dict[OwnerKey, Counter[str]] = {}
        for (owner, _), places in self._places.items():
            if not places.keys().isdisjoint(nodes) and owner not in found:
                # With former generations: whoever deletes the model gets these GPUs, too.
                found[owner] = self._own(owner, beside=None, vacated=True)
        return found

    def _own(self, owner: OwnerKey, *, beside: str | None, vacated: bool) -> Counter[str]:
        own: Counter[str] = Counter()
        for root in self._groups.get(owner, ()):
            latest = self._latest.get((owner, root), 0)
            for node, place in self._places[owner, root].items():
                if beside is not None:
                    own[node] += (
                        # The group stays where it is, so only the GPUs kept for its surge are its
                        # own to use.
                        max(0, place.kept - place.bound(latest)) if root == beside else 0
                    )
                elif vacated:
                    own[node] += place.taken(latest)
                else:
                    own[node] += max(place.kept, place.bound(latest))
        return own

    def _total(self, node: str) -> int:
        return self._taken[node] + self._foreign[node]

    def _room(
        self, owner: OwnerKey, nodes: Iterable[str], gpus_of: Mapping[str, int]
    ) -> dict[str, float]:
        # Infinite where it cannot be judged.
        own = self._own(owner, beside=None, vacated=True)
        return {node: gpus_of.get(node, inf) - self._total(node) + own[node] for node in nodes}

    def _changed(self, *changes: tuple[GpuUsage | None, int]) -> frozenset[str]:
        nodes = {usage.node: self._total(usage.node) for usage, _ in changes if usage}
        for usage, sign in changes:
            if usage is None:
                continue
            if usage.owner is None:
                _add(self._foreign, usage.node, sign * usage.gpus)
            else:
                root, number = generation_of(usage.group)
                with self._place(usage.owner, root, usage.node) as place:
                    place.bound_by[number] += sign * usage.gpus
        return frozenset(node for node, count in nodes.items() if self._total(node) < count)

    def _keep(self, item: Reservation, gpus: int) -> None:
        _add(self._kept_in, item.owner[0], gpus)
        root, number = generation_of(item.group)
        with self._place(item.owner, root, item.node) as place:
            place.kept_by[number] += gpus

    @contextmanager
    def _place(self, owner: OwnerKey, root: str, node: str) -> Iterator[_Place]:
        # Its places are counted anew afterwards: the latest generation may be another.
        group, places = (owner, root), self._places[owner, root]
        # All of them: another latest generation changes the sum of each node of the group.
        self._count(group, -1)
        place = places.setdefault(node, _Place())
        yield place
        found = place.generations()
        if not found:
            del places[node]
        self._latest[group] = max(
            (number for place in places.values() for number in place.generations()), default=0
        )
        self._count(group, 1)
        if places:
            self._groups[owner].add(root)
        else:
            self._forget_group(owner, root)

    def _count(self, group: tuple[OwnerKey, str], sign: int) -> None:
        latest = self._latest.get(group, 0)
        for node, place in self._places[group].items():
            _add(self._taken, node, sign * place.taken(latest))

    def _forget_group(self, owner: OwnerKey, root: str) -> None:
        del self._places[owner, root]
        self._latest.pop((owner, root), None)
        self._groups[owner].discard(root)
        if not self._groups[owner]:
            del self._groups[owner]


def _add(counts: Counter[str], name: str, gpus: int) -> None:
    # Nodes and namespaces come and go, so a count of zero is not kept.
    counts[name] += gpus
    if not counts[name]:
        del counts[name]


def _by_node(items: Iterable[Reservation]) -> Counter[str]:
    gpus: Counter[str] = Counter()
    for item in items:
        gpus[item.node] += item.gpus
    return gpus
