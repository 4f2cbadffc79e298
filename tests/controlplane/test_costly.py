"""One object poisons itself and nothing else: specs that cost too much to read, beside a model that
serves.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.deep_model import DEEP_CONFIG
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"

COSTLY = (
    "spec.model: reading the resource and its model's config must take at most 2 s of CPU and 192 "
    "MiB of memory, the"
    " CPU time was spent; give the model's own config.json, with few, simple patterns in "
    "quantization_config; that is read again"
)


def a_costly_config(number: int) -> dict[str, Any]:
    """Return a config of 20 KB that takes ten seconds to read: as many patterns as are followed,
    each tried on every name.
    """
    patterns = [f"re:.*{number}x{index:03}.*" for index in range(1000)]
    method = {"quant_method": "fp8", "ignored_layers": patterns}
    return {**DEEP_CONFIG, "quantization_config": method}


def a_deep_config() -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    return {**DEEP_CONFIG, "deep": deep}


@pytest.fixture
def operator(chart: ControlPlane) -> Iterator[OperatorProcess]:
    with OperatorProcess(chart, "--question-cpu-seconds=2") as running:
        yield running


@pytest.fixture
def models(operator: OperatorProcess, control_plane: ControlPlane, namespace: str) -> Models:
    del operator
    return Models(control_plane, namespace)


def worker_of(operator: OperatorProcess) -> int:
    """Return the process id of an operator's worker."""
    pid = operator.running()
    tasks = Path(f"/proc/{pid}/task").iterdir()
    (child,) = (int(child) for task in tasks for child in (task / "children").read_text().split())
    return child


def wait_serving_anew(models: Models, name: str, before: set[str]) -> None:
    """Wait until a model serves with none of the pods that it had."""

    def anew() -> bool:
        pods: list[Manifest] = models.pods()
        uids = {pod["metadata"]["uid"] for pod in pods}
        return len(uids) == len(before) and not uids & before

    wait_for(anew, 120, "all pods to be others")
    models.wait_ready(name, 120)


def test_too_costly_specs_get_a_condition_while_other_models_are_planned_and_repaired(
    models: Models,
    operator: OperatorProcess,
    control_plane: ControlPlane,
    namespace: str,
    fleet: Fleet,
) -> None:
    fleet(H100, 3)
    models.create("good", LARGE)
    models.wait_ready("good", 120)
    before, pid = models.uids(), operator.running()
    first_pod = models.pods()[0]["metadata"]["name"]

    for number in range(3):
        models.create(f"costly-{number}", {"id": "evil/model", "config": a_costly_config(number)})
    models.create("deep", {"id": "evil/model", "config": a_deep_config()})
    control_plane.api.delete(
        f"/api/v1/namespaces/{namespace}/pods/{first_pod}", grace_period_seconds=0
    )
    models.create("shown", mode="PlanOnly")

    wait_serving_anew(models, "good", before)
    models.wait_reason("shown", "PlanOnly", 120)
    said = [
        models.wait_reason(f"costly-{number}", "ConfigTooCostly", 180)["message"]
        for number in range(3)
    ]
    assert set(said) == {COSTLY}
    deep = (
        "spec.model.config: more than 64 levels of nesting must be at most 64; leave out what "
        "is not architecture"
    )
    assert models.wait_reason("deep", "InvalidSpec")["message"] == deep
    assert (operator.running(), operator.leads(), operator.get("/healthz")) == (
        pid,
        True,
        (200, "ok"),
    )
    metrics = operator.get("/metrics")[1]
    assert 'shardwright_worker_refusals_total{reason="Cpu"} 3.0' in metrics
    assert 'shardwright_worker_restarts_total{reason="Cpu"} 3.0' in metrics

    models.change(
        "costly-0",
        model={"id": "meta-llama/Llama-3.1-8B-Instruct", "config": None},
        mode="PlanOnly",
    )
    models.wait_reason("costly-0", "PlanOnly", 60)


def test_a_worker_that_is_killed_is_missed_by_nobody(
    models: Models, operator: OperatorProcess, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("before")
    models.wait_ready("before")
    pid = operator.running()
    first = worker_of(operator)

    os.kill(first, signal.SIGKILL)
    models.create("after")

    models.wait_ready("after")
    assert operator.running() == pid
    assert worker_of(operator) != first


def test_the_worker_ends_with_an_operator_that_is_told_to_stop(
    operator: OperatorProcess, models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.create("llama", mode="PlanOnly")
    models.wait_reason("llama", "PlanOnly")
    worker = worker_of(operator)

    assert operator.stop() == 0
    assert not Path(f"/proc/{worker}").exists()
