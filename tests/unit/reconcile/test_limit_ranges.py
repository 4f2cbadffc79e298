"""A LimitRange of the namespace is about pods that are made anew: it restarts none that serves,
whatever it comes to say.
"""

from functools import cache
from json import dumps, loads
from typing import Any

import pytest

from shardwright.rendering import pod as rendering
from shardwright.rendering.bundle import OWN_HASH
from tests.support.builders_reconcile import crashed
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.said import condition_in
from tests.support.small_cluster import SmallCluster

SETTLED = 900
"""Seconds in which whatever an operator begins has come to an end."""

ROLL = {"rollout": {"onUpgrade": "Roll"}}


def serving(**spec: Any) -> Operator:
    """Return an operator whose model serves in a namespace without a LimitRange."""
    return _served(dumps(spec, sort_keys=True)).fork()


@cache
def _served(spec: str) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(4)
    operator = Operator(cluster, loads(spec))
    assert condition_in(operator.run(SETTLED).status, "Ready")["reason"] == "Serving"
    return operator


def uids(operator: Operator) -> set[str]:
    return {pod["metadata"]["uid"] for pod in operator.cluster.pods.values()}


def limits(operator: Operator) -> set[str]:
    """Return the limits of memory that the pods have."""
    specs = (pod["spec"] for pod in operator.cluster.pods.values())
    return {
        container["resources"]["limits"]["memory"]
        for spec in specs
        for container in spec["containers"]
    }


def crash(operator: Operator, pod: str) -> None:
    """Have the engine of a pod end, and its kubelet start it again."""
    operator.cluster.pods[pod]["status"] = crashed(pod, ready=False)["status"]
    operator.cluster.version += 1


@pytest.mark.parametrize("life", [{}, ROLL])
@pytest.mark.parametrize("spec", [{}, ONE_NODE | {"replicas": 3}, TWO_NODES])
def test_a_limit_range_that_comes_changes_and_goes_restarts_nothing(
    spec: dict[str, Any], life: dict[str, Any]
) -> None:
    operator = serving(**spec, **life)
    before, had = uids(operator), limits(operator)

    for most in (
        {"memory": "200Gi", "ephemeral-storage": "20Gi"},
        {"ephemeral-storage": "30Gi"},
        {},
    ):
        operator.limit(**most)
        published = operator.run(SETTLED)
        assert (uids(operator), limits(operator)) == (before, had)
        assert condition_in(published.status, "Ready")["reason"] == "Serving"
        assert condition_in(published.status, "RolloutPending")["status"] == str(bool(most))


@pytest.mark.parametrize("life", [{}, ROLL])
@pytest.mark.parametrize("spec", [ONE_NODE, TWO_NODES])
def test_a_pull_policy_that_comes_and_goes_restarts_nothing(
    spec: dict[str, Any], life: dict[str, Any]
) -> None:
    operator = serving(**spec, **life)
    before = uids(operator)

    for pod in ({"imagePullPolicy": "Always"}, {"imagePullPolicy": "Never"}, {}):
        operator.edit(**spec, **life, pod=pod)
        published = operator.run(SETTLED)
        assert uids(operator) == before
        assert condition_in(published.status, "RolloutPending")["status"] == str(bool(pod))


@pytest.mark.parametrize("life", [{}, ROLL])
@pytest.mark.parametrize("spec", [ONE_NODE, TWO_NODES])
def test_a_pod_that_is_made_anew_for_another_reason_has_what_the_limit_range_says(
    spec: dict[str, Any], life: dict[str, Any]
) -> None:
    operator = serving(**spec, **life)
    operator.limit(memory="200Gi")
    operator.run(SETTLED)

    operator.cluster.end(operator.cluster.pods["llama-0-0"], taken_by="EvictionByEvictionAPI")
    published = operator.run(SETTLED)

    assert limits(operator) == {"200Gi"}
    assert condition_in(published.status, "Ready")["reason"] == "Serving"
    assert condition_in(published.status, "RolloutPending")["status"] == "False"


def test_a_limit_range_made_while_a_group_is_at_zero_counts_when_it_starts() -> None:
    operator = serving(**TWO_NODES, **ROLL, restart={"delaySeconds": 300})
    for _ in range(2):
        crash(operator, "llama-0-1")
        operator.run(60)
    assert not operator.cluster.pods
    operator.limit(memory="200Gi")

    operator.run(60)
    assert not operator.cluster.pods  # it is no change for which a pause ends
    operator.run(SETTLED)

    assert limits(operator) == {"200Gi"}


def test_a_single_pod_whose_engine_ends_again_and_again_is_made_anew_with_it() -> None:
    operator = serving(**ONE_NODE, **ROLL)
    operator.limit(memory="200Gi")
    operator.run(60)
    crash(operator, "llama-0-0")

    operator.run(SETTLED)

    assert limits(operator) == {"200Gi"}


def test_with_roll_a_release_restarts_groups_also_where_a_limit_range_has_come_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**ONE_NODE, **ROLL, replicas=2)
    before = uids(operator)
    operator.limit(memory="200Gi")
    monkeypatch.setattr(rendering, "PROBE_TIMEOUT_SECONDS", 6)

    operator.run(SETTLED)

    assert uids(operator).isdisjoint(before)
    assert limits(operator) == {"200Gi"}


def test_roll_asked_for_later_leaves_to_the_next_restart_what_a_limit_range_has_changed() -> None:
    operator = serving(**ONE_NODE)
    before = uids(operator)
    operator.limit(memory="200Gi")
    operator.run(60)

    operator.edit(**ROLL)
    operator.run(SETTLED)

    assert uids(operator) == before


def test_a_spec_that_changes_restarts_groups_that_a_limit_range_has_left_as_they_were() -> None:
    operator = serving(**ONE_NODE, **ROLL)
    before = uids(operator)
    operator.limit(memory="200Gi")
    operator.run(60)

    operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    operator.run(SETTLED)

    assert uids(operator).isdisjoint(before)
    assert limits(operator) == {"200Gi"}


@pytest.mark.parametrize("life", [{}, ROLL])
def test_pods_of_a_release_that_did_not_say_what_they_would_be_without_it_stay(
    life: dict[str, Any],
) -> None:
    operator = serving(**ONE_NODE, **life, replicas=2)
    operator.limit(memory="200Gi")
    operator.annotations["shardwright.io/restart"] = "now"
    operator.run(SETTLED)
    before = uids(operator)
    for item in (
        *operator.cluster.pods.values(),
        *(live["spec"]["template"] for live in operator.cluster.sets().values()),
    ):
        del item["metadata"]["labels"][OWN_HASH]
    operator.cluster.version += 1

    operator.run(SETTLED)

    assert (uids(operator), limits(operator)) == (before, {"200Gi"})
