"""Waits count from what this process has seen, whatever others' clocks say."""

from dataclasses import replace
from datetime import timedelta

from shardwright.planning.validity import NodeFault, Unfit
from shardwright.reconcile.decide import decide
from shardwright.reconcile.first_seen import (
    Sight,
    Sighting,
    by_own_clock,
    carried_on,
    of_members,
    of_node,
    of_sets,
    of_starts,
)
from shardwright.reconcile.members import Member
from tests.support.builders_reconcile import (
    NOON,
    OWNER_UID,
    World,
    desired,
    member,
    no_place,
    stateful_set,
)

LATER = NOON + timedelta(minutes=5)
LONG_AGO = NOON - timedelta(days=1)


def waiting() -> Member:
    return member("llama-0-0", conditions=[no_place("taken", LONG_AGO)])


def ending(grace_seconds: int = 30) -> Member:
    return replace(
        member("llama-0-1"), deleting=True, grace_seconds=grace_seconds, gone_by=LONG_AGO
    )


def test_what_was_seen_before_goes_on_what_is_new_begins_and_what_has_passed_is_forgotten() -> None:
    old, new, passed = (Sighting(Sight.UNFIT, of) for of in ("a", "b", "c"))
    assert carried_on({old: NOON, passed: NOON}, [old, new], LATER) == {old: NOON, new: LATER}


def test_a_pod_that_waits_or_ends_is_seen_by_its_uid_and_others_are_not() -> None:
    assert of_members([waiting(), ending(), member("llama-1-0")]) == {
        Sighting(Sight.UNSCHEDULABLE, "uid-of-llama-0-0"),
        Sighting(Sight.DELETING, "uid-of-llama-0-1"),
    }


def test_another_fault_of_the_same_node_begins_anew() -> None:
    cordoned, gone = (
        Unfit(node="a", fault=fault, says="") for fault in (NodeFault.CORDONED, NodeFault.GONE)
    )
    assert of_node(cordoned) != of_node(gone)


def test_a_wait_begins_when_it_is_first_seen_and_a_grace_ends_so_long_after_that() -> None:
    since = {
        Sighting(Sight.UNSCHEDULABLE, waiting().uid): NOON,
        Sighting(Sight.DELETING, ending().uid): NOON,
    }
    first, second = by_own_clock([waiting(), ending()], since, LATER)
    assert first == replace(waiting(), unschedulable_since=NOON)
    assert second == replace(ending(), gone_by=NOON + timedelta(seconds=30))
    assert by_own_clock([waiting(), ending()], {}, LATER) == (
        replace(waiting(), unschedulable_since=LATER),
        replace(ending(), gone_by=LATER + timedelta(seconds=30)),
    )


def test_a_pod_that_waits_for_nothing_is_as_it_was() -> None:
    assert by_own_clock([member("llama-0-0")], {}, NOON) == (member("llama-0-0"),)


def sightings_of_sets(world: World) -> frozenset[Sighting]:
    return of_sets(world.observed(), OWNER_UID, ["uid-1", "of another one"])


def test_a_set_lacks_pods_and_is_kept_out_only_while_it_should_have_more_than_there_are() -> None:
    world = World()
    world.run(desired(stateful_set()))
    assert sightings_of_sets(world) == frozenset()
    del world.pods["llama-0-1"]
    assert sightings_of_sets(world) == {
        Sighting(Sight.NO_PODS, "uid-1"),
        Sighting(Sight.KEPT_OUT, "uid-1"),
    }
    world.objects["StatefulSet", "llama-0"]["spec"]["replicas"] = 0
    assert sightings_of_sets(world) == frozenset()


def test_sets_of_somebody_else_are_not_looked_at() -> None:
    world = World()
    world.run(desired(stateful_set()))
    world.pods.clear()
    assert of_sets(world.observed(), "somebody", ["uid-1"]) == frozenset()


def starts(
    world: World, silent_nodes: set[str] | None = None, owner: str = OWNER_UID
) -> frozenset[Sighting]:
    return of_starts(world.observed(), owner, silent_nodes or set())


def starting() -> World:
    """Return a world with a group whose pods have nodes and that has not come up."""
    world, wanted = World(), desired(stateful_set())
    world.write(decide(wanted, world.observed(), NOON).writes)
    world.settle()
    world.pods["llama-0-1"]["status"]["conditions"][0]["status"] = "False"
    return world


def test_a_set_starts_while_all_its_pods_have_nodes_that_answer_until_all_are_ready() -> None:
    world = starting()
    assert starts(world) == {Sighting(Sight.STARTING, "uid-1")}
    assert (starts(world, {"node-1"}), starts(world, owner="somebody")) == (
        frozenset(),
        frozenset(),
    )
    world.pods["llama-0-1"]["status"]["conditions"][0]["status"] = "True"
    assert starts(world) == {Sighting(Sight.READY, "uid-1")}


def test_a_set_without_all_its_pods_or_a_node_for_each_does_not_start() -> None:
    world = starting()
    del world.pods["llama-0-1"]["spec"]["nodeName"]
    assert starts(world) == frozenset()
    del world.pods["llama-0-1"]
    assert starts(world) == frozenset()


def test_a_set_that_has_come_up_and_is_not_ready_any_more_does_not_start() -> None:
    world = World()
    world.run(desired(stateful_set()))
    world.pods["llama-0-1"]["status"]["conditions"][0]["status"] = "False"
    assert starts(world) == frozenset()
