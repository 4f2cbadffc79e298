"""The samples on the example fleet, served by the operator as its Deployment says, from the
wheel.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.cli.main import main
from tests.harness import demo
from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import DeployedOperator, leads
from tests.harness.waiting import wait_for
from tests.support.console_blocks import FENCE, not_printed, steps
from tests.support.models import Models
from tests.support.operator import OPERATOR_USER, SYSTEM

PAGE = Path(__file__).parents[2] / "docs/howto/why-is-it-not-ready.md"
SAMPLES = demo.samples()
DEPLOYED = [sample for sample in SAMPLES if sample.expected["outcome"] == "Ready"]


@pytest.fixture(scope="module")
def deployed(chart: ControlPlane) -> Iterator[DeployedOperator]:
    """The example fleet and the operator's own processes, for all tests of this module."""
    nodes, pods = demo.fleet()
    demo.create_fleet(chart, nodes, pods)
    with DeployedOperator(chart, SYSTEM, "shardwright") as operator:
        yield operator
    chart.nodes.delete_with_pods(*(node["metadata"]["name"] for node in nodes))


@pytest.fixture(scope="module")
def served(chart: ControlPlane, deployed: DeployedOperator) -> Iterator[Models]:
    """All samples applied at once, as the demo does."""
    namespace = chart.create_namespace(demo.NAMESPACE)
    for sample in SAMPLES:
        chart.kubectl("apply", "-n", namespace, "-f", str(sample.file))
    yield Models(chart, namespace)
    deployed.check()
    chart.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample.name))
def test_each_sample_becomes_what_it_states(served: Models, sample: demo.Sample) -> None:
    def as_stated() -> bool:
        assert demo.difference(sample, served.get("ShardedModel", sample.name)) == ""
        return True

    assert wait_for(as_stated, 90, f"{sample.name} to be as stated")


@pytest.mark.parametrize("sample", DEPLOYED, ids=lambda sample: str(sample.name))
def test_pods_of_a_sample_run_on_exactly_the_planned_nodes_and_gpus(
    served: Models, sample: demo.Sample
) -> None:
    plan = served.wait_ready(sample.name)["status"]["plan"]
    pods = _pods(served, sample)

    placed = {pod["spec"]["nodeName"]: _gpus(pod) for pod in pods}

    assert placed == dict.fromkeys(plan["placement"]["nodes"], plan["gpus"] // plan["nodes"])


@pytest.mark.parametrize("sample", DEPLOYED, ids=lambda sample: str(sample.name))
def test_ranks_of_a_sample_differ_in_their_name_and_node_alone(
    served: Models, sample: demo.Sample
) -> None:
    """The rank comes from the pod's own index: one template, the same command and the same
    environment everywhere.
    """
    served.wait_ready(sample.name)
    engines = [_engine(pod) for pod in _pods(served, sample)]

    assert all(engine == engines[0] for engine in engines)
    assert [word for word in engines[0]["args"] if word == "--tensor-parallel-size"] == [
        "--tensor-parallel-size"
    ]
    assert _after(engines[0]["args"], "--tensor-parallel-size") == sample.expected["tensor"]
    assert _after(engines[0]["args"], "--pipeline-parallel-size") == sample.expected["pipeline"]
    environment = {entry["name"]: entry for entry in engines[0]["env"]}
    assert environment["VLLM_HOST_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_what_the_page_shows_of_a_sample_that_does_not_fit_is_printed(
    served: Models,
    chart: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr(sys, "argv", ["kubectl-shardwright"])
    (name,) = (one.name for one in SAMPLES if one.expected["outcome"] == "NothingFits")
    wait_for(lambda: _reason_of(served, name) == "NothingFits", 90, f"{name}: why")
    where = ["-n", served.namespace]
    blocks = [text for kind, text in FENCE.findall(PAGE.read_text()) if kind == "console"]
    taken = [step for text in blocks for step in steps(text) if step.command.startswith("kubectl ")]

    def printed(words: list[str]) -> str:
        if words[:2] != ["kubectl", "shardwright"]:
            return chart.kubectl(*words[1:], *where)
        there = [*where, "--kubeconfig", str(chart.kubeconfig)]
        main([*words[2:], *there])
        return capsys.readouterr().out

    assert len(taken) == 2
    assert [
        line
        for step in taken
        for line in not_printed(step.shown, printed(shlex.split(step.command)))
    ] == []


def test_one_operator_leads_and_all_are_alive(served: Models, deployed: DeployedOperator) -> None:
    del served
    deployed.leader()  # there is one, after a moment

    assert [replica.get("/healthz")[0] for replica in deployed.replicas] == [200, 200]
    assert sum(leads(replica.get("/metrics")[1]) for replica in deployed.replicas) == 1


def test_the_operator_takes_up_a_renewed_token(
    served: Models, deployed: DeployedOperator, chart: ControlPlane
) -> None:
    """A process that kept its first token in memory would be locked out when that one ends, an hour
    after its start.
    """
    del served
    before = _tokens_of_operator(chart)
    deployed.renew_tokens()

    wait_for(
        lambda: _tokens_of_operator(chart) - before, 120, "a request with a new token", interval=1.0
    )


def test_a_pod_of_the_operators_namespace_never_looks_ready(
    served: Models, chart: ControlPlane
) -> None:
    """Nothing shows a false Ready: the processes run, but no kubelet reports them."""
    del served

    assert [pod["status"]["phase"] for pod in chart.pods.list(SYSTEM)] == ["Pending", "Pending"]


def _reason_of(served: Models, name: str) -> str | None:
    conditions = served.get("ShardedModel", name)["status"].get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), None)


def _tokens_of_operator(chart: ControlPlane) -> set[str]:
    """The ids of the tokens with which the operator has made requests."""
    return {
        identity
        for event in chart.audit_events(OPERATOR_USER)
        for identity in event["user"]
        .get("extra", {})
        .get("authentication.kubernetes.io/credential-id", [])
    }


def _pods(served: Models, sample: demo.Sample) -> list[Manifest]:
    owned = {
        item["metadata"]["name"]
        for item in served.all("StatefulSet")
        if item["metadata"]["ownerReferences"][0]["name"] == sample.name
    }
    pods = [pod for pod in served.pods() if pod["metadata"]["ownerReferences"][0]["name"] in owned]
    if not pods:
        raise ApiError(404, "NotFound", f"no pods of {sample.name}")
    return pods


def _engine(pod: Manifest) -> Manifest:
    (container,) = (item for item in pod["spec"]["containers"] if item["name"] == "engine")
    return dict(container)


def _gpus(pod: Manifest) -> int:
    limits = _engine(pod)["resources"]["limits"]
    return sum(int(amount) for name, amount in limits.items() if name.endswith("/gpu"))


def _after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]
