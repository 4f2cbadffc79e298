"""What `helm test` runs, under the account that its pod has, beside an operator that runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import CHART, SYSTEM, read
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def pod(chart: ControlPlane) -> list[str]:
    """The arguments of the pod, but for where it finds its credentials."""
    only = ("--show-only", "templates/tests/installed.yaml")
    (found,) = read(
        chart.helm("template", "shardwright", str(CHART), "--namespace", SYSTEM, *only, *NAMED)
    )
    return list(found["spec"]["containers"][0]["args"][1:])


def _run(kubeconfig: Path, *words: str) -> tuple[int, list[str]]:
    program = [sys.executable, "-m", "shardwright.cli.helm_test"]
    done = subprocess.run(
        [*program, f"--kubeconfig={kubeconfig}", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_an_operator_that_works_passes(
    chart: ControlPlane, operator: OperatorProcess, pod: list[str]
) -> None:
    (port,) = re.findall(r"listening on port (\d+) for probes", operator.logs())
    account = chart.kubeconfig_for(SYSTEM, "shardwright")

    found = _run(account, *pod, f"--ready-url=http://127.0.0.1:{port}/readyz")

    assert found == (0, ["ok    ShardedModels are served, operator, rights of the operator"])


def test_what_is_wrong_is_said_of_each_part(chart: ControlPlane, pod: list[str]) -> None:
    """Nobody answers, and the account is not the operator's: it may not read the Lease."""
    chart.kubectl("create", "serviceaccount", "nobody", "-n", SYSTEM)
    account = chart.kubeconfig_for(SYSTEM, "nobody")
    address = "http://127.0.0.1:9/readyz"

    code, lines = _run(account, *pod, f"--ready-url={address}", "--seconds=1")

    assert code == 1
    assert {line.split()[0] for line in lines if not line.startswith(" ")} == {"WRONG", "ok"}
    said = " ".join(line.strip() for line in lines)
    assert f"{SYSTEM}/shardwright: {address} answers nothing (" in said
    assert f"{SYSTEM}/shardwright: the Lease cannot be read: " in said
