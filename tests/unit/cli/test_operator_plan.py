"""What ``plan --server`` says of a plan of the operator: as much as ``plan`` says, or why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.cli.operator_plan import FORBIDDEN, UNREADABLE, PlannedCopy, row_of, screen_of_copy
from shardwright.cli.plan_forms import plans_at_a_glance
from shardwright.planning.report import NoPlan, Plan
from shardwright.reporting.explanation import Fact
from shardwright.reporting.screen import Due, Screen
from shardwright.resolving.subject import Subject
from tests.support.builders_live import a_live_model, around
from tests.support.builders_snapshot import Operator
from tests.support.small_cluster import SmallCluster


def _explained(*, knows: bool = True, unseen: str = "") -> Screen:
    cluster = SmallCluster()
    cluster.add_nodes(2)
    operator = Operator(cluster, {"mode": "PlanOnly"})
    operator.run(60)
    live, subject = a_live_model(operator), operator.subject
    assert isinstance(subject, Subject)
    assert live.record
    copy = PlannedCopy(
        live=live, subject=subject if knows else None, surroundings=unseen or around(operator)
    )
    return screen_of_copy(copy, live.record)


@pytest.mark.parametrize(("nodes", "kind"), [(2, Plan), (0, NoPlan)])
def test_a_row_of_the_operators_plans_has_its_plan_or_its_reason(
    nodes: int, kind: type[Plan | NoPlan]
) -> None:
    cluster = SmallCluster()
    cluster.add_nodes(nodes)
    operator = Operator(cluster, {"mode": "PlanOnly"})
    operator.run(60)

    row = row_of(a_live_model(operator))

    assert isinstance(row.outcome, kind)
    assert row.name == "llama"
    if isinstance(row.outcome, NoPlan):
        assert row.outcome.problem.code == "InsufficientCapacity"


def test_a_plan_of_the_operator_that_cannot_be_read_counts_as_planned() -> None:
    cluster = SmallCluster()
    cluster.add_nodes(2)
    operator = Operator(cluster, {"mode": "PlanOnly"})
    operator.run(60)

    row = row_of(replace(a_live_model(operator), record=None))

    counted, *_ = plans_at_a_glance([row, row], 80)
    assert row.outcome is None
    assert counted.plain() == "2 models: 0 planned on 0 GPUs, 2 whose plan cannot be read"


def _facts(screen: Screen) -> dict[str, str]:
    return {fact.label: fact.value for fact in screen.facts}


def test_a_plan_of_the_operator_says_what_plan_says() -> None:
    facts, screen = _facts(_explained()), _explained()

    assert facts["Model"].startswith("meta-llama/Llama-3.1-8B-Instruct on vLLM ")
    assert list(facts)[1:] == ["Mode", "Load", "Can serve", "Latency", "K/V cache", "Where"]
    assert [point.due for point in screen.points] == [Due.GATED, Due.DOWNLOADS]


@pytest.mark.parametrize(
    ("why", "said"), [(FORBIDDEN, "you may not list them"), (UNREADABLE, "they could not be read")]
)
def test_who_cannot_see_nodes_is_told_why_and_what_is_not_shown(why: str, said: str) -> None:
    seen, unseen = _explained(), _explained(unseen=why)

    assert unseen.facts[:3] == seen.facts[:3]
    assert unseen.facts[-1] == Fact(
        label="Nodes", value=f"{said}: GPUs of others, and nodes that are not used, are not shown"
    )
    assert unseen.points == seen.points


def test_of_a_model_whose_config_is_unknown_here_the_load_is_said_not_to_be_shown() -> None:
    facts = _facts(_explained(knows=False))

    assert facts["Load"] == (
        "not shown, and no nodes beside the plan's own: the config of the model is unknown here"
    )
    assert "Can serve" in facts
