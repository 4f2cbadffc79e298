"""What would make room: as many more nodes as it takes, and the least important model that does;
each answer is tried.
"""

from __future__ import annotations

import pytest

from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.report import Lack, NoPlan, Plan, WaysOut
from shardwright.planning.ways_out import MODELS_TRIED, Holder, ways_out
from shardwright.reporting.explanation import explain
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import a_node, h100_nodes, inventory_of
from tests.support.builders_plan import a_pool, an_inventory, an_nvl72_pool
from tests.support.builders_subject import LARGE, a_subject, advised, stock

POOL = "h100-sxm-80gb"


class Room:
    """Whether some nodes are wholly free; it counts how often somebody asks."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.asked = 0

    def __call__(self, inventory: Inventory) -> bool:
        self.asked += 1
        return (
            sum(node.free == node.gpus for pool in inventory.pools for node in pool.nodes)
            >= self.nodes
        )


def lack(missing: int, nodes: int, pool: str = POOL) -> Lack:
    return Lack(pool=pool, gpus_per_node=8, missing_nodes=missing, nodes=nodes)


def holder(name: str, *nodes: int, priority: int = 0, gpus: int = 8) -> Holder:
    return Holder(name=name, priority=priority, gpus={f"{POOL}-{node:05d}": gpus for node in nodes})


BUSY = an_inventory(a_pool(nodes=4, free={0: 0, 1: 0, 2: 0}))


@pytest.mark.parametrize(
    ("missing", "needed", "told"), [(1, 2, 1), (1, 4, 3), (1, 9, 8), (1, 10, 0)]
)
def test_as_many_more_nodes_are_told_as_it_takes_up_to_all_that_the_plan_has(
    missing: int, needed: int, told: int
) -> None:
    room = Room(needed)

    found = ways_out(lack(missing, 8), BUSY, room)

    assert found == WaysOut(pool=POOL if told else "", more_nodes=told)
    assert room.asked <= 2 + 3


def test_new_nodes_of_a_rack_are_in_racks_of_their_own() -> None:
    pool = an_nvl72_pool(trays=2)
    grown: list[Inventory] = []

    def remember(inventory: Inventory) -> bool:
        grown.append(inventory)
        return True

    ways_out(lack(3, 3, pool.name), an_inventory(pool), remember)

    per_rack = pool.domain_gpus // pool.gpus_per_node
    domains = [node.domain for node in grown[0].pools[0].nodes[2:]]
    assert domains == [f"{pool.name}+rack-{number // per_rack}" for number in range(3)]


def test_the_model_of_the_lowest_class_that_makes_room_is_named_then_the_smallest() -> None:
    holders = [
        holder("large", 0, 1, 2),
        holder("low", 0, 1, priority=-5),
        holder("small", 1, priority=-9),
        holder("half", 0, 1, gpus=4, priority=-9),
    ]

    assert ways_out(lack(2, 3), BUSY, Room(3), holders).moved == "low"
    assert ways_out(lack(2, 3), BUSY, Room(3), holders[:1]).moved == "large"
    assert ways_out(lack(2, 3), BUSY, Room(3), holders[2:]).moved == ""
    assert ways_out(lack(2, 3), BUSY, Room(3), []).moved == ""


def test_no_more_than_a_few_models_are_tried() -> None:
    never = Room(1000)

    ways_out(lack(1, 1), BUSY, never, [holder(f"m{number}", 0) for number in range(50)])

    assert never.asked == 1 + MODELS_TRIED


def test_nothing_is_said_of_a_pool_that_is_gone() -> None:
    assert ways_out(lack(1, 1, "gone"), BUSY, Room(0)) == WaysOut()


def short(subject: Subject, nodes: int) -> NoPlan:
    outcome = advised(subject, h100_nodes(nodes)).outcome
    assert isinstance(outcome, NoPlan)
    return outcome


def test_the_nodes_that_are_told_suffice_and_one_less_does_not() -> None:
    subject = a_subject(model=LARGE["model"], replicas=2, rollout={"minGroups": 2})

    found = short(subject, 1)

    assert found.ways_out
    assert found.ways_out.more_nodes == 3
    assert isinstance(plan_serving(subject, stock(subject, h100_nodes(4))).outcome, Plan)
    assert isinstance(plan_serving(subject, stock(subject, h100_nodes(3))).outcome, NoPlan)


def test_a_person_is_told_the_way_out() -> None:
    found = explain(advised(a_subject(model=LARGE["model"]), h100_nodes(1)))

    assert {fact.label: fact.value for fact in found.facts}["Way out"].startswith(
        "it would fit with 1 more node of h100-"
    )


def test_a_plan_of_somebody_who_set_nothing_is_left_as_it_is() -> None:
    subject = a_subject(model=LARGE["model"])

    assert advised(subject, h100_nodes(2)) == plan_serving(subject, stock(subject, h100_nodes(2)))


def test_more_nodes_of_a_family_are_as_its_largest() -> None:
    inventory = inventory_of(a_node("a"), a_node("b", gpus=4))

    found = ways_out(lack(1, 2), inventory, Room(3))

    assert found == WaysOut(pool="h100-sxm-80gb-8x-400g", more_nodes=1)


def test_who_gives_way_may_stand_on_any_node_of_a_family() -> None:
    inventory = inventory_of(a_node("a"), a_node("b", gpus=4)).without({"b": 4})
    wanted = Lack(pool=POOL, gpus_per_node=4, missing_nodes=1, nodes=1)
    small = Holder(name="small", priority=0, gpus={"b": 4})

    assert ways_out(wanted, inventory, Room(2), [small]).moved == "small"
