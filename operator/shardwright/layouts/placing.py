"""Where do a layout's groups go? By best fit on the free nodes of a pool, stages close together.

Too little room is no error: fewer groups are placed, and the missing nodes are counted.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from shardwright.hardware.gpus import Link
from shardwright.hardware.inventory import Node, Pool
from shardwright.layouts.layout import Layout, Placement, SearchSpace

Groups = tuple[tuple[Node, ...], ...]

NodeKeys = Callable[[Sequence[Node]], Sequence[Any]]
"""The key that each node shares with those that are near at one level; comparable among
themselves.
"""

Level = tuple[list[tuple[Any, Node]], ...]
"""Groups of near nodes, the smallest first; each node with its group of the level below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the ranks of one replica lie on nodes: ``nodes`` of them with ``gpus`` each."""

    nodes: int
    gpus: int

    @classmethod
    def of(cls, layout: Layout, gpus_per_node: int) -> "Spread":
        """Return the fewest equal nodes that do not cut a tensor group askew (one GPU each always
        fits).
        """
        return _spread(layout.gpus_per_replica, layout.tensor, gpus_per_node)


@lru_cache(maxsize=4096)
def _spread(ranks: int, tensor: int, gpus_per_node: int) -> Spread:
    for nodes in range(-(-ranks // gpus_per_node), ranks):
        gpus, rest = divmod(ranks, nodes)
        # All pods of a group are made from one template.
        if rest == 0 and (gpus % tensor == 0 or tensor % gpus == 0):
            return Spread(nodes=nodes, gpus=gpus)
    return Spread(nodes=ranks, gpus=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """The nodes of all groups of a layout, by rank, with counts of missing nodes and left-over
    GPUs.
    """

    groups: Groups
    names: tuple[tuple[str, ...], ...]
    missing_nodes: int
    leftover_gpus: int


def place(pool: Pool, layout: Layout) -> Placement:
    """Return the placement of a layout's replicas on the GPUs that are free now."""
    return Shelf(pool).place(layout)


