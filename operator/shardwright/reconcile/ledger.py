"""The ledger: the holders of the GPUs of each node, by pods that are bound and by plans with pods
that are still to come.

A plan keeps GPUs on a node for a group until pods of that group are bound there; a pod binds GPUs
that are kept for its own group alone. So a node is never promised twice: kept GPUs are taken in
only if others have left room for them. Everything is counted as it changes; no question looks at
all nodes or all models.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from shardwright.hardware.pods import GpuUsage
from shardwright.hardware.pools import Reservation
from shardwright.rendering.names import generation_of

OwnerKey = tuple[str, str]
"""Namespace and base name of a model: what its pods are labelled with."""

PodKey = tuple[str, str]
"""Namespace and name of a pod, or of a claim of devices, with a slash after it."""


@dataclass(slots=True)
class _Place:
    """The GPUs of one group of one model on one node, by generation: GPUs kept by the plan, and
    bound by pods.
    """

    kept_by: Counter[int] = field(default_factory=Counter)
    bound_by: Counter[int] = field(default_factory=Counter)

    @property
    def kept(self) -> int:
        """Return the GPUs that the plan keeps: for the latest generation, whichever it was made
        for.
        """
        return sum(self.kept_by.values())

    def bound(self, latest: int) -> int:
        """Return the GPUs that pods of the latest generation have."""
        return self.bound_by[latest]

    def taken(self, latest: int) -> int:
        """Return the GPUs that nobody else can have: those of the latest generation, and the rest
        of earlier ones.
        """
        earlier = sum(gpus for number, gpus in self.bound_by.items() if number != latest)
        # Pods bind the GPUs that are kept for their own group: the sum would count those twice.
        return max(self.kept, self.bound(latest)) + earlier

    def generations(self) -> frozenset[int]:
        """Return the generations that have anything here."""
        return frozenset(
            number
            for gpus_by in (self.kept_by, self.bound_by)
            for number, gpus in gpus_by.items()
            if gpus > 0
        )


class Ledger:
    """The holders of all GPUs. Nothing here is the only copy of anything: pods and plans of record
    can be read again at any time.
    """

    def __init__(self) -> None:
        self._pods: dict[PodKey, GpuUsage] = {}
        self._kept: dict[OwnerKey, tuple[Reservation, ...]] = {}
        self._kept_in: Counter[str] = Counter()  # by namespace: GPUs that are kept
        # By node: GPUs of pods of nobody's model.
        self._foreign: Counter[str] = Counter()
        # By owner and group, by node.
        self._places: defaultdict[tuple[OwnerKey, str], dict[str, _Place]] = defaultdict(dict)
        # Names of groups without their generation.
        self._groups: defaultdict[OwnerKey, set[str]] = defaultdict(set)
        self._latest: dict[tuple[OwnerKey, str], int] = {}
        self._taken: Counter[str] = Counter()  # by node, of all models

    def bind(self, pod: PodKey, usage: GpuUsage | None) -> frozenset[str]:
        """Take over the GPUs that a pod holds now (None: nothing) and return the nodes on which
        GPUs came free.
        """
        before = self._pods.pop(pod, None)
        if usage is not None:
            self._pods[pod] = usage
        # Most pod events change nothing that is held, and each recount walks the places of a group.
        if before == usage:
            return frozenset()
        return self._changed((usage, 1), (before, -1))

    def bound(self, pod: PodKey) -> GpuUsage | None:
        """Return the GPUs that a pod holds, None if it holds none."""
        return self._pods.get(pod)

    def keep(
        self,
        owner: OwnerKey,
        wanted: Iterable[Reservation],
        gpus_of: Mapping[str, int] | None = None,
        most: int | None = None,
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Keep GPUs for a plan instead of those that were kept for it before.

        Args:
            owner: The model of the plan.
            wanted: The needs of the plan; a group for which others leave no room on one of its
                nodes is left out whole. Its own pods that a new plan has no place for are going:
                they are in nobody's way but the scheduler's.
            gpus_of: Healthy GPUs by node; a node that is not in it cannot be judged, so nothing is
                left out because of it.
            most: GPUs that the plans of its namespace may keep (None: any number); a plan that
                needs more is left out whole, and the former GPUs stay kept.

        Returns:
            The groups that were left out, and the nodes on which GPUs came free.
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
        """Return whether a model may keep so many GPUs if its namespace may keep ``most``. It may
        always keep its present GPUs.
        """
        own = self._kept_of(owner)
        # A limit that is lowered ends nothing; Kubernetes' own quotas do not either.
        return most is None or gpus <= own or self.kept_beside(owner) + gpus <= most

    def kept_beside(self, owner: OwnerKey) -> int:
        """Return the number of GPUs that are kept for the other models of a namespace."""
        return self._kept_in[owner[0]] - self._kept_of(owner)

    def _kept_of(self, owner: OwnerKey) -> int:
        return sum(item.gpus for item in self._kept.get(owner, ()))

    def forget(self, owner: OwnerKey) -> frozenset[str]:
        """Keep nothing for a model any more and return the nodes on which GPUs came free."""
        return self.keep(owner, ())[1]

    def kept(self, owner: OwnerKey) -> tuple[Reservation, ...]:
        """Return the reservations of a model."""
        return self._kept.get(owner, ())

    def owners(self) -> frozenset[OwnerKey]:
        """Return the models for which something is kept."""
        return frozenset(self._kept)

    def reservations(self) -> Iterator[Reservation]:
        """Yield the reservations of all models."""
        for items in self._kept.values():
            yield from items

    def taken(
        self, owner: OwnerKey | None = None, *, beside: str | None = None, vacated: bool = False
    ) -> Counter[str]:
        """Return the GPUs by node that are not free for a model (None: for a new one).

        Its own do not count against it, but for pods of former generations of its groups
        (``vacated``: those neither). With ``beside`` a second place for that group is sought: then
        all of its own count but those of that group.
        """
        taken = self._taken + self._foreign
        if owner is None:
            return taken
        for node, count in self._own(owner, beside=beside, vacated=vacated).items():
            taken[node] -= count
        # Unary plus leaves out nodes of which nothing is taken.
        return +taken

    def taken_on(self, nodes: Iterable[str], owner: OwnerKey | None = None) -> dict[str, int]:
        """Return the GPUs that are not free for a model, by node, for a few nodes alone."""
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
                        # The group itself stays where it is, so only the GPUs that are kept for its
                        # second place are its own to use.
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
        """Return the number of GPUs that others leave a model on each of these nodes, infinite if
        that cannot be judged.
        """
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
        """Change the GPUs of a group on a node; its places are counted anew afterwards: the latest
        generation may be another.
        """
        group, places = (owner, root), self._places[owner, root]
        # Taken out as a whole: another latest generation changes the sum of each node of the group,
        # not only of this one.
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
    """Count GPUs of a node or a namespace. Both come and go, so a count of zero is not kept."""
    counts[name] += gpus
    if not counts[name]:
        del counts[name]


def _by_node(items: Iterable[Reservation]) -> Counter[str]:
    gpus: Counter[str] = Counter()
    for item in items:
        gpus[item.node] += item.gpus
    return gpus
