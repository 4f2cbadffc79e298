"""A planned group leaves a node that it cannot have, and no sooner than it must."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from shardwright.planning.validity import PASSES, NodeFault, Unfit
from shardwright.reconcile.annotations import NODES_COME_SECONDS, UNSCHEDULABLE_SECONDS
from shardwright.reconcile.group import LOST_SECONDS
from shardwright.reconcile.members import Failure, GroupState, Situation
from shardwright.reconcile.relocation import (
    AWAY_SECONDS,
    GRACE_SECONDS,
    PATIENCE_SECONDS,
    REGISTERED_AGAIN_SECONDS,
    Occupancy,
    departure_problem,
    departures,
    hanging_groups,
    homeless_groups,
    recheck_at,
)
from tests.support.builders_deployment import a_plan
from tests.support.builders_reconcile import NOON, member

PLAN = a_plan(groups=(("a", "b"), ("b", "c"), ("d", "e")), gpus_per_node=4)
PLENTY = {"a": 8, "b": 8, "c": 8, "d": 8, "e": 8}
ALL = {0, 1, 2}
NO_PLACE = Failure(rank=1, reason="Unschedulable")
LATE = NOON + timedelta(hours=1)
NAMES = ("llama-0", "llama-1", "llama-2")


def around(
    *,
    faults: dict[str, NodeFault] | None = None,
    lost: set[str] | None = None,
    hanging: set[int] | None = None,
    free: dict[str, int] | None = None,
    unsettled: set[int] | None = None,
    homeless: set[int] | None = None,
) -> Occupancy:
    """Return nodes with these faults, each seen first at noon."""
    faults = faults or {}
    return Occupancy(
        unfit=tuple(
            Unfit(node=node, fault=fault, says=f"is {fault}")
            for node, fault in sorted(faults.items())
        ),
        since=dict.fromkeys(faults, NOON),
        lost=frozenset(lost or ()),
        hanging=frozenset(hanging or ()),
        free=PLENTY | (free or {}),
        unsettled=frozenset(unsettled or ()),
        homeless=frozenset(homeless or ()),
    )


def leaving(seen: Occupancy, now: datetime = LATE) -> set[int]:
    return {item.group for item in departures(PLAN, seen, now)}


@pytest.mark.parametrize("fault", list(NodeFault))
def test_only_a_group_that_needs_a_place_leaves_a_node_with_a_fault_and_no_other_group_does(
    fault: NodeFault,
) -> None:
    assert leaving(around(faults={"b": fault}, unsettled={1, 2})) == {1}
    assert leaving(around(faults={"b": fault})) == set()


@pytest.mark.parametrize("fault", list(NodeFault))
def test_a_fault_moves_a_group_once_it_has_lasted_and_not_a_second_sooner(fault: NodeFault) -> None:
    seen, lasted = (
        around(faults={"d": fault}, unsettled=ALL),
        NOON + timedelta(seconds=PATIENCE_SECONDS[fault]),
    )
    assert leaving(seen, lasted) == {2}
    assert leaving(seen, lasted - timedelta(seconds=1)) == set()
    assert recheck_at(PLAN, seen, lasted) is None
    if lasted > NOON:
        assert recheck_at(PLAN, seen, NOON) == lasted


def test_what_cannot_be_a_slip_is_not_waited_for_and_what_may_come_back_is() -> None:
    assert {fault for fault, seconds in PATIENCE_SECONDS.items() if not seconds} == {
        NodeFault.LEAVING,
        NodeFault.CORDONED,
    }
    assert (
        PATIENCE_SECONDS[NodeFault.GONE] == REGISTERED_AGAIN_SECONDS < GRACE_SECONDS < AWAY_SECONDS
    )
    away = {fault for fault, seconds in PATIENCE_SECONDS.items() if seconds == AWAY_SECONDS}
    assert away == PASSES - {NodeFault.CORDONED, NodeFault.TO_COME}
    assert AWAY_SECONDS < PATIENCE_SECONDS[NodeFault.TO_COME] == NODES_COME_SECONDS


def test_nobody_looks_again_for_a_fault_under_a_group_that_has_its_place() -> None:
    assert recheck_at(PLAN, around(faults={"d": NodeFault.GONE}, unsettled={0, 1}), NOON) is None


@pytest.mark.parametrize(
    ("seen", "groups"),
    [
        (around(lost={"a"}, hanging={0}), {0}),
        (around(lost={"b"}, hanging={0}), {0}),
        (around(lost={"b"}, hanging={0, 1, 2}), {0, 1}),
        (around(free={"d": 3}, unsettled={2}, homeless={2}), {2}),
        (around(free={"d": 3}, unsettled={2}), set()),
        (around(free={"d": 3}, homeless={2}), set()),
        (around(free={"b": 7}, unsettled=ALL, homeless={1, 2}), {1}),
    ],
    ids=[
        "lost",
        "lost under one of the two groups that share a node",
        "lost under both",
        "taken by others",
        "taken by others a moment ago",
        "taken by others, and by now the group has its place",
        "room for one of the two groups that share a node",
    ],
)
def test_a_group_leaves_the_nodes_that_it_cannot_have(seen: Occupancy, groups: set[int]) -> None:
    assert leaving(seen) == groups
    assert (departure_problem(departures(PLAN, seen, LATE)) is not None) == bool(groups)


REVIVE = "bring the node back or delete its Node object"


@pytest.mark.parametrize(
    ("seen", "said", "back"),
    [
        (
            around(lost={"b", "x"}, hanging={1}),
            "b holds pods that should be gone, and does not give them back",
            REVIVE,
        ),
        (
            around(faults={"b": NodeFault.CORDONED, "d": NodeFault.CORDONED}, unsettled=ALL),
            "b is Cordoned, and a group waits for a place there, as does d",
            "uncordon the node",
        ),
        (
            around(
                faults={"a": NodeFault.GONE, "c": NodeFault.GONE, "d": NodeFault.GONE},
                unsettled=ALL,
            ),
            "a is Gone, and a group waits for a place there, as do 2 more nodes",
            "repair the node",
        ),
        (
            around(faults={"d": NodeFault.NOT_READY}, unsettled={2}),
            "d is NotReady, and a group waits for a place there",
            REVIVE,
        ),
        (
            around(free={"d": 0}, unsettled={2}, homeless={2}),
            "d has too few free GPUs, and a group has found no place there",
            "free the GPUs of that node",
        ),
    ],
)
def test_a_plan_that_a_group_must_leave_says_so_and_what_to_do(
    seen: Occupancy, said: str, back: str
) -> None:
    problem = departure_problem(departures(PLAN, seen, LATE))
    assert problem is not None
    assert (
        problem.sentence()
        == f"planned node {said}; the group is planned on other nodes; where there are none, {back}"
    )


def a_state(
    situation: Situation, *, failing: bool = True, failure: Failure | None = NO_PLACE
) -> GroupState:
    return GroupState(name="llama-1-g2", situation=situation, failing=failing, last_failure=failure)


@pytest.mark.parametrize(
    ("state", "homeless"),
    [
        (a_state(Situation.STOPPING), {1}),
        (a_state(Situation.BACKING_OFF), {1}),
        (a_state(Situation.STARTING), set()),  # and its pods may find one now
        (a_state(Situation.STOPPING, failing=False), set()),  # for a change
        (
            a_state(
                Situation.BACKING_OFF, failure=Failure(rank=0, reason="Error", container="engine")
            ),
            set(),
        ),
    ],
)
def test_a_group_that_gave_its_gpus_back_for_want_of_a_place_is_homeless(
    state: GroupState, homeless: set[int]
) -> None:
    assert homeless_groups(NAMES, [state], [], NOON) == homeless


def test_a_group_is_homeless_when_a_pod_has_found_no_place_for_five_minutes() -> None:
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
    }
    waiting = member("llama-2-0", conditions=[condition | {"lastTransitionTime": NOON.isoformat()}])
    late = NOON + timedelta(seconds=UNSCHEDULABLE_SECONDS)
    assert homeless_groups(NAMES, [], [waiting, member("llama-0-0")], late) == {2}
    assert homeless_groups(NAMES, [], [waiting], late - timedelta(seconds=1)) == frozenset()


def test_only_groups_whose_own_pods_should_be_gone_from_a_lost_node_hang_there() -> None:
    late = NOON + timedelta(seconds=LOST_SECONDS)
    hangs = replace(member("llama-1-0"), node="a", deleting=True, gone_by=NOON)
    serves, elsewhere = (
        replace(member("llama-0-0"), node="a"),
        replace(hangs, group="llama-2", node="b"),
    )
    assert hanging_groups(NAMES, [hangs, serves, elsewhere], frozenset({"a"}), late) == {1}
    assert (
        hanging_groups(NAMES, [hangs], frozenset({"a"}), late - timedelta(seconds=1)) == frozenset()
    )
