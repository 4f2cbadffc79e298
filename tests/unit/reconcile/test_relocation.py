"""A planned group leaves a node that it cannot have, and no sooner than it must."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from shardwright.hardware.inventory import Inventory
from shardwright.reconcile.departures import (
    AWAY_SECONDS,
    Needs,
    away_nodes,
    homeless_groups,
    leaving_groups,
    leaving_problem,
)
from shardwright.reconcile.groups import GroupState
from shardwright.reconcile.incidents import UNSCHEDULABLE_SECONDS
from shardwright.reconcile.members import Failure
from tests.support.builders_deployment import a_plan
from tests.support.builders_plan import a_pool, an_inventory
from tests.support.builders_reconcile import NOON, member

PLAN = a_plan(groups=(("a", "b"), ("b", "c"), ("d", "e")), gpus_per_node=4)
EVERYTHING_FREE = an_inventory()
NO_PLACE = Failure(rank=1, reason="Unschedulable")


def needs(**groups_and_nodes: set[Any]) -> Needs:
    return Needs(**{name: frozenset(items) for name, items in groups_and_nodes.items()})


def with_free(**free: int) -> Inventory:
    """Return nodes of 8 GPUs by these names, with so many that others have left."""
    pool = a_pool(nodes=len(free), free=dict(enumerate(free.values())))
    named = tuple(replace(node, name=name) for node, name in zip(pool.nodes, free, strict=True))
    return an_inventory(replace(pool, nodes=named))


@pytest.mark.parametrize(
    ("inventory", "wanted", "leaving"),
    [
        (EVERYTHING_FREE, needs(lost={"a"}), {0}),
        (an_inventory(excluded={"b": "Cordoned"}), needs(unsettled={1, 2}), {1}),
        (an_inventory(excluded={"b": "Cordoned"}), needs(), set()),
        (an_inventory(excluded={"b": "NotReady"}), needs(unsettled={0, 1, 2}), set()),
        (an_inventory(excluded={"b": "NotReady"}), needs(away={"b"}, unsettled={1, 2}), {1}),
        (an_inventory(excluded={"b": "GpuUnknown"}), needs(away={"b"}, unsettled={1, 2}), {1}),
        (an_inventory(excluded={"b": "NotReady"}), needs(away={"b"}), set()),
        (with_free(a=8, b=8, d=3), needs(unsettled={2}, homeless={2}), {2}),
        (with_free(a=8, b=8, d=3), needs(unsettled={2}), set()),
        (with_free(a=8, b=8, d=3), needs(homeless={2}), set()),
        (with_free(a=8, b=7, d=4), needs(unsettled={0, 1, 2}, homeless={1, 2}), {1}),
    ],
    ids=[
        "lost",
        "cordoned",
        "cordoned, and nobody needs a place",
        "a blip",
        "dead for long",
        "dead for long, and without labels",
        "dead for long, and nobody needs a place",
        "taken by others",
        "taken by others a moment ago",
        "taken by others, and by now the group has its place",
        "room for one of the two groups that share a node",
    ],
)
def test_a_group_leaves_the_nodes_that_it_cannot_have(inventory: Inventory, wanted: Needs, leaving: set[int]) -> None:
    assert leaving_groups(PLAN, inventory, wanted) == leaving
    assert (leaving_problem(PLAN, inventory, wanted) is not None) == bool(leaving)


REVIVE = "bring the node back or delete its Node object"


@pytest.mark.parametrize(
    ("inventory", "wanted", "said", "back"),
    [
        (EVERYTHING_FREE, needs(lost={"b", "x"}), "b does not answer and holds pods that should be gone", REVIVE),
        (
            an_inventory(excluded={"b": "Cordoned", "c": "Cordoned", "d": "Cordoned"}),
            needs(unsettled={0, 1}),
            "b takes no pods, and a group waits for one there, as do 1 others",
            "uncordon the node",
        ),
        (
            EVERYTHING_FREE,
            needs(away={"d"}, unsettled={2}),
            "d has not been ready for 6 minutes, and a group waits for a place there",
            REVIVE,
        ),
        (
            with_free(d=0),
            needs(unsettled={2}, homeless={2}),
            "d has too few free GPUs, and a group has found no place there",
            "free the GPUs of that node",
        ),
    ],
)
def test_a_plan_that_a_group_must_leave_says_so_and_what_to_do(inventory: Inventory, wanted: Needs, said: str, back: str) -> None:
    problem = leaving_problem(PLAN, inventory, wanted)
    assert problem is not None
    assert problem.sentence() == f"planned node {said}; the group is planned on other nodes; where there are none, {back}"


@pytest.mark.parametrize(
    ("since", "now", "away"),
    [
        (NOON, NOON + timedelta(seconds=AWAY_SECONDS), {"a"}),
        (NOON, NOON + timedelta(seconds=AWAY_SECONDS - 1), set()),
        (None, NOON + timedelta(days=9), set()),
        (datetime.max.replace(tzinfo=NOON.tzinfo), NOON, set()),
    ],
)
def test_a_node_is_away_when_it_says_since_when_and_that_is_long_ago(
    since: datetime | None, now: datetime, away: set[str]
) -> None:
    assert away_nodes({"a": since}, now) == away


def a_state(situation: str, *, failing: bool = True, failure: Failure | None = NO_PLACE) -> GroupState:
    return GroupState(name="llama-1-g2", ready=False, situation=situation, failing=failing, last_failure=failure)


@pytest.mark.parametrize(
    ("state", "homeless"),
    [
        (a_state("Stopping"), {1}),
        (a_state("BackingOff"), {1}),
        (a_state("Starting"), set()),  # and its pods may find one now
        (a_state("Stopping", failing=False), set()),  # for a change
        (a_state("BackingOff", failure=Failure(rank=0, reason="Error", container="engine")), set()),
    ],
)
def test_a_group_that_gave_its_gpus_back_for_want_of_a_place_is_homeless(state: GroupState, homeless: set[int]) -> None:
    assert homeless_groups(3, "llama", [state], [], NOON) == homeless


def test_a_group_is_homeless_when_a_pod_has_found_no_place_for_five_minutes() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": NOON.isoformat()}
    waiting = member("llama-2-0", conditions=[condition])
    late = NOON + timedelta(seconds=UNSCHEDULABLE_SECONDS)
    assert homeless_groups(3, "llama", [], [waiting, member("llama-0-0")], late) == {2}
    assert homeless_groups(3, "llama", [], [waiting], late - timedelta(seconds=1)) == frozenset()
