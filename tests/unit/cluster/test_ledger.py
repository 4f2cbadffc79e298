"""The ledger: what is free for whom, and that no GPU is promised twice."""

from __future__ import annotations

import pytest

from shardwright.cluster.ledger import Ledger, OwnerKey, PodKey
from shardwright.hardware.facts import GpuUsage
from shardwright.hardware.pools import Reservation

LLAMA, QWEN = ("models", "llama"), ("models", "qwen")
EIGHT = {"a": 8, "b": 8, "c": 8}


def keeps(
    *nodes: str, owner: OwnerKey = LLAMA, group: str = "", gpus: int = 8
) -> tuple[Reservation, ...]:
    """Return what the plan of a group needs: so many GPUs on each of these nodes."""
    return tuple(
        Reservation(owner=owner, node=node, gpus=gpus, group=group or f"{owner[1]}-0")
        for node in nodes
    )


def holds(node: str, gpus: int = 8, *, owner: OwnerKey | None = LLAMA, group: str = "") -> GpuUsage:
    name = group or (f"{owner[1]}-0" if owner else "")
    return GpuUsage(node=node, resource="nvidia.com/gpu", gpus=gpus, owner=owner, group=name)


def pod(name: str) -> PodKey:
    return "models", name


@pytest.fixture
def ledger() -> Ledger:
    """One group of llama is to have all of a and b."""
    made = Ledger()
    made.keep(LLAMA, keeps("a", "b"), EIGHT)
    return made


def test_what_a_plan_keeps_is_taken_for_others_and_free_for_its_own_model(ledger: Ledger) -> None:
    assert ledger.taken() == ledger.taken(QWEN) == {"a": 8, "b": 8}
    assert ledger.taken(LLAMA) == {}
    assert ledger.taken_on("abc", QWEN) == {"a": 8, "b": 8, "c": 0}
    assert ledger.taken_on("abc", LLAMA) == {"a": 0, "b": 0, "c": 0}


def test_a_pod_binds_what_is_kept_for_its_own_group_and_its_end_frees_nothing_that_is_kept(
    ledger: Ledger,
) -> None:
    assert ledger.bind(pod("llama-0-0"), holds("a")) == frozenset()
    assert ledger.taken() == {"a": 8, "b": 8}
    assert ledger.bind(pod("llama-0-0"), None) == frozenset()
    assert ledger.taken() == {"a": 8, "b": 8}


def test_a_pod_of_another_group_on_a_node_has_its_gpus_beside_what_is_kept(ledger: Ledger) -> None:
    ledger.bind(pod("llama-1-0"), holds("a", 2, group="llama-1"))
    assert ledger.taken() == {"a": 10, "b": 8}
    assert ledger.taken(LLAMA) == {}


def test_a_foreign_pod_is_taken_for_everybody_until_it_ends(ledger: Ledger) -> None:
    ledger.bind(pod("foreign"), holds("c", 3, owner=None))
    assert ledger.taken(LLAMA) == {"c": 3}
    assert ledger.bind(pod("foreign"), None) == {"c"}
    assert ledger.taken(LLAMA) == {}


def test_a_pod_that_holds_more_than_is_kept_for_it_is_counted_as_it_is(ledger: Ledger) -> None:
    ledger.keep(LLAMA, keeps("a", gpus=2), EIGHT)
    ledger.bind(pod("llama-0-0"), holds("a", 4))
    assert ledger.taken() == {"a": 4}


def test_a_pod_that_is_bound_elsewhere_moves_its_gpus(ledger: Ledger) -> None:
    ledger.bind(pod("p"), holds("c", 3, owner=None))
    assert ledger.bind(pod("p"), holds("c", 1, owner=None)) == {"c"}
    assert ledger.bind(pod("p"), holds("a", 1, owner=None)) == {"c"}
    assert ledger.taken() == {"a": 9, "b": 8}


def test_the_same_again_changes_nothing(ledger: Ledger) -> None:
    assert ledger.keep(LLAMA, keeps("a", "b"), EIGHT) == (frozenset(), frozenset())
    ledger.bind(pod("p"), holds("a"))
    assert ledger.bind(pod("p"), holds("a")) == frozenset()
    assert ledger.bind(pod("never"), None) == frozenset()
    assert ledger.taken() == {"a": 8, "b": 8}


def test_a_group_that_does_not_fit_on_one_of_its_nodes_is_left_out_alone_and_whole(
    ledger: Ledger,
) -> None:
    wanted = (*keeps("b", "c", owner=QWEN), *keeps("c", owner=QWEN, group="qwen-1"))
    assert ledger.keep(QWEN, wanted, EIGHT) == (frozenset({"qwen-0"}), frozenset())
    assert ledger.kept(QWEN) == keeps("c", owner=QWEN, group="qwen-1")
    assert ledger.taken() == {"a": 8, "b": 8, "c": 8}


