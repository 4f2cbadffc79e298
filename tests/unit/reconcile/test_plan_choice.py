"""When a plan of record stands."""

import pytest

from shardwright.errors import Problem
from shardwright.reconcile.standing import GRACE_SECONDS, Choice, Question, Standing, Trouble, judge
from shardwright.resolving.intent import Replan
from tests.support.builders_deployment import a_plan
from tests.support.builders_reconcile import a_record

GONE = Problem(code="PlanInvalid", what="planned node a: is gone")


def asked(
    replan: Replan = Replan.WHEN_INVALID,
    *,
    input_hash: str = "input",
    cut_hash: str = "cut",
    replicas: int = 1,
    deploy: bool = True,
) -> Question:
    return Question(input_hash=input_hash, cut_hash=cut_hash, replan=replan, replicas=replicas, deploy=deploy)


def trouble(seconds: float) -> Trouble:
    return Trouble(problem=GONE, seconds=seconds)


def test_a_plan_that_can_only_be_shown_is_made_anew_when_it_is_to_run() -> None:
    record = a_record(plan=a_plan(undeployable=Problem(code="NotYetDeployable", what="tensor over trays")))

    assert judge(record, asked(deploy=False), None, serving=False).choice is Choice.KEEP
    assert judge(record, asked(deploy=True), None, serving=False).choice is Choice.REPLAN


def test_a_valid_plan_of_the_same_question_stands() -> None:
    assert judge(a_record(), asked(), None, serving=False) == Standing(choice=Choice.KEEP)


def test_without_a_record_a_plan_is_made() -> None:
    assert judge(None, asked(), None, serving=False) == Standing(choice=Choice.REPLAN)


@pytest.mark.parametrize("replan", list(Replan))
def test_a_changed_spec_always_plans_anew(replan: Replan) -> None:
    assert judge(a_record(), asked(replan, cut_hash="other"), None, serving=True).choice is Choice.REPLAN


def test_another_number_of_replicas_moves_no_group() -> None:
    assert judge(a_record(), asked(input_hash="other"), None, serving=True) == Standing(choice=Choice.RESCALE)


def test_an_invalid_plan_stays_for_the_grace_and_is_looked_at_when_it_ends() -> None:
    standing = judge(a_record(), asked(), trouble(seconds=100), serving=False)
    assert standing == Standing(choice=Choice.KEEP, stale=GONE, recheck_seconds=GRACE_SECONDS - 100)


def test_after_the_grace_an_invalid_plan_that_does_not_serve_is_replaced() -> None:
    assert judge(a_record(), asked(), trouble(GRACE_SECONDS), serving=False) == Standing(choice=Choice.REPLAN, stale=GONE)


LOST = Trouble(problem=GONE, seconds=0, leaving=True)


def test_a_plan_with_a_node_that_died_under_its_pods_is_mended_at_once() -> None:
    assert judge(a_record(), asked(), LOST, serving=False) == Standing(choice=Choice.REHOUSE, stale=GONE)


def test_a_node_that_died_is_not_replaced_where_the_plan_stands_whatever_happens() -> None:
    assert judge(a_record(), asked(Replan.NEVER), LOST, serving=False) == Standing(choice=Choice.KEEP, stale=GONE)


@pytest.mark.parametrize(("replicas", "choice"), [(2, Choice.REHOUSE), (0, Choice.RESCALE)])
def test_groups_that_lost_a_node_move_before_others_are_added_and_after_others_are_dropped(replicas: int, choice: Choice) -> None:
    assert judge(a_record(), asked(input_hash="other", replicas=replicas), LOST, serving=False).choice is choice


def test_what_serves_is_never_moved_by_the_cluster() -> None:
    assert judge(a_record(), asked(), trouble(10 * GRACE_SECONDS), serving=True) == Standing(choice=Choice.KEEP, stale=GONE)


def test_never_means_never() -> None:
    standing = judge(a_record(), asked(Replan.NEVER), trouble(10 * GRACE_SECONDS), serving=False)
    assert standing == Standing(choice=Choice.KEEP, stale=GONE)


def test_always_looks_for_a_better_plan_each_time() -> None:
    assert judge(a_record(), asked(Replan.ALWAYS), None, serving=True) == Standing(choice=Choice.REPLAN)
