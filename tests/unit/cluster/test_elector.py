"""Leadership by Lease, on a clock that the test moves."""

import asyncio
import copy
from typing import Any

import pytest

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.elector import LEASE_SECONDS, RENEW_DEADLINE_SECONDS, Elector, LeaseIdentity


class LeaseServer(Client):
    """The one Lease of a cluster, with resource versions as the API server keeps them."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.broken = False

    async def get(self, *_: Any) -> dict[str, Any] | None:
        self._answer()
        return copy.deepcopy(self.lease)

    async def create(self, _resource: Any, _namespace: Any, body: Any, *, dry_run: bool = False) -> dict[str, Any]:
        assert not dry_run
        self._answer()
        if self.lease:
            raise ApiError(409, "AlreadyExists", "there is one")
        return self._store(body, 1)

    async def replace(self, _resource: Any, _namespace: Any, _name: Any, body: Any) -> dict[str, Any]:
        self._answer()
        assert self.lease
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it has changed")
        return self._store(body, int(self.lease["metadata"]["resourceVersion"]) + 1)

    def _store(self, body: Any, version: int) -> dict[str, Any]:
        self.lease = copy.deepcopy(dict(body))
        self.lease["metadata"]["resourceVersion"] = str(version)
        return self.lease

    def _answer(self) -> None:
        if self.broken:
            raise ApiError(500, "Broken", "no answer")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


def candidate(server: LeaseServer, clock: Clock, name: str) -> Elector:
    return Elector(server, LeaseIdentity(namespace="system", name="shardwright", holder=name), clock)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_the_first_gets_the_lease_and_the_second_waits(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    assert run(first.tick())
    assert not run(second.tick())
    assert (first.leading, second.leading) == (True, False)


def test_the_second_takes_over_only_after_the_lease_stood_still_long_enough(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    run(first.tick())
    run(second.tick())
    clock.now += LEASE_SECONDS - 0.1
    assert not run(second.tick())
    clock.now += 0.1
    assert run(second.tick())
    assert server.lease
    assert server.lease["spec"]["holderIdentity"] == "b"
    assert server.lease["spec"]["leaseTransitions"] == 1


def test_a_lease_that_is_renewed_never_expires(server: LeaseServer, clock: Clock) -> None:
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    for _ in range(20):
        assert run(first.tick())
        assert not run(second.tick())
        clock.now += 2


def test_a_leader_that_cannot_renew_fences_itself_before_anybody_may_take_over(server: LeaseServer, clock: Clock) -> None:
    first = candidate(server, clock, "a")
    run(first.tick())
    server.broken = True
    clock.now += RENEW_DEADLINE_SECONDS
    assert not run(first.tick())
    assert not first.must_fence
    clock.now += 0.1
    assert first.must_fence
    assert not first.leading
    assert RENEW_DEADLINE_SECONDS < LEASE_SECONDS


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
