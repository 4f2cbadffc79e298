"""``shardwright doctor`` against a live API server: what it reads, what it may not read, the pod
that it makes and removes.
"""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardwright.cli import present_states
from shardwright.cli.clusters import Target
from shardwright.cli.diagnosis import Enforcement
from shardwright.cli.main import main
from shardwright.cli.trial import LABEL, Measured, Trial, measure
from shardwright.cluster.connection import Connection
from tests.harness import fleet as fleets
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.pods import Pods
from tests.harness.waiting import wait_for
from tests.support.models import Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane
Capture = pytest.CaptureFixture[str]

H100 = "h100-8x-dell-xe9680"


def checks(capsys: Capture) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in json.loads(capsys.readouterr().out)["checks"]}


def test_the_doctor_says_of_a_live_cluster_what_is_wrong_with_it(
    models: Models, control_plane: ControlPlane, fleet: Fleet, capsys: Capture
) -> None:
    (unknown,) = fleets.make(H100, 1, "unknown")
    unknown["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-X9"
    (name,) = fleet.create([unknown])
    models.create("asks", "nobody/knows")
    models.wait_reason("asks", "ModelUnknown")

    assert main(["doctor", "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]) == 1

    found = checks(capsys)
    results = {check: one["result"] for check, one in found.items() if check != "Storage"}
    assert results == {
        "Kubernetes": "Fine",
        "ShardedModels": "Fine",
        # the Lease is held by a process beside the cluster, the Deployment has no pod
        "Operator": "Wrong",
        "Rights": "Fine",
        "Installations": "Fine",
        "Answers": "Fine",
        "Writes": "Fine",
        "PlannedNodes": "Fine",
        "Quotas": "Fine",
        "Budgets": "Fine",
        "Nodes": "Wrong",
        "Models": "Wrong",
        "ConfigFetches": "Fine",
        "Clients": "Fine",
        "Routers": "Fine",
        "NetworkPolicies": "Skipped",
    }
    reasons = [finding["reason"] for finding in found["Operator"]["findings"]]
    assert reasons == ["NotReady", "LeaseOfAnother"]
    told = [
        (one["reason"], one["objects"], one["command"])
        for check in ("Nodes", "Models")
        for one in found[check]["findings"]
    ]
    assert ("NodeLeftOut", [name], f"kubectl label node {name} shardwright.io/gpu-model=ID") in told
    assert ("ModelStalled", ["asks"], f"kubectl -n {models.namespace} describe smodel asks") in told


def test_who_may_read_nothing_is_told_what_was_not_looked_at(
    chart: ControlPlane, namespace: str, capsys: Capture
) -> None:
    chart.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    kubeconfig = chart.kubeconfig_for(namespace, "nobody")

    assert main(["doctor", "--kubeconfig", str(kubeconfig)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines if line[0] != " "] == ["o", "?", "-"]


@pytest.mark.parametrize(
    ("stopped", "verdict"), [(True, Enforcement.ENFORCED), (False, Enforcement.IGNORED)]
)
def test_a_pod_that_a_policy_stops_and_lets_go_again_shows_that_policies_are_enforced(
    control_plane: ControlPlane, fleet: Fleet, *, stopped: bool, verdict: Enforcement
) -> None:
    fleet(H100, 1)
    cluster = Target(connection=Connection(kubeconfig=str(control_plane.kubeconfig)))
    trial = Trial(namespace="", image="example/python", settling_seconds=8)
    pods = Pods(control_plane.api)
    with ThreadPoolExecutor(1) as pool:
        measuring = pool.submit(cluster.ask, lambda client: measure(client, trial))
        if stopped:
            policy = wait_for(lambda: policies(control_plane)[0], 60, "the policy")
            namespace = policy["metadata"]["namespace"]
            (pod,) = pods.list(namespace, LABEL)
            pods.hang(namespace, pod["metadata"]["name"])
            wait_for(lambda: not policies(control_plane), 30, "the policy to be gone")
            pods.recover(namespace, pod["metadata"]["name"])
        measured = measuring.result(60)

    assert measured == Measured(enforcement=verdict)
    wait_for(lambda: not_left(control_plane), 60, "all of it to be gone")


def test_a_trial_that_does_not_come_to_its_end_says_why_and_leaves_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    # Without a node: the pod is never ready, however slow the machine is.
    trial = Trial(namespace=namespace, image="example/python", start_seconds=0)
    cluster = Target(connection=Connection(kubeconfig=str(control_plane.kubeconfig)))

    measured = cluster.ask(lambda client: measure(client, trial))

    assert measured.enforcement is Enforcement.UNCLEAR
    assert measured.trouble.startswith("pod shardwright-doctor-")
    paths = (
        f"/api/v1/namespaces/{namespace}/pods",
        f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    )
    wait_for(
        lambda: not any(control_plane.api.get(path)["items"] for path in paths),
        30,
        "all of it to be gone",
    )


def policies(control_plane: ControlPlane) -> list[Manifest]:
    found = control_plane.api.get("/apis/networking.k8s.io/v1/networkpolicies")["items"]
    return [item for item in found if item["metadata"]["name"].startswith("shardwright-doctor-")]


def not_left(control_plane: ControlPlane) -> bool:
    names = [
        item["metadata"]["name"] for item in control_plane.api.get("/api/v1/namespaces")["items"]
    ]
    return not any(name.startswith("shardwright-doctor-") for name in names)


def test_of_several_causes_at_once_in_a_live_cluster_each_is_found(
    operator: OperatorProcess,
    models: Models,
    control_plane: ControlPlane,
    fleet: Fleet,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(present_states, "ANSWER_SECONDS", 3.0)
    fleet(H100, 1)
    models.create("m")
    node = models.wait_ready("m")["status"]["groups"][0]["nodes"][0]
    control_plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    selector = {"matchLabels": {"shardwright.io/model": "m"}}
    models.post(
        "PodDisruptionBudget",
        {"metadata": {"name": "mine"}, "spec": {"minAvailable": 1, "selector": selector}},
    )
    models.post("ResourceQuota", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})

    with stopped(worker_of(operator)):
        models.change("m", replicas=2)
        found = {one["reason"] for one in diagnosed(control_plane, capsys)}

    assert {"EditsUnanswered", "BudgetBlocksDrain", "PlannedNodeCordoned"} <= found
    wait_for(lambda: models.condition("m", "PartlyPlaced"), 30, "the edit to be looked at")
    assert "QuotaSpent" in {one["reason"] for one in diagnosed(control_plane, capsys)}


def test_a_leader_that_is_stopped_is_the_first_thing_that_is_said(
    operator: OperatorProcess,
    models: Models,
    control_plane: ControlPlane,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(present_states, "LEASE_WATCHED_SECONDS", 5)
    with stopped(operator.running()):
        models.create("m")
        main(["doctor", "--kubeconfig", str(control_plane.kubeconfig)])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20
    assert " ".join(lines[:3]).startswith("WRONG shardwright-system/shardwright: 0 of ")
    assert "has not renewed it in 5 s: nothing is written" in " ".join(map(str.strip, lines))
    operator.kill()  # the last test of the module: it may have ended itself at waking


@contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def worker_of(operator: OperatorProcess) -> int:
    pid = operator.running()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (worker,) = map(int, children)
    return worker


def diagnosed(control_plane: ControlPlane, capsys: Capture) -> list[dict[str, Any]]:
    main(["doctor", "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"])
    return [finding for one in checks(capsys).values() for finding in one["findings"]]
