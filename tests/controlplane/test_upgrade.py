"""Releases of the operator that render pods otherwise, one after the other, over models that serve;
on the real control plane.
"""

import shutil
from pathlib import Path

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import ROOT, OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
OURS = "PROBE_TIMEOUT_SECONDS: Final = 5"


def another_release(folder: Path) -> Path:
    """Return the source of a release that gives probes another timeout."""
    shutil.copytree(ROOT / "operator", folder / "operator")
    module = folder / "operator" / "shardwright" / "rendering" / "pod.py"
    text = module.read_text()
    assert OURS in text
    module.write_text(text.replace(OURS, "PROBE_TIMEOUT_SECONDS: Final = 6"))
    return folder / "operator"


def timeout_seconds(models: Models, name: str) -> int:
    """Return the timeout of the readiness probe that pods to come of a group have."""
    container = models.get("StatefulSet", name)["spec"]["template"]["spec"]["containers"][0]
    return int(container["readinessProbe"]["timeoutSeconds"])


def wait_taken_over(models: Models, seconds: int, pending: str) -> None:
    """Wait until a release with this timeout has written its templates, says so, and both models
    are ready.
    """
    groups = ("large-0", "llama-0", "llama-1")
    wait_for(
        lambda: {timeout_seconds(models, name) for name in groups} == {seconds}, 60, "the templates"
    )
    names = ("large", "llama")
    wait_for(
        lambda: {models.condition(name, "RolloutPending")["status"] for name in names} == {pending},
        60,
        "the conditions",
    )
    for name in names:
        models.wait_ready(name)


def test_upgrades_and_downgrades_restart_no_pod_and_the_next_restart_takes_the_release_on(
    chart: ControlPlane, fleet: Fleet, namespace: str, tmp_path: Path
) -> None:
    fleet(H100, 4)
    models, other = Models(chart, namespace), another_release(tmp_path)
    with OperatorProcess(chart):
        models.create("large", LARGE)
        models.create("llama", replicas=2)
        models.wait_ready("large")
        models.wait_ready("llama")
    before = models.uids()

    for source, seconds, pending in (
        (other, 6, "True"),
        (ROOT / "operator", 5, "False"),
        (other, 6, "True"),
    ):
        with OperatorProcess(chart, source=source):
            wait_taken_over(models, seconds, pending)
            assert models.uids() == before

    with OperatorProcess(chart, source=other):
        chart.pods.crash(namespace, "large-0-1", exit_code=137)
        wait_for(
            lambda: len(before & models.uids()) == 2 and len(models.pods()) == 4,
            60,
            "two new pods of the group that failed",
        )
        models.wait_ready("large")
        wait_for(
            lambda: models.condition("large", "RolloutPending")["status"] == "False",
            60,
            "the condition to go",
        )
    models.delete_all("ShardedModel")
