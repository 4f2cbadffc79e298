"""The API server is away for a while: the operator goes on by itself afterwards, and has missed
nothing meanwhile.
"""

from collections.abc import Iterator

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import FaultProxy
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess, install_chart

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
ALONE = ("--no-leader-elect", "--resync-seconds=3600")
"""A leader that cannot renew its Lease for ten seconds ends itself; after its start it lists all
but once an hour.
"""


@pytest.fixture
def proxy(chart: ControlPlane) -> Iterator[FaultProxy]:
    """The only way from the operator to the API server."""
    with FaultProxy(chart.url, chart.ca_file) as proxy:
        yield proxy


@pytest.fixture
def mortal() -> Iterator[ControlPlane]:
    """A control plane of its own with the chart: the requests of all other tests' operators are
    looked at in the end.
    """
    with ControlPlane.start() as running:
        install_chart(running)
        yield running


def test_a_group_that_fails_while_the_api_server_goes_down_is_mended_when_it_is_back(
    mortal: ControlPlane,
) -> None:
    Fleet(mortal)(H100, 3)
    models = Models(mortal, mortal.create_namespace("outage"))
    with OperatorProcess(mortal, *ALONE) as operator:
        models.create("large", LARGE)
        models.wait_ready("large")
        before, process = models.uids(), operator.running()

        mortal.pods.crash(models.namespace, "large-0-1", exit_code=1)
        with mortal.without_api_server():
            pass

        wait_for(
            lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2,
            120,
            "two new pods",
        )
        assert models.wait_ready("large")["status"]["groups"][0]["restarts"] == 1
        models.create("late")
        models.wait_ready("late")
        assert operator.running() == process


def test_a_leader_whose_connections_all_break_leads_on_and_misses_nothing(
    chart: ControlPlane, namespace: str, fleet: Fleet, proxy: FaultProxy
) -> None:
    fleet(H100, 2)
    models = Models(chart, namespace)
    with OperatorProcess(chart, "--resync-seconds=3600", server=proxy.url) as operator:
        models.create("large", LARGE)
        models.wait_ready("large")
        before, process = models.uids(), operator.running()

        outage = proxy.cut()
        chart.pods.crash(namespace, "large-0-1", exit_code=1)
        outage.end()

        wait_for(
            lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2, 60, "two new pods"
        )
        assert models.wait_ready("large")["status"]["groups"][0]["restarts"] == 1
        assert (operator.running(), operator.leads()) == (process, True)


def test_a_leader_cut_off_for_long_ends_itself_and_mends_what_failed_after_its_start(
    chart: ControlPlane, namespace: str, fleet: Fleet, proxy: FaultProxy
) -> None:
    fleet(H100, 2)
    models = Models(chart, namespace)
    with OperatorProcess(chart, server=proxy.url) as operator:
        models.create("large", LARGE)
        models.wait_ready("large")
        before = models.uids()

        outage = proxy.cut()
        chart.pods.crash(namespace, "large-0-1", exit_code=1)
        wait_for(lambda: operator.running() is None, 30, "the operator to end")

        outage.end()
        operator.start()
        wait_for(
            lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2, 60, "two new pods"
        )
        assert models.wait_ready("large")["status"]["groups"][0]["restarts"] == 1
