"""A number of groups that is planned: handed over, taken back, planned anew for another load."""

from typing import Any

import pytest

from tests.support.builders_snapshot import Operator
from tests.support.said import condition_in
from tests.support.small_cluster import SmallCluster

SETTLED = 900
TAKE_BACK = """kubectl -n models patch smodel llama --type=merge -p '{"spec":{"replicas":null}}'"""


def a_served_model(**spec: Any) -> Operator:
    """Return the operator of a model that serves, by default at a rate that four GPUs carry."""
    cluster = SmallCluster()
    cluster.add_nodes(4)
    operator = Operator(cluster, {"workload": {"requestsPerSecond": 20}} | spec)
    operator.run(SETTLED)
    return operator


def pods(operator: Operator) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()}


def changed(operator: Operator, **spec: Any) -> dict[str, str]:
    """Return the pods after an edit of the spec; None takes a field away."""
    operator.edit(**spec)
    operator.spec = {name: value for name, value in operator.spec.items() if value is not None}
    operator.run(SETTLED)
    ready = operator.status["ready"].split("/")
    assert ready == [str(len(operator.cluster.pods))] * 2
    return pods(operator)


def number_planned(operator: Operator) -> tuple[str, str]:
    found = condition_in(operator.status, "ReplicasPlanned")
    return found["status"], found["message"]


def test_a_number_that_is_handed_over_changes_no_pod_and_the_next_one_adds_one() -> None:
    operator = a_served_model()
    planned = pods(operator)

    same, more = changed(operator, replicas=4), changed(operator, replicas=5)

    assert (len(planned), same) == (4, planned)
    assert (len(more), more.items() > planned.items()) == (5, True)


def test_a_number_that_is_taken_away_is_planned_for_the_cut_that_there_is() -> None:
    operator = a_served_model(replicas=5, parallelism={"tensor": 2})
    before, cut = pods(operator), operator.status["plan"]["layout"]
    operator.asked.clear()

    after = changed(operator, replicas=None)

    assert before.items() <= after.items() or after.items() <= before.items()
    assert [ask.choice for ask in operator.asked] == ["Rescale"]
    assert operator.status["plan"]["layout"] == cut | {"replicas": len(after)}


@pytest.mark.parametrize(
    ("load", "groups"),
    [
        ({"requestsPerSecond": 30}, 6),
        ({"requestsPerSecond": 10}, 2),
        ({"requestsPerSecond": 20, "inputTokens": 1024, "outputTokens": 300}, 2),
        ({"concurrency": 300}, 2),
    ],
)
def test_a_load_that_changes_adds_or_drops_groups_and_restarts_none(
    load: dict[str, Any], groups: int
) -> None:
    operator = a_served_model()
    before = pods(operator)

    after = changed(operator, workload=load)

    assert len(after) == groups
    assert before.items() <= after.items() or after.items() <= before.items()


def test_groups_restart_for_requests_that_their_engines_would_refuse() -> None:
    operator = a_served_model(workload={"requestsPerSecond": 20, "maxModelLen": 4096})
    before = pods(operator)

    after = changed(operator, workload={"requestsPerSecond": 4, "inputTokens": 6_000})

    assert before.items().isdisjoint(after.items())


def test_engines_keep_limits_that_another_load_would_not_have_chosen() -> None:
    operator = a_served_model(workload={"concurrency": 8, "outputTokens": 100})
    shown = operator.status["plan"]["limits"]

    after = changed(operator, workload={"concurrency": 4, "outputTokens": 50, "inputTokens": 100})

    assert len(after) == 1
    assert operator.status["plan"]["limits"] == shown


def test_a_planned_number_stands_whatever_comes_free() -> None:
    operator = a_served_model(budget={"gpus": 3})
    before = pods(operator)
    operator.cluster.add_nodes(3, first=4)

    operator.run(SETTLED)

    assert (len(before), pods(operator)) == (3, before)


def test_a_model_whose_number_is_planned_says_how_to_hand_it_over_and_how_to_take_it_back() -> None:
    operator = a_served_model()
    status, message = number_planned(operator)
    said = message.split("`")[1::2]

    assert (status, said) == (
        "True",
        ["kubectl -n models scale smodel llama --replicas=4", TAKE_BACK],
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 4},
        {"replicas": 0},
        {"mode": "PlanOnly"},
        {"budget": {"gpus": 4, "fill": True}},
        {"budget": {"gpus": 1}, "parallelism": {"tensor": 8}},
    ],
    ids=["given", "stopped", "only shown", "fills a budget", "no plan"],
)
def test_nobody_is_told_to_hand_over_a_number_that_is_not_planned(spec: dict[str, Any]) -> None:
    assert number_planned(a_served_model(**spec))[0] == "False"


