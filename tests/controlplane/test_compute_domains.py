"""Groups over the trays of a rack: the ComputeDomain that opens NVLink to their pods, and clusters
that have none.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.compute_domains import NvidiaDriver
from tests.harness.controlplane import ControlPlane
from tests.harness.fleet import make_nvl72
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models

pytestmark = pytest.mark.controlplane

OVER_TRAYS: dict[str, Any] = {"parallelism": {"tensor": 8, "pipeline": 1}}
ONE = {"replicas": 1}
MIDDLE = "meta-llama/Llama-3.1-70B-Instruct"


@pytest.fixture
def rack(fleet: Fleet) -> list[str]:
    return fleet.create(make_nvl72(1, trays=4))


@pytest.fixture
def driver(control_plane: ControlPlane, rack: list[str], models: Models) -> Iterator[None]:
    """The driver, once the operator knows that there is one."""
    with NvidiaDriver(control_plane, rack):
        wait_for(lambda: _is_seen(models), 60, "the kind to be seen")
        yield


def _is_seen(models: Models) -> bool:
    models.create("probe", LARGE, mode="PlanOnly", **OVER_TRAYS)
    plan = wait_for(lambda: models.get("ShardedModel", "probe")["status"]["plan"], 30, "a plan")
    models.delete("ShardedModel", "probe")
    wait_for(lambda: models.find("ShardedModel", "probe") is None, 30, "the probe to go")
    return str(plan["placement"]["tensorLink"]) == "NVLink5 NVL72"


def claims(models: Models, control_plane: ControlPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = control_plane.api.get(
        f"/apis/resource.k8s.io/v1/namespaces/{models.namespace}/resourceclaims"
    )["items"]
    return found


@pytest.mark.usefixtures("driver")
def test_every_pod_over_trays_gets_a_channel_of_its_groups_domain_from_the_real_scheduler(
    models: Models, control_plane: ControlPlane, rack: list[str]
) -> None:
    models.create("large", LARGE, **OVER_TRAYS)
    status = models.wait_ready("large")["status"]
    domain = models.get("ComputeDomain", "large-0")

    assert domain["spec"] == {
        "numNodes": 0,
        "channel": {
            "allocationMode": "Single",
            "resourceClaimTemplate": {"name": "large-0-channel"},
        },
    }
    assert [owner["name"] for owner in domain["metadata"]["ownerReferences"]] == ["large"]
    nodes = [pod["spec"]["nodeName"] for pod in models.pods()]
    assert set(nodes) <= set(rack)
    assert sorted(nodes) == status["plan"]["placement"]["nodes"]
    assert status["plan"]["placement"]["tensorLink"] == "NVLink5 NVL72"
    granted = [claim["status"]["allocation"]["devices"] for claim in claims(models, control_plane)]
    assert sorted(devices["results"][0]["pool"] for devices in granted) == sorted(nodes)
    assert {devices["config"][0]["opaque"]["parameters"]["domainID"] for devices in granted} == {
        domain["metadata"]["uid"]
    }


@pytest.mark.usefixtures("driver")
def test_domains_come_and_go_with_their_groups_and_are_put_right(models: Models) -> None:
    models.create("large", LARGE, replicas=2, **OVER_TRAYS)
    models.wait_ready("large")
    assert {item["metadata"]["name"] for item in models.all("ComputeDomain")} == {
        "large-0",
        "large-1",
    }

    models.patch(
        "ComputeDomain",
        "large-0",
        {"metadata": {"labels": {"app.kubernetes.io/instance": "other"}}},
    )
    models.change("large", **ONE)
    wait_for(
        lambda: models.find("ComputeDomain", "large-1") is None,
        30,
        "the domain of the second group to go",
    )
    models.wait_ready("large")
    labels = models.get("ComputeDomain", "large-0")["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "large"

    models.delete("ShardedModel", "large")
    wait_for(
        lambda: not models.all("ComputeDomain"), 90, "the garbage collector to take the last domain"
    )


@pytest.mark.usefixtures("rack")
def test_a_cluster_without_the_kind_gets_a_plan_that_it_can_run_and_hears_what_it_misses(
    models: Models,
) -> None:
    models.create("large", LARGE, objective={"optimizeFor": "Latency"}, workload={"concurrency": 1})
    plan = models.wait_ready("large")["status"]["plan"]

    models.create("middle", MIDDLE, workload={"requestsPerSecond": 10})
    models.wait_ready("middle")
    missed = {item["code"]: item for item in plan["excluded"]}["ComputeDomainUnavailable"]
    assert "better with NVIDIA's DRA driver" in missed["nearestMiss"]
    assert all("resourceClaims" not in pod["spec"] for pod in models.pods())


def test_when_the_kind_comes_what_is_shown_is_planned_anew_and_what_serves_says_so(
    models: Models, control_plane: ControlPlane, rack: list[str]
) -> None:
    over = {"objective": {"optimizeFor": "Latency"}, "workload": {"concurrency": 1}}
    models.create("shown", LARGE, mode="PlanOnly", **over)
    models.create("serving", LARGE, **over)
    models.wait_ready("serving")
    assert _misses_it(models, "shown")
    before = models.uids()

    with NvidiaDriver(control_plane, rack):
        wait_for(lambda: not _misses_it(models, "shown"), 60, "a plan over NVLink")
        wait_for(lambda: _stale(models)["reason"] == "BetterPlan", 60, "a better plan to be said")
        said = _stale(models)["message"]

    assert "better by Latency; with spec.replan: Always a plan that serves gives way" in said
    assert (models.uids(), _misses_it(models, "serving")) == (before, True)


def _stale(models: Models) -> dict[str, Any]:
    found: dict[str, Any] = models.condition("serving", "PlanStale")
    return found


def _misses_it(models: Models, name: str) -> bool:
    plan = wait_for(lambda: models.get("ShardedModel", name)["status"]["plan"], 30, "a plan")
    return any(item["code"] == "ComputeDomainUnavailable" for item in plan["excluded"])