def test_groups_of_one_plan_do_not_share_gpus_either() -> None:
    ledger = Ledger()
    wanted = tuple(keeps("a", gpus=4, group=f"llama-{index}")[0] for index in range(3))
    assert ledger.keep(LLAMA, wanted, EIGHT)[0] == {"llama-2"}
    assert ledger.taken() == {"a": 8}


def test_what_foreign_pods_hold_is_not_promised() -> None:
    ledger = Ledger()
    ledger.bind(pod("foreign"), holds("a", 1, owner=None))
    assert ledger.keep(LLAMA, keeps("a"), EIGHT)[0] == {"llama-0"}
    assert ledger.taken() == {"a": 1}


def test_own_pods_that_a_new_plan_has_no_place_for_are_not_in_its_way(ledger: Ledger) -> None:
    ledger.bind(pod("llama-0-0"), holds("a"))
    smaller = tuple(keeps("a", gpus=2, group=f"llama-{index}")[0] for index in range(4))
    assert ledger.keep(LLAMA, smaller, EIGHT)[0] == frozenset()
    assert ledger.taken()["a"] == 8 + 3 * 2, "until that pod ends"
    ledger.bind(pod("llama-0-0"), None)
    assert ledger.taken() == {"a": 8}


def test_a_next_generation_may_be_planned_where_the_former_one_still_is(ledger: Ledger) -> None:
    ledger.bind(pod("llama-0-0"), holds("a"))
    ledger.bind(pod("llama-0-g1-0"), holds("c", group="llama-0-g1"))
    assert ledger.keep(LLAMA, keeps("a", "b", group="llama-0-g1"), EIGHT)[0] == frozenset()
    assert ledger.kept(LLAMA) == keeps("a", "b", group="llama-0-g1")


def test_a_node_of_which_nothing_is_known_is_kept_as_the_plan_says() -> None:
    ledger = Ledger()
    assert ledger.keep(LLAMA, keeps("a", gpus=99), {}) == (frozenset(), frozenset())
    assert ledger.taken() == {"a": 99}


def test_another_plan_replaces_what_was_kept_and_tells_what_came_free(ledger: Ledger) -> None:
    assert ledger.keep(LLAMA, keeps("b", "c"), EIGHT) == (frozenset(), frozenset({"a"}))
    assert ledger.taken() == {"b": 8, "c": 8}
    assert ledger.forget(LLAMA) == {"b", "c"}
    assert (ledger.owners(), list(ledger.reservations()), ledger.taken()) == (frozenset(), [], {})


def test_gpus_that_pods_still_have_do_not_come_free_with_their_plan(ledger: Ledger) -> None:
    ledger.bind(pod("llama-0-0"), holds("a"))
    assert ledger.forget(LLAMA) == {"b"}
    assert ledger.taken() == {"a": 8}
    assert ledger.bind(pod("llama-0-0"), None) == {"a"}


def test_pods_of_an_earlier_generation_have_their_gpus_beside_what_is_kept_for_the_latest(
    ledger: Ledger,
) -> None:
    ledger.bind(pod("llama-0-0"), holds("a"))
    ledger.keep(LLAMA, keeps("b", "c", group="llama-0-g1"), EIGHT)
    assert ledger.taken() == {"a": 8, "b": 8, "c": 8}
    assert ledger.taken(LLAMA) == {"a": 8}, "its former self is in its way"
    assert ledger.taken(LLAMA, vacated=True) == {}
    ledger.bind(pod("llama-0-0"), None)
    assert ledger.taken() == {"b": 8, "c": 8}


def test_what_was_kept_for_an_earlier_generation_is_for_the_latest_that_has_pods() -> None:
    ledger = Ledger()
    ledger.keep(LLAMA, keeps("a", gpus=4), EIGHT)
    ledger.bind(pod("llama-0-g1-0"), holds("a", 4, group="llama-0-g1"))
    assert ledger.taken() == {"a": 4}


def test_beside_a_group_all_that_the_model_has_counts_but_what_is_still_to_come_for_that_group(
    ledger: Ledger,
) -> None:
    ledger.bind(pod("llama-0-0"), holds("a"))
    ledger.keep(LLAMA, (*keeps("a", "b"), *keeps("c", gpus=2, group="llama-1")), EIGHT)
    assert ledger.taken(LLAMA, beside="llama-0") == {"a": 8, "c": 2}
    assert ledger.taken(LLAMA, beside="llama-1") == {"a": 8, "b": 8}


def test_nothing_is_left_of_what_is_gone(ledger: Ledger) -> None:
    ledger.bind(pod("llama-0-0"), holds("a"))
    ledger.bind(pod("foreign"), holds("c", 1, owner=None))
    ledger.forget(LLAMA)
    for name in ("llama-0-0", "foreign"):
        ledger.bind(pod(name), None)
    assert (ledger._places, ledger._groups, ledger._latest, ledger._pods, ledger._kept) == (
        {},
        {},
        {},
        {},
        {},
    )
    assert (+ledger._taken, +ledger._foreign) == ({}, {})
