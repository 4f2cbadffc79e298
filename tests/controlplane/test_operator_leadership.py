"""Leadership among real processes: stopped and woken up, and with a Lease that somebody else has
touched.
"""

import os
import signal
from typing import cast

import pytest

from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.leases import LEASE
from tests.harness.waiting import wait_for
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

SHORT = (
    "--lease-duration-seconds=4",
    "--lease-renew-deadline-seconds=2",
    "--lease-retry-seconds=1",
)
ROOMY = (
    "--lease-duration-seconds=16",
    "--lease-renew-deadline-seconds=13",
    "--lease-retry-seconds=1",
)
"""Of a process whose threads share two busy cores with others a renewal takes seconds."""


def holder(chart: ControlPlane) -> str | None:
    """Return who holds the Lease, None where there is none."""
    try:
        return str(chart.api.get(LEASE)["spec"]["holderIdentity"])
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def lease(chart: ControlPlane) -> Manifest:
    return cast("Manifest", chart.api.get(LEASE)["spec"])


def test_a_leader_that_was_stopped_for_long_ends_itself_on_waking_and_leaves_the_next_alone(
    chart: ControlPlane,
) -> None:
    with OperatorProcess(chart, *SHORT) as first:
        wait_for(first.leads, 30, "the first to lead")
        with OperatorProcess(chart, *SHORT, identity="operator-b") as second:
            process = first.running()
            assert process
            os.kill(process, signal.SIGSTOP)
            wait_for(second.leads, 30, "the second to lead")

            os.kill(process, signal.SIGCONT)
            wait_for(lambda: first.running() is None, 30, "the first to end")
            assert "ending at once" in first.logs()
            assert holder(chart) == "operator-b"
            assert second.leads()


def test_a_leader_whose_event_loop_is_busy_for_longer_than_the_lease_lasts_leads_on(
    chart: ControlPlane,
) -> None:
    with OperatorProcess(chart, *ROOMY, program=("tests.support.stalled", "20")) as busy:
        wait_for(busy.leads, 30, "it to lead")
        before, process = lease(chart), busy.running()
        assert process
        os.kill(process, signal.SIGUSR1)
        wait_for(lambda: "was busy for 20 s" in busy.logs(), 60, "it to have been busy")
        after = lease(chart)
        wait_for(lambda: lease(chart)["renewTime"] > after["renewTime"], 30, "it to renew again")
        assert {**lease(chart), "renewTime": ""} == {**before, "renewTime": ""}
        assert (busy.running(), busy.leads()) == (process, True)


def test_a_leader_under_whom_the_lease_is_deleted_makes_it_again_and_leads_on(
    chart: ControlPlane,
) -> None:
    with OperatorProcess(chart) as first:
        wait_for(first.leads, 30, "the first to lead")
        with OperatorProcess(chart, identity="operator-b") as second:
            chart.api.delete(LEASE)
            wait_for(lambda: holder(chart) is not None, 30, "another Lease")
            assert holder(chart) == "operator-a"
            assert (first.leads(), second.leads()) == (True, False)


def test_a_leader_whose_lease_was_given_to_somebody_else_by_hand_ends_itself(
    chart: ControlPlane,
) -> None:
    with OperatorProcess(chart) as first:
        wait_for(first.leads, 30, "the first to lead")
        chart.api.patch(LEASE, {"spec": {"holderIdentity": "by-hand"}})
        wait_for(lambda: first.running() is None, 30, "it to end")
        assert holder(chart) == "by-hand"
    chart.api.patch(
        LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    )  # for the tests that follow
