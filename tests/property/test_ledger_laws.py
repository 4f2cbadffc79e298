"""No GPU is counted twice and none is kept for what is gone, over any history of models, pods and
nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import assume
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardwright.cluster.ledger import Ledger, OwnerKey, PodKey
from shardwright.hardware.facts import GpuUsage
from shardwright.hardware.pools import Reservation, _taken
from shardwright.rendering.names import generation_name, generation_of, group_name
from shardwright.resolving.stock import _by_generation

OWNERS = [("models", name) for name in ("one", "two", "three", "four")]
NODES = "abcde"
GPUS = 8

owners = st.sampled_from(OWNERS)
nodes = st.sampled_from(NODES)


@dataclass(frozen=True)
class Record:
    """A plan of record: nodes and generation of each group, GPUs on each node; ``age`` says which
    model is older.
    """

    owner: OwnerKey
    groups: tuple[tuple[str, ...], ...]
    generations: tuple[int, ...]
    gpus: int
    age: int
    deployed: bool = True

    def name(self, group: int) -> str:
        return generation_name(group_name(self.owner[1], group), self.generations[group])

    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(
            Reservation(owner=self.owner, node=node, gpus=self.gpus, group=self.name(group))
            for group, places in enumerate(self.groups)
            for node in places
        )

    def pods(self) -> Iterator[tuple[PodKey, GpuUsage]]:
        """Yield the pods that its StatefulSets would make, bound where they are planned."""
        for group, places in enumerate(self.groups):
            for rank, node in enumerate(places):
                usage = GpuUsage(
                    node=node,
                    resource="r",
                    gpus=self.gpus,
                    owner=self.owner,
                    group=self.name(group),
                )
                yield ("models", f"{self.name(group)}-{rank}"), usage


class History(RuleBasedStateMachine):
    """Models that are planned, deployed, changed and deleted, pods that come and go, nodes that
    fail, operators that die.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.records: dict[OwnerKey, Record] = {}
        self.pods: dict[PodKey, GpuUsage] = {}
        self.healthy: dict[str, int] = {}
        self.clock = 0

    @initialize()
    def nodes_are_there(self) -> None:
        self.healthy = dict.fromkeys(NODES, GPUS)

    def keep(self, record: Record) -> frozenset[str]:
        """Keep the GPUs of a record and return the groups that were left out: nothing that is taken
        in overfills a node.
        """
        refused, _ = self.ledger.keep(record.owner, record.reservations(), self.healthy)
        kept = self.ledger.kept(record.owner)
        assert set(kept) == {item for item in record.reservations() if item.group not in refused}
        others = self.ledger.taken(record.owner, vacated=True)
        for node, gpus in promised(kept).items():
            assert others[node] + gpus <= self.healthy.get(node, GPUS)
        return refused

    def places(
        self, taken: Counter[str], groups: int, size: int, gpus: int
    ) -> tuple[tuple[str, ...], ...] | None:
        """Return nodes for groups on what is free, as a planner would choose them, None where there
        are not enough.
        """
        free = {node: count - taken[node] for node, count in self.healthy.items()}
        found = []
        for _ in range(groups):
            fitting = [node for node, count in sorted(free.items()) if count >= gpus][:size]
            if len(fitting) < size:
                return None
            for node in fitting:
                free[node] -= gpus
            found.append(tuple(fitting))
        return tuple(found)

    def scheduled(self, key: PodKey, usage: GpuUsage) -> None:
        """Bind a pod as a scheduler would: on a node that is there, where other pods leave room."""
        held = sum(pod.gpus for pod in self.pods.values() if pod.node == usage.node)
        if key not in self.pods and self.healthy.get(usage.node, 0) - held >= usage.gpus:
            self.pods[key] = usage
            self.ledger.bind(key, usage)

    @rule(
        owner=owners,
        groups=st.integers(1, 3),
        size=st.integers(1, 2),
        gpus=st.sampled_from((2, 4, 8)),
        deployed=st.booleans(),
    )
    def a_model_is_created_or_edited(
        self, owner: OwnerKey, groups: int, size: int, gpus: int, *, deployed: bool
    ) -> None:
        """What was planned on what is free is taken in whole."""
        places = self.places(self.ledger.taken(owner), groups, size, gpus)
        if places is None:
            return
        self.clock += 1
        before = self.records.get(owner)
        generations = (*(before.generations if before else ()), 0, 0, 0)[:groups]
        age = before.age if before else self.clock
        record = Record(owner, places, generations, gpus, age, deployed)
        self.records[owner] = record
        if deployed:
            assert self.keep(record) == frozenset()
        else:
            self.ledger.forget(owner)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def it_is_only_to_be_shown(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(list(self.records.values())))
        self.records[record.owner] = replace(record, deployed=False)
        self.ledger.forget(record.owner)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def what_was_shown_is_deployed_as_it_stands(self, data: st.DataObject) -> None:
        """Others may have its GPUs by now: those groups are left out, and their GPUs are not
        counted twice.
        """
        record = data.draw(st.sampled_from(list(self.records.values())))
        assume(not record.deployed)
        if all(node in self.healthy for places in record.groups for node in places):
            self.records[record.owner] = replace(record, deployed=True)
            self.keep(record)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def it_is_looked_at_again_or_paused(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(list(self.records.values())))
        if record.deployed and set(self.ledger.kept(record.owner)) == set(record.reservations()):
            before = self.ledger.taken()
            assert self.ledger.keep(record.owner, record.reservations(), self.healthy) == (
                frozenset(),
                frozenset(),
            )
            assert self.ledger.taken() == before

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def it_is_deleted(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(list(self.records)))
        del self.records[owner]
        before = self.ledger.taken()
        freed = self.ledger.forget(owner)
        assert freed == {
            node for node, count in before.items() if self.ledger.taken()[node] < count
        }

    @precondition(lambda self: any(record.deployed for record in self.records.values()))
    @rule(data=st.data())
    def a_group_goes_on_elsewhere_beside_its_former_self(self, data: st.DataObject) -> None:
        record = data.draw(
            st.sampled_from([record for record in self.records.values() if record.deployed])
        )
        group = data.draw(st.integers(0, len(record.groups) - 1))
        root = group_name(record.owner[1], group)
        places = self.places(
            self.ledger.taken(record.owner, beside=root), 1, len(record.groups[group]), record.gpus
        )
        if places is None:
            return
        groups = (*record.groups[:group], *places, *record.groups[group + 1 :])
        latest = max(
            [
                generation_of(usage.group)[1]
                for usage in self.pods.values()
                if usage.owner == record.owner
            ],
            default=0,
        )
        generation = max(record.generations[group], latest) + 1
        generations = (*record.generations[:group], generation, *record.generations[group + 1 :])
        moved = replace(record, groups=groups, generations=generations)
        whole = set(self.ledger.kept(record.owner)) == set(record.reservations())
        refused = self.keep(moved)
        assert moved.name(group) not in refused or not whole
        self.records[record.owner] = moved

    @precondition(lambda self: any(record.deployed for record in self.records.values()))
    @rule(data=st.data())
    def one_of_its_pods_is_bound(self, data: st.DataObject) -> None:
        record = data.draw(
            st.sampled_from([record for record in self.records.values() if record.deployed])
        )
        self.scheduled(*data.draw(st.sampled_from(list(record.pods()))))

    @rule(number=st.integers(0, 3), node=nodes, gpus=st.integers(1, GPUS))
    def a_foreign_pod_is_bound(self, number: int, node: str, gpus: int) -> None:
        self.scheduled(("them", f"p{number}"), GpuUsage(node=node, resource="r", gpus=gpus))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.pods)))
        del self.pods[key]
        self.ledger.bind(key, None)

    @rule(node=nodes, gpus=st.sampled_from((GPUS, GPUS - 1, 0)))
    def a_node_loses_gpus_or_all_or_comes_back(self, node: str, gpus: int) -> None:
        self.healthy.pop(node, None)
        if gpus:
            self.healthy[node] = gpus

    @rule()
    def another_operator_takes_over(self) -> None:
        """All is read anew: pods first, then the plans of record, those whose pods run before the
        others, older ones first.
        """
        before, self.ledger = self.ledger, Ledger()
        for key, usage in self.pods.items():
            self.ledger.bind(key, usage)
        running = {usage.owner for usage in self.pods.values()}
        deployed = [record for record in self.records.values() if record.deployed]
        for record in sorted(
            deployed, key=lambda record: (record.owner not in running, record.age)
        ):
            self.keep(record)
        taken = before.taken()
        fits = all(taken[node] <= count for node, count in self.healthy.items())
        complete = all(
            set(before.kept(record.owner)) == set(record.reservations()) for record in deployed
        )
        if fits and complete:
            assert self.ledger.taken() == taken
            assert set(self.ledger.reservations()) == set(before.reservations())

    @invariant()
    def what_is_taken_is_what_counting_by_hand_gives(self) -> None:
        """By node: of each group the more of kept and bound by its latest generation, what earlier
        ones hold, what is foreign.
        """
        assert self.ledger.taken() == by_hand(self.pods.values(), list(self.ledger.reservations()))

    @rule(owner=st.one_of(st.none(), owners))
    def what_is_free_for_a_model_is_what_counting_from_scratch_gives(
        self, owner: OwnerKey | None
    ) -> None:
        pods, kept = tuple(self.pods.values()), tuple(self.ledger.reservations())
        taken = self.ledger.taken(owner)
        assert taken == +_taken(*_by_generation(pods, kept, owner), owner)
        assert self.ledger.taken_on(NODES, owner or ("", "")) == {
            node: taken[node] for node in NODES
        }
        if owner:
            assert self.ledger.taken(owner, vacated=True) == +_taken(
                *_by_generation(pods, kept, None), owner
            )

    @rule(owner=owners, group=st.integers(0, 2))
    def what_is_free_beside_a_group_is_what_counting_from_scratch_gives(
        self, owner: OwnerKey, group: int
    ) -> None:
        pods, kept, root = (
            tuple(self.pods.values()),
            self.ledger.reservations(),
            group_name(owner[1], group),
        )
        rest = tuple(
            item for item in kept if (item.owner, generation_of(item.group)[0]) != (owner, root)
        )
        assert self.ledger.taken(owner, beside=root) == +_taken(
            *_by_generation(pods, rest, owner), None
        )

    @invariant()
    def no_node_is_promised_twice(self) -> None:
        assert max(promised(self.ledger.reservations()).values(), default=0) <= GPUS

    @invariant()
    def nothing_is_kept_for_what_is_gone(self) -> None:
        deployed = {record.owner: record for record in self.records.values() if record.deployed}
        assert self.ledger.owners() <= deployed.keys()
        for owner in self.ledger.owners():
            assert set(self.ledger.kept(owner)) <= set(deployed[owner].reservations())
        known = {usage.owner for usage in self.pods.values() if usage.owner} | self.ledger.owners()
        assert self.ledger._groups.keys() == known


