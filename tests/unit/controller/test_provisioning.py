"""The planner and the ledger with a pool that an autoscaler adds nodes to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.cluster.handover import Change
from shardwright.cluster.sources import project_node
from shardwright.planning.report import Plan
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.snapshot import Ask
from tests.support.builders_nodes import a_node
from tests.support.builders_pools import an_autoscaled_pool
from tests.support.builders_reconcile import NOON
from tests.support.builders_subject import LARGE
from tests.support.desk import Desk

WHOLE_NODE = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "parallelism": {"tensor": 8, "pipeline": 1},
}


class PoolDesk(Desk):
    """Two nodes, of which nothing is free, and a pool of three nodes that do not exist."""

    def __init__(self) -> None:
        super().__init__()
        self.cache.expect([an_autoscaled_pool(3)])
        for name in self.names:
            self.hold(name, 8, f"on-{name}")

    def arrive(self, *names: str) -> None:
        """Let nodes of the pool register."""
        nodes = [a_node(name, network_gbps=None, labels={"pool": "spot"}) for name in names]
        self.cache.store.take_nodes(
            {("", node["metadata"]["name"]): Change(project_node(node), 0) for node in nodes}
        )

    def leave(self, name: str) -> frozenset[str]:
        return self.cache.openings(self.cache.store.take_nodes({("", name): Change(None, 0)}).nodes)


@pytest.fixture
def desk() -> PoolDesk:
    return PoolDesk()


def test_a_node_that_exists_comes_before_one_that_does_not(desk: PoolDesk) -> None:
    desk.hold(desk.names[1], 0, f"on-{desk.names[1]}")

    assert desk.nodes_of(desk.ask(desk.add("first", **WHOLE_NODE))) == {desk.names[1]}
    second = desk.ask(desk.add("second", **WHOLE_NODE))

    assert desk.nodes_of(second) == {"~spot-0"}
    assert second.record
    assert [item.group for item in second.record.sought] == [0]
    assert (second.short, desk.cache.line) == (None, {})


def test_what_models_book_never_exceeds_the_pool(desk: PoolDesk) -> None:
    assert desk.nodes_of(desk.ask(desk.add("large", **LARGE))) == {"~spot-0", "~spot-1"}
    assert desk.nodes_of(desk.ask(desk.add("one", **WHOLE_NODE))) == {"~spot-2"}
    late = desk.add("late", **WHOLE_NODE)
    assert desk.ask(late).short

    desk.cache.freed.clear()
    desk.cache.forget(("models", "one"))

    assert desk.cache.served_by(desk.cache.freed) == [late]
    assert desk.nodes_of(desk.ask(late)) == {"~spot-2"}


def test_a_node_that_arrives_is_for_who_has_booked_one_until_his_pods_are_bound(
    desk: PoolDesk,
) -> None:
    first, second = desk.add("first", **WHOLE_NODE), desk.add("second", **WHOLE_NODE)
    booked = desk.ask(first).record
    assert booked

    desk.arrive("new-0")
    assert desk.nodes_of(desk.ask(second)) == {"~spot-1"}
    desk.cache.forget(second)

    assert isinstance(booked.plan, Plan)
    bound = replace(booked, plan=replace(booked.plan, groups=(("new-0",),)))
    assert desk.cache.keep(first, Kept(record=bound))
    desk.arrive("new-1")
    assert desk.nodes_of(desk.ask(desk.add("third", **WHOLE_NODE))) == {"new-1"}


def test_nodes_that_exist_count_against_the_pool_and_one_that_goes_makes_room_for_another(
    desk: PoolDesk,
) -> None:
    desk.arrive("new-0", "new-1", "new-2")
    for name in ("new-0", "new-1", "new-2"):
        desk.hold(name, 8, f"on-{name}")
    assert desk.ask(desk.add("waits", **WHOLE_NODE)).short

    assert desk.leave("new-1") == {"~spot-0", "~spot-1", "~spot-2"}
    desk.hold("new-1", 0, "on-new-1")
    assert desk.nodes_of(desk.ask(("models", "waits"))) == {"~spot-0"}


def test_who_has_waited_in_vain_is_not_planned_on_the_same_pool(desk: PoolDesk) -> None:
    key = desk.add("waits", **WHOLE_NODE)
    record = desk.ask(key).record
    subject = desk.subject(key)

    ask = Ask(
        on=record, choice=PlanChoice.REHOUSE, leaving=frozenset({0}), lost=frozenset({"~spot-0"})
    )
    answer = desk.answer(key, subject, ask, NOON)

    assert answer.short
    assert answer.record == record


def test_a_model_whose_pods_may_not_use_the_pool_waits(desk: PoolDesk) -> None:
    assert desk.ask(
        desk.add("picky", placement={"nodeSelector": {"pool": "other"}}, **WHOLE_NODE)
    ).short