def test_a_stopped_model_shows_the_plan_that_it_would_have() -> None:
    stopped, planned = a_served_model(replicas=0), a_served_model()
    shown, would = (each.status["plan"] for each in (stopped, planned))

    assert pods(stopped) == {}
    assert (shown["layout"]["replicas"], would["layout"]["replicas"]) == (0, 4)
    assert shown["predicted"] == would["predicted"]


def test_a_number_written_while_the_plan_is_made_is_kept_to() -> None:
    cluster = SmallCluster()
    cluster.add_nodes(4)
    operator = Operator(cluster, {"workload": {"requestsPerSecond": 20}})
    operator.reconcile()
    operator.edit(replicas=7)

    operator.run(SETTLED)

    assert (len(pods(operator)), operator.status["ready"]) == (7, "7/7")


@pytest.mark.parametrize(
    "spec",
    [{}, {"budget": {"gpus": 24, "fill": True}, "parallelism": {"tensor": 8, "pipeline": 1}}],
    ids=["planned", "fills a budget"],
)
def test_a_lost_node_costs_no_group_whose_number_the_plan_says(spec: dict[str, Any]) -> None:
    operator = a_served_model(**spec)
    before = operator.status["ready"]
    operator.cluster.delete_node("h100-0")

    operator.run(SETTLED)

    assert operator.status["ready"] == before


SIXTY = {"workload": {"requestsPerSecond": 60}}
"""A rate that twelve GPUs carry."""


def short_of_room(**spec: Any) -> Operator:
    """Return the operator of a model with that rate and room for eight groups."""
    cluster = SmallCluster()
    cluster.add_nodes(1)
    operator = Operator(cluster, SIXTY | spec)
    operator.run(SETTLED)
    return operator


def said(operator: Operator) -> dict[str, tuple[str, str]]:
    return {
        item["type"]: (item["status"], item["reason"]) for item in operator.status["conditions"]
    }


def test_a_planned_number_for_which_room_is_missing_serves_in_part_and_waits_in_line() -> None:
    operator = short_of_room()
    conditions = said(operator)

    assert (len(pods(operator)), operator.status["ready"]) == (8, "8/12")
    assert (operator.status["replicas"], operator.status["readyReplicas"]) == (12, 8)
    assert {kind: conditions[kind] for kind in ("Ready", "PartlyPlaced", "Reconciling")} == {
        "Ready": ("True", "Serving"),
        "PartlyPlaced": ("True", "InsufficientCapacity"),
        "Reconciling": ("True", "InsufficientCapacity"),
    }
    assert conditions["Stalled"][0] == "False"
    assert "--replicas=12" in number_planned(operator)[1]


def test_while_there_is_no_room_for_the_rest_nothing_is_written() -> None:
    operator = short_of_room()
    operator.written.clear()
    operator.cluster.version += 1

    operator.run(SETTLED)

    assert operator.written == []


def test_room_that_comes_adds_the_missing_groups_and_restarts_none() -> None:
    operator = short_of_room()
    before = pods(operator)
    operator.cluster.add_nodes(1, first=1)

    operator.run(SETTLED)

    after = pods(operator)
    assert (len(after), after.items() > before.items()) == (12, True)
    assert (operator.status["ready"], "PartlyPlaced" in said(operator)) == ("12/12", False)


def test_a_load_that_shrinks_into_the_room_drops_groups_and_waits_for_nothing() -> None:
    operator = short_of_room()
    before = pods(operator)

    after = changed(operator, workload={"requestsPerSecond": 20})

    assert (len(after), after.items() < before.items()) == (4, True)
    assert "PartlyPlaced" not in said(operator)


def test_a_budget_that_is_used_up_is_no_lack_of_room() -> None:
    operator = short_of_room(budget={"gpus": 8})

    assert (operator.status["ready"], "PartlyPlaced" in said(operator)) == ("8/8", False)


def test_a_plan_that_is_only_shown_has_no_replicas_in_line() -> None:
    operator = short_of_room(mode="PlanOnly")

    assert (pods(operator), operator.status["replicas"]) == ({}, 0)
    assert said(operator)["PartlyPlaced"][0] == "True"


def test_a_stopped_model_starts_nothing_where_room_is_missing_for_its_number() -> None:
    operator = short_of_room(replicas=0)
    written = [getattr(write, "content", {}).get("kind") for write in operator.written]

    assert ("StatefulSet" in written, operator.status["replicas"]) == (False, 0)
    assert [ask.choice for ask in operator.asked] == ["Replan"]


def test_too_few_groups_of_a_planned_number_do_not_start() -> None:
    operator = short_of_room(rollout={"minGroups": 9})

    assert (pods(operator), said(operator)["Ready"]) == ({}, ("False", "InsufficientCapacity"))
