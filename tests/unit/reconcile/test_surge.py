"""A group that must change starts anew beside the one that serves, where there is room, and takes
over when it is ready.
"""

from datetime import timedelta
from typing import Any

import pytest

from shardwright.reconcile.annotations import UNSCHEDULABLE_SECONDS, read_annotations
from shardwright.reconcile.decide import Decision, decide
from shardwright.reconcile.group import LifeRules, generations
from shardwright.reconcile.wording import waiting_sentence
from shardwright.reconcile.writes import Apply, Create, written_name
from shardwright.rendering.labels import GROUP
from tests.support.builders_reconcile import (
    NOON,
    OWNER_UID,
    World,
    by_name,
    desired,
    rendered,
    stateful_set,
)

SURGE = LifeRules(max_surge=1)


def peers(name: str) -> dict[str, Any]:
    service = rendered("Service", f"{name}-peers")
    service["metadata"]["labels"][GROUP] = name
    return service


def wanted(*names: str, revision: str = "r2", rules: LifeRules = SURGE) -> Any:
    sets = [item for name in names for item in (peers(name), stateful_set(name, revision=revision))]
    return desired(*sets, rules=rules)


def serving(*names: str) -> World:
    world = World()
    world.run(wanted(*names, revision="r1"))
    return world


def reconcile(world: World, *names: str, **options: Any) -> Decision:
    return decide(wanted(*names, **options), world.observed(), NOON)


def written(decision: Decision) -> list[tuple[str, str]]:
    return [(type(write).__name__, written_name(write)) for write in decision.writes]


def test_a_group_that_is_to_stop_on_purpose_is_named_so_that_a_place_can_be_looked_for() -> None:
    assert reconcile(serving("llama-0"), "llama-0").stopping == (0,)
    assert reconcile(
        serving("llama-0", "llama-1"),
        "llama-0",
        "llama-1",
        rules=LifeRules(max_surge=1, max_unavailable=2),
    ).stopping == (0, 1)


def test_without_surge_or_without_a_change_none_is_named() -> None:
    assert reconcile(serving("llama-0"), "llama-0", rules=LifeRules()).stopping == ()
    assert reconcile(serving("llama-0"), "llama-0", revision="r1").stopping == ()


def test_a_group_that_does_not_serve_anyway_restarts_in_its_place() -> None:
    world = serving("llama-0")
    world.pods["llama-0-1"]["status"]["conditions"][0]["status"] = "False"
    assert reconcile(world, "llama-0").stopping == ()


def test_the_next_generation_starts_and_the_former_stays_until_it_is_ready() -> None:
    world = serving("llama-0")
    first = reconcile(world, "llama-0-g1")
    assert written(first) == [("Create", "llama-0-g1-peers"), ("Create", "llama-0-g1")]
    world.write(first.writes)

    second = reconcile(world, "llama-0-g1")
    assert second.writes == ()
    assert (
        waiting_sentence(second.groups[0])
        == "llama-0 serves meanwhile; 2 of 2 pods not created yet"
    )


def test_a_ready_next_generation_deletes_the_former_and_its_service_after_its_last_pod() -> None:
    world = serving("llama-0")
    world.write(reconcile(world, "llama-0-g1").writes)
    world.settle()

    ready = reconcile(world, "llama-0-g1")
    assert written(ready) == [("Patch", "llama-0-g1"), ("Delete", "llama-0")]
    assert ready.groups[0].ready
    world.write(ready.writes)
    assert reconcile(world, "llama-0-g1").writes == ()

    world.settle()
    assert written(reconcile(world, "llama-0-g1")) == [("Delete", "llama-0-peers")]


def test_the_next_generation_knows_nothing_of_the_pods_of_the_former_and_counts_failures_anew() -> (
    None
):
    world = serving("llama-0")
    _, create = reconcile(world, "llama-0-g1").writes
    assert isinstance(create, Create)
    memory = read_annotations(create.content)
    assert (memory.members, memory.ready_since, memory.ready_once, memory.outage_seconds) == (
        "",
        None,
        True,
        0,
    )


def test_other_groups_wait_until_the_former_generation_is_gone_to_its_last_pod() -> None:
    world = serving("llama-0", "llama-1")
    names = ("llama-0-g1", "llama-1")
    world.write(reconcile(world, *names).writes)
    assert reconcile(world, *names).stopping == ()

    world.settle()
    world.write(reconcile(world, *names).writes)
    assert [name for name in world.pods if name.startswith("llama-0-")] == [
        "llama-0-0",
        "llama-0-1",
        "llama-0-g1-0",
        "llama-0-g1-1",
    ]
    assert (reconcile(world, *names).stopping, reconcile(world, *names).groups[1].situation) == (
        (),
        "Outdated",
    )

    world.settle()
    assert reconcile(world, *names).stopping == (1,)


