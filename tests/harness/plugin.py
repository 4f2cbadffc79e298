"""pytest fixtures for tests against the control plane: `pytest_plugins = ["tests.harness.plugin"]`
in the top conftest.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.harness import fleet as fleets
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.errors import HarnessError

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One control plane for all tests of the session; each test has a namespace and nodes of its
    own.
    """
    with ControlPlane.start() as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace, named after the test. It is deleted afterwards, in the background: no
    later test has its name.
    """
    name = control_plane.create_namespace(f"{_dns_label(request.node.name, 40)}-{next(_numbers)}")
    yield name
    control_plane.api.delete(f"/api/v1/namespaces/{name}", missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say beside a failure which component of its control plane had ended by itself: whatever else
    is seen follows from that.
    """
    report = yield
    if report.failed and report.when != "teardown" and isinstance(item, pytest.Function):
        report.sections += [
            ("control plane", why) for used in item.funcargs.values() if (why := _ended(used))
        ]
    return report


def _ended(used: object) -> str:
    if isinstance(used, ControlPlane):
        try:
            used.check()
        except HarnessError as error:
            return str(error)
    return ""


class Fleet:
    """The nodes of one test: call it like `fleet.make`, or with `create` for manifests made
    otherwise.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        self._nodes = control_plane.nodes
        self.names: list[str] = []

    def __call__(
        self, dump: str | Manifest, count: int = 4, prefix: str = "", **options: Any
    ) -> list[str]:
        """Create `count` nodes like the dump (see `fleet.make`) and return their names when they
        are Ready.
        """
        return self.create(fleets.make(dump, count, prefix, **options))

    def create(self, manifests: list[Manifest]) -> list[str]:
        names = [manifest["metadata"]["name"] for manifest in manifests]
        self.names += names  # before they exist: what fails half-way is cleaned up too
        return self._nodes.create(manifests)

    def delete(self) -> None:
        self._nodes.delete_with_pods(*self.names)


@pytest.fixture
def fleet(control_plane: ControlPlane) -> Iterator[Fleet]:
    """Nodes for one test; they and their pods are gone afterwards, so that each test begins with an
    empty cluster.
    """
    nodes = Fleet(control_plane)
    yield nodes
    nodes.delete()


def _dns_label(text: str, longest: int) -> str:
    return (
        re.sub(r"[^a-z0-9]+", "-", text.lower().removeprefix("test_"))[:longest].strip("-")
        or "test"
    )
