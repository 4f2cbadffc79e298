"""The harness is tested on a control plane of its own: these tests count what is on it."""

from collections.abc import Iterator

import pytest

from tests.harness.controlplane import ControlPlane


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """Return a control plane where nothing was installed."""
    with ControlPlane.start() as running:
        yield running