def test_a_group_is_of_no_earlier_generation_than_the_plan_of_record_says() -> None:
    world = serving("llama-0", "llama-1")
    nodes = (("node-0", "node-1"), ("node-2", "node-3"))
    assert generations(by_name(nodes), world.observed(), OWNER_UID, (), (0, 3)) == (0, 3)
    assert generations(by_name(nodes), world.observed(), OWNER_UID, (), (2,)) == (2, 0)
    assert generations(by_name(nodes[:1]), world.observed(), OWNER_UID, (), (1, 1)) == (1,)


def test_a_generation_that_exists_stands_although_a_new_plan_does_not_name_it() -> None:
    world = serving("llama-0-g2")
    assert generations(by_name((("node-0", "node-1"),)), world.observed(), OWNER_UID, ()) == (2,)


@pytest.mark.parametrize("revision", ["r1", "r3"])
def test_another_change_while_the_next_generation_starts_rolls_that_one_alone(
    revision: str,
) -> None:
    world = serving("llama-0")
    world.write(reconcile(world, "llama-0-g1", revision="r2").writes)
    world.settle()
    world.pods["llama-0-g1-1"]["status"]["conditions"][0]["status"] = "False"
    (write,) = reconcile(world, "llama-0-g1", revision=revision).writes
    assert isinstance(write, Apply)
    assert (write.content["metadata"]["name"], write.content["spec"]["replicas"]) == (
        "llama-0-g1",
        0,
    )


def test_a_next_generation_that_finds_no_place_ends_the_former_after_five_minutes() -> None:
    world = serving("llama-0")
    world.write(reconcile(world, "llama-0-g1").writes)
    world.short_since["llama-0-g1"] = NOON
    wait = timedelta(seconds=UNSCHEDULABLE_SECONDS)

    assert (
        decide(wanted("llama-0-g1"), world.observed(), NOON + wait - timedelta(seconds=1)).writes
        == ()
    )
    assert written(decide(wanted("llama-0-g1"), world.observed(), NOON + wait)) == [
        ("Delete", "llama-0")
    ]


def test_a_next_generation_that_has_its_place_may_take_its_time() -> None:
    world = serving("llama-0")
    world.write(reconcile(world, "llama-0-g1").writes)
    world.short_since["llama-0-g1"] = NOON
    world.settle()
    world.pods["llama-0-g1-1"]["status"]["conditions"][0]["status"] = "False"

    assert decide(wanted("llama-0-g1"), world.observed(), NOON + timedelta(hours=1)).writes == ()


def test_a_next_generation_with_a_pod_that_no_node_takes_ends_the_former_after_five_minutes() -> (
    None
):
    world = serving("llama-0")
    world.write(reconcile(world, "llama-0-g1").writes)
    world.settle()
    place = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": NOON.isoformat(),
    }
    world.pods["llama-0-g1-1"]["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        place,
    ]
    wait = timedelta(seconds=UNSCHEDULABLE_SECONDS)

    assert ("Delete", "llama-0") not in written(
        decide(wanted("llama-0-g1"), world.observed(), NOON + wait - timedelta(seconds=1))
    )
    assert ("Delete", "llama-0") in written(
        decide(wanted("llama-0-g1"), world.observed(), NOON + wait)
    )


@pytest.mark.parametrize("revision", ["r2", "r3"])
def test_a_next_generation_that_fails_or_is_corrected_later_leaves_the_former_alone(
    revision: str,
) -> None:
    world, later = serving("llama-0"), NOON + timedelta(minutes=10)
    world.write(reconcile(world, "llama-0-g1").writes)
    world.short_since["llama-0-g1"] = NOON
    world.settle()
    world.pods["llama-0-g1-1"]["status"]["conditions"][0]["status"] = "False"
    if revision == "r2":
        world.crash("llama-0-g1-0")
    again = wanted("llama-0-g1", revision=revision)
    for _ in range(3):  # to zero, up, and pods that do not exist yet
        decision = decide(again, world.observed(), later)
        assert ("Delete", "llama-0") not in written(decision)
        world.write(decision.writes)
        world.pods = {
            name: item for name, item in world.pods.items() if not name.startswith("llama-0-g1")
        }
    assert waiting_sentence(decide(again, world.observed(), later).groups[0]).startswith(
        "llama-0 serves meanwhile"
    )


def test_a_former_generation_that_fails_is_not_said_to_serve() -> None:
    world = serving("llama-0")
    world.write(reconcile(world, "llama-0-g1").writes)
    world.settle()
    world.pods["llama-0-g1-1"]["status"]["conditions"][0]["status"] = "False"
    world.pods["llama-0-1"]["status"]["conditions"][0]["status"] = "False"

    decision = reconcile(world, "llama-0-g1")
    assert decision.writes == ()
    assert waiting_sentence(decision.groups[0]) == "llama-0 is not ready either; rank 1: starting"


def test_what_the_pods_of_a_group_need_is_not_pruned_under_them() -> None:
    world = serving("llama-0", "llama-1")
    fewer = wanted("llama-0", revision="r1")
    first = decide(fewer, world.observed(), NOON)
    assert written(first) == [("Delete", "llama-1")]

    world.write(first.writes)
    world.settle()
    assert written(decide(fewer, world.observed(), NOON)) == [("Delete", "llama-1-peers")]
