"""The Lease never waits for work, and who hangs for good loses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shardwright.cluster.elector import Elector, LeaseIdentity
from shardwright.cluster.leases import LeaseTimings
from shardwright.controller.leadership import Leadership, Pulse
from shardwright.controller.metrics import Metrics
from tests.unit.cluster.test_elector import LeaseServer

FAST = LeaseTimings(duration_seconds=20, renew_deadline_seconds=10, retry_seconds=0.01)


class Process:
    """What a thread has done to the process: its exit codes, and how often it said that it
    leads.
    """

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.led = 0
        self.ended = threading.Event()

    def end(self, code: int) -> None:
        self.codes.append(code)
        self.ended.set()

    def on_lead(self) -> None:
        self.led += 1


class CountingServer(LeaseServer):
    """It tells when a Lease has been renewed so often."""

    def __init__(self, renewals: int) -> None:
        super().__init__()
        self.renewed = threading.Event()
        self._left = renewals
        self.before_replace = self._count

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self.renewed.set()


@contextmanager
def leading(server: LeaseServer, pulse: Pulse) -> Iterator[Process]:
    process = Process()
    identity = LeaseIdentity(namespace="system", name="shardwright", holder="us")
    thread = Leadership(
        Elector(server, identity, timings=FAST), Metrics(), process.on_lead, pulse, process.end
    )
    thread.start()
    yield process
    thread.stop()
    assert not thread.is_alive()


def alive() -> Pulse:
    beats = iter(range(1_000_000))
    return Pulse(lambda: next(beats))


def test_the_lease_is_renewed_while_the_thread_that_works_does_nothing_but_wait() -> None:
    server = CountingServer(renewals=5)
    with leading(server, alive()) as process:
        assert server.renewed.wait(20)
    assert process.codes == []


def test_who_stops_lets_go_of_the_lease() -> None:
    server = CountingServer(renewals=1)
    with leading(server, alive()):
        assert server.renewed.wait(20)
    assert server.lease
    assert server.lease["spec"]["holderIdentity"] == ""


def test_a_loop_that_hangs_for_good_ends_the_process() -> None:
    with leading(LeaseServer(), Pulse(lambda: 7.0, hung_looks=1)) as process:
        assert process.ended.wait(20)
    assert process.codes == [1]


def test_a_loop_hangs_when_so_many_looks_in_a_row_have_seen_the_same_beat() -> None:
    beats = iter([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    pulse = Pulse(lambda: next(beats), hung_looks=3)
    assert [pulse.hangs() for _ in range(7)] == [False, False, False, False, False, False, True]


def test_a_fault_of_the_thread_ends_the_process() -> None:
    server = LeaseServer()

    def fail() -> float:
        raise KeyError("beat")

    with leading(server, Pulse(fail)) as process:
        assert process.ended.wait(20)
    assert process.codes == [1]
