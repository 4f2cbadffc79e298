"""What there is for a subject, and what plans and pods keep of it."""

from dataclasses import replace

import pytest

from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import GpuUsage
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.report import Plan
from shardwright.resolving.stock import OwnGpus, reservations_of, take_stock
from tests.support.builders_nodes import a_node, h100_nodes
from tests.support.builders_subject import (
    LARGE,
    OWN,
    a_subject,
    h100_facts,
    plan_of,
    pods_of,
    stock,
)


def test_selector_and_tolerations_decide_which_nodes_count() -> None:
    taint = {"key": "dedicated", "value": "llm", "effect": "NoSchedule"}
    nodes = [
        a_node("blue", labels={"pool": "blue"}, taints=[taint]),
        a_node("red", labels={"pool": "red"}),
    ]
    placement = {
        "nodeSelector": {"pool": "blue"},
        "tolerations": [{"key": "dedicated", "value": "llm"}],
    }

    inventory = stock(a_subject(placement=placement), nodes)

    assert [node.name for pool in inventory.pools for node in pool.nodes] == ["blue"]


def free_of(inventory: Inventory) -> dict[str, int]:
    return {node.name: node.free for pool in inventory.pools for node in pool.nodes}


def two_quarters() -> Plan:
    """Return a plan of two groups, each with a quarter of the one node."""
    subject = a_subject(parallelism={"tensor": 2, "pipeline": 1}, replicas=2)
    return plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))


@pytest.mark.parametrize(
    ("bound", "generations", "free"),
    [
        ((0, 0), (), 4),
        ((0, 0), (0, 1), 2),  # the second one is to start beside its former self, there
        ((0, 1), (0, 1), 4),
        ((0, 1), (), 4),  # was made anew because of a lost node: only its pods tell
    ],
)
def test_gpus_that_a_plan_keeps_are_counted_once_with_the_pods_of_its_standing_generation(
    bound: tuple[int, ...], generations: tuple[int, ...], free: int
) -> None:
    plan, other = two_quarters(), ("default", "qwen")

    inventory = take_stock(
        a_subject(),
        h100_facts(1),
        pods_of(plan, *bound, owner=other),
        reservations_of(other, plan, generations),
    )

    assert free_of(inventory) == {"h100-00": free}


def test_a_pod_of_one_group_does_not_hide_what_is_kept_for_another() -> None:
    """The first group still holds what it had under an earlier plan; the second has no pod yet."""
    plan, other = two_quarters(), ("default", "qwen")
    first = replace(pods_of(plan, owner=other)[0], gpus=4)

    inventory = take_stock(a_subject(), h100_facts(1), [first], reservations_of(other, plan))

    assert free_of(inventory) == {"h100-00": 2}


def surging(*former: str) -> tuple[Plan, list[GpuUsage]]:
    """Return a plan whose group starts on h100-02 and -03 as the next generation, and the pods of
    the former one.
    """
    subject = a_subject(**LARGE)
    plan = replace(
        plan_of(plan_serving(subject, stock(subject, h100_nodes(2)))),
        groups=(("h100-02", "h100-03"),),
    )
    return plan, pods_of(replace(plan, groups=(former,)), 0)


@pytest.mark.parametrize("started", [True, False])
def test_what_a_former_generation_holds_is_free_for_its_model_only_when_it_is_gone(
    *, started: bool
) -> None:
    plan, pods = surging("h100-00", "h100-01")
    pods += pods_of(plan, 1) if started else []
    kept = list(reservations_of(OWN, plan, (1,)))

    free = free_of(take_stock(a_subject(), h100_facts(4), pods, kept))
    vacated = free_of(take_stock(a_subject(), h100_facts(4), pods, kept, OwnGpus(vacated=True)))

    assert free == {"h100-00": 0, "h100-01": 0, "h100-02": 8, "h100-03": 8}
    assert set(vacated.values()) == {8}
