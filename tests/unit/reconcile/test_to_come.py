"""Plans on nodes to come: how groups ask for them, and that the record follows the pods."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shardwright.api.record import PlanRecord, decode, encode
from shardwright.hardware.to_come import PoolTerm, Sought
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.to_come import following, seeking
from shardwright.rendering.hashing import TEMPLATE_HASH
from tests.support.builders_deployment import a_plan
from tests.support.builders_pools import turnout
from tests.support.builders_reconcile import member

SPOT = PoolTerm(labels=(("pool", "spot"),))


def a_record(*groups: tuple[str, ...], sought: Iterable[Sought] = ()) -> PlanRecord:
    plan = replace(a_plan(), groups=groups)
    return PlanRecord(input_hash="i", cut_hash="c", generation=1, plan=plan, sought=tuple(sought))


def a_set(name: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {TEMPLATE_HASH: "r1"}}}
    return {"kind": "StatefulSet", "metadata": {"name": name}, "spec": {"template": template}}


class TestSeeking:
    def test_a_group_on_nodes_that_exist_seeks_none(self) -> None:
        assert seeking(a_record(("a", "b")), None, [turnout()]).sought == ()

    def test_a_group_asks_for_the_pools_of_its_nodes_apart_from_what_others_hold_and_are_planned_on(self) -> None:
        record = a_record(("~spot-0", "~spot-1"), ("b", "fixed"))

        found = seeking(record, None, [turnout(there=["a", "b", "c"], held=["a"])]).sought

        apart = ("host-a", "host-b")
        assert found == (Sought(group=0, terms=(replace(SPOT, apart_from=apart),)),)

    def test_of_its_own_nodes_those_of_no_such_pool_are_named(self) -> None:
        (found,) = seeking(a_record(("a", "fixed", "~spot-0")), None, [turnout(there=["a"], held=["a"])]).sought

        assert found == Sought(group=0, named=("fixed",), terms=(SPOT,))

    def test_beside_nodes_of_karpenter_none_is_named_since_it_would_pass_over_the_pods(self) -> None:
        karpenter = turnout(selector={"karpenter.sh/nodepool": "spot"})

        (found,) = seeking(a_record(("fixed", "~spot-0")), None, [karpenter]).sought

        assert found.named == ()

    def test_a_group_that_stays_asks_as_it_did_one_that_moves_counts_on_and_one_that_leaves_such_nodes_asks_no_more(self) -> None:
        asked = [Sought(group=index, terms=(SPOT,), number=3) for index in range(3)]
        before = a_record(("x",), ("y",), ("~spot-0",), sought=asked)
        after = a_record(("x",), ("~spot-1",), ("a",))

        found = seeking(after, before, [turnout()]).sought

        assert found == (asked[0], Sought(group=1, terms=(SPOT,), number=4))

    def test_it_is_kept_with_the_record(self) -> None:
        record = a_record(
            ("~spot-0",), sought=[Sought(group=0, named=("a",), terms=(replace(SPOT, apart_from=("h",)),), number=2)]
        )

        assert decode(encode(record)) == record


class TestFollowing:
    def record(self, *nodes: str) -> PlanRecord:
        return a_record(nodes, sought=[Sought(group=0, terms=(SPOT,))])

    def followed(self, record: PlanRecord, *members: Any) -> tuple[str, ...]:
        return following(record, [a_set("llama-0")], Observed(objects={}, members=members)).plan.groups[0]

    def test_each_pod_that_is_bound_puts_its_node_in_the_place_of_one_to_come(self) -> None:
        bound = replace(member("llama-0-1"), node="x")
        waits = replace(member("llama-0-0"), node=None)

        assert self.followed(self.record("~spot-0", "~spot-1"), waits) == ("~spot-0", "~spot-1")
        assert self.followed(self.record("~spot-0", "~spot-1"), waits, bound) == ("x", "~spot-1")
        assert self.followed(self.record("x", "~spot-1"), replace(waits, node="y"), bound) == ("x", "y")

    def test_pods_of_another_template_and_pods_that_end_say_nothing(self) -> None:
        old = replace(member("llama-0-0"), node="x", template_hash="r0")
        ends = replace(member("llama-0-1"), node="y", deleting=True)

        assert self.followed(self.record("~spot-0", "~spot-1"), old, ends) == ("~spot-0", "~spot-1")

    def test_a_pod_that_came_back_elsewhere_before_its_template_named_a_node_is_followed_too(self) -> None:
        assert self.followed(self.record("x"), replace(member("llama-0-0"), node="y")) == ("y",)

    def test_a_group_that_sought_nothing_is_where_it_is_planned(self) -> None:
        record = a_record(("a",))

        assert following(record, [a_set("llama-0")], Observed(objects={}, members=(member("llama-0-0"),))) is record
