"""How long groups take to come back, in real time, with faults side by side: each within its limit,
and no group that serves is touched.

Collected with ``--recovery`` alone (``make recovery``): it waits for a minute and a half.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.controlplane.conftest import INSTALLATION
from tests.harness import stages
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess

H100 = "h100-8x-dell-xe9680"
LOAD = "8s"
"""How long an engine loads its weights."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"

RANK, GONE, SILENT, TAINTED, STEADY = "rank", "gone", "silent", "tainted", "steady"
SPARES = 3
"""A node for each model that loses one."""

DEAD_RANK = "dead rank: both pods anew"
NODE_GONE = "node object gone: next place begun"
NOT_READY = "node not ready: next place begun"
NODE_TAINTED = "node tainted: next place begun"
KILLED = "operator killed: first write of the next"
LIMITS = {DEAD_RANK: 3, NODE_GONE: 75, NOT_READY: 75, NODE_TAINTED: 75, KILLED: 20}
"""Unit: seconds, by what happens."""

ROOM = 1.5
"""How many times as long it may take here: a machine that builds is not quiet."""

Pods = Mapping[str, list[Manifest]]


@dataclass(frozen=True)
class Fault:
    """What is done to a model, and what of its pods says that it comes back."""

    model: str
    does: Callable[[], None]
    comes_back: Callable[[list[Manifest]], bool]


@pytest.fixture
def loading(control_plane: ControlPlane) -> Iterator[None]:
    """Engines that take their time: no model may say that of its pods."""
    metadata, pods = {"name": "slow-engines"}, {"apiGroups": [""], "apiVersions": ["v1"]}
    slow = f"Object.metadata{{annotations: {{'{stages.READY_AFTER}': '{LOAD}'}}}}"
    spec = {
        "matchConstraints": {
            "resourceRules": [{**pods, "operations": ["CREATE"], "resources": ["pods"]}]
        },
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{metadata: {slow}}}"},
            }
        ],
    }
    binding = {"metadata": metadata, "spec": {"policyName": metadata["name"]}}
    control_plane.api.create(POLICIES, {"metadata": metadata, "spec": spec})
    control_plane.api.create(BINDINGS, binding)
    yield
    for path in (BINDINGS, POLICIES):
        control_plane.api.delete(f"{path}/{metadata['name']}")


@pytest.fixture
def standby(chart: ControlPlane, operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """A second process of the operator, which waits for the Lease of the first."""
    del operator
    waiting = OperatorProcess(chart, INSTALLATION, identity="operator-b")
    waiting.launch()
    yield waiting
    waiting.__exit__(None, None, None)


def pods_by_model(models: Models) -> Pods:
    found: dict[str, list[Manifest]] = {}
    for pod in models.pods():
        found.setdefault(pod["metadata"]["labels"]["shardwright.io/model"], []).append(pod)
    return found


def anew(former: list[Manifest]) -> Callable[[list[Manifest]], bool]:
    """Return whether there are as many other pods."""
    uids = {pod["metadata"]["uid"] for pod in former}

    def are(pods: list[Manifest]) -> bool:
        now = {pod["metadata"]["uid"] for pod in pods}
        return len(now) == len(uids) and uids.isdisjoint(now)

    return are


def elsewhere(former: list[Manifest]) -> Callable[[list[Manifest]], bool]:
    """Return whether a pod is on a node that the group was not on."""
    nodes = {pod["spec"]["nodeName"] for pod in former}
    return lambda pods: any(pod["spec"].get("nodeName", "") not in {*nodes, ""} for pod in pods)


def faults_of(models: Models, control_plane: ControlPlane, before: Pods) -> dict[str, Fault]:
    """Return what happens to each model, by what it is."""

    def node(model: str) -> str:
        return str(before[model][1]["spec"]["nodeName"])

    taint = {"key": "maintenance", "value": "true", "effect": "NoExecute"}
    nodes, pods = control_plane.nodes, control_plane.pods
    return {
        DEAD_RANK: Fault(
            RANK,
            lambda: pods.crash(models.namespace, "rank-0-1", exit_code=1, message="died"),
            anew(before[RANK]),
        ),
        NODE_GONE: Fault(GONE, lambda: nodes.delete(node(GONE)), elsewhere(before[GONE])),
        NOT_READY: Fault(
            SILENT, lambda: nodes.set_not_ready(node(SILENT)), elsewhere(before[SILENT])
        ),
        NODE_TAINTED: Fault(
            TAINTED,
            lambda: control_plane.api.patch(
                f"/api/v1/nodes/{node(TAINTED)}", {"spec": {"taints": [taint]}}
            ),
            elsewhere(before[TAINTED]),
        ),
    }


def measured(models: Models, faults: Mapping[str, Fault]) -> dict[str, float]:
    """Let all of it happen, and return how many seconds later each model comes back."""
    began: dict[str, float] = {}
    for what, fault in faults.items():
        fault.does()
        began[what] = time.monotonic()
    took: dict[str, float] = {}

    def all_back() -> bool:
        pods = pods_by_model(models)
        for what, fault in faults.items():
            if what not in took and fault.comes_back(pods.get(fault.model, [])):
                took[what] = time.monotonic() - began[what]
        return took.keys() == faults.keys()

    wait_for(all_back, 2 * max(LIMITS.values()), "all models to come back", interval=0.2)
    return took


def until_first_write(
    models: Models, control_plane: ControlPlane, operator: OperatorProcess
) -> float:
    """Kill the leader, and return how many seconds later another one has written of a rank that
    dies then.
    """
    dead = anew(pods_by_model(models)[RANK])
    operator.kill()
    began = time.monotonic()
    control_plane.pods.crash(models.namespace, "rank-0-1", exit_code=1, message="died")
    held = models.get("StatefulSet", "rank-0")["metadata"]["generation"]

    def written() -> bool:
        live = models.get("StatefulSet", "rank-0")["metadata"]["generation"]
        return live != held or dead(pods_by_model(models)[RANK])

    wait_for(written, 2 * max(LIMITS.values()), "the next leader to write", interval=0.2)
    return time.monotonic() - began


def table(took: Mapping[str, float]) -> str:
    rows = (f"| {what} | {took[what]:.1f} s | {limit} s |" for what, limit in LIMITS.items())
    return "\n".join(("", "| fault | took | limit |", "|---|---|---|", *rows, ""))


@pytest.mark.usefixtures("loading", "standby")
def test_groups_come_back_in_time_and_none_that_serves_is_touched(
    models: Models,
    fleet: Fleet,
    control_plane: ControlPlane,
    operator: OperatorProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = (RANK, GONE, SILENT, TAINTED, STEADY)
    fleet(H100, 2 * len(names) + SPARES)
    for name in names:
        models.create(name, LARGE)
    for name in names:
        models.wait_ready(name, timeout=120)
    before = pods_by_model(models)

    took = measured(models, faults_of(models, control_plane, before))
    models.wait_ready(RANK, timeout=60)
    took[KILLED] = until_first_write(models, control_plane, operator)

    with capsys.disabled():
        print(table(took))  # noqa: T201 - for whoever reads the log of CI
    untouched = {pod["metadata"]["uid"] for pod in before[STEADY]}
    assert {pod["metadata"]["uid"] for pod in pods_by_model(models)[STEADY]} == untouched
    assert {what: seconds for what, seconds in took.items() if seconds > ROOM * LIMITS[what]} == {}
