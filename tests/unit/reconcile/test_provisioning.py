"""Plans on nodes to come: how groups ask for them, and that the record follows the pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shardwright.api.record import PlanRecord, decode, encode
from shardwright.hardware.provisioning import PoolTerm, Sought
from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.annotations import (
    NODES_COME_SECONDS,
    UNSCHEDULABLE_SECONDS,
    find_unschedulable,
)
from shardwright.reconcile.disruption import planned_nodes
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.pod_inputs import following, seeking
from shardwright.reconcile.publish import Published
from shardwright.reconcile.snapshot import Ask, Snapshot
from shardwright.reconcile.write_cause import Origin
from shardwright.rendering.bundle import TEMPLATE_HASH
from tests.support.builders_deployment import a_plan
from tests.support.builders_pools import an_autoscaled_pool, turnout
from tests.support.builders_reconcile import NOON, member
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.small_cluster import LOAD_SECONDS, SmallCluster

SPOT = PoolTerm(labels=(("pool", "spot"),))


def a_record_of_groups(*groups: tuple[str, ...], sought: Iterable[Sought] = ()) -> PlanRecord:
    plan = replace(a_plan(), groups=groups)
    return PlanRecord(input_hash="i", cut_hash="c", generation=1, plan=plan, sought=tuple(sought))


def a_set_to_follow(name: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {TEMPLATE_HASH: "r1"}}}
    return {"kind": "StatefulSet", "metadata": {"name": name}, "spec": {"template": template}}


class TestSeeking:
    def test_a_group_on_nodes_that_exist_seeks_none(self) -> None:
        assert seeking(a_record_of_groups(("a", "b")), None, [turnout()]).sought == ()

    def test_a_group_seeks_new_nodes_of_its_pools_apart_from_hosts_that_others_hold_or_plan_on(
        self,
    ) -> None:
        record = a_record_of_groups(("~spot-0", "~spot-1"), ("b", "fixed"))

        found = seeking(record, None, [turnout(there=["a", "b", "c"], held=["a"])]).sought

        apart = ("host-a", "host-b")
        assert found == (Sought(group=0, terms=(replace(SPOT, apart_from=apart),)),)

    def test_of_its_own_nodes_those_of_no_such_pool_are_named(self) -> None:
        (found,) = seeking(
            a_record_of_groups(("a", "fixed", "~spot-0")), None, [turnout(there=["a"], held=["a"])]
        ).sought

        assert found == Sought(group=0, named=("fixed",), terms=(SPOT,))

    def test_beside_nodes_of_karpenter_none_is_named_since_it_would_pass_over_the_pods(
        self,
    ) -> None:
        karpenter = turnout(selector={"karpenter.sh/nodepool": "spot"})

        (found,) = seeking(a_record_of_groups(("fixed", "~spot-0")), None, [karpenter]).sought

        assert found.named == ()

    def test_a_group_that_stays_seeks_the_same_one_that_moves_counts_on_and_others_stop_seeking(
        self,
    ) -> None:
        asked = [Sought(group=index, terms=(SPOT,), number=3) for index in range(3)]
        before = a_record_of_groups(("x",), ("y",), ("~spot-0",), sought=asked)
        after = a_record_of_groups(("x",), ("~spot-1",), ("a",))

        found = seeking(after, before, [turnout()]).sought

        assert found == (asked[0], Sought(group=1, terms=(SPOT,), number=4))

    def test_what_a_group_seeks_is_kept_with_the_record(self) -> None:
        record = a_record_of_groups(
            ("~spot-0",),
            sought=[
                Sought(group=0, named=("a",), terms=(replace(SPOT, apart_from=("h",)),), number=2)
            ],
        )

        assert decode(encode(record)) == record


class TestFollowing:
    def record(self, *nodes: str) -> PlanRecord:
        return a_record_of_groups(nodes, sought=[Sought(group=0, terms=(SPOT,))])

    def followed(self, record: PlanRecord, *members: Any) -> tuple[str, ...]:
        return following(
            record, [a_set_to_follow("llama-0")], Observed(objects={}, members=members)
        ).plan.groups[0]

    def test_each_pod_that_is_bound_puts_its_node_in_the_place_of_one_to_come(self) -> None:
        bound = replace(member("llama-0-1"), node="x")
        waits = replace(member("llama-0-0"), node=None)

        assert self.followed(self.record("~spot-0", "~spot-1"), waits) == ("~spot-0", "~spot-1")
        assert self.followed(self.record("~spot-0", "~spot-1"), waits, bound) == ("x", "~spot-1")
        assert self.followed(self.record("x", "~spot-1"), replace(waits, node="y"), bound) == (
            "x",
            "y",
        )

    def test_pods_of_another_template_and_pods_that_end_say_nothing(self) -> None:
        old = replace(member("llama-0-0"), node="x", template_hash="r0")
        ends = replace(member("llama-0-1"), node="y", deleting=True)

        assert self.followed(self.record("~spot-0", "~spot-1"), old, ends) == ("~spot-0", "~spot-1")

    def test_a_pod_that_came_back_elsewhere_before_its_template_named_a_node_is_followed_too(
        self,
    ) -> None:
        assert self.followed(self.record("x"), replace(member("llama-0-0"), node="y")) == ("y",)

    def test_a_group_that_sought_nothing_is_where_it_is_planned(self) -> None:
        record = a_record_of_groups(("a",))

        assert (
            following(
                record,
                [a_set_to_follow("llama-0")],
                Observed(objects={}, members=(member("llama-0-0"),)),
            )
            is record
        )


class Growing(Operator):
    """An operator of one model on a cluster without nodes, with a pool of one node that may
    come.
    """

    @classmethod
    def with_a_pool(cls) -> Growing:
        cluster = SmallCluster()
        cluster.facts |= {node.name: node for node in an_autoscaled_pool(max_nodes=1).nodes()}
        return cls(cluster, {**ONE_NODE, "replicas": 1})

    def answer(self, snapshot: Snapshot, ask: Ask) -> Replanned:
        made = super().answer(snapshot, ask)
        return (
            replace(made, record=seeking(made.record, ask.on, [turnout()])) if made.record else made
        )

    def reason(self, published: Published) -> str:
        (ready,) = (item for item in published.status["conditions"] if item["type"] == "Ready")
        return str(ready["reason"])

    def planned(self) -> tuple[tuple[str, ...], ...]:
        assert self.kept
        return self.kept.record.plan.groups


class TestLooks:
    def test_a_group_waits_for_its_node_and_the_plan_and_its_template_name_the_one_that_comes(
        self,
    ) -> None:
        operator = Growing.with_a_pool()
        assert operator.reason(operator.run(30)) == "WaitingForNodes"
        assert operator.planned() == (("~spot-0",),)
        asked = operator.cluster.pods["llama-0-0"]["metadata"]["uid"]

        operator.cluster.set_node("h100-0")
        published = operator.run(LOAD_SECONDS + 60)

        assert operator.reason(published) == "Serving"
        assert operator.planned() == (("h100-0",),)
        assert planned_nodes(operator.cluster.sets()["llama-0"]) == {"h100-0"}
        assert operator.cluster.pods["llama-0-0"]["metadata"]["uid"] == asked
        assert {group.restarts for group in published.found.groups} == {0}

    def test_after_twenty_minutes_it_keeps_no_room_and_still_takes_what_comes(self) -> None:
        operator = Growing.with_a_pool()
        operator.run(NODES_COME_SECONDS - 60)
        assert operator.kept
        assert operator.kept.released == frozenset()

        late = operator.run(120)
        assert operator.reason(late) == "NodesDidNotCome"
        assert late.waits_for_capacity
        assert operator.kept.released == {0}
        assert operator.asked[-1].lost == {"~spot-0"}

        operator.cluster.set_node("h100-0")
        assert operator.reason(operator.run(LOAD_SECONDS + 120)) == "Serving"
        assert (operator.planned(), operator.kept.released) == ((("h100-0",),), frozenset())

    def test_the_minutes_in_a_queue_are_not_those_of_the_autoscaler(self) -> None:
        operator = Growing.with_a_pool()
        operator.cluster.queued = True
        assert operator.reason(operator.run(NODES_COME_SECONDS + 60)) == "WaitingForQuota"

        operator.cluster.admit()
        assert operator.reason(operator.run(NODES_COME_SECONDS - 60)) == "WaitingForNodes"
        assert operator.reason(operator.run(120)) == "NodesDidNotCome"

    def test_plans_that_follow_their_pods_are_no_contest_over_fields(self) -> None:
        operator = Growing.with_a_pool()
        operator.run(30)
        operator.cluster.set_node("h100-0")
        operator.reconcile()
        for _ in range(5):
            operator.cluster.pass_time(10)
            operator.reconcile()

        assert [write for write in operator.written if write.cause.origin is Origin.UNDONE] == []
        assert operator.planned() == (("h100-0",),)

    def test_a_group_that_has_a_part_of_its_nodes_holds_them_for_as_long_as_nodes_may_take(
        self,
    ) -> None:
        bound = replace(member("llama-0-0"), node="x")
        waits = replace(member("llama-0-1"), node=None, unschedulable_since=NOON)
        ends = [
            found[1]
            for to_come in (False, True)
            if (found := find_unschedulable([bound, waits], nodes_in_provisioning=to_come))
        ]

        assert [(end - NOON).total_seconds() for end in ends] == [
            UNSCHEDULABLE_SECONDS,
            NODES_COME_SECONDS,
        ]
