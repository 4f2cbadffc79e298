"""What the client bounds: time, bytes, the share of a namespace, and who may still write."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from shardwright.cluster.client import ApiError, Call, Client, RequestLimits, Urgency
from shardwright.cluster.resources import ACCESS_REVIEWS, CONFIG_MAPS, NODES
from tests.harness.waiting import wait_for
from tests.support.scripted_api import Answer, ScriptedApi

BROKEN = Answer(500, {"message": "etcd is away"})
BUSY = Answer(429, {"message": "slow down"}, (("Retry-After", "30"),))
SOON = 0.3
"""Seconds of a deadline that the answer will not meet."""


@contextmanager
def serving(
    *answers: Answer, by_path: dict[str, Answer] | None = None, **options: Any
) -> Iterator[tuple[ScriptedApi, Client]]:
    api = ScriptedApi(*answers, by_path=by_path)
    client = Client(api.access(), **{"threads": 2, **options})
    try:
        yield api, client
    finally:
        client.close()
        api.stop()


def run(call: Callable[[], Awaitable[Any]]) -> Any:
    async def once() -> Any:
        return await call()

    return asyncio.run(once())


def get(client: Client, namespace: str = "models") -> Any:
    return run(lambda: client.get(CONFIG_MAPS, namespace, "a"))


@pytest.mark.parametrize(
    "fault",
    [Answer(hang=True), Answer(trickle=True), BROKEN, BUSY],
    ids=["hangs", "trickles", "fails", "busy"],
)
def test_what_is_not_done_by_the_deadline_is_an_error_that_says_so(fault: Answer) -> None:
    with serving(fault) as (api, client):
        with pytest.raises(ApiError) as error:
            run(
                lambda: asyncio.wait_for(
                    client.until(monotonic() + SOON).get(CONFIG_MAPS, "models", "a"), 15
                )
            )
        assert (error.value.code, error.value.reason, error.value.passes) == (
            0,
            "DeadlineExceeded",
            True,
        )
        assert api.requests


def test_nothing_is_sent_after_the_deadline() -> None:
    with serving(Answer()) as (api, client):
        with pytest.raises(ApiError, match="not sent, its time was over"):
            get(client.until(monotonic() - 1))
        assert api.requests == []


def test_of_two_deadlines_the_earlier_stands() -> None:
    with serving(Answer(hang=True)) as (_, client):
        for view in (
            client.until(monotonic() + SOON).until(monotonic() + 60),
            client.until(monotonic() + 60).until(0),
        ):
            with pytest.raises(ApiError, match=r"time was over|timed out"):
                get(view)


def test_a_deadline_of_one_is_not_that_of_others() -> None:
    with serving(Answer(body={"kind": "ConfigMap"})) as (_, client):
        client.until(monotonic() - 1)
        assert get(client) == {"kind": "ConfigMap"}


def test_who_stops_leading_while_a_write_waits_to_be_sent_sends_nothing() -> None:
    asked: list[str] = []

    def leads() -> bool:
        asked.append(threading.current_thread().name)
        return len(asked) == 1

    with serving(Answer(), may_write=leads) as (api, client):
        with pytest.raises(ApiError) as error:
            run(lambda: client.create(CONFIG_MAPS, "models", {}))
        assert (error.value.reason, error.value.passes, api.requests) == ("NotLeading", False, [])
    assert [name.startswith("api") for name in asked] == [False, True]


def test_leadership_is_asked_when_the_connection_stands() -> None:
    """Connecting may take seconds; the lead may be lost in them."""
    api = ScriptedApi(Answer())
    connected: list[bool] = []

    def leads() -> bool:
        first = not connected
        connected.append(not first and wait_until(lambda: api.connections == 1))
        return True

    client = Client(api.access(), may_write=leads)
    try:
        run(lambda: client.create(CONFIG_MAPS, "models", {}))
        assert connected == [False, True]
    finally:
        client.close()
        api.stop()


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = monotonic() + 10
    while not condition() and monotonic() < deadline:
        threading.Event().wait(0.01)
    return condition()


def test_who_does_not_lead_may_ask_what_it_may_do() -> None:
    with serving(Answer(body={"status": {"allowed": True}}), may_write=lambda: False) as (
        _,
        client,
    ):
        assert run(lambda: client.create(ACCESS_REVIEWS, None, {})) == {"status": {"allowed": True}}


@pytest.mark.parametrize("chunked", [False, True], ids=["length known", "chunked"])
def test_an_object_that_is_too_large_is_an_error_and_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    monkeypatch.setattr("shardwright.cluster.transport.MOST_OBJECT_BYTES", 3 << 20)
    huge = Answer(body={"data": {"x": "y" * (4 << 20)}}, chunked=chunked)
    with serving(huge) as (api, client):
        with pytest.raises(
            ApiError, match=r"configmaps/a: the answer has more than 3 MiB"
        ) as error:
            get(client)
        assert (error.value.reason, error.value.passes, len(api.requests)) == ("TooLarge", False, 1)


def test_a_page_that_is_too_large_is_asked_for_with_fewer_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardwright.cluster.transport.MOST_PAGE_BYTES", 1 << 20)
    huge = Answer(body={"metadata": {}, "items": [{"x": "y" * (2 << 20)}]})
    first = Answer(body={"metadata": {"continue": "next"}, "items": [{"a": 1}]})
    with serving(first, huge, huge, Answer(body={"metadata": {}, "items": [{"a": 2}]})) as (
        api,
        client,
    ):
        assert run(lambda: client.list(NODES)) == [{"a": 1}, {"a": 2}]
        assert [path.partition("?")[2] for _, path, _ in api.requests] == [
            "limit=500",
            "limit=500&continue=next",
            "limit=250&continue=next",
            "limit=125&continue=next",
        ]


def test_one_object_that_is_too_large_for_a_page_ends_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardwright.cluster.transport.MOST_PAGE_BYTES", 1 << 20)
    with serving(Answer(body={"metadata": {}, "items": ["x" * (2 << 20)]})) as (api, client):
        with pytest.raises(ApiError, match="more than 1 MiB"):
            run(lambda: client.list(NODES))
        assert len(api.requests) == 9


@pytest.mark.parametrize("chunked", [False, True], ids=["length known", "chunked"])
def test_a_body_that_is_cut_off_is_an_error(
    monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    monkeypatch.setattr("shardwright.cluster.client.RETRY_DELAYS_SECONDS", ())
    with serving(Answer(body={"items": [], "metadata": {}}, cut=True, chunked=chunked)) as (
        _,
        client,
    ):
        with pytest.raises(ApiError) as error:
            run(lambda: client.list(NODES))
        assert (error.value.code, error.value.reason) == (0, "Unreachable")


def test_chunks_are_put_together_and_connections_are_kept() -> None:
    with serving(Answer(body={"kind": "ConfigMap"}, chunked=True)) as (api, client):
        assert [get(client) for _ in range(5)] == [{"kind": "ConfigMap"}] * 5
        assert api.connections == 1


def test_a_connection_that_the_server_closed_while_nobody_used_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardwright.cluster.client.RETRY_DELAYS_SECONDS", (0.01, 0.01))
    with serving(Answer(body={"kind": "ConfigMap"}, close=True)) as (api, client):
        assert [get(client) for _ in range(3)] == [{"kind": "ConfigMap"}] * 3
        assert api.connections == 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ((("Retry-After", "7"),), 7),
        (
            (
                ("Retry-After", "Wed, 21 Oct 2015 07:28:05 GMT"),
                ("date", "Wed, 21 Oct 2015 07:28:00 GMT"),
            ),
            5,
        ),
        ((("Retry-After", "soon"),), None),
        ((("Retry-After", "²"),), None),
        ((("Retry-After", "-1"),), None),
        ((), None),
    ],
    ids=["seconds", "a moment", "a word", "no digit", "negative", "nothing"],
)
@pytest.mark.parametrize(
    "body",
    [{"message": "slow down"}, b"Too many requests, please try again later."],
    ids=["Status", "text"],
)
def test_a_server_that_is_busy_is_asked_again_when_it_says(
    monkeypatch: pytest.MonkeyPatch,
    headers: tuple[tuple[str, str], ...],
    seconds: float | None,
    body: Any,
) -> None:
    monkeypatch.setattr("shardwright.cluster.client.RETRY_DELAYS_SECONDS", ())
    encoded = tuple((name, value.encode().decode("latin-1")) for name, value in headers)
    with serving(Answer(429, body, encoded)) as (_, client):
        with pytest.raises(ApiError) as error:
            get(client)
        assert (error.value.code, error.value.retry_after_seconds) == (429, seconds)


def test_a_namespace_whose_requests_hang_does_not_stop_another() -> None:
    hung = {"/namespaces/slow/": Answer(hang=True)}

    async def scenario(client: Client, api: ScriptedApi) -> Any:
        slow = [
            asyncio.create_task(client.get(CONFIG_MAPS, "slow", str(number)))
            for number in range(40)
        ]
        await asyncio.to_thread(wait_until, lambda: bool(api.requests))
        found = [await client.get(CONFIG_MAPS, "models", str(number)) for number in range(20)]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return found

    with serving(Answer(body={"kind": "ConfigMap"}), by_path=hung, threads=8) as (api, client):
        assert asyncio.run(scenario(client, api)) == [{"kind": "ConfigMap"}] * 20
        assert sum("/slow/" in path for _, path, _ in api.requests) == 1


def test_a_namespace_keeps_its_share_when_callers_give_up() -> None:
    """The threads are still taken: who starts over and over would otherwise take them all."""
    hung = {"/namespaces/slow/": Answer(hang=True)}

    async def scenario(client: Client, api: ScriptedApi) -> None:
        for number in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get(CONFIG_MAPS, "slow", str(number)), 0.05)
        assert len(api.requests) == 1
        assert await client.get(CONFIG_MAPS, "models", "a") == {}

    with serving(Answer(), by_path=hung, threads=4) as (api, client):
        asyncio.run(scenario(client, api))


def test_a_request_of_the_lease_waits_for_nothing() -> None:
    limits = RequestLimits(qps=0.001, burst=1)
    with serving(Answer(), limits=limits) as (api, client):
        urgent = client.at(Urgency.LEASE)
        for _ in range(3):
            get(urgent)
        assert len(api.requests) == 3


def test_a_request_that_hangs_ends_with_its_client() -> None:
    """The interpreter joins the threads of an executor before it ends: whoever is told to stop
    would wait for it.
    """
    call = Call(verb="get", resource=NODES, path=NODES.path(None, "a"), method="GET")
    with serving(Answer(hang=True)) as (api, client), ThreadPoolExecutor() as threads:
        asked = threads.submit(client.ask, call, 60)
        wait_for(lambda: api.requests, 10, "the request")
        client.close()
        with pytest.raises(ApiError, match="GET /api/v1/nodes/a"):
            asked.result(20)
