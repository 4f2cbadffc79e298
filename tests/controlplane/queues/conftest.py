"""A control plane of its own, with Kueue beside it, and a scheduler with the plugin Coscheduling."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import kueue as harness
from tests.harness.controlplane import ControlPlane
from tests.harness.coscheduling import Coscheduling
from tests.support.operator import install_chart
from tests.support.quotas import Quotas


@pytest.fixture(scope="session")
def chart(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the chart as it is installed for Coscheduling; Kueue needs nothing."""
    install_chart(control_plane, "--set", "schedulers={Coscheduling}")
    return control_plane


@pytest.fixture(scope="session")
def kueue(control_plane: ControlPlane) -> Iterator[harness.Kueue]:
    with harness.Kueue(control_plane) as running:
        yield running


@pytest.fixture
def quotas(kueue: harness.Kueue, control_plane: ControlPlane, namespace: str) -> Iterator[Quotas]:
    """Queues of the test's namespace; they are gone afterwards."""
    del kueue
    made = Quotas(control_plane, namespace)
    yield made
    made.remove()


@pytest.fixture(scope="session")
def coscheduling(control_plane: ControlPlane) -> Iterator[Coscheduling]:
    with Coscheduling(control_plane) as running:
        yield running
