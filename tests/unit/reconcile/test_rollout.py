"""Groups are restarted on purpose one after another, and what does not serve holds nobody up."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.reconcile.decide import Desired, decide
from shardwright.reconcile.disruption import turn_is_gone, turns_left
from shardwright.reconcile.group import LifeRules
from shardwright.reconcile.members import Situation
from shardwright.reconcile.writes import Apply, Write, ended_groups, written_name
from tests.support.builders_reconcile import NOON, World, desired, no_place, stateful_set

NAMES = ("llama-0", "llama-1", "llama-2")


def groups(revision: str) -> list[dict[str, Any]]:
    return [stateful_set(name, revision=revision) for name in NAMES]


def running() -> World:
    world = World()
    world.run(desired(*groups("r1")))
    return world


def stopped(world: World, revision: str = "r2", most: int = 1, asked: str = "") -> list[str]:
    """Return the groups that are taken to zero by the next writes."""
    rules = LifeRules(max_unavailable=most, restart_asked=asked)
    writes = decide(desired(*groups(revision), rules=rules), world.observed(), NOON).writes
    return [written_name(write) for write in writes if is_stop(write)]


def unready(world: World, name: str) -> None:
    world.pods[name]["status"]["conditions"][0]["status"] = "False"


def unplace(world: World, group: str) -> None:
    """Let the scheduler find no place for the pods of a group."""
    for rank in range(2):
        unready(world, f"{group}-{rank}")
        world.pods[f"{group}-{rank}"]["status"]["conditions"].append(no_place("taken", NOON))
        del world.pods[f"{group}-{rank}"]["spec"]["nodeName"]


def test_a_new_template_takes_down_one_group_at_a_time() -> None:
    assert stopped(running()) == ["llama-0"]


def test_as_many_groups_are_down_at_once_as_the_user_allows() -> None:
    assert stopped(running(), most=2) == ["llama-0", "llama-1"]
    assert stopped(running(), most=9) == list(NAMES)


def test_a_restart_that_is_asked_for_goes_from_group_to_group_as_well() -> None:
    assert stopped(running(), "r1", asked="now") == ["llama-0"]


def test_the_next_group_waits_until_the_one_before_is_ready() -> None:
    world, wanted = running(), desired(*groups("r2"))
    seen = []
    for _ in range(12):
        decision = decide(wanted, world.observed(), NOON)
        seen.append(sum(group.situation in {"Ready", "Outdated"} for group in decision.groups))
        world.write(decision.writes)
        world.settle()

    assert min(seen) == 2
    assert seen[-1] == 3
    assert {
        item["metadata"]["labels"]["shardwright.io/template-hash"] for item in world.pods.values()
    } == {"r2"}


def test_a_template_that_never_becomes_ready_costs_one_group() -> None:
    world, wanted = running(), desired(*groups("r2"))
    for _ in range(12):
        world.write(decide(wanted, world.observed(), NOON).writes)
        world.settle()
        for rank in range(2):
            if f"llama-0-{rank}" in world.pods:
                unready(world, f"llama-0-{rank}")

    states = decide(wanted, world.observed(), NOON).groups
    assert [group.situation for group in states] == ["Starting", "Outdated", "Outdated"]
    assert not any(group.ready for group in states)


def test_a_group_that_does_not_serve_rolls_at_once_and_the_others_wait_for_it() -> None:
    world = running()
    unready(world, "llama-2-1")
    assert stopped(world) == ["llama-2"]


def test_a_group_that_holds_the_place_of_another_one_rolls_although_one_is_down() -> None:
    world = running()
    placed = [
        stateful_set("llama-0", revision="r2", nodes=["b"]),
        stateful_set("llama-1", revision="r2", nodes=["a"]),
    ]
    wanted = desired(*placed, stateful_set("llama-2", revision="r2", nodes=["c"]))
    for rank in range(2):
        world.pods[f"llama-1-{rank}"]["spec"]["nodeName"] = "b"
        world.pods[f"llama-2-{rank}"]["spec"]["nodeName"] = "c"
    world.write(decide(wanted, world.observed(), NOON).writes)  # llama-0 to zero
    world.settle()
    world.write(
        decide(wanted, world.observed(), NOON).writes
    )  # and up again, where llama-1 still is
    world.settle()
    unplace(world, "llama-0")

    writes = decide(wanted, world.observed(), NOON).writes
    assert [written_name(write) for write in writes if isinstance(write, Apply)] == ["llama-1"]


def test_a_template_that_no_node_takes_costs_one_group_although_the_others_run_on_its_node() -> (
    None
):
    world = running()
    wanted = desired(*(stateful_set(name, revision="r2", nodes=["a"]) for name in NAMES))
    for item in world.pods.values():
        item["spec"]["nodeName"] = "a"
    for _ in range(2):  # llama-0 to zero, and up again
        world.write(decide(wanted, world.observed(), NOON).writes)
        world.settle()
    unplace(world, "llama-0")

    assert [
        write for write in decide(wanted, world.observed(), NOON).writes if isinstance(write, Apply)
    ] == []


@pytest.mark.parametrize("pods", [1, 3])
def test_a_cut_with_another_number_of_pods_takes_down_one_group_at_a_time(pods: int) -> None:
    sets = groups("r2")
    for item in sets:
        item["spec"]["replicas"] = pods
    decision = decide(desired(*sets), running().observed(), NOON)
    zero = [written_name(write) for write in decision.writes if is_stop(write)]
    assert zero == ["llama-0"]


def test_a_cut_with_another_number_of_pods_can_be_made_beside_what_serves() -> None:
    sets = groups("r2")
    for item in sets:
        item["spec"]["replicas"] = 1
    assert decide(
        desired(*sets, rules=LifeRules(max_surge=1)), running().observed(), NOON
    ).stopping == (0,)


def test_a_failure_is_never_held_up_by_a_rollout() -> None:
    world = running()
    world.crash("llama-2-1")
    world.crash("llama-1-1")
    assert stopped(world, "r1") == ["llama-1", "llama-2"]


def in_a_ring(down: int, *, most: int) -> World:
    """Return three groups that are each to have the nodes of the next one, of which the first are
    stopped and find no place.
    """
    world = World()
    world.run(
        desired(
            *(stateful_set(name, nodes=[node]) for name, node in zip(NAMES, "abc", strict=True))
        )
    )
    for name, node in zip(NAMES, "abc", strict=True):
        for rank in range(2):
            world.pods[f"{name}-{rank}"]["spec"]["nodeName"] = node
    for _ in range(2):  # to zero, and up again
        world.write(decide(ring(most), world.observed(), NOON).writes)
        world.settle()
    for name in NAMES[:down]:
        unplace(world, name)
    return world


def ring(most: int) -> Desired:
    sets = [
        stateful_set(name, revision="r2", nodes=[node])
        for name, node in zip(NAMES, "bca", strict=True)
    ]
    return desired(*sets, rules=LifeRules(max_unavailable=most))


def stopping(world: World, wanted: Desired) -> list[str]:
    return [
        written_name(write)
        for write in decide(wanted, world.observed(), NOON).writes
        if is_stop(write)
    ]


def is_stop(write: Write) -> bool:
    return bool(ended_groups([write]))


def test_groups_in_each_others_way_move_one_by_one_with_one_more_down_than_the_limit() -> None:
    world = in_a_ring(1, most=1)
    assert stopping(world, ring(1)) == ["llama-1"]

    world.write(decide(ring(1), world.observed(), NOON).writes)  # llama-1 to zero
    assert stopping(world, ring(1)) == []
    world.settle()
    world.write(
        decide(ring(1), world.observed(), NOON).writes
    )  # up again; it waits for the node of llama-2
    world.settle()
    unplace(world, "llama-1")
    assert stopping(world, ring(1)) == []


def test_groups_in_each_others_way_keep_no_turn_of_other_models_for_ever() -> None:
    for most in (1, 2):
        writes = decide(ring(most), in_a_ring(1, most=1).observed(), NOON, most_moving=1).writes
        assert [written_name(write) for write in writes if is_stop(write)] == ["llama-1"]


def test_groups_in_each_others_way_go_no_further_than_the_limit_where_one_of_them_can_start() -> (
    None
):
    world = in_a_ring(0, most=2)
    unplace(world, "llama-1")  # llama-2 holds its nodes
    unready(world, "llama-0-0")  # and llama-0 has its own
    assert stopping(world, ring(2)) == []
    unplace(world, "llama-0")  # nobody holds what it waits for
    assert stopping(world, ring(2)) == []


def test_groups_of_several_nodes_that_wait_for_the_same_one_move_it_beyond_the_limit_as_well() -> (
    None
):
    """The nodes are those of a square: who had a row is to have a column."""
    rows, columns = (
        [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]],
        [["a", "d", "g"], ["b", "e", "h"], ["c", "f", "i"]],
    )
    world = World()
    world.run(
        desired(
            *(stateful_set(name, pods=3, nodes=row) for name, row in zip(NAMES, rows, strict=True))
        )
    )
    for name, row in zip(NAMES, rows, strict=True):
        for rank, node in enumerate(row):
            world.pods[f"{name}-{rank}"]["spec"]["nodeName"] = node
    moved = [
        stateful_set(name, pods=3, revision="r2", nodes=column)
        for name, column in zip(NAMES, columns, strict=True)
    ]
    stops = []
    for _ in range(12):
        writes = decide(desired(*moved), world.observed(), NOON).writes
        stops.append([written_name(write) for write in writes if is_stop(write)])
        world.write(writes)
        world.settle()
        place_where_free(world, dict(zip(NAMES, columns, strict=True)))

    assert [names for names in stops if names] == [["llama-0"], ["llama-1"], ["llama-2"]]
    assert all(group.ready for group in decide(desired(*moved), world.observed(), NOON).groups)


def place_where_free(world: World, planned: dict[str, list[str]]) -> None:
    """Bind the pods that have been made since to the nodes that they are planned on, as far as no
    other pod is there.
    """
    for name, nodes in planned.items():
        for rank, node in enumerate(nodes):
            item = world.pods.get(f"{name}-{rank}")
            if item is None or item["metadata"]["labels"]["shardwright.io/template-hash"] == "r1":
                continue
            others = {
                other["spec"].get("nodeName") for other in world.pods.values() if other is not item
            }
            placed = node not in others
            item["spec"] |= {"nodeName": node if placed else None}
            ready = {"type": "Ready", "status": "True" if placed else "False"}
            item["status"]["conditions"] = [ready] if placed else [ready, no_place("taken", NOON)]


def test_of_groups_that_are_to_restart_the_one_in_the_way_of_another_is_first() -> None:
    world = in_a_ring(1, most=1)
    assert stopping(world, replace(ring(2), rules=LifeRules(max_unavailable=2))) == ["llama-1"]


@pytest.mark.parametrize(
    ("most_moving", "names"),
    [(None, ["llama-0", "llama-1"]), (2, ["llama-0", "llama-1"]), (1, ["llama-0"]), (0, [])],
)
def test_no_more_groups_restart_on_purpose_than_the_operator_has_turns_for(
    most_moving: int | None, names: list[str]
) -> None:
    wanted = desired(*groups("r2"), rules=LifeRules(max_unavailable=2))
    decision = decide(wanted, running().observed(), NOON, most_moving)
    assert [written_name(write) for write in decision.writes if is_stop(write)] == names
    assert [group.name for group in decision.groups if group.situation is Situation.OUTDATED] == [
        name for name in NAMES if name not in names
    ]


@pytest.mark.parametrize(
    ("most", "beside", "elsewhere", "left"),
    [
        pytest.param(5, 0, 0, 4, id="a namespace alone leaves one turn to the others"),
        pytest.param(5, 3, 0, 1, id="counted over all its models"),
        pytest.param(5, 4, 0, 0, id="whichever of them asks"),
        pytest.param(5, 0, 4, 1, id="which one that has none may take"),
        pytest.param(5, 1, 3, 0, id="and none that has one"),
        pytest.param(5, 0, 5, 0, id="all are taken"),
        pytest.param(1, 0, 0, 1, id="of one turn nothing can be left"),
    ],
)
def test_the_last_turn_is_for_a_namespace_that_has_none(
    most: int, beside: int, elsewhere: int, left: int
) -> None:
    assert turns_left(most, beside, elsewhere) == left


@pytest.mark.parametrize(
    ("left", "counted_on", "goes_down", "gone"),
    [
        (1, 2, True, True),
        (0, 1, True, True),
        (2, 2, True, False),
        (3, 2, True, False),
        (1, 2, False, False),
        (None, 2, True, False),
    ],
)
def test_a_turn_is_gone_that_others_have_taken_since_it_was_counted_on(
    left: int | None, counted_on: int, *, goes_down: bool, gone: bool
) -> None:
    assert turn_is_gone(left, counted_on, goes_down=goes_down) is gone


def test_a_group_that_moves_has_one_of_the_turns_until_it_serves_again() -> None:
    world, wanted = (running(), desired(*groups("r2"), rules=LifeRules(max_unavailable=3)))
    world.write(decide(wanted, world.observed(), NOON, 1).writes)
    world.settle()
    assert decide(wanted, world.observed(), NOON, 1).groups[0].moving
    world.write(decide(wanted, world.observed(), NOON, 1).writes)  # up again
    assert decide(wanted, world.observed(), NOON, 1).writes == ()
    world.settle()
    assert [
        written_name(write)
        for write in decide(wanted, world.observed(), NOON, 1).writes
        if is_stop(write)
    ] == ["llama-1"]


def test_a_group_that_has_been_told_to_stop_is_down_before_its_first_pod_begins_to_end() -> None:
    world, wanted = running(), desired(*groups("r2"))
    world.write(decide(wanted, world.observed(), NOON).writes)
    assert decide(wanted, world.observed(), NOON).writes == ()


def test_a_failure_takes_no_turn_from_anybody_and_waits_for_none() -> None:
    world = running()
    world.crash("llama-2-1")
    decision = decide(desired(*groups("r1")), world.observed(), NOON, 0)
    assert [written_name(write) for write in decision.writes if is_stop(write)] == ["llama-2"]
    assert not any(group.moving for group in decision.groups)