def promised(kept: Iterable[Reservation]) -> Counter[str]:
    """Return the GPUs that are kept, by node."""
    return sum((Counter({item.node: item.gpus}) for item in kept), Counter())


def by_hand(pods: Iterable[GpuUsage], kept: Iterable[Reservation]) -> Counter[str]:
    """Return the GPUs that nobody else can have, by node."""
    bound: defaultdict[tuple[OwnerKey, str], Counter[tuple[int, str]]] = defaultdict(Counter)
    planned: defaultdict[tuple[OwnerKey, str], Counter[str]] = defaultdict(Counter)
    latest: Counter[tuple[OwnerKey, str]] = Counter()
    taken: Counter[str] = Counter()
    for usage in pods:
        if usage.owner is None:
            taken[usage.node] += usage.gpus
            continue
        root, generation = generation_of(usage.group)
        bound[usage.owner, root][generation, usage.node] += usage.gpus
        latest[usage.owner, root] = max(latest[usage.owner, root], generation)
    for item in kept:
        root, generation = generation_of(item.group)
        planned[item.owner, root][item.node] += item.gpus
        latest[item.owner, root] = max(latest[item.owner, root], generation)
    for group in bound.keys() | planned.keys():
        for node in NODES:
            taken[node] += max(planned[group][node], bound[group][latest[group], node])
        for (generation, node), gpus in bound[group].items():
            taken[node] += gpus if generation != latest[group] else 0
    return +taken


TestLedger = History.TestCase
