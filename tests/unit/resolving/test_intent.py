"""What a spec wants done with its plan."""

from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.resolving.intent import Intent, Replan, RestartPolicy, intent_of
from tests.support.builders_resource import a_sharded_model


def wanted(**spec: Any) -> Intent:
    return intent_of(parse_manifest(a_sharded_model(**spec)).spec)


def test_without_a_word_the_plan_says_how_many_groups_run_and_they_stay() -> None:
    assert wanted() == Intent(
        plan_only=False,
        paused=False,
        replicas=None,
        replan=Replan.WHEN_INVALID,
        scheduler="None",
        shares_claim=False,
        restart=RestartPolicy(),
        max_unavailable=1,
        max_surge=0,
        keeps_templates=True,
        min_ready_seconds=0,
        progress_deadline_seconds=None,
        partition=0,
    )


def test_what_is_said_is_what_is_wanted() -> None:
    said = wanted(
        mode="PlanOnly",
        paused=True,
        replicas=3,
        replan="Always",
        placement={"scheduler": "Coscheduling"},
        model={"id": "a/b", "weights": {"uri": "pvc://weights"}},
        restart={
            "budget": 2,
            "delaySeconds": 3,
            "maxDelaySeconds": 4,
            "stableSeconds": 5,
            "onBudgetSpent": "Stop",
        },
        rollout={
            "maxUnavailable": 2,
            "maxSurge": 1,
            "onUpgrade": "Roll",
            "minReadySeconds": 60,
            "progressDeadlineSeconds": 1200,
            "partition": 1,
        },
    )

    assert said == Intent(
        plan_only=True,
        paused=True,
        replicas=3,
        replan=Replan.ALWAYS,
        scheduler="Coscheduling",
        shares_claim=True,
        restart=RestartPolicy(
            delay_seconds=3, max_delay_seconds=4, stable_seconds=5, budget=2, stop_when_spent=True
        ),
        max_unavailable=2,
        max_surge=1,
        keeps_templates=False,
        min_ready_seconds=60,
        progress_deadline_seconds=1200,
        partition=1,
    )


def test_what_a_release_does_is_for_the_spec_to_say_before_the_administrator() -> None:
    specs = [
        parse_manifest(a_sharded_model(rollout=said)).spec
        for said in ({}, {"onUpgrade": "Keep"}, {"onUpgrade": "Roll"})
    ]

    assert [intent_of(spec, keeps_templates=True).keeps_templates for spec in specs] == [
        True,
        True,
        False,
    ]
    assert [intent_of(spec, keeps_templates=False).keeps_templates for spec in specs] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("model", "shares"),
    [
        ({"weights": {"uri": "pvc://weights"}}, True),
        ({"weights": {"cache": {"claimName": "downloads"}}}, True),
        ({"adapters": [{"name": "support", "uri": "pvc://adapters"}]}, True),
        ({"weights": {"cache": {"storage": "1Ti"}}}, False),  # every pod has its own
        ({"weights": {"uri": "oci://registry.internal/llama"}}, False),
        ({}, False),
    ],
)
def test_a_claim_is_shared_where_more_than_one_pod_mounts_it(
    model: dict[str, Any], *, shares: bool
) -> None:
    assert wanted(model={"id": "a/b"} | model).shares_claim is shares


def test_a_model_that_is_to_fill_a_budget_can_be_stopped() -> None:
    fills = {"gpus": 16, "fill": True}

    assert (wanted(budget=fills).replicas, wanted(budget=fills, replicas=0).replicas) == (None, 0)
