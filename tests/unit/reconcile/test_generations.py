"""A node that died with pods on it holds its group up no longer than it must."""

from datetime import datetime, timedelta

import pytest

from shardwright.reconcile.annotations import (
    INCIDENT,
    READY_ONCE,
    STOPPED_AT,
    STOPPED_FOR,
    read_annotations,
)
from shardwright.reconcile.decide import decide
from shardwright.reconcile.group import (
    HANGING_SECONDS,
    LOST_SECONDS,
    generations,
    lost_nodes,
    unsettled_groups,
)
from shardwright.reconcile.members import GroupState, Situation
from shardwright.reconcile.wording import waiting_sentence
from shardwright.reconcile.writes import Create, Delete
from tests.support.builders_reconcile import NOON, OWNER_UID, World, by_name, desired, stateful_set

LATER = NOON + timedelta(seconds=LOST_SECONDS)
HANGING = NOON + timedelta(seconds=HANGING_SECONDS)
DEAD = frozenset({"node-1"})
ELSEWHERE = (("node-0", "node-2"),)


def a_group_with_a_dead_node() -> World:
    """Rank 1 should have been gone at noon; all other pods of the group are."""
    world = World()
    world.run(desired(stateful_set()))
    world.pods["llama-0-1"]["metadata"]["deletionTimestamp"] = NOON.isoformat()
    world.write(decide(desired(stateful_set()), world.observed(), NOON).writes)
    del world.pods["llama-0-0"]
    return world


def generation(
    world: World, *, groups: tuple[tuple[str, ...], ...] = ELSEWHERE, lost: frozenset[str] = DEAD
) -> int:
    (number,) = generations(by_name(groups), world.observed(), OWNER_UID, lost)
    return number


@pytest.mark.parametrize(
    ("silent", "now", "lost"),
    [
        ({"node-1"}, LATER, DEAD),
        ({"node-1"}, LATER - timedelta(seconds=1), set()),
        (set(), LATER, set()),
        ({"node-0"}, LATER, set()),
        (set(), HANGING, DEAD),
        (set(), HANGING - timedelta(seconds=1), set()),
    ],
)
def test_a_node_is_lost_a_minute_after_a_pods_grace_if_silent_and_after_four_if_it_answers(
    silent: set[str], now: datetime, lost: set[str]
) -> None:
    assert lost_nodes(a_group_with_a_dead_node().observed().members, silent, now) == lost


def test_a_group_that_is_planned_elsewhere_by_now_gets_the_next_generation() -> None:
    assert generation(a_group_with_a_dead_node()) == 1


def test_a_group_that_is_still_planned_on_the_lost_node_waits_for_it() -> None:
    assert generation(a_group_with_a_dead_node(), groups=(("node-0", "node-1"),)) == 0


def test_a_group_waits_for_its_pods_on_living_nodes_to_be_gone() -> None:
    world = a_group_with_a_dead_node()
    world.pods["llama-0-0"] = {**world.pods["llama-0-1"], "spec": {"nodeName": "node-0"}}
    world.pods["llama-0-0"]["metadata"] = {
        **world.pods["llama-0-1"]["metadata"],
        "name": "llama-0-0",
    }
    assert generation(world) == 0


def test_a_group_that_was_not_stopped_is_stopped_first() -> None:
    world = a_group_with_a_dead_node()
    world.objects["StatefulSet", "llama-0"]["spec"]["replicas"] = 2
    assert generation(world) == 0


def test_the_next_generation_starts_at_once_remembers_what_was_and_the_former_set_is_deleted() -> (
    None
):
    world = a_group_with_a_dead_node()
    former = read_annotations(world.objects["StatefulSet", "llama-0"])

    created, deleted = decide(desired(stateful_set("llama-0-g1")), world.observed(), LATER).writes

    assert isinstance(created, Create)
    assert created.content["spec"]["replicas"] == 2
    annotations = created.content["metadata"]["annotations"]
    assert {INCIDENT, READY_ONCE, STOPPED_AT} <= annotations.keys()
    assert STOPPED_FOR not in annotations
    assert read_annotations(created.content).incident == former.incident
    heir = frozenset({("StatefulSet", "llama-0-g1")})
    assert deleted == Delete(
        kind="StatefulSet", namespace="models", name="llama-0", uid="uid-1", needs=heir
    )


def test_a_generation_stands_while_the_dead_pod_is_there_and_after() -> None:
    world = a_group_with_a_dead_node()
    world.run(desired(stateful_set("llama-0-g1")), now=LATER)
    assert generation(world) == 1

    world.pods = {name: item for name, item in world.pods.items() if name.startswith("llama-0-g1-")}
    assert generation(world, lost=frozenset()) == 1


def test_a_second_node_that_dies_makes_the_second_generation() -> None:
    world = a_group_with_a_dead_node()
    world.run(desired(stateful_set("llama-0-g1")), now=LATER)
    world.pods["llama-0-g1-1"]["metadata"]["deletionTimestamp"] = LATER.isoformat()
    world.objects["StatefulSet", "llama-0-g1"]["spec"]["replicas"] = 0
    del world.pods["llama-0-g1-0"]

    assert generation(world) == 2


def test_while_it_waits_a_group_says_which_node_holds_it_up() -> None:
    world = a_group_with_a_dead_node()
    (state,) = decide(desired(stateful_set()), world.observed(), LATER).groups
    assert (
        waiting_sentence(state)
        == "waiting for all pods to be gone; rank 1 on node node-1 should be gone by now"
    )


def test_another_group_is_not_concerned() -> None:
    world = a_group_with_a_dead_node()
    assert generations(
        by_name((*ELSEWHERE, ("node-3", "node-4"))), world.observed(), OWNER_UID, DEAD
    ) == (1, 0)


def a_state(situation: Situation, *nodes: str | None) -> GroupState:
    return GroupState(name="llama-0-g1", situation=situation, nodes=nodes)


@pytest.mark.parametrize(
    ("state", "unsettled"),
    [
        (a_state(Situation.READY, "a", "b"), set()),
        (a_state(Situation.STARTING, "a", "b"), set()),
        (a_state(Situation.STARTING, "a", None), {0}),
        (a_state(Situation.STARTING, "a"), {0}),
        (a_state(Situation.STOPPING, "a", "b"), {0}),
        (a_state(Situation.BACKING_OFF), {0}),
    ],
)
def test_a_group_needs_a_place_while_a_pod_is_not_bound_or_it_goes_through_zero(
    state: GroupState, unsettled: set[int]
) -> None:
    assert unsettled_groups((("a", "b"),), "llama", [state]) == unsettled


def test_a_group_that_does_not_exist_needs_a_place() -> None:
    assert unsettled_groups((("a",), ("b",)), "llama", [a_state(Situation.READY, "a")]) == {1}
