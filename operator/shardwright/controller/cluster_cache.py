"""What the operator knows between two reconciles: caches, the GPU ledger, dependencies.

All of it can be read again; nothing here is the only copy.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shardwright.cluster.ledger import Ledger, OwnerKey
from shardwright.cluster.store import Store
from shardwright.controller.queue import Key
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import KnownPods, NodeExclusion
from shardwright.hardware.pools import Reservation
from shardwright.hardware.provisioning import AutoscaledPool, Turnout
from shardwright.hardware.scheduling import NodeFilter, PodTerms
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.quotas import Pods
from shardwright.reconcile.waiting import Rank, Waiting, claimed_before, rank_of
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import base_name
from shardwright.resolving.stock import reservations_of

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What one model depends on beside its own objects.

    ``moving`` counts its groups that are down on purpose. ``starting``: all are at their first
    start; ``broken``: one has failed and does not serve; ``waits_for_turn``: groups wait because
    others' are down; ``not_admitted``: its namespace does not let its pods in.
    """

    config_map: Key | None = None
    nodes: frozenset[str] = frozenset()
    waits_for_capacity: bool = False
    moving: int = 0
    starting: bool = False
    waits_for_turn: bool = False
    not_admitted: bool = False
    broken: bool = False

    @property
    def follows_others(self) -> bool:
        """Return whether its next step depends on other models."""
        return self.waits_for_capacity or self.waits_for_turn or self.not_admitted


NOTHING = Dependencies()


