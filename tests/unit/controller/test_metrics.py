"""The series of a model: its plan, its conditions and its groups; from first to last."""

from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shardwright.controller.metrics import Metrics
from shardwright.costs.estimates import TimeShare
from shardwright.errors import Problem
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Exclusion, Report
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.members import Failure, GroupState, Situation
from tests.support.builders_deployment import a_plan

KEY = ("models", "llama")
LAYOUT = Layout(tensor=4, pipeline=2, attention_data=2, context=4)
FOUND = Findings(generation=1)
SERVES = GroupState(
    name="llama-0",
    serves=True,
    updated=True,
    situation=Situation.READY,
    restarts=2,
    outage_seconds=95,
    nodes=("a", None),
)
WAITS = GroupState(
    name="llama-1",
    situation=Situation.BACKING_OFF,
    restarts=7,
    failing=True,
    budget_spent=True,
    last_failure=Failure(rank=1, reason="OOMKilled"),
)
LIVES = ("shardwright_model_", "shardwright_group_")

Series = dict[tuple[str, ...], float]


def report(*excluded: Exclusion) -> Report:
    return Report(outcome=a_plan(layout=LAYOUT), alternatives=(), excluded=excluded, considered=1)


def exclusion(code: str, count: int) -> Exclusion:
    return Exclusion(code=code, count=count, example="", nearest_miss="")


def living(*groups: GroupState) -> Findings:
    return replace(FOUND, plan=a_plan(), standing=groups, wanted=2)


