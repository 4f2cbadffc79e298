"""Pods that a namespace does not let in are not made: what runs is not stopped for them, whoever
asks for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwright.reconcile.observed import Observed
from shardwright.reconcile.quotas import Allowance, read_quota, read_ranges
from tests.support.builders_snapshot import ONE_NODE, Operator
from tests.support.changed_engines import Cluster
from tests.support.going_back import ask, condition, ready, revisions, rolled_back, serving, uids
from tests.support.small_cluster import SmallCluster

GPUS = "requests.nvidia.com/gpu"
MEMORY, DISK = "requests.memory", "limits.ephemeral-storage"
SCRATCH = {"name": "own", "mountPath": "/mnt/own", "emptyDir": {"sizeLimit": "900Gi"}}


def allow(operator: Operator, name: str, hard: str, used: str) -> None:
    """Let a quota of the namespace say this."""
    amounts = {"hard": {name: hard}, "used": {name: used}}
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {name: hard}}, "status": amounts}
    operator.allowance = Allowance(quotas=(read_quota(quota),))
    operator.cluster.version += 1


def two_groups(memory: str) -> Operator:
    """Return an operator of two groups of one node each, with one node to spare."""
    return serving(3, **ONE_NODE, replicas=2, pod={"resources": {"memory": memory}})


@pytest.mark.parametrize(
    ("hard", "reason", "gpus"),
    [("6", ("True", "Serving"), 4), ("2", ("False", "QuotaExceeded"), 8)],
    ids=["some are left", "none are left"],
)
def test_a_plan_takes_no_more_gpus_than_a_quota_leaves_or_is_only_shown_where_none_fits_in(
    hard: str, reason: tuple[str, str], gpus: int
) -> None:
    cluster = Cluster()
    cluster.add_nodes(1)
    operator = Operator(cluster, {"budget": {"fill": True, "gpus": 8}})
    allow(operator, GPUS, hard, "2")

    operator.run(900)

    assert (ready(operator), operator.status["plan"]["gpus"]) == (reason, gpus)


@pytest.mark.parametrize(
    ("name", "pod"),
    [
        (MEMORY, {"resources": {"memory": "200Gi"}}),  # another plan is asked for
        (DISK, {"resources": {"memory": "100Gi"}, "volumes": [SCRATCH]}),  # none is
    ],
    ids=["memory", "volume"],
)
def test_a_change_whose_pods_would_not_be_let_in_stops_no_group_until_they_are(
    name: str, pod: dict[str, Any]
) -> None:
    operator = two_groups("100Gi")
    before = uids(operator)
    allow(operator, name, "300Gi", "200Gi")
    operator.edit(pod=pod)

    operator.run(900)

    assert (ready(operator), uids(operator)) == (("False", "QuotaExceeded"), before)
    message = condition(operator, "Ready")["message"]
    assert message.startswith(f"ResourceQuota team allows 322122547200 {name}, of ")
    assert "too many; running groups are kept meanwhile; " in message

    allow(operator, name, "9Ti", "200Gi")
    operator.run(900)
    assert ready(operator) == ("True", "Serving")
    assert set(uids(operator).values()).isdisjoint(before.values())


def test_a_revision_whose_pods_would_not_be_let_in_is_not_gone_back_to_until_they_are() -> None:
    operator = two_groups("200Gi")
    operator.edit(pod={"resources": {"memory": "100Gi"}})
    operator.run(900)
    assert revisions(operator) == [(1, False), (2, True)]
    before = uids(operator)
    allow(operator, MEMORY, "400Gi", "300Gi")  # others have taken what it gave back

    ask(operator, "1")
    operator.run(900)

    assert (ready(operator), uids(operator)) == (("False", "QuotaExceeded"), before)
    assert (
        "of which 107374182400 are used or promised to other models, "
        "the plan needs 429496729600, 107374182400 too many; running groups are kept"
    ) in condition(operator, "Ready")["message"]

    allow(operator, MEMORY, "400Gi", "200Gi")
    operator.run(900)
    assert (ready(operator), rolled_back(operator)[0]) == (("True", "Serving"), "True")
    assert set(uids(operator).values()).isdisjoint(before.values())


def test_a_change_that_has_begun_goes_on_although_the_quota_is_lowered() -> None:
    operator = two_groups("100Gi")
    before = uids(operator)
    operator.edit(pod={"resources": {"memory": "100Gi"}, "volumes": [SCRATCH]})
    operator.run(10)
    allow(operator, DISK, "1Gi", "1Gi")

    operator.run(900)

    assert ready(operator) == ("True", "Serving")
    assert set(uids(operator).values()).isdisjoint(before.values())


def test_a_group_that_is_added_counts_alone_beside_those_that_stay() -> None:
    operator = two_groups("100Gi")
    before = uids(operator)
    allow(operator, MEMORY, "299Gi", "200Gi")
    operator.edit(replicas=3)
    operator.run(600)
    assert (ready(operator), uids(operator)) == (("True", "Serving"), before)
    assert condition(operator, "PartlyPlaced")["reason"] == "QuotaExceeded"

    allow(operator, MEMORY, "300Gi", "200Gi")
    operator.run(600)

    assert ready(operator) == ("True", "Serving")
    assert uids(operator).items() > before.items()


def test_of_a_growth_as_many_groups_are_added_as_the_quota_admits_and_the_rest_with_the_quota() -> (
    None
):
    operator = two_groups("100Gi")
    operator.cluster.add_nodes(1, first=3)
    before = uids(operator)
    allow(operator, MEMORY, "399Gi", "200Gi")
    operator.edit(replicas=4)
    operator.run(900)

    assert (ready(operator), len(uids(operator))) == (("True", "Serving"), 3)
    assert uids(operator).items() > before.items()
    partly = condition(operator, "PartlyPlaced")
    assert (partly["reason"], partly["message"][:13]) == ("QuotaExceeded", "3 of 4 placed")
    assert condition(operator, "Stalled")["status"] == "False"
    assert operator.kept
    assert operator.kept.record.plan.layout.replicas == 3
    operator.written.clear()
    allow(operator, MEMORY, "399Gi", "300Gi")
    operator.run(600)
    assert operator.written == []

    allow(operator, MEMORY, "400Gi", "300Gi")
    operator.run(900)
    assert (ready(operator), len(uids(operator))) == (("True", "Serving"), 4)


def test_a_new_model_runs_as_many_groups_as_the_quota_admits_if_they_are_enough() -> None:
    cluster = SmallCluster()
    cluster.add_nodes(4)
    pods = {"resources": {"memory": "100Gi"}}
    rollout = {"minGroups": 3}
    operator = Operator(cluster, ONE_NODE | {"replicas": 4, "pod": pods, "rollout": rollout})
    allow(operator, MEMORY, "299Gi", "0")
    operator.run(600)
    assert (ready(operator), uids(operator)) == (("False", "QuotaExceeded"), {})

    allow(operator, MEMORY, "300Gi", "0")
    operator.run(900)
    assert (ready(operator), len(uids(operator))) == (("True", "Serving"), 3)


@pytest.mark.parametrize("number", [{}, {"replicas": 12}], ids=["planned", "given"])
def test_a_quota_of_gpus_lets_in_as_many_groups_as_it_leaves_and_the_rest_once_it_is_raised(
    number: dict[str, int],
) -> None:
    cluster = SmallCluster()
    cluster.add_nodes(2)
    operator = Operator(cluster, {"workload": {"requestsPerSecond": 60}} | number)
    allow(operator, GPUS, "6", "0")
    operator.run(900)
    before, partly = uids(operator), condition(operator, "PartlyPlaced")
    operator.written.clear()
    allow(operator, GPUS, "6", "6")
    operator.run(900)
    assert (ready(operator), len(before), operator.written) == (("True", "Serving"), 6, [])
    assert (partly["reason"], partly["message"][:14]) == ("QuotaExceeded", "6 of 12 placed")

    allow(operator, GPUS, "12", "6")
    operator.run(900)

    assert (ready(operator), len(uids(operator))) == (("True", "Serving"), 12)
    assert uids(operator).items() > before.items()


def test_pods_that_a_range_lets_no_more_in_stop_no_group_either() -> None:
    operator = two_groups("100Gi")
    before = uids(operator)
    least = {"type": "Container", "min": {"memory": "60Gi"}}
    operator.allowance = Allowance(
        ranges=read_ranges({"metadata": {"name": "team"}, "spec": {"limits": [least]}})
    )
    operator.edit(pod={"resources": {"memory": "50Gi"}})

    operator.run(600)

    assert (ready(operator), uids(operator)) == (("False", "QuotaExceeded"), before)
    assert condition(operator, "Ready")["message"].startswith("LimitRange team ")


def test_a_template_that_somebody_has_filled_is_judged_by_its_pods_alone() -> None:
    """Of one that is too large, the caches keep its labels."""
    operator = two_groups("100Gi")
    before = uids(operator)
    allow(operator, MEMORY, "300Gi", "200Gi")
    operator.edit(pod={"resources": {"memory": "200Gi"}})
    seen = operator.seen()
    assert isinstance(seen.observed, Observed)
    objects = dict(seen.observed.objects)
    live = objects["StatefulSet", "llama-0"]
    bare = {**live["spec"]["template"], "spec": {}}
    objects["StatefulSet", "llama-0"] = {**live, "spec": {**live["spec"], "template": bare}}

    operator.reconcile(replace(seen, observed=replace(seen.observed, objects=objects)))

    assert (ready(operator), uids(operator)) == (("False", "QuotaExceeded"), before)
