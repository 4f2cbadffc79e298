"""The installed chart, and an operator process that runs as the chart's service account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.support.models import Models
from tests.support.operator import SYSTEM, OperatorProcess

CHART = Path(__file__).parents[2] / "charts" / "shardwright"


@pytest.fixture(scope="session")
def chart(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the chart installed: CRD, service account, rights; nobody starts its pods."""
    try:
        control_plane.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/shardwright")
    except ApiError:
        control_plane.helm("install", "shardwright", str(CHART), "--namespace", SYSTEM, "--create-namespace")
    return control_plane


@pytest.fixture(scope="module")
def operator(chart: ControlPlane) -> Iterator[OperatorProcess]:
    """One operator for all tests of a module, with the rights that the chart grants and no others."""
    with OperatorProcess(chart) as running:
        yield running


@pytest.fixture
def models(operator: OperatorProcess, control_plane: ControlPlane, namespace: str) -> Models:
    """The ShardedModels of the test's namespace, with an operator running."""
    del operator
    return Models(control_plane, namespace)