def series(metrics: Metrics, *prefixes: str) -> Series:
    """Return what a scrape reads: name and label values (namespace and name left out), to value."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if sample.name.startswith(prefixes):
                labels = dict(sample.labels)
                assert (labels.pop("namespace"), labels.pop("name")) == KEY
                found[sample.name, *(labels[label] for label in sorted(labels))] = sample.value
    return found


def conditions(metrics: Metrics) -> set[tuple[str, ...]]:
    """Return the conditions that are shown: type, status and reason."""
    return {
        (kind, status, reason)
        for _, reason, status, kind in series(metrics, "shardwright_model_condition")
    }


def test_a_plan_is_shown_per_stage_and_component_and_goes_as_a_whole() -> None:
    metrics = Metrics()
    metrics.show(
        KEY, FOUND, report(exclusion("HeadsNotDivisible", 2), exclusion("HeadsNotDivisible", 3))
    )
    shown = series(metrics, "shardwright_plan_")
    assert shown["shardwright_plan_gpus",] == 16
    assert shown["shardwright_plan_excluded", "HeadsNotDivisible"] == 5
    assert sum(name == "shardwright_plan_memory_bytes" for name, *_ in shown) == 10
    metrics.drop(KEY)
    assert series(metrics, "shardwright_plan_", *LIVES) == {}


def test_where_the_time_of_a_token_goes_is_shown_part_by_part() -> None:
    plan = a_plan(layout=LAYOUT)
    parts = tuple(
        TimeShare(name=name, seconds=seconds)
        for name, seconds in (("Weights", 0.004), ("KvCache", 0.25), ("KvCache", 0.5))
    )
    predicted = replace(plan.performance, decode_shares=parts)
    metrics = Metrics()
    metrics.show(KEY, FOUND, replace(report(), outcome=replace(plan, performance=predicted)))

    name = "shardwright_plan_tpot_part_seconds"
    assert series(metrics, name) == {(name, "Weights"): 0.004, (name, "KvCache"): 0.75}


def test_the_layout_is_shown_with_all_its_degrees() -> None:
    metrics = Metrics()
    metrics.show(KEY, FOUND, report())
    (line,) = (
        line
        for line in metrics.text().decode().splitlines()
        if line.startswith("shardwright_plan_info{")
    )
    degrees = 'attention_data="2",context="4",expert="1",name="llama",namespace="models",pipeline="2",pool="h100"'
    assert line == f'shardwright_plan_info{{{degrees},replicas="1",tensor="4"}} 1.0'


def test_a_new_plan_leaves_no_series_of_the_old_one() -> None:
    metrics = Metrics()
    metrics.show(KEY, FOUND, report(exclusion("HeadsNotDivisible", 2)))
    metrics.show(KEY, FOUND, report(exclusion("WeightsExceedMemory", 1)))
    assert set(series(metrics, "shardwright_plan_excluded")) == {
        ("shardwright_plan_excluded", "WeightsExceedMemory")
    }


def test_the_groups_are_shown_as_in_status() -> None:
    metrics = Metrics()
    found = replace(living(replace(SERVES, pending=("spec",)), WAITS), placed=2)
    metrics.show(KEY, found, None)
    shown = series(metrics, *LIVES)
    assert {
        name: value for name, value in shown.items() if name[0] != "shardwright_model_condition"
    } == {
        ("shardwright_model_groups_wanted",): 2,
        ("shardwright_model_groups_placed",): 2,
        ("shardwright_model_groups_updated",): 1,
        ("shardwright_model_groups_serving",): 1,
        ("shardwright_model_groups_rollout_pending",): 1,
        ("shardwright_group_ready", "llama-0"): 1,
        ("shardwright_group_ready", "llama-1"): 0,
        ("shardwright_group_restarts", "llama-0"): 2,
        ("shardwright_group_restarts", "llama-1"): 7,
        ("shardwright_group_pods_wanted", "llama-0"): 2,
        ("shardwright_group_pods_wanted", "llama-1"): 2,
        ("shardwright_group_pods_bound", "llama-0"): 1,
        ("shardwright_group_pods_bound", "llama-1"): 0,
        ("shardwright_group_last_failure", "llama-1", "OOMKilled"): 1,
        ("shardwright_group_restart_budget_spent", "llama-0"): 0,
        ("shardwright_group_restart_budget_spent", "llama-1"): 1,
        ("shardwright_group_last_outage_seconds", "llama-0"): 95,
    }


def test_every_condition_is_one_series_with_its_reason_and_the_reason_before_is_gone() -> None:
    metrics = Metrics()
    metrics.show(KEY, living(SERVES, WAITS), None)
    assert conditions(metrics) == {
        ("Ready", "False", "RestartBudgetSpent"),
        ("Planned", "True", "Planned"),
        ("Reconciling", "True", "RestartBudgetSpent"),
        ("Stalled", "False", "Idle"),
        ("Degraded", "True", "RestartBudgetSpent"),
        ("PlanStale", "False", "PlanValid"),
    }
    metrics.show(KEY, living(SERVES), None)
    assert conditions(metrics) == {
        ("Ready", "True", "Serving"),
        ("Planned", "True", "Planned"),
        ("Reconciling", "False", "Idle"),
        ("Stalled", "False", "Idle"),
        ("Degraded", "False", "Idle"),
        ("PlanStale", "False", "PlanValid"),
    }


def test_a_group_that_is_gone_and_a_spec_that_cannot_be_read_leave_no_series() -> None:
    metrics = Metrics()
    metrics.show(KEY, living(SERVES, WAITS), report())
    metrics.show(
        KEY,
        replace(FOUND, problems=(Problem(code="InvalidSpec", what="spec.replicas is -1"),)),
        None,
    )
    assert ("Stalled", "True", "InvalidSpec") in conditions(metrics)
    shown = {name for name, *_ in series(metrics, "shardwright_plan_", *LIVES)}
    kept = {"serving", "updated", "rollout_pending"}
    assert shown == {
        "shardwright_model_condition",
        *(f"shardwright_model_groups_{what}" for what in kept),
    }


def test_a_model_that_goes_takes_its_series_along_and_no_others() -> None:
    metrics = Metrics()
    metrics.show(KEY, living(SERVES, WAITS), report())
    before = series(metrics, "shardwright_plan_", *LIVES)
    metrics.show(("models", "other"), living(WAITS), report())
    metrics.drop(("models", "other"))
    assert series(metrics, "shardwright_plan_", *LIVES) == before
    metrics.drop(KEY)
    assert series(metrics, "shardwright_plan_", *LIVES) == {}


def test_a_value_that_changes_is_shown_beside_those_that_stay() -> None:
    metrics = Metrics()
    metrics.show(KEY, living(SERVES, WAITS), report())
    before = series(metrics, "shardwright_plan_", *LIVES)
    metrics.show(KEY, living(replace(SERVES, restarts=3), WAITS), report())
    assert series(metrics, "shardwright_plan_", *LIVES) == before | {
        ("shardwright_group_restarts", "llama-0"): 3
    }


def test_series_of_models_are_bounded_and_who_lacks_some_gets_them_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b, c = ("models", "a"), ("models", "b"), ("other", "c")
    each = len(list(Metrics()._series(a, FOUND, report())))
    metrics = Metrics(most_series=2 * each + 1)
    for key in (a, b, c, c, a):
        metrics.show(key, FOUND, report())

    assert shown(metrics) == {"a": each, "b": each, "c": 1}
    assert "shardwright_models_without_series 1.0" in metrics.text().decode()
    assert [(record.getMessage(), vars(record)["key"]) for record in caplog.records] == [
        (
            f"models have {2 * each} series, and may have {2 * each + 1}: this one lacks some",
            "other/c",
        )
    ]

    metrics.drop(a)
    metrics.show(c, FOUND, report())
    assert shown(metrics) == {"b": each, "c": each}
    assert "shardwright_models_without_series 0.0" in metrics.text().decode()


def test_a_model_that_grows_beyond_what_there_is_keeps_what_it_has_with_new_values() -> None:
    standing = living(SERVES)
    room = len(list(Metrics()._series(KEY, standing, report())))
    metrics = Metrics(most_series=room)
    metrics.show(KEY, standing, report())
    before = series(metrics, "shardwright_plan_", *LIVES)
    metrics.show(
        KEY, living(replace(SERVES, restarts=3)), report(exclusion("HeadsNotDivisible", 2))
    )
    assert series(metrics, "shardwright_plan_", *LIVES) == before | {
        ("shardwright_group_restarts", "llama-0"): 3
    }
    assert "shardwright_models_without_series 1.0" in metrics.text().decode()


def test_a_model_that_fails_where_there_is_no_room_shows_the_conditions_of_its_failure() -> None:
    failing = living(
        replace(SERVES, situation=Situation.BACKING_OFF, failing=True, budget_spent=True)
    )
    without_bound, metrics = (
        Metrics(),
        Metrics(most_series=len(list(Metrics()._series(KEY, living(SERVES), report())))),
    )
    metrics.show(KEY, living(SERVES), report())
    for each in (without_bound, metrics):
        each.show(KEY, failing, report(exclusion("HeadsNotDivisible", 2)))
    assert ("Ready", "False", "RestartBudgetSpent") in conditions(metrics)
    assert conditions(metrics) == conditions(without_bound)


def test_a_model_that_comes_where_there_is_little_room_has_its_conditions() -> None:
    metrics = Metrics(most_series=6)
    metrics.show(KEY, living(SERVES), report())
    assert {name for name, *_ in series(metrics, "shardwright_plan_", *LIVES)} == {
        "shardwright_model_condition"
    }
    assert len(conditions(metrics)) == 6


def test_a_model_has_as_many_series_as_the_page_of_the_metrics_says() -> None:
    fresh, begun_again = (replace(SERVES, outage_seconds=None), replace(WAITS, outage_seconds=95))
    plan = a_plan(layout=LAYOUT, replica_requests=181)
    counts = [
        len(
            list(
                Metrics()._series(
                    KEY,
                    living(*groups),
                    replace(report(*excluded), outcome=replace(plan, stages=stages)),
                )
            )
        )
        for stages, groups, excluded in (
            (plan.stages[:1], [fresh], ()),
            (plan.stages[:1], [fresh], (exclusion("HeadsNotDivisible", 2),)),
            (plan.stages[:2], [fresh], ()),
            (plan.stages[:1], [fresh, replace(fresh, name="llama-1")], ()),
            (plan.stages[:1], [fresh, begun_again], ()),
        )
    ]
    assert counts == [33, 33 + 1, 33 + 5, 33 + 5, 33 + 5 + 1 + 1]


def shown(metrics: Metrics) -> dict[str, int]:
    """Return how many series each model has, by name."""
    families = text_string_to_metric_families(metrics.text().decode())
    return dict(
        Counter(
            sample.labels["name"]
            for family in families
            for sample in family.samples
            if "name" in sample.labels
        )
    )
