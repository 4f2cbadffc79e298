"""A number of groups that an autoscaler chooses: handed over once, within its bounds, and no reason
to cut the model anew.
"""

from typing import Any

import pytest

from shardwright.api.settings import Settings
from shardwright.reconcile.autoscaling import hindrance
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.writes import HandOver
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_deployment import a_plan
from tests.support.builders_snapshot import Operator
from tests.support.builders_subject import ADMITTING, a_resource, a_subject
from tests.support.small_cluster import SmallCluster

SETTLED = 900
LOAD = {"requestsPerSecond": 20}
"""What four GPUs carry."""
OBJECT = ("ScaledObject.v1alpha1.keda.sh", "llama")


def an_operator(**spec: Any) -> Operator:
    """Return the operator of a model for which four groups are planned, and which is scaled, on a
    node of eight GPUs.
    """
    cluster = SmallCluster()
    cluster.add_nodes(1)
    return Operator(cluster, {"workload": LOAD, "scaling": {"maxReplicas": 6}} | spec)


def settled(operator: Operator) -> dict[str, str]:
    """Return the pods once all is as it is wanted."""
    operator.run(SETTLED)
    ready = operator.status["ready"].split("/")
    assert ready == [str(len(operator.cluster.pods))] * 2
    return {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()}


def handed_over(operator: Operator) -> list[int]:
    return [write.replicas for write in operator.written if isinstance(write, HandOver)]


def not_scaled(operator: Operator) -> str | None:
    found = (item for item in operator.status["conditions"] if item["type"] == "NotScaled")
    return next((item["reason"] for item in found), None)


@pytest.mark.parametrize(
    ("bounds", "number"),
    [({"maxReplicas": 6}, 4), ({"maxReplicas": 3}, 3), ({"minReplicas": 5, "maxReplicas": 6}, 5)],
)
def test_the_planned_number_is_handed_over_once_and_within_the_bounds(
    bounds: dict[str, int], number: int
) -> None:
    operator = an_operator(scaling=bounds)

    pods = settled(operator)

    assert (len(pods), handed_over(operator)) == (number, [number])
    assert operator.cluster.objects[OBJECT]["spec"]["maxReplicaCount"] == bounds["maxReplicas"]
    assert not_scaled(operator) is None


def test_a_number_that_is_set_already_is_left_to_who_has_set_it() -> None:
    operator = an_operator(replicas=2)

    assert (len(settled(operator)), handed_over(operator)) == (2, [])


def test_scaling_that_is_added_and_taken_away_replaces_no_pod_and_leaves_the_number() -> None:
    operator = an_operator(replicas=4)
    del operator.spec["scaling"]
    before = settled(operator)

    operator.edit(scaling={"maxReplicas": 6})
    scaled = settled(operator)
    there = OBJECT in operator.cluster.objects
    del operator.spec["scaling"]
    operator.edit()
    after = settled(operator)

    assert (there, OBJECT in operator.cluster.objects) == (True, False)
    assert (scaled, after, operator.spec["replicas"]) == (before, before, 4)


@pytest.mark.parametrize("number", [1, 2, 6])
def test_a_model_is_cut_for_its_load_however_many_groups_there_are(number: int) -> None:
    planned, scaled = an_operator(), an_operator(replicas=number)

    assert (len(settled(planned)), len(settled(scaled))) == (4, number)
    cut = {"replicas": number}
    assert scaled.status["plan"]["layout"] == planned.status["plan"]["layout"] | cut


def test_a_spec_that_changes_while_few_groups_run_keeps_the_cut() -> None:
    operator = an_operator(replicas=1)
    before, cut = settled(operator), operator.status["plan"]["layout"]

    operator.edit(workload=LOAD | {"requestsPerSecond": 40})

    assert (settled(operator), operator.status["plan"]["layout"]) == (before, cut)


def test_without_keda_the_plan_says_the_number_and_the_status_why() -> None:
    operator = an_operator()
    operator.absent_kinds = frozenset({"ScaledObject"})

    pods = settled(operator)

    assert (len(pods), handed_over(operator), not_scaled(operator)) == (4, [], "KedaUnavailable")
    operator.absent_kinds = frozenset()
    operator.cluster.version += 1
    assert (settled(operator), handed_over(operator), not_scaled(operator)) == (pods, [4], None)


