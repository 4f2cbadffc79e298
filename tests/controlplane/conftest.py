"""The installed chart, and an operator process that runs as the chart's service account."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.support.models import LARGE, Models
from tests.support.operator import OPERATOR_USER, SYSTEM, OperatorProcess, install_chart
from tests.support.requests_kept import keep
from tests.support.stored import ROUTER_IMAGE

INSTALLATION = f"--installation={SYSTEM}/shardwright"
"""As the chart says: what it claims is read, and must be for this release."""


@pytest.fixture(scope="session")
def chart_options() -> tuple[str, ...]:
    """What the chart is installed with beside its defaults."""
    return ()


@pytest.fixture(scope="session")
def chart(
    control_plane: ControlPlane, request: pytest.FixtureRequest, chart_options: tuple[str, ...]
) -> Iterator[ControlPlane]:
    """The control plane with the chart installed: CRD, service account, rights; nobody starts its
    pods.

    What the operator has asked of it is kept: tests/rights holds it against what the chart grants.
    """
    try:
        control_plane.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/shardwright")
    except ApiError:
        install_chart(control_plane, *chart_options)
    yield control_plane
    keep(
        {item.path.name for item in request.session.items},
        control_plane.audit_events(OPERATOR_USER),
    )


@pytest.fixture(scope="module")
def operator(chart: ControlPlane, request: pytest.FixtureRequest) -> Iterator[OperatorProcess]:
    """One operator for all tests of a module, with the rights that the chart grants and no others.

    A module whose rules wait for minutes says with `PACE` how many times as fast the operator's
    clock runs.
    """
    with OperatorProcess(chart, INSTALLATION, pace=getattr(request.module, "PACE", 1)) as running:
        yield running


@pytest.fixture
def models(
    operator: OperatorProcess, control_plane: ControlPlane, namespace: str
) -> Iterator[Models]:
    """The ShardedModels of the test's namespace, with an operator running.

    They go at once: a namespace ends slowly, and what is left in it would hold GPUs of the next
    test.
    """
    del operator
    found = Models(control_plane, namespace)
    yield found
    found.delete_all("ShardedModel")


@pytest.fixture
def serving(models: Models, fleet: Fleet) -> Models:
    """A model over two nodes that serves, in a group named large-0."""
    fleet("h100-8x-dell-xe9680", 2)
    models.create("large", LARGE)
    models.wait_ready("large")
    return models


@pytest.fixture(scope="session")
def gated() -> Iterator[ControlPlane]:
    """A control plane of its own that serves PodGroups, with the chart as it is installed for
    schedulers that want them.
    """
    with ControlPlane.start(features=["gang-scheduling"]) as running:
        values = "schedulers={Native,Coscheduling},policy.admittedLockMemory={served}"
        values += f",router.image={ROUTER_IMAGE}"
        install_chart(running, "--set", values)
        yield running


@pytest.fixture(scope="module")
def gated_operator(
    gated: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[OperatorProcess]:
    """One operator there for all tests of a module, at the module's `PACE`."""
    with OperatorProcess(gated, pace=getattr(request.module, "PACE", 1)) as running:
        yield running


@pytest.fixture
def nodes(gated: ControlPlane) -> Iterator[Fleet]:
    """Nodes there for one test; they and their pods are gone afterwards."""
    fleet = Fleet(gated)
    yield fleet
    fleet.delete()


@pytest.fixture
def gangs(
    gated: ControlPlane, gated_operator: OperatorProcess, request: pytest.FixtureRequest
) -> Iterator[Models]:
    """The ShardedModels of a namespace there, of the test's own."""
    del gated_operator
    name = gated.create_namespace(
        request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    )
    yield Models(gated, name)
    gated.api.delete(f"/api/v1/namespaces/{name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show beside a failure what the operators of the test have logged last."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        running = (used for used in item.funcargs.values() if isinstance(used, OperatorProcess))
        report.sections += [("log of the operator", one.logs()[-6000:]) for one in running]
    return report
