"""What `helm test` runs, under the accounts that its pods have, beside an operator that runs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.harness.plugin import Fleet
from tests.support.builders_chart import CHART, SYSTEM, read
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
ACCOUNT = "shardwright-test"


@pytest.fixture(scope="module")
def accounts(chart: ControlPlane) -> Iterator[dict[str, Path]]:
    """What Helm makes before the pods, and a kubeconfig of each pod's account by the pod's name."""
    only = ("--show-only", "templates/tests/installed.yaml")
    objects = read(
        chart.helm(
            "template", "shardwright", str(CHART), "--namespace", SYSTEM, *only, *NAMED
        )
    )
    pods = {
        item["metadata"]["name"]: item["spec"]["serviceAccountName"]
        for item in objects
        if item["kind"] == "Pod"
    }
    before = yaml.safe_dump_all(item for item in objects if item["kind"] != "Pod")
    chart.kubectl("apply", "-f", "-", input=before)
    yield {
        name: chart.kubeconfig_for(SYSTEM, account) for name, account in pods.items()
    }
    chart.kubectl("delete", "-f", "-", input=before)


def _run(kubeconfig: Path, *arguments: str) -> tuple[int, list[str]]:
    words = [
        sys.executable,
        "-m",
        "shardwright.controller.installed",
        f"--kubeconfig={kubeconfig}",
        *arguments,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_an_operator_that_works_passes(
    chart: ControlPlane,
    operator: OperatorProcess,
    accounts: dict[str, Path],
    fleet: Fleet,
) -> None:
    fleet(H100, 1)
    (port,) = re.findall(r"listening on port (\d+) for probes", operator.logs())

    rights = _run(accounts[f"{ACCOUNT}-rights"], "--rights")
    code, lines = _run(accounts[ACCOUNT], f"--ready-url=http://127.0.0.1:{port}/readyz")

    assert rights[0] == 0, rights
    assert rights[1][0].startswith("ok   rights: all ")
    assert code == 0, lines
    assert [line[:12].partition(":")[0] for line in lines] == [
        "ok   ready",
        "ok   leader",
        "ok   crd",
        "ok   plan",
    ]
    assert "Planned: " in lines[3]
    assert chart.api.get("/apis/shardwright.io/v1alpha1/shardedmodels")["items"] == []


def test_what_is_wrong_is_said_of_each_part(accounts: dict[str, Path]) -> None:
    """Nobody is ready or leads, and the account of the test is not the operator's."""
    wrong = (
        "--ready-url=http://127.0.0.1:9/readyz",
        "--lease-name=nobody",
        "--seconds=1",
    )

    code, lines = _run(accounts[ACCOUNT], *wrong)
    rights = _run(accounts[ACCOUNT], "--rights")

    assert code == rights[0] == 1
    assert lines[0].startswith(
        "FAIL ready: http://127.0.0.1:9/readyz answers nothing ("
    )
    assert lines[1].startswith("FAIL leader: ")
    assert lines[2] == "ok   crd: shardwright.io/v1alpha1 is served"
    assert "get nodes" in rights[1][0]
