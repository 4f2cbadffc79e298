"""Which groups go where fewer are wanted, and what becomes of the others."""

from typing import Any

import pytest

from shardwright.reconcile.members import Failure, GroupState, Situation
from shardwright.reconcile.observed import STATEFUL_SET
from shardwright.reconcile.relocation import Departure, worst_first
from shardwright.rendering.names import group_names
from tests.support.builders_reconcile import crashed
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.small_cluster import LOAD_SECONDS, UNREADY, SmallCluster

FAILED = Failure(rank=0, reason="Error", container="engine", exit_code=1)


def a_state(name: str, situation: Situation, *, failing: bool = False) -> GroupState:
    return GroupState(
        name=name, situation=situation, failing=failing, last_failure=FAILED if failing else None
    )


@pytest.mark.parametrize(
    ("standing", "order"),
    [
        ([], (4, 2, 0)),
        ([a_state(name, Situation.READY) for name in ("llama-0", "llama-2", "llama-4")], (4, 2, 0)),
        (
            [
                a_state("llama-0", Situation.STARTING),
                a_state("llama-2", Situation.READY),
                a_state("llama-4", Situation.READY),
            ],
            (0, 4, 2),
        ),
        (
            [
                a_state("llama-0", Situation.STOPPING, failing=True),
                a_state("llama-2", Situation.READY),
                a_state("llama-4", Situation.STARTING),
            ],
            (0, 4, 2),
        ),
        ([a_state("llama-0", Situation.UNREADY), a_state("llama-2", Situation.READY)], (0, 4, 2)),
        (
            [a_state("llama-0", Situation.READY), a_state("llama-2", Situation.BACKING_OFF)],
            (2, 4, 0),
        ),
        (
            [a_state("llama-4", Situation.READY), a_state("llama-4-g1", Situation.STARTING)],
            (2, 0, 4),
        ),
    ],
    ids=[
        "nothing stands",
        "all serve",
        "one starts",
        "failed before starts",
        "a probe fails",
        "backs off",
        "former serves",
    ],
)
def test_broken_groups_go_first_then_those_that_are_not_ready_then_the_highest_number(
    standing: list[GroupState], order: tuple[int, ...]
) -> None:
    numbers = (0, 2, 4)
    assert worst_first(group_names("llama", numbers), numbers, standing, ()) == order


def test_a_group_that_cannot_go_on_where_it_is_counts_as_broken_unless_it_serves() -> None:
    leaves = Departure(group=0, node="h100-0", what="is gone", back="repair it")
    starting = [a_state("llama-0", Situation.STARTING), a_state("llama-1", Situation.STARTING)]
    assert worst_first(("llama-0", "llama-1"), (0, 1), starting, [leaves]) == (0, 1)
    serving = [a_state("llama-0", Situation.READY), a_state("llama-1", Situation.STARTING)]
    assert worst_first(("llama-0", "llama-1"), (0, 1), serving, [leaves]) == (1, 0)


def serving(groups: int, **spec: Any) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(groups)
    operator = Operator(cluster, {**ONE_NODE, "replicas": groups, **spec})
    operator.run(LOAD_SECONDS + 60)
    assert len(cluster.serving()) == groups
    return operator


def fail(operator: Operator, name: str) -> None:
    """Let the engine of a pod end."""
    status = operator.cluster.pods[name]["status"]
    status |= {
        "containerStatuses": crashed(name)["status"]["containerStatuses"],
        "conditions": [UNREADY],
    }
    operator.cluster.version += 1


def sets_of(operator: Operator) -> dict[str, str]:
    """Return the uids of the StatefulSets by name."""
    objects = operator.cluster.objects.items()
    return {name: live["metadata"]["uid"] for (kind, name), live in objects if kind == STATEFUL_SET}


@pytest.mark.parametrize(
    "edit", [{}, {"workload": {"concurrency": 7}}], ids=["scaled", "planned anew"]
)
def test_a_broken_group_goes_the_others_keep_their_names_and_the_ledger_follows(
    edit: dict[str, Any],
) -> None:
    operator = serving(3)
    before, served = sets_of(operator), operator.cluster.serving()
    fail(operator, "llama-0-0")

    operator.edit(replicas=2, **edit)
    operator.run(0)

    assert sets_of(operator) == {name: before[name] for name in ("llama-1", "llama-2")}
    assert operator.kept is not None
    plan = operator.kept.record.plan
    assert (plan.groups, plan.numbers) == ((("h100-1",), ("h100-2",)), (1, 2))
    if not edit:
        operator.run(LOAD_SECONDS)
        assert operator.cluster.serving() == {name: served[name] for name in ("llama-1", "llama-2")}


def test_scaled_up_again_the_hole_is_filled_and_nobody_restarts() -> None:
    operator = serving(3)
    served = operator.cluster.serving()
    fail(operator, "llama-1-0")
    operator.edit(replicas=2)
    operator.run(LOAD_SECONDS)

    operator.edit(replicas=3)
    operator.run(2 * LOAD_SECONDS + 60)

    now = operator.cluster.serving()
    assert now.keys() == {"llama-0", "llama-1", "llama-2"}
    assert {name: now[name] for name in ("llama-0", "llama-2")} == {
        name: served[name] for name in ("llama-0", "llama-2")
    }
    assert operator.kept is not None
    assert (operator.kept.record.plan.groups, operator.kept.record.plan.numbers) == (
        (("h100-0",), ("h100-1",), ("h100-2",)),
        (),
    )
    assert [group["name"] for group in operator.status["groups"]] == [
        "llama-0",
        "llama-1",
        "llama-2",
    ]


def test_without_a_plan_of_record_groups_with_a_hole_between_them_stay_where_they_are() -> None:
    operator = serving(3)
    fail(operator, "llama-1-0")
    operator.edit(replicas=2)
    operator.run(LOAD_SECONDS)
    sets = sets_of(operator)

    del operator.cluster.objects["ConfigMap", "llama-plan"]
    operator.kept = None
    operator.cluster.version += 1
    operator.run(LOAD_SECONDS)

    assert sets_of(operator) == sets
    assert operator.cluster.serving().keys() == {"llama-0", "llama-2"}
