"""When a plan of record stands."""

import pytest

from shardwright.errors import Problem
from shardwright.reconcile.plan_choice import Choice, Wanted, choose
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
    return Wanted(input_hash=input_hash, cut_hash=cut_hash, replan=replan, replicas=replicas, deploy=deploy)


def test_a_plan_that_can_only_be_shown_is_made_anew_when_it_is_to_run() -> None:
    record = a_record(plan=a_plan(undeployable=Problem(code="NotYetDeployable", what="tensor over trays")))

    assert choose(record, wanted(deploy=False), leaving=False) is Choice.KEEP
    assert choose(record, wanted(deploy=True), leaving=False) is Choice.REPLAN


@pytest.mark.parametrize(("deploy", "choice"), [(True, Choice.REPLAN), (False, Choice.KEEP)])
def test_a_plan_whose_gpus_others_have_taken_is_made_anew_when_it_is_to_run(choice: Choice, *, deploy: bool) -> None:
    assert choose(a_record(), wanted(deploy=deploy), leaving=False, has_its_gpus=False) is choice


def test_a_plan_of_the_same_question_stands() -> None:
    assert choose(a_record(), wanted(), leaving=False) is Choice.KEEP


@pytest.mark.parametrize("replan", list(Replan))
def test_without_a_record_a_plan_is_made(replan: Replan) -> None:
    assert choose(None, wanted(replan), leaving=False) is Choice.REPLAN


@pytest.mark.parametrize("replan", list(Replan))
@pytest.mark.parametrize("leaving", [False, True])
def test_a_changed_spec_always_plans_anew(replan: Replan, *, leaving: bool) -> None:
    assert choose(a_record(), wanted(replan, cut_hash="other"), leaving=leaving) is Choice.REPLAN


@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_another_number_of_replicas_moves_no_group(replicas: int) -> None:
    assert choose(a_record(), wanted(input_hash="other", replicas=replicas), leaving=False) is Choice.RESCALE


def test_groups_that_must_leave_their_nodes_move_and_no_other() -> None:
    assert choose(a_record(), wanted(), leaving=True) is Choice.REHOUSE


def test_no_group_moves_where_the_plan_stands_whatever_happens() -> None:
    assert choose(a_record(), wanted(Replan.NEVER), leaving=True) is Choice.KEEP
    assert choose(a_record(), wanted(Replan.NEVER, input_hash="other"), leaving=True) is Choice.RESCALE


@pytest.mark.parametrize(("replicas", "choice"), [(2, Choice.REHOUSE), (0, Choice.RESCALE)])
def test_groups_that_must_leave_move_before_others_are_added_and_after_others_are_dropped(replicas: int, choice: Choice) -> None:
    assert choose(a_record(), wanted(input_hash="other", replicas=replicas), leaving=True) is choice


def test_always_looks_for_a_better_plan_each_time() -> None:
    assert choose(a_record(), wanted(Replan.ALWAYS), leaving=False) is Choice.REPLAN
