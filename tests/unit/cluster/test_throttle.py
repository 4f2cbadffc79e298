"""The gate of requests, on a clock that the test moves."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import pytest

from shardwright.cluster.calls import Call, Gate, RequestLimits, Urgency
from shardwright.cluster.resources import EVENTS, SHARDED_MODELS, STATEFUL_SETS, Resource
from tests.support.clocks import Clock

MANY = RequestLimits(qps=1e6, burst=1000)


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


def entering(
    gate: Gate, passed: list[str], urgency: Urgency, namespace: str, name: str = ""
) -> asyncio.Task[None]:
    async def enter() -> None:
        await gate.enter(urgency, namespace)
        passed.append(name or namespace)

    return asyncio.create_task(enter())


def passing(scenario: Callable[[list[str]], Awaitable[None]]) -> list[str]:
    """Return who has passed, in order."""
    passed: list[str] = []

    async def run() -> None:
        await scenario(passed)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(run())
    return passed


def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    clock = Clock()

    async def scenario(passed: list[str]) -> None:
        gate = Gate(RequestLimits(qps=10, burst=3), 100, clock)
        for number in range(6):
            entering(gate, passed, Urgency.OBJECTS, "a", str(number))
        await settle()
        passed.append("-")
        clock.now = 0.25
        gate.leave("a")
        await settle()

    assert passing(scenario) == ["0", "1", "2", "-", "3", "4"]


def test_a_pause_fills_it_up_to_the_burst_and_no_further() -> None:
    clock = Clock()

    async def scenario(passed: list[str]) -> None:
        gate = Gate(RequestLimits(qps=10, burst=2), 100, clock)
        clock.now = 1000
        for number in range(4):
            entering(gate, passed, Urgency.OBJECTS, "a", str(number))
        await settle()

    assert passing(scenario) == ["0", "1"]


def test_requests_that_wait_for_tokens_pass_in_order_as_tokens_come_back() -> None:
    async def scenario(passed: list[str]) -> None:
        gate = Gate(RequestLimits(qps=200, burst=1), 100)
        await asyncio.gather(
            *(entering(gate, passed, Urgency.OBJECTS, "a", str(number)) for number in range(5))
        )

    assert passing(scenario) == ["0", "1", "2", "3", "4"]


def test_a_repair_passes_before_a_flood_of_everything_else() -> None:
    clock = Clock()

    async def scenario(passed: list[str]) -> None:
        gate = Gate(RequestLimits(qps=1, burst=1), 100, clock)
        entering(gate, passed, Urgency.OBJECTS, "first")
        await settle()
        for urgency in (Urgency.EVENTS, Urgency.STATUS, Urgency.OBJECTS, Urgency.REPAIR):
            entering(gate, passed, urgency, urgency.name)
        await settle()
        for _ in range(4):
            clock.now += 1
            gate.leave("first")
            await settle()

    assert passing(scenario) == ["first", "REPAIR", "OBJECTS", "STATUS", "EVENTS"]


def test_namespaces_take_turns() -> None:
    clock = Clock()

    async def scenario(passed: list[str]) -> None:
        gate = Gate(RequestLimits(qps=1, burst=1), 100, clock)
        for namespace in ("flood",) * 5 + ("b", "c"):
            entering(gate, passed, Urgency.OBJECTS, namespace)
        for _ in range(4):
            await settle()
            clock.now += 1
            gate.leave("nobody")

    assert passing(scenario) == ["flood", "flood", "b", "c"]


def test_one_namespace_has_a_quarter_less_one_and_its_repairs_the_last_one() -> None:
    async def scenario(passed: list[str]) -> None:
        gate = Gate(MANY, 16)
        for _ in range(10):
            entering(gate, passed, Urgency.OBJECTS, "slow")
        for _ in range(3):
            entering(gate, passed, Urgency.REPAIR, "slow", "repair")
        entering(gate, passed, Urgency.EVENTS, "other")
        await settle()

    assert passing(scenario) == ["slow"] * 3 + ["repair", "other"]


def test_many_namespaces_leave_a_quarter_for_repairs() -> None:
    async def scenario(passed: list[str]) -> None:
        gate = Gate(MANY, 8)
        for number in range(20):
            entering(gate, passed, Urgency.OBJECTS, f"slow-{number}", "slow")
        entering(gate, passed, Urgency.REPAIR, "broken")
        await settle()

    assert passing(scenario) == ["slow"] * 6 + ["broken"]


def test_who_leaves_makes_room() -> None:
    async def scenario(passed: list[str]) -> None:
        gate = Gate(MANY, 4)
        for number in range(3):
            entering(gate, passed, Urgency.OBJECTS, "a", str(number))
        await settle()
        gate.leave("a")
        await settle()

    assert passing(scenario) == ["0", "1"]


def test_who_gives_up_is_not_waited_for_and_takes_nothing() -> None:
    async def scenario(passed: list[str]) -> None:
        gate = Gate(MANY, 4)
        await gate.enter(Urgency.OBJECTS, "a")
        with pytest.raises(TimeoutError):
            await gate.enter(Urgency.OBJECTS, "a", monotonic() + 0.01)
        gone = entering(gate, passed, Urgency.OBJECTS, "a", "gone")
        entering(gate, passed, Urgency.OBJECTS, "a", "patient")
        await settle()
        gone.cancel()
        await settle()
        gate.leave("a")
        await settle()

    assert passing(scenario) == ["patient"]


def test_who_gives_up_when_admitted_hands_on() -> None:
    async def scenario(passed: list[str]) -> None:
        gate = Gate(MANY, 4)
        await gate.enter(Urgency.OBJECTS, "a")
        gone = entering(gate, passed, Urgency.OBJECTS, "a", "gone")
        entering(gate, passed, Urgency.OBJECTS, "a", "patient")
        await settle()
        gate.leave("a")
        gone.cancel()
        await settle()

    assert passing(scenario) == ["patient"]


@pytest.mark.parametrize(
    ("verb", "resource", "subresource", "query", "urgency"),
    [
        ("get", STATEFUL_SETS, None, (), Urgency.OBJECTS),
        ("create", STATEFUL_SETS, None, (), Urgency.OBJECTS),
        ("create", STATEFUL_SETS, None, (("dryRun", "All"),), Urgency.EVENTS),
        ("create", EVENTS, None, (), Urgency.EVENTS),
        ("patch", SHARDED_MODELS, "status", (), Urgency.STATUS),
        ("delete", STATEFUL_SETS, None, (), Urgency.REPAIR),
    ],
)
def test_requests_know_how_urgent_they_are(
    verb: str,
    resource: Resource,
    subresource: str | None,
    query: Sequence[tuple[str, str]],
    urgency: Urgency,
) -> None:
    path = resource.path("models", "a", subresource)
    call = Call(verb=verb, resource=resource, path=path, method="X", query=tuple(query))
    assert (call.urgency, call.namespace) == (urgency, "models")


def test_requests_that_give_up_together_hold_no_other_up() -> None:
    """A loop that ends cancels all of its tasks before any of them can say that it gives up."""

    async def scenario(passed: list[str]) -> None:
        gate = Gate(MANY, 1)
        await gate.enter(Urgency.OBJECTS, "first")
        waiting = [entering(gate, passed, Urgency.OBJECTS, "first", name) for name in ("a", "b")]
        last = entering(gate, passed, Urgency.OBJECTS, "second")
        await settle()
        for task in waiting:
            task.cancel()
        gate.leave("first")
        await settle()
        assert [task.cancelled() for task in waiting] == [True, True]
        await last

    assert passing(scenario) == ["second"]
