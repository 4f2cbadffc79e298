"""Leadership by Lease, on a clock that the test moves."""

import asyncio
import copy
import re
from collections.abc import Callable
from typing import Any, Self

import pytest

from shardwright.cluster.client import ApiError, Client, Urgency
from shardwright.cluster.elector import Elector, LeaseIdentity
from shardwright.cluster.leases import LeaseTimings, unique_holder
from shardwright.cluster.resources import CONFIG_MAPS
from tests.support.clocks import Clock
from tests.support.scripted_api import Answer, ScriptedApi

TIMINGS = LeaseTimings()


class LeaseServer(Client):
    """The one Lease of a cluster, with resource versions as the API server keeps them."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.broken = False
        self.version = 1
        self.before_replace: Callable[[], None] = lambda: None

    def until(self, deadline: float) -> Self:
        del deadline
        return self

    async def get(self, *_: Any, **__: Any) -> dict[str, Any] | None:
        self._answer()
        return copy.deepcopy(self.lease)

    async def create(
        self, _resource: Any, _namespace: Any, body: Any, *, dry_run: bool = False
    ) -> dict[str, Any]:
        assert not dry_run
        self._answer()
        if self.lease:
            raise ApiError(409, "AlreadyExists", "there is one")
        return self._store(body)

    async def replace(
        self, _resource: Any, _namespace: Any, _name: Any, body: Any
    ) -> dict[str, Any]:
        self.before_replace()
        self._answer()
        assert self.lease
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it has changed")
        return self._store(body)

    def _store(self, body: Any) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy(dict(body))
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self.lease

    def _answer(self) -> None:
        if self.broken:
            raise ApiError(500, "Broken", "no answer")


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def server() -> LeaseServer:
    """A Lease that somebody has held and released: of a cluster in which this operator has run
    before.
    """
    with_one = LeaseServer()
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}
    with_one.lease = {"metadata": {"resourceVersion": "1"}, "spec": released}
    return with_one


@pytest.fixture
def empty() -> LeaseServer:
    return LeaseServer()


def edited(server: LeaseServer, **spec: Any) -> None:
    """Change the Lease by hand."""
    assert server.lease
    server.lease["spec"] |= spec
    server.version += 1
    server.lease["metadata"]["resourceVersion"] = str(server.version)


def candidate(server: LeaseServer, clock: Clock, name: str) -> Elector:
    return Elector(
        server, LeaseIdentity(namespace="system", name="shardwright", holder=name), clock
    )


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_the_first_gets_the_lease_and_the_second_waits(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    assert run(first.tick())
    assert not run(second.tick())
    assert (first.leading, second.leading) == (True, False)


def test_the_second_takes_over_only_after_the_lease_stood_still_long_enough(
    server: LeaseServer, clock: Clock
) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(second.tick())
    clock.now += TIMINGS.duration_seconds - 0.1
    assert not run(second.tick())
    clock.now += 0.1
    assert run(second.tick())
    assert server.lease
    assert server.lease["spec"]["holderIdentity"] == "b"
    assert server.lease["spec"]["leaseTransitions"] == 2


def test_a_lease_that_is_renewed_never_expires(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    for _ in range(20):
        assert run(first.tick())
        assert not run(second.tick())
        clock.now += 2


def test_a_leader_that_cannot_renew_fences_itself_before_anybody_may_take_over(
    server: LeaseServer, clock: Clock
) -> None:
    first = candidate(server, clock, "a")
    run(first.tick())
    server.broken = True
    clock.now += TIMINGS.renew_deadline_seconds
    assert not run(first.tick())
    assert not first.must_fence
    clock.now += 0.1
    assert first.must_fence
    assert not first.leading


def test_who_never_led_has_nothing_to_fence(server: LeaseServer, clock: Clock) -> None:
    first = candidate(server, clock, "a")
    server.broken = True
    run(first.tick())
    clock.now += 1000
    assert not first.must_fence


def test_a_released_lease_is_free_at_once(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(second.tick())
    run(first.release())
    assert not first.leading
    assert run(second.tick())


def test_of_two_that_reach_for_a_free_lease_one_gets_it(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(first.release())
    stale = copy.deepcopy(server.lease)
    assert run(second.tick())

    async def old_answer(*_: Any) -> Any:
        return stale

    server.get = old_answer  # type: ignore[method-assign]
    assert not run(first.tick())


def test_who_makes_a_lease_leads_only_after_a_former_leader_must_have_noticed_its_deletion(
    empty: LeaseServer, clock: Clock
) -> None:
    first, second = candidate(empty, clock, "a"), candidate(empty, clock, "b")
    assert run(first.tick())
    assert not first.leading
    clock.now += TIMINGS.renew_deadline_seconds
    run(first.tick())
    clock.now += 0.1
    assert first.leading

    run(first.tick())
    empty.lease = None  # and the connection of the leader to the Lease hangs
    assert run(second.tick())
    assert (first.leading, second.leading) == (True, False)
    for _ in range(6):
        clock.now += TIMINGS.retry_seconds
        assert run(second.tick())
        assert not (first.leading and second.leading)
    assert (first.leading, second.leading) == (False, True)


def test_a_leader_whose_lease_is_deleted_makes_it_again_and_leads_on(
    server: LeaseServer, clock: Clock
) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(second.tick())
    server.lease = None
    assert not run(second.tick())
    assert run(first.tick())
    assert (first.leading, second.leading) == (True, False)


def test_who_saw_a_leader_waits_when_the_lease_is_gone_and_leads_when_it_would_have_expired(
    server: LeaseServer, clock: Clock
) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(second.tick())
    server.lease = None
    clock.now += TIMINGS.duration_seconds - 0.1
    assert not run(second.tick())
    clock.now += 0.1
    assert run(second.tick())
    assert (first.leading, second.leading) == (False, True)


def test_a_leader_that_finds_another_holder_is_no_leader_at_once_and_never_again(
    server: LeaseServer, clock: Clock
) -> None:
    first = candidate(server, clock, "a")
    run(first.tick())
    edited(server, holderIdentity="by-hand")
    assert not run(first.tick())
    assert (first.leading, first.must_fence) == (False, True)
    edited(server, holderIdentity="a")
    assert not run(first.tick())
    assert (first.leading, first.must_fence) == (False, True)


@pytest.mark.parametrize(
    "change",
    [
        {"holderIdentity": ""},
        {"holderIdentity": "b"},
        {"leaseDurationSeconds": 1},
        {"holderIdentity": "by-hand"},
    ],
    ids=["no holder", "a candidate's name", "a shorter duration", "a stranger's name"],
)
def test_a_lease_that_was_changed_by_hand_makes_nobody_lead_beside_the_leader(
    server: LeaseServer, clock: Clock, change: dict[str, Any]
) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(second.tick())
    edited(server, **change)
    for _ in range(200):
        run(second.tick())
        assert not (first.leading and second.leading)
        clock.now += 0.1
    assert second.leading


def test_a_holder_with_other_flags_is_waited_for_as_long_as_it_asks(
    server: LeaseServer, clock: Clock
) -> None:
    identity = LeaseIdentity(namespace="system", name="shardwright", holder="slow")
    slow = Elector(
        server, identity, clock, LeaseTimings(duration_seconds=60, renew_deadline_seconds=40)
    )
    second = candidate(server, clock, "b")
    run(slow.tick())
    run(second.tick())
    clock.now += 40
    assert not run(second.tick())
    assert slow.leading
    clock.now += 20
    assert run(second.tick())
    assert not slow.leading


def test_a_duration_that_nobody_can_have_meant_does_not_keep_everybody_out(
    server: LeaseServer, clock: Clock
) -> None:
    edited(server, holderIdentity="dead", leaseDurationSeconds=2**31 - 1)
    second = candidate(server, clock, "b")
    run(second.tick())
    clock.now += 600
    assert run(second.tick())


def test_a_process_that_is_started_anew_under_its_name_leads_at_once(
    server: LeaseServer, clock: Clock
) -> None:
    run(candidate(server, clock, "pod-1").tick())
    again = candidate(server, clock, "pod-1")
    assert run(again.tick())
    assert again.leading
    assert server.lease
    assert server.lease["spec"]["leaseTransitions"] == 1


def test_a_leader_that_wakes_up_too_late_never_leads_again(
    server: LeaseServer, clock: Clock
) -> None:
    first = candidate(server, clock, "a")
    run(first.tick())
    clock.now += 3600
    assert not first.leading
    assert not run(first.tick())
    assert (first.leading, first.must_fence) == (False, True)


def test_a_renewal_during_which_the_process_slept_does_not_count(
    server: LeaseServer, clock: Clock
) -> None:
    first = candidate(server, clock, "a")
    run(first.tick())

    def sleep() -> None:
        clock.now += 11

    server.before_replace = sleep
    assert not run(first.tick())
    assert first.must_fence


def test_a_released_lease_says_so_and_the_leader_cannot_write_before(
    server: LeaseServer, clock: Clock
) -> None:
    first = candidate(server, clock, "a")
    run(first.tick())
    leading: list[bool] = []
    server.before_replace = lambda: leading.append(first.leading)
    run(first.release())
    assert leading == [False]
    assert server.lease
    assert (
        server.lease["spec"]["holderIdentity"],
        server.lease["spec"]["leaseDurationSeconds"],
    ) == ("", 1)


def test_a_candidate_looks_at_least_twice_a_second_and_never_in_step_with_others(
    server: LeaseServer, clock: Clock
) -> None:
    """A release is seen within half a second: the next leader has the rest left of the two that it
    may take.
    """
    second = candidate(server, clock, "b")
    pauses = [second.pause_seconds for _ in range(100)]
    assert 0.25 < min(pauses) < max(pauses) <= 0.5
    run(second.tick())
    assert 1.5 < second.pause_seconds <= 2


def test_names_are_unique() -> None:
    assert unique_holder() != unique_holder()


@pytest.mark.parametrize(
    ("timings", "message"),
    [
        ({"duration_seconds": 1}, "the Lease must last 2 to 600 s, not 1 s"),
        (
            {"duration_seconds": 10},
            (
                "a leader must stop before others may start: its deadline to renew (10 s) must be "
                "shorter"
            ),
        ),
        (
            {"retry_seconds": 6},
            (
                "a leader must be able to try twice before its deadline: the time between tries "
                "(6 s) must be"
            ),
        ),
        ({"retry_seconds": 0}, "the time between tries (0 s) must be more than 0"),
    ],
)
def test_timings_that_contradict_each_other_are_refused(
    timings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LeaseTimings(**timings)


def test_a_leader_that_was_stopped_between_its_decision_and_its_request_sends_nothing(
    server: LeaseServer, clock: Clock
) -> None:
    """SIGSTOP and SIGCONT, a machine that was suspended: time passes between any two
    instructions.
    """
    leader = candidate(server, clock, "a")
    run(leader.tick())

    def leads_and_sleeps() -> bool:
        leads = leader.leading
        clock.now += 60
        return leads

    api = ScriptedApi(Answer())
    client = Client(api.access(), may_write=leads_and_sleeps)
    try:
        with pytest.raises(ApiError, match="another operator leads"):
            run(client.create(CONFIG_MAPS, "models", {}))
        assert api.requests == []
    finally:
        client.close()
        api.stop()


def test_a_lease_request_that_hangs_leaves_time_for_another(clock: Clock) -> None:
    api = ScriptedApi(Answer(hang=True))
    client = Client(api.access(), threads=2).at(Urgency.LEASE)
    timings = LeaseTimings(duration_seconds=2, renew_deadline_seconds=0.6, retry_seconds=0.3)
    hung = Elector(
        client, LeaseIdentity(namespace="system", name="shardwright", holder="a"), clock, timings
    )
    try:
        assert not run(hung.tick())
        assert not run(hung.tick())
        assert len(api.requests) == 2
    finally:
        client.close()
        api.stop()


@pytest.mark.parametrize("leads", [True, False])
def test_whoever_reads_an_older_lease_than_before_never_leads_again(
    server: LeaseServer, clock: Clock, *, leads: bool
) -> None:
    async def scenario() -> None:
        one, other = (candidate(server, clock, name) for name in "ab")
        assert await one.tick()
        saved = copy.deepcopy(server.lease)
        # What it has written itself counts, before it reads it.
        assert await one.tick()
        await other.tick()
        process = one if leads else other
        server.lease = saved  # etcd is put back

        assert not await process.tick()
        assert (process.gone_back, process.must_fence, process.leading) == (True, True, False)

    asyncio.run(scenario())
