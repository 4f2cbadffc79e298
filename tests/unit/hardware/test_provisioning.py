"""What a pool that can grow still has room for, and how pods ask for its nodes."""

from shardwright.hardware.provisioning import PoolTerm
from tests.support.builders_pools import turnout


def test_no_more_nodes_are_on_offer_than_the_pool_may_still_have() -> None:
    assert turnout().withheld(()) == frozenset()
    assert turnout(there=["a", "b", "c"]).withheld(()) == {"~spot-1", "~spot-2", "~spot-3"}
    assert turnout(there=["a"], booked=["~spot-1", "~spot-2"]).withheld(()) == {"~spot-3"}
    assert turnout(there=["a", "b", "c", "d", "e"], booked=["~spot-0"]).withheld(()) == {
        "~spot-1",
        "~spot-2",
        "~spot-3",
    }


def test_a_pool_whose_nodes_did_not_come_offers_none_to_who_has_waited() -> None:
    assert turnout().withheld({"~spot-2"}) == {"~spot-0", "~spot-1", "~spot-2", "~spot-3"}
    assert turnout().withheld({"~other-2", "spot-2"}) == frozenset()


def test_empty_nodes_that_are_there_are_awaited_by_who_has_booked_nodes() -> None:
    assert turnout(there=["a", "b", "c"], held=["a"]).awaited() == frozenset()
    assert turnout(there=["a", "b", "c"], held=["a"], booked=["~spot-0"]).awaited() == {"b"}
    assert turnout(there=["a", "b"], booked=["~spot-0", "~spot-1", "~spot-2"]).awaited() == {
        "a",
        "b",
    }


def test_pods_ask_for_nodes_of_the_pool_that_nobody_holds_and_for_those_of_their_own() -> None:
    found = turnout(there=["a", "b", "c", "d"], held=["a", "b"])

    assert found.term(["b", "~spot-0"], ["c", "elsewhere"]) == PoolTerm(
        labels=(("pool", "spot"),), apart_from=("host-a", "host-c")
    )


def test_pods_for_karpenters_nodes_name_no_hosts_since_it_would_pass_over_them() -> None:
    found = turnout(there=["a"], held=["a"], selector={"karpenter.sh/nodepool": "spot"})

    assert found.term([], []) == PoolTerm(labels=(("karpenter.sh/nodepool", "spot"),))