@dataclass(slots=True)
class ClusterCache:
    """The caches, and which models to reconcile when something in them changes.

    ``synced`` is False until every cache is full and the plans of record are read. ``freed`` are
    the nodes on which GPUs have come free since it was last emptied; ``turns_came`` counts the
    turns to restart given back since it was last 0. ``line`` holds the models for which the planner
    found no room (``enqueue``). ``pools`` are scaled by an autoscaler, ``to_come`` are their future
    nodes by name (``expect``). ``namespaces`` are the watched ones, all if empty; ``unread`` those
    of which something was never read.
    """

    ledger: Ledger = field(default_factory=Ledger)
    store: Store = field(init=False)
    resources: dict[Key, KubernetesObject] = field(default_factory=dict)
    models: dict[OwnerKey, Key] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)
    turns_came: int = 0
    synced: bool = False
    known_pods: KnownPods = KnownPods.ALL
    namespaces: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    _dependencies: dict[Key, Dependencies] = field(default_factory=dict)
    _on_node: dict[str, set[Key]] = field(default_factory=dict)
    _snapshots: dict[Key, set[Key]] = field(default_factory=dict)
    line: dict[Key, Waiting] = field(default_factory=dict)
    pools: tuple[AutoscaledPool, ...] = ()
    to_come: dict[str, NodeFacts] = field(default_factory=dict)
    _of_pools: tuple[int, dict[str, dict[str, NodeFacts]]] = (-1, {})
    # Dicts as ordered sets: the one that has waited longest comes first.
    _waiting: dict[Key, None] = field(default_factory=dict)
    _turns: dict[Key, None] = field(default_factory=dict)
    _barred: dict[Key, None] = field(default_factory=dict)
    _pods: dict[str, dict[Key, Pods]] = field(default_factory=dict)
    _moving: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.store = Store(self.ledger)

    def expect(self, pools: Iterable[AutoscaledPool]) -> None:
        """Set the pools to which an autoscaler may add nodes."""
        self.pools = tuple(pools)
        self.to_come = {node.name: node for pool in self.pools for node in pool.nodes()}

    def turnouts(self) -> tuple[Turnout, ...]:
        """Return the turnout of each autoscaled pool."""
        if not self.pools:
            return ()
        # Worked out anew only when a node has changed: it walks through all nodes.
        if self._of_pools[0] != self.store.node_version:
            nodes = [node for node in self.store.nodes.values() if isinstance(node, NodeFacts)]
            there = {
                pool.name: {node.name: node for node in nodes if pool.has(node)}
                for pool in self.pools
            }
            self._of_pools = self.store.node_version, there
        return tuple(self._turnout(pool, self._of_pools[1][pool.name]) for pool in self.pools)

    def _turnout(self, pool: AutoscaledPool, there: Mapping[str, NodeFacts]) -> Turnout:
        taken = self.ledger.taken_on((*there, *pool.names()))
        used = frozenset(name for name, gpus in taken.items() if gpus > 0)
        return Turnout(
            pool=pool, there=there, held=used.intersection(there), booked=used.difference(there)
        )

    def openings(self, changed: Iterable[str]) -> frozenset[str]:
        """Return the future nodes of pools that lost one of these nodes: any may replace it."""
        gone = {name for name in changed if name not in self.store.nodes}
        lesser = {pool for pool, there in self._of_pools[1].items() if not gone.isdisjoint(there)}
        return frozenset(
            name for pool in self.pools if pool.name in lesser for name in pool.names()
        )

    @property
    def all_nodes(self) -> Mapping[str, NodeFacts | NodeExclusion]:
        """Return the facts about all nodes, with those still to come."""
        return {**self.store.nodes, **self.to_come} if self.to_come else self.store.nodes

    def node(self, name: str) -> NodeFacts | NodeExclusion | None:
        """Return the facts about a node, which may be still to come."""
        return self.store.nodes.get(name) or self.to_come.get(name)

    def take_resource(self, content: KubernetesObject) -> None:
        """Take over a ShardedModel as it is now (``cluster.kept_model.project_model``)."""
        key = content["metadata"]["namespace"], content["metadata"]["name"]
        self.resources[key] = {**content, "status": content.get("status") or {}}
        self.models[base_key(key)] = key
        self.store.follow(base_key(key))

    def drop_resource(self, key: Key) -> None:
        """Drop a ShardedModel from the cache; it keeps its GPUs until :meth:`forget`."""
        self.resources.pop(key, None)
        self.models.pop(base_key(key), None)
        self.store.unfollow(base_key(key))

    def forget(self, key: Key) -> None:
        """Forget a model that is gone."""
        self.drop_resource(key)
        # Noted before it is forgotten: by that it leaves every list and every count.
        self.note(key, NOTHING)
        self._dependencies.pop(key, None)
        self.enqueue(key, None)
        self.promise(key, None)
        self.freed |= self.ledger.forget(base_key(key))

    def interests(self, key: Key) -> Dependencies:
        """Return everything a model depends on."""
        return self._dependencies.get(key, NOTHING)

    def state_around(self, key: Key) -> tuple[object, ...]:
        """Return a value that stays equal until something that matters to a model changes."""
        nodes, config_map = self.interests(key).nodes, self.interests(key).config_map
        return (
            self.store.version_of(base_key(key)),
            self.nodes(nodes),
            # The GPUs that others leave on its nodes, as a plan that lacks its GPUs has to be made
            # anew.
            self.free(key, nodes),
            self.synced,
            self.unread,
            self.store.priorities,
            self.store.config_map(config_map) if config_map else None,
        )

    def note(self, key: Key, now: Dependencies) -> None:
        """Replace the dependencies of a model."""
        before = self._dependencies.get(key, NOTHING)
        if now == before:
            return
        self._dependencies[key] = now
        _move(self._on_node, key, before.nodes, now.nodes)
        _move(
            self._snapshots,
            key,
            *(frozenset({item.config_map} if item.config_map else ()) for item in (before, now)),
        )
        _list(self._waiting, key, listed=now.waits_for_capacity)
        _list(self._turns, key, listed=now.waits_for_turn)
        _list(self._barred, key, listed=now.not_admitted)
        self._moving[key[0]] += now.moving - before.moving
        if not self._moving[key[0]]:
            del self._moving[key[0]]
        # Counted here, as a turn comes back by a reconcile of another model than the one that
        # waits.
        self.turns_came += max(0, before.moving - now.moving)

    def keep(self, key: Key, kept: Kept | None, most: int | None = None) -> bool:
        """Keep the GPUs of a plan of record (None: none) and return whether all could be kept.

        ``most`` limits the GPUs that the plans of its namespace may keep; None: no limit.
        """
        wanted: tuple[Reservation, ...] = ()
        if kept is not None:
            record = kept.record
            wanted = tuple(
                reservations_of(base_key(key), record.plan, record.generations, kept.released)
            )
        return self.reserve(key, wanted, most)

    def reserve(self, key: Key, wanted: tuple[Reservation, ...], most: int | None = None) -> bool:
        """Keep exactly these GPUs for a model; see :meth:`keep`."""
        refused, freed = self.ledger.keep(
            base_key(key), wanted, self.healthy(item.node for item in wanted), most
        )
        self.freed |= freed
        return not refused

    def promise(self, key: Key, pods: Pods | None) -> None:
        """Count the pods of a plan (None: none) in its namespace until they are made."""
        if pods is not None:
            self._pods.setdefault(key[0], {})[key] = pods
        elif key in self._pods.get(key[0], {}):
            del self._pods[key[0]][key]
            if not self._pods[key[0]]:
                del self._pods[key[0]]

    def promised(self, key: Key) -> tuple[Pods, ...]:
        """Return the pods that other models of the namespace have yet to make."""
        planned = (
            (other, pods) for other, pods in self._pods.get(key[0], {}).items() if other != key
        )
        return tuple(
            (need, missing)
            for other, (need, count) in planned
            # Pods that are there are in the quota's own count.
            if (missing := count - self._there(other)) > 0
        )

    def _there(self, key: Key) -> int:
        return len(self.store.members_of(base_key(key)))

    def older(self, key: Key) -> int:
        """Return how many models of the namespace are older; the same second is ordered by name."""
        age = _created(self.resources.get(key)), key
        return sum(
            other[0] == key[0] and (_created(item), other) < age
            for other, item in self.resources.items()
        )

    def waiting_beside(self, key: Key) -> int:
        """Return the number of other models of the namespace that wait for GPUs."""
        return sum(other[0] == key[0] and other != key for other in self.line)

    def kept_beside(self, key: Key) -> int:
        """Return the number of GPUs that the plans of other models of the namespace keep."""
        return self.ledger.kept_beside(base_key(key))

    def barred_in(self, namespaces: Collection[str]) -> tuple[Key, ...]:
        """Return the models of these namespaces whose pods are not admitted, longest first."""
        return tuple(key for key in self._barred if key[0] in namespaces) if namespaces else ()

    def healthy(self, nodes: Iterable[str]) -> dict[str, int]:
        """Return the healthy GPUs of these nodes, whoever holds them, without unplannable nodes."""
        found = ((name, self.node(name)) for name in set(nodes))
        return {name: node.gpus for name, node in found if isinstance(node, NodeFacts)}

    def enqueue(self, key: Key, waiting: Waiting | None) -> None:
        """Put a model in line for GPUs (None: take it out); unclaimed nodes come free."""
        before = self.line.pop(key, None)
        if waiting is not None:
            self.line[key] = waiting
        # Nodes that are claimed no longer are like GPUs that come free: those behind it are woken.
        self.freed |= (before.claim.keys() if before else set()) - (
            waiting.claim.keys() if waiting else set()
        )

    def rank(self, key: Key, priority_class: str | None) -> Rank:
        """Return the place in line of a model whose pods have this priority class."""
        return rank_of(
            self.store.priorities.value_of(priority_class), _created(self.resources.get(key)), key
        )

    def claimed_before(self, rank: Rank) -> Counter[str]:
        """Return the GPUs by node that are claimed ahead of a place in line."""
        return claimed_before(self.line.values(), rank)

    def claimed_beside(self, key: Key) -> int:
        """Return the number of GPUs that other models of the namespace claim."""
        return sum(
            sum(waiting.claim.values())
            for other, waiting in self.line.items()
            if other[0] == key[0] and other != key
        )

    def claimed_by(self, key: Key) -> frozenset[str]:
        """Return the nodes a model claims."""
        return frozenset(self.line[key].claim) if key in self.line else frozenset()

    def unheld(self, nodes: Iterable[str]) -> dict[str, int]:
        """Return how many GPUs of each node nobody holds."""
        healthy = self.healthy(nodes)
        taken = self.ledger.taken_on(healthy)
        return {name: max(0, gpus - taken[name]) for name, gpus in healthy.items()}

    def free(self, key: Key, nodes: Iterable[str]) -> dict[str, int] | None:
        """Return the GPUs others leave a model on each node, None if pods may not be listed."""
        if self.known_pods is KnownPods.NONE:
            return None
        healthy = self.healthy(nodes)
        taken = self.ledger.taken_on(healthy, base_key(key))
        return {name: max(0, gpus - taken[name]) for name, gpus in healthy.items()}

    def nodes(self, names: Iterable[str]) -> dict[str, NodeFacts | NodeExclusion]:
        """Return the facts about these nodes."""
        return {name: node for name in names if (node := self.node(name))}

    @property
    def moving(self) -> int:
        """Return how many groups of all models are down on purpose."""
        return self._moving.total()

    def moving_beside(self, key: Key) -> tuple[int, int]:
        """Return how many other models' groups are down on purpose: in its namespace, elsewhere."""
        theirs = self._moving[key[0]]
        return theirs - self.interests(key).moving, self.moving - theirs

    def planned_on(self, nodes: Iterable[str]) -> set[Key]:
        """Return the models planned on any of these nodes."""
        return set().union(*(self._on_node.get(node, ()) for node in nodes))

    def served_by(self, freed: Iterable[str]) -> list[Key]:
        """Return the models waiting for capacity that may use these nodes, in serving order."""
        usable = [node for name in freed if isinstance(node := self.node(name), NodeFacts)]
        admitted: dict[str, bool] = {}
        for key in self._waiting:
            # Once for all models of the same terms: a thousand of them often have the same.
            if (terms := self._terms(key)) is not None and repr(terms) not in admitted:
                admission = NodeFilter(terms)
                admitted[repr(terms)] = any(admission.keeps_out(node) is None for node in usable)
        return sorted(
            (
                key
                for key in self._waiting
                # One of which nothing is known yet may use any node.
                if admitted.get(repr(self._terms(key)), True)
            ),
            key=self.place_in_line,
        )

    def place_in_line(self, key: Key) -> Rank:
        """Return a model's place in line; one not planned yet counts as of the default class."""
        waiting = self.line.get(key)
        return waiting.rank if waiting else self.rank(key, None)

    def _terms(self, key: Key) -> PodTerms | None:
        waiting = self.line.get(key)
        return waiting.terms if waiting else None

    def waiting_for_turn(self) -> tuple[Key, ...]:
        """Return the models waiting for other models' groups to move, longest wait first."""
        return tuple(self._turns)

    def snapshots(self, config_maps: Iterable[Key]) -> set[Key]:
        """Return the models whose architecture comes from one of these ConfigMaps."""
        return set().union(*(self._snapshots.get(key, ()) for key in config_maps))


def _move(index: dict[A, set[Key]], key: Key, before: frozenset[A], now: frozenset[A]) -> None:
    # Nodes and ConfigMaps come and go, so no empty set is kept.
    for item in before - now:
        index[item].discard(key)
        if not index[item]:
            del index[item]
    for item in now - before:
        index.setdefault(item, set()).add(key)


def base_key(key: Key) -> OwnerKey:
    """Return the namespace and base name of a model: the key of its pods and reservations."""
    return key[0], base_name(key[1])


def _list(names: dict[Key, None], key: Key, *, listed: bool) -> None:
    if listed:
        names.setdefault(key)
    else:
        names.pop(key, None)


def user_written(content: KubernetesObject) -> tuple[Any, ...]:
    """Return everything in a ShardedModel that its user or the API server writes."""
    metadata = content["metadata"]
    # Without the status and managedFields, which change with each of our own writes.
    return (
        metadata["uid"],
        metadata["generation"],
        metadata.get("annotations"),
        metadata.get("deletionTimestamp"),
    )


def _created(resource: Mapping[str, Any] | None) -> str:
    return str(resource["metadata"].get("creationTimestamp") or "") if resource else ""
