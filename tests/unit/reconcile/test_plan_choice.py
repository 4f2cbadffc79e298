"""When a plan of record stands."""

import pytest

from shardwright.errors import Problem
from shardwright.reconcile.plan_choice import PlanChoice, RecordState, Wanted, choose
from shardwright.resolving.intent import Replan
from tests.support.builders_deployment import a_plan
from tests.support.builders_reconcile import a_record


def wanted(
    replan: Replan = Replan.WHEN_INVALID,
    *,
    input_hash: str = "input",
    cut_hash: str = "cut",
    replicas: int = 1,
    deploy: bool = True,
) -> Wanted:
    return Wanted(
        input_hash=input_hash, cut_hash=cut_hash, replan=replan, replicas=replicas, deploy=deploy
    )


def test_a_plan_that_can_only_be_shown_is_made_anew_when_it_is_to_run() -> None:
    record = a_record(
        plan=a_plan(undeployable=Problem(code="NotYetDeployable", what="tensor over trays"))
    )

    assert choose(record, wanted(deploy=False), RecordState(leaving=False)) is PlanChoice.KEEP
    assert choose(record, wanted(deploy=True), RecordState(leaving=False)) is PlanChoice.REPLAN


@pytest.mark.parametrize(
    ("deploy", "choice"), [(True, PlanChoice.REPLAN), (False, PlanChoice.KEEP)]
)
def test_a_plan_whose_gpus_others_have_taken_is_made_anew_when_it_is_to_run(
    choice: PlanChoice, *, deploy: bool
) -> None:
    assert (
        choose(a_record(), wanted(deploy=deploy), RecordState(leaving=False, has_its_gpus=False))
        is choice
    )


def test_a_plan_that_the_cluster_cannot_start_is_made_anew_before_any_of_its_groups_stands() -> (
    None
):
    state = RecordState(leaving=False, startable=False)
    assert choose(a_record(), wanted(), state) is PlanChoice.REPLAN


@pytest.mark.parametrize("deploy", [False, True])
@pytest.mark.parametrize(
    ("replan", "begun", "choice"),
    [
        (Replan.WHEN_INVALID, False, PlanChoice.REPLAN),
        (Replan.NEVER, False, PlanChoice.KEEP),
        (Replan.WHEN_INVALID, True, PlanChoice.KEEP),
    ],
)
def test_a_plan_without_what_the_cluster_has_by_now_is_made_anew_before_a_group_stands(
    choice: PlanChoice, replan: Replan, *, begun: bool, deploy: bool
) -> None:
    state = RecordState(leaving=False, begun=begun, surpassed=True)
    assert choose(a_record(), wanted(replan, deploy=deploy), state) is choice


def test_a_plan_of_the_same_question_stands() -> None:
    assert choose(a_record(), wanted(), RecordState(leaving=False)) is PlanChoice.KEEP


@pytest.mark.parametrize("replan", list(Replan))
def test_without_a_record_a_plan_is_made(replan: Replan) -> None:
    assert choose(None, wanted(replan), RecordState(leaving=False)) is PlanChoice.REPLAN


@pytest.mark.parametrize("replan", list(Replan))
@pytest.mark.parametrize("leaving", [False, True])
def test_a_changed_spec_always_plans_anew(replan: Replan, *, leaving: bool) -> None:
    assert (
        choose(a_record(), wanted(replan, cut_hash="other"), RecordState(leaving=leaving))
        is PlanChoice.REPLAN
    )


@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_another_number_of_replicas_moves_no_group(replicas: int) -> None:
    assert (
        choose(
            a_record(), wanted(input_hash="other", replicas=replicas), RecordState(leaving=False)
        )
        is PlanChoice.RESCALE
    )


def test_groups_that_must_leave_their_nodes_move_and_no_other() -> None:
    assert choose(a_record(), wanted(), RecordState(leaving=True)) is PlanChoice.REHOUSE


def test_no_group_moves_where_the_plan_stands_whatever_happens() -> None:
    assert choose(a_record(), wanted(Replan.NEVER), RecordState(leaving=True)) is PlanChoice.KEEP
    assert (
        choose(a_record(), wanted(Replan.NEVER, input_hash="other"), RecordState(leaving=True))
        is PlanChoice.RESCALE
    )


@pytest.mark.parametrize(("replicas", "choice"), [(2, PlanChoice.REHOUSE), (0, PlanChoice.RESCALE)])
def test_groups_that_must_leave_move_before_others_are_added_and_after_others_are_dropped(
    replicas: int, choice: PlanChoice
) -> None:
    assert (
        choose(a_record(), wanted(input_hash="other", replicas=replicas), RecordState(leaving=True))
        is choice
    )


@pytest.mark.parametrize(
    ("due", "choice"), [(True, PlanChoice.IMPROVE), (False, PlanChoice.COMPARE)]
)
def test_a_better_plan_is_looked_for_while_all_groups_serve_and_taken_only_when_it_is_time(
    choice: PlanChoice, *, due: bool
) -> None:
    always = wanted(Replan.ALWAYS)
    assert choose(a_record(), always, RecordState(leaving=False, serves=True, due=due)) is choice
    assert (
        choose(a_record(), always, RecordState(leaving=False, serves=False, due=due))
        is PlanChoice.KEEP
    )
    assert (
        choose(a_record(), wanted(), RecordState(leaving=False, serves=True, due=due))
        is PlanChoice.KEEP
    )
    assert (
        choose(a_record(), wanted(Replan.NEVER), RecordState(leaving=False, serves=True, due=due))
        is PlanChoice.KEEP
    )


def test_neither_another_number_of_replicas_nor_a_lost_node_is_an_occasion_for_a_better_plan() -> (
    None
):
    more = wanted(Replan.ALWAYS, input_hash="other", replicas=2)
    assert (
        choose(a_record(), more, RecordState(leaving=False, serves=True, due=True))
        is PlanChoice.RESCALE
    )
    assert (
        choose(a_record(), wanted(Replan.ALWAYS), RecordState(leaving=True, serves=True, due=True))
        is PlanChoice.REHOUSE
    )


def test_a_plan_that_is_only_shown_is_always_the_best_one() -> None:
    assert (
        choose(a_record(), wanted(Replan.ALWAYS, deploy=False), RecordState(leaving=False))
        is PlanChoice.REPLAN
    )