class Shelf:
    """The nodes of one pool, sorted once, so that many layouts can be placed at little cost.

    ``free`` False places as if nothing ran there, which tells a busy pool from one that is too
    small. ``over`` spreads the replicas (None: as close together as they fit).
    """

    def __init__(self, pool: Pool, *, free: bool = True, over: "Over | None" = None) -> None:
        self._pool, self._over = pool, over
        self._room = {node.name: node.free if free else node.gpus for node in pool.nodes}
        room_of_domain: dict[str, int] = defaultdict(int)
        for node in pool.nodes:
            room_of_domain[node.domain] += self._room[node.name]
        # The fullest first: large holes stay for those that need whole nodes.
        order = [
            (self._room[node.name], room_of_domain[node.domain], node.name) for node in pool.nodes
        ]
        self._fullest_first = [
            pool.nodes[index] for index in sorted(range(len(order)), key=order.__getitem__)
        ]
        self._rooms = [self._room[node.name] for node in self._fullest_first]
        self._levels: dict[int, Levels] = {}
        self._seats: dict[tuple[Spread, int], Seats] = {}

    def place(self, layout: Layout) -> Placement:
        """Return the placement of a layout; fewer groups and ``missing_nodes`` when the room is
        short.
        """
        spread = Spread.of(layout, self._pool.gpus_per_node)
        seats = self._seated(spread, layout.replicas)
        joined = _inside(self._pool, seats.groups, spread)
        return Placement(
            groups=seats.names,
            nodes_per_replica=spread.nodes,
            gpus_per_node=spread.gpus,
            missing_nodes=seats.missing_nodes,
            leftover_gpus=seats.leftover_gpus,
            tensor_link=_tensor_link(self._pool, layout, spread, joined=joined),
            pipeline_link=_pipeline_link(self._pool, layout, spread, joined=joined),
            one_domain=joined,
        )

    def _leftover(self, spread: Spread, groups: Groups) -> int:
        used = {node.name for group in groups for node in group}
        return sum(self._room[name] for name in used) - len(groups) * spread.nodes * spread.gpus

    def eligible(self, gpus: int) -> Sequence[Node]:
        """Return the nodes with room for ``gpus``, those with the least room first."""
        return self._fullest_first[bisect_left(self._rooms, gpus) :]

    def _seated(self, spread: Spread, replicas: int) -> Seats:
        key = (spread, replicas)
        if key not in self._seats:
            groups = tuple(islice(self._offers(spread), replicas))
            self._seats[key] = Seats(
                groups=groups,
                names=tuple(tuple(node.name for node in group) for group in groups),
                missing_nodes=self._missing(replicas - len(groups), spread, groups),
                leftover_gpus=self._leftover(spread, groups),
            )
        return self._seats[key]

    def _offers(self, spread: Spread) -> Iterator[tuple[Node, ...]]:
        if self._over is not None:
            return self._over.spread(self.eligible(spread.gpus), partial(self._among, spread))
        return (
            self._single(spread, self.eligible(spread.gpus))
            if spread.nodes == 1
            else self._across(spread)
        )

    def _among(self, spread: Spread, nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
        if spread.nodes == 1:
            return self._single(spread, nodes)
        return Levels(nodes, in_domains=self._pool.crosses_nodes).nearest(spread.nodes)

    def _single(self, spread: Spread, nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
        for node in nodes:
            # Several replicas on one node before the next: fewer nodes are broken into.
            for _ in range(self._room[node.name] // spread.gpus):
                yield (node,)

    def _across(self, spread: Spread) -> Iterator[tuple[Node, ...]]:
        return self._levels_for(spread.gpus).nearest(spread.nodes)

    def _levels_for(self, gpus: int) -> "Levels":
        if gpus not in self._levels:
            self._levels[gpus] = Levels(self.eligible(gpus), in_domains=self._pool.crosses_nodes)
        return self._levels[gpus]

    def _missing(self, short: int, spread: Spread, groups: Groups) -> int:
        if short <= 0:
            return 0
        if spread.nodes == 1:
            return -(-short // (self._pool.gpus_per_node // spread.gpus))
        left = len(self.eligible(spread.gpus)) - len(groups) * spread.nodes
        # Nodes may be left that are no group of near ones.
        return max(1, short * spread.nodes - left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Over which values of a node label replicas are spread, and how many are there already, by
    value.

    Nodes without the label have the empty value.
    """

    label: str
    standing: Mapping[str, int]

    @classmethod
    def of(cls, space: SearchSpace) -> "Over | None":
        """Return the spreading that a search wants, None if it spreads nothing."""
        return (
            cls(label=space.spread_over, standing=dict(space.standing))
            if space.spread_over
            else None
        )

    def value(self, node: Node) -> str:
        """Return the value that a node has."""
        return node.labels.get(self.label, "")

    def count(self, groups: Iterable[Sequence[str]], nodes: Iterable[Node]) -> Counter[str]:
        """Return the number of groups in each value, by the names of their nodes.

        A group in several values counts for each, one on unknown nodes for none.
        """
        values = {node.name: self.value(node) for node in nodes}
        return Counter(
            value
            for group in groups
            for value in {values[name] for name in group if name in values}
        )

    def spread(
        self, nodes: Sequence[Node], among: Callable[[Sequence[Node]], Iterator[tuple[Node, ...]]]
    ) -> Iterator[tuple[Node, ...]]:
        """Return places inside the value with the fewest replicas so far, among equals with the
        least room.

        Places that lie in several values come last.

        Args:
            nodes: Nodes with room, the fullest first.
            among: Yields the places that some of them have.
        """
        by_value: dict[str, list[Node]] = defaultdict(list)
        for node in nodes:
            by_value[self.value(node)].append(node)
        offers, there, taken = (
            {value: among(own) for value, own in by_value.items()},
            Counter(self.standing),
            set[str](),
        )
        while offers:
            # Offers keep the order of their fullest nodes, so of equal values that one comes first.
            value = min(offers, key=there.__getitem__)
            place = next(offers[value], None)
            if place is None:
                del offers[value]
                continue
            there[value] += 1
            taken.update(node.name for node in place)
            yield place
        # A group over several values is worse than an uneven spread, and better than no place (ADR
        # 32: a wish, never a reason to refuse).
        yield from (
            place
            for place in among([node for node in nodes if node.name not in taken])
            if len(place) > 1
        )


class Levels:
    """Nodes grouped by nearness, nearest level first: scale-up domain, topology path, everything.

    Levels are made on demand: few replicas leave the nearest ones.
    """

    def __init__(self, nodes: Sequence[Node], *, in_domains: bool) -> None:
        self._nodes = nodes
        depth = max((len(node.path) for node in nodes), default=0)
        domains: list[NodeKeys] = [_domains] if in_domains else []
        self._keys: list[NodeKeys] = [
            *domains,
            *(partial(_outer_paths, steps=steps) for steps in range(depth, -1, -1)),
        ]
        self._marks: list[Sequence[Any]] = [[node.name for node in nodes]]
        self._made: list[Level] = []

    def nearest(self, count: int) -> Iterator[tuple[Node, ...]]:
        """Return ``count`` nodes at a time, of the smallest group with as many left at the nearest
        level.

        A group from which nodes were taken is the smallest from then on, and a level without a
        large enough group never has one again: so every level is gone through once, however many
        are wanted.
        """
        taken = set[str]()
        for index in range(len(self._keys)):
            left = (
                [item for item in group if item[1].name not in taken]
                for group in self._level(index)
                if len(group) >= count
            )
            for group in sorted((group for group in left if len(group) >= count), key=len):
                for first in range(0, len(group) - count + 1, count):
                    chosen = _in_rank_order(group[first : first + count])
                    # By name over all levels: a node taken near is gone from the wider levels, too.
                    taken.update(node.name for node in chosen)
                    yield chosen

    def _level(self, index: int) -> Level:
        if index == len(self._made):
            inner = self._marks[index]
            outer = _ranks(self._keys[index](self._nodes))
            self._marks.append(outer)
            self._made.append(_grouped(self._nodes, outer, inner, by_size=index > 0))
        return self._made[index]


def _domains(nodes: Sequence[Node]) -> list[str]:
    return [node.domain or node.name for node in nodes]


def _outer_paths(nodes: Sequence[Node], steps: int) -> list[tuple[tuple[str, str], ...]]:
    """Return the outer steps of each node's topology path (0: the empty path, which all nodes
    share).
    """
    return [node.path[-steps:] for node in nodes] if steps else [()] * len(nodes)


def _ranks(marks: Sequence[Any]) -> list[int]:
    """Numbers of the same order as the marks are cheap to compare and look up."""
    different = set(marks)
    if len(different) == 1:
        return [0] * len(marks)
    ranks = {mark: rank for rank, mark in enumerate(sorted(different))}
    return [ranks[mark] for mark in marks]


def _grouped(
    nodes: Sequence[Node], outer: Sequence[Any], inner: Sequence[Any], *, by_size: bool
) -> Level:
    """Group nodes by their mark ``outer``, smallest group first; each with its mark of the level
    below.

    With ``by_size`` the largest groups of the level below come first, of equal ones those with the
    least room.
    """
    groups: dict[Any, list[tuple[Any, Node]]] = defaultdict(list)
    for near, mark, node in zip(outer, inner, nodes, strict=True):
        groups[near].append((mark, node))
    if by_size:
        sizes = Counter(inner)
        place = {
            mark: index
            for index, mark in enumerate(sorted(sizes, key=lambda mark: (-sizes[mark], mark)))
        }
        for group in groups.values():
            group.sort(key=lambda item: place[item[0]])  # stable
    return tuple(
        group for _, group in sorted(groups.items(), key=lambda item: (len(item[1]), item[0]))
    )


def _in_rank_order(chosen: Sequence[tuple[Any, Node]]) -> tuple[Node, ...]:
    """By name inside the nearest groups, so that few stages border on another group."""
    # Of each group the first index is the one that stays.
    position = {inner: index for index, (inner, _) in reversed(list(enumerate(chosen)))}
    return tuple(
        node for _, node in sorted(chosen, key=lambda item: (position[item[0]], item[1].name))
    )


def _inside(pool: Pool, groups: Groups, spread: Spread) -> bool:
    """Return whether the nodes of every replica lie inside one scale-up domain.

    Nothing less joins them: any pod of a group may take any of its nodes, so part of a group in one
    domain means no known ranks, and a ComputeDomain opens one domain to a group.
    """
    if not pool.crosses_nodes or pool.domain_gpus < spread.nodes * spread.gpus:
        return False
    return all(
        group[0].domain and {node.domain for node in group} == {group[0].domain} for group in groups
    )


def _in_node_link(pool: Pool, ranks: int) -> Link:
    reaches = pool.gpu.scale_up is not None and pool.domain_gpus >= ranks
    return pool.gpu.scale_up if reaches and pool.gpu.scale_up is not None else pool.gpu.host


def _tensor_link(pool: Pool, layout: Layout, spread: Spread, *, joined: bool) -> Link | None:
    if layout.tensor == 1:
        return None
    return (
        _in_node_link(pool, layout.tensor)
        # Any pod of a group may take any of its nodes, so no order of nodes counts (ADR 5).
        if layout.tensor <= spread.gpus
        else _across_link(pool, joined=joined)
    )


def _pipeline_link(pool: Pool, layout: Layout, spread: Spread, *, joined: bool) -> Link | None:
    if layout.pipeline == 1:
        return None
    return (
        _in_node_link(pool, layout.gpus_per_replica)
        if spread.nodes == 1
        else _across_link(pool, joined=joined)
    )


def _across_link(pool: Pool, *, joined: bool) -> Link:
    return pool.gpu.scale_up if joined and pool.gpu.scale_up is not None else pool.network
