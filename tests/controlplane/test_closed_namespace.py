"""A watched namespace that cannot be read is named wherever its GPUs are missed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shardwright.cli.main import main
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.builders_chart import CHART, SYSTEM
from tests.support.models import Models
from tests.support.operator import OperatorProcess, operator_of

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
WATCHED = ("watchNamespaces={open,closed}", "clusterPods=false")


def _helm(cluster: ControlPlane, verb: str) -> None:
    words = (verb, "shardwright", str(CHART), "--namespace", SYSTEM, *NAMED)
    cluster.helm(*words, *(word for value in WATCHED for word in ("--set", value)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """A control plane of its own, with an installation that has lost a Role."""
    with ControlPlane.start() as running:
        for name in (SYSTEM, "open", "closed"):
            running.create_namespace(name)
        _helm(running, "install")
        running.kubectl("-n", "closed", "delete", "role", "shardwright-operator")
        yield running


@pytest.fixture(scope="module")
def taken(cluster: ControlPlane) -> Iterator[str]:
    """The only node: a pod of the namespace that cannot be read has its eight GPUs."""
    fleet = Fleet(cluster)
    (node,) = fleet(H100, 1)
    gpus = {"nvidia.com/gpu": "8"}
    container = {"name": "c", "image": "c", "resources": {"limits": gpus}}
    spec = {"nodeName": node, "containers": [container]}
    tolerations = [{"operator": "Exists"}]
    pod = {"metadata": {"name": "taker"}, "spec": spec | {"tolerations": tolerations}}
    Models(cluster, "closed").post("Pod", pod)
    yield node
    fleet.delete()


@pytest.fixture(scope="module")
def operator(
    cluster: ControlPlane, taken: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    assert taken
    folder = tmp_path_factory.mktemp("settings")
    with operator_of(cluster, folder, "shardwright") as running:
        yield running


def _readable(operator: OperatorProcess) -> dict[str, float]:
    """Return what the metric says of each watched namespace."""
    text = operator.get("/metrics")[1]
    return {
        sample.labels["namespace"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "shardwright_watched_namespace_readable"
    }


def _missed(cluster: ControlPlane, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the namespaces that the doctor says are not seen."""
    main(["doctor", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    findings = [finding for check in checks for finding in check["findings"]]
    return {finding["objects"][0] for finding in findings if finding["reason"] == "NamespaceUnseen"}


def test_an_unreadable_namespace_is_named_until_its_role_is_back_while_others_are_served(
    cluster: ControlPlane, operator: OperatorProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPUs in use there count as free until then, and no longer; nobody restarts."""
    served, closed = Models(cluster, "open"), Models(cluster, "closed")
    named = "namespace closed of watchNamespaces cannot be read, so GPUs in use there "
    process = operator.running()

    def planned(models: Models, name: str) -> tuple[str, str]:
        found = models.condition(name, "Planned")
        assert found["status"] != "Unknown"
        return found["reason"], found["message"]

    closed.create("unseen", mode="PlanOnly")
    served.create("early", mode="PlanOnly")
    reason, message = wait_for(lambda: planned(served, "early"), 30, "a plan")
    assert (reason, message.startswith(named)) == ("FreeCapacityUnknown", True)
    assert _readable(operator) == {"open": 1, "closed": 0}
    assert _missed(cluster, capsys) == {"closed"}
    assert closed.get("ShardedModel", "unseen")["status"] == {"observedGeneration": -1}

    _helm(cluster, "upgrade")
    wait_for(lambda: _unnamed(planned(served, "early")[1]), 120, "it to be read")
    assert _readable(operator) == {"open": 1, "closed": 1}
    assert _missed(cluster, capsys) == set()
    wait_for(lambda: planned(closed, "unseen"), 60, "its models to be looked at")
    served.create("late", mode="PlanOnly")
    reason, message = wait_for(lambda: planned(served, "late"), 30, "a look at it")
    assert reason == "InsufficientCapacity", message
    assert operator.running() == process


def _unnamed(message: str) -> bool:
    return "cannot be read" not in message