def test_groups_for_which_room_is_missing_are_said() -> None:
    operator = an_operator(replicas=10, scaling={"maxReplicas": 10})

    operator.run(SETTLED)

    (said,) = (item for item in operator.status["conditions"] if item["type"] == "PartlyPlaced")
    assert (operator.status["ready"], said["reason"]) == ("8/10", "InsufficientCapacity")


def sleepy(**spec: Any) -> Operator:
    """Return the operator of a model whose last group goes while nobody asks."""
    bounds = {"minReplicas": 0, "maxReplicas": 6}
    return an_operator(scaling=bounds, routing={"mode": "Router"}, **spec)


def router_of(operator: Operator) -> dict[str, Any]:
    return dict(operator.cluster.objects["Deployment", "llama-router"]["spec"])


def condition(operator: Operator, kind: str) -> dict[str, Any]:
    return next((one for one in operator.status["conditions"] if one["type"] == kind), {})


def test_a_model_sleeps_and_wakes_and_its_router_and_its_autoscaler_stay_as_they_are() -> None:
    operator = sleepy(replicas=1)
    operator.run(SETTLED)
    router, scaled = router_of(operator), operator.cluster.objects[OBJECT]

    operator.edit(replicas=0)
    operator.run(SETTLED)
    asleep = (operator.cluster.pods, router_of(operator), operator.cluster.objects[OBJECT])
    said = condition(operator, "Ready")
    operator.edit(replicas=1)

    assert asleep == ({}, router, scaled)
    assert said["reason"] == "Asleep"
    assert len(settled(operator)) == 1
    assert (router_of(operator), operator.cluster.objects[OBJECT]) == (router, scaled)


@pytest.mark.parametrize(
    ("up", "absent", "status", "said"),
    [
        (1, (), "True", "the router holds the next request until a group serves"),
        (0, (), "False", "no request starts a group: no pod of the router is ready"),
        (1, ("ScaledObject",), "False", "no request starts a group: spec.scaling: scaling"),
    ],
)
def test_a_model_that_sleeps_is_ready_if_a_request_would_wake_it(
    up: int, absent: tuple[str, ...], status: str, said: str
) -> None:
    operator = sleepy(replicas=0)
    operator.run(SETTLED)
    operator.cluster.objects["Deployment", "llama-router"]["status"] = {"readyReplicas": up}
    operator.absent_kinds = frozenset(absent)
    operator.cluster.version += 1

    operator.run(SETTLED)

    ready = condition(operator, "Ready")
    assert (ready["reason"], ready["status"]) == ("Asleep", status)
    assert said in ready["message"]
    assert condition(operator, "Stalled")["status"] == "False"


@pytest.mark.parametrize("spec", [{"mode": "PlanOnly"}, {"paused": True}])
def test_a_model_that_is_not_run_is_not_handed_over(spec: dict[str, Any]) -> None:
    operator = an_operator(**spec)

    operator.run(SETTLED / 10)  # while paused it plans each half minute

    assert (handed_over(operator), OBJECT in operator.cluster.objects) == ([], False)


@pytest.mark.parametrize(
    ("settings", "absent", "requests", "code", "way_out"),
    [
        (Settings(), (), 8, "PrometheusNotNamed", "set prometheus.url of the chart"),
        (ADMITTING, ("ScaledObject",), 8, "KedaUnavailable", "install KEDA"),
        (ADMITTING, (), 0, "LoadNotPlanned", "set spec.replicas"),
        (ADMITTING, ("ComputeDomain",), 8, None, ""),
    ],
)
def test_what_hinders_scaling_is_said_with_the_way_out(
    settings: Settings, absent: tuple[str, ...], requests: int, code: str | None, way_out: str
) -> None:
    resource = a_resource(scaling={"maxReplicas": 2})
    subject = resolve(Question(resource=resource, settings=settings))
    observed = Observed(objects={}, absent_kinds=frozenset(absent))

    found = hindrance(subject, a_plan(replica_requests=requests), observed)

    assert (found.code if found else None) == code
    assert way_out in (found.sentence() if found else "")
    assert hindrance(a_subject(), a_plan(), observed) is None
