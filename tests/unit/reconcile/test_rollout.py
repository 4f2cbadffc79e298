"""Groups are restarted on purpose one after another, and what does not serve holds nobody up."""

from typing import Any

import pytest

from shardwright.reconcile.decide import decide
from shardwright.reconcile.decision import Apply
from shardwright.reconcile.groups import LifeRules
from tests.support.builders_reconcile import NOON, World, desired, stateful_set

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
    return [
        write.content["metadata"]["name"]
        for write in writes
        if isinstance(write, Apply) and write.content["spec"]["replicas"] == 0
    ]


def unready(world: World, name: str) -> None:
    world.pods[name]["status"]["conditions"][0]["status"] = "False"


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
    assert {item["metadata"]["labels"]["shardwright.io/template-hash"] for item in world.pods.values()} == {"r2"}


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
    place = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "taken"}
    placed = [stateful_set("llama-0", revision="r2", nodes=["b"]), stateful_set("llama-1", revision="r2", nodes=["a"])]
    wanted = desired(*placed, stateful_set("llama-2", revision="r2", nodes=["c"]))
    for rank in range(2):
        world.pods[f"llama-1-{rank}"]["spec"]["nodeName"] = "b"
        world.pods[f"llama-2-{rank}"]["spec"]["nodeName"] = "c"
    world.write(decide(wanted, world.observed(), NOON).writes)  # llama-0 to zero
    world.settle()
    world.write(decide(wanted, world.observed(), NOON).writes)  # and up again, where llama-1 still is
    world.settle()
    for rank in range(2):
        unready(world, f"llama-0-{rank}")
        world.pods[f"llama-0-{rank}"]["status"]["conditions"].append(place)
        del world.pods[f"llama-0-{rank}"]["spec"]["nodeName"]

    writes = decide(wanted, world.observed(), NOON).writes
    assert [write.content["metadata"]["name"] for write in writes if isinstance(write, Apply)] == ["llama-1"]


def test_a_template_that_no_node_takes_costs_one_group_although_the_others_run_on_its_node() -> None:
    world = running()
    place = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient memory"}
    wanted = desired(*(stateful_set(name, revision="r2", nodes=["a"]) for name in NAMES))
    for item in world.pods.values():
        item["spec"]["nodeName"] = "a"
    for _ in range(2):  # llama-0 to zero, and up again
        world.write(decide(wanted, world.observed(), NOON).writes)
        world.settle()
    for rank in range(2):
        unready(world, f"llama-0-{rank}")
        world.pods[f"llama-0-{rank}"]["status"]["conditions"].append(place)
        del world.pods[f"llama-0-{rank}"]["spec"]["nodeName"]

    assert [write for write in decide(wanted, world.observed(), NOON).writes if isinstance(write, Apply)] == []


@pytest.mark.parametrize("pods", [1, 3])
def test_a_cut_with_another_number_of_pods_takes_down_one_group_at_a_time(pods: int) -> None:
    sets = groups("r2")
    for item in sets:
        item["spec"]["replicas"] = pods
    decision = decide(desired(*sets), running().observed(), NOON)
    zero = [w.content["metadata"]["name"] for w in decision.writes if isinstance(w, Apply) and w.content["spec"]["replicas"] == 0]
    assert zero == ["llama-0"]


def test_a_cut_with_another_number_of_pods_can_be_made_beside_what_serves() -> None:
    sets = groups("r2")
    for item in sets:
        item["spec"]["replicas"] = 1
    assert decide(desired(*sets, rules=LifeRules(max_surge=1)), running().observed(), NOON).stopping == (0,)


def test_a_failure_is_never_held_up_by_a_rollout() -> None:
    world = running()
    world.crash("llama-2-1")
    world.crash("llama-1-1")
    assert stopped(world, "r1") == ["llama-1", "llama-2"]
