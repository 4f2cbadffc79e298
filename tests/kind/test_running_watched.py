"""The chart for some namespaces, on real kubelets: `helm test`, and whose models are planned."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.waiting import wait_for
from tests.kind import release
from tests.kind.cluster import Cluster

pytestmark = pytest.mark.timeout(600)

WATCHED, OTHER = "watched", "unwatched"
UNSEEN = {"observedGeneration": -1}
"""The status of what no operator has looked at: the default of the CustomResourceDefinition."""


@pytest.fixture(scope="module")
def watching(kind: Cluster) -> Iterator[Cluster]:
    """The operator serves one of two namespaces that differ in nothing else."""
    for name in (WATCHED, OTHER):
        kind.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        with release.watching(kind, WATCHED):
            yield kind
    finally:
        kind.kubectl(
            *("delete", "namespace", WATCHED, OTHER), *("--ignore-not-found", "--wait=false")
        )


def test_helm_test_passes(watching: Cluster) -> None:
    assert release.tested(watching) == release.TESTED


def test_a_model_of_a_watched_namespace_is_planned_and_one_of_another_is_not(
    watching: Cluster,
) -> None:
    for namespace in (OTHER, WATCHED):
        watching.apply(release.plan_only("planned", namespace))

    plan = wait_for(lambda: _status(watching, WATCHED)["plan"], 120, "the plan", 1)

    assert plan["product"] == "Tesla-T4"
    assert _status(watching, OTHER) == UNSEEN


def _status(cluster: Cluster, namespace: str) -> Any:
    return cluster.get("smodel", "planned", "-n", namespace)["status"]
