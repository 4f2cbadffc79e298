"""What a spec says of the life of its groups."""

from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.layouts.layout import Layout
from shardwright.reconcile.group import RESTART, LifeRules, groups_wanted, life_rules
from shardwright.resolving.intent import RestartPolicy, intent_of
from tests.support.builders_deployment import a_plan_of
from tests.support.builders_resource import a_sharded_model


def rules(annotations: dict[str, str] | None = None, **spec: Any) -> LifeRules:
    return life_rules(intent_of(parse_manifest(a_sharded_model(**spec)).spec), annotations or {})


def test_without_a_word_groups_take_turns_and_stop_before_they_start_anew() -> None:
    assert rules() == LifeRules(
        restart=RestartPolicy(), max_unavailable=1, max_surge=0, restart_asked=""
    )


def test_what_is_said_is_what_holds() -> None:
    said = rules(
        {RESTART: "now"},
        restart={
            "budget": 2,
            "delaySeconds": 3,
            "maxDelaySeconds": 4,
            "stableSeconds": 5,
            "onBudgetSpent": "Stop",
        },
        rollout={
            "maxUnavailable": 6,
            "maxSurge": 1,
            "minReadySeconds": 7,
            "progressDeadlineSeconds": 80,
            "partition": 9,
        },
    )
    policy = RestartPolicy(
        delay_seconds=3, max_delay_seconds=4, stable_seconds=5, budget=2, stop_when_spent=True
    )
    assert said == LifeRules(
        restart=policy,
        max_unavailable=6,
        max_surge=1,
        restart_asked="now",
        min_ready_seconds=7,
        progress_deadline_seconds=80,
        partition=9,
    )


@pytest.mark.parametrize(
    ("scheduler", "surge"), [("None", 1), ("Native", 1), ("Coscheduling", 1), ("Kueue", 0)]
)
def test_no_group_waits_beside_itself_for_the_quota_that_it_holds(
    scheduler: str, surge: int
) -> None:
    queue = {"queue": "serving"} if scheduler == "Kueue" else {}
    assert (
        rules(placement={"scheduler": scheduler, **queue}, rollout={"maxSurge": 1}).max_surge
        == surge
    )


@pytest.mark.parametrize(
    ("said", "planned", "wanted"),
    [
        ({"replicas": 3}, 1, 3),  # there is room for one
        ({"replicas": 0}, 1, 0),
        ({"replicas": 3, "mode": "PlanOnly"}, 3, 0),
        ({}, 2, 2),
        ({"budget": {"gpus": 16, "fill": True}}, 2, 2),
        ({}, None, 1),
    ],
)
def test_as_many_groups_are_wanted_as_the_spec_says_or_else_the_plan(
    said: dict[str, Any], planned: int | None, wanted: int
) -> None:
    plan = a_plan_of(Layout(tensor=8, pipeline=2, replicas=planned), nodes=2) if planned else None
    assert groups_wanted(intent_of(parse_manifest(a_sharded_model(**said)).spec), plan) == wanted
