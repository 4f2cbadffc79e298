"""Who may scrape: what the API server says of a token holds for a while, and nobody keeps it busy
with questions.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus

import pytest

from shardwright.cluster.calls import ApiError
from shardwright.controller.http_server import Exposition, HttpServer
from shardwright.controller.metrics_auth import (
    REMEMBERED_MAX,
    REMEMBERED_SECONDS,
    WAITING_MAX,
    WAITING_MAX_OF_ADDRESS,
    MetricsAuth,
)
from shardwright.controller.servers import scraped
from tests.support.clocks import Clock

SCRAPER = "10.0.0.1"
STRANGER = "10.0.0.66"
SAID = {
    "good": HTTPStatus.OK,
    "renewed": HTTPStatus.OK,
    "poor": HTTPStatus.FORBIDDEN,
    "unknown": HTTPStatus.UNAUTHORIZED,
}


class ApiServer:
    """What the API server says of tokens, and which it was asked about; of numbers it says nothing
    before ``answers``.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()

    def __call__(self, token: str) -> HTTPStatus:
        self.asked.append(token)
        if token.isdecimal():
            self.answers.wait(10)
        if token == "away":
            raise ApiError(0, "Unreachable", "it does not answer")
        return SAID.get(token, HTTPStatus.UNAUTHORIZED)


def judged(
    review: Callable[[str], HTTPStatus], *headers: str, clock: Clock | None = None
) -> list[HTTPStatus | None]:
    """Return what is said to these headers, one after the other."""

    async def ask() -> list[HTTPStatus | None]:
        return [await metrics_auth(header, SCRAPER) for header in headers]

    metrics_auth = MetricsAuth(review, clock or Clock())
    try:
        return asyncio.run(ask())
    finally:
        metrics_auth.stop()


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer good", None),
        ("bearer  good ", None),
        ("Bearer poor", HTTPStatus.FORBIDDEN),
        ("Bearer unknown", HTTPStatus.UNAUTHORIZED),
        ("Bearer away", HTTPStatus.SERVICE_UNAVAILABLE),
        ("Basic good", HTTPStatus.UNAUTHORIZED),
        ("Bearer", HTTPStatus.UNAUTHORIZED),
        ("", HTTPStatus.UNAUTHORIZED),
    ],
)
def test_what_the_api_server_says_of_a_token_is_what_its_bearer_gets(
    header: str, status: HTTPStatus | None
) -> None:
    assert judged(ApiServer(), header) == [status]


def test_an_api_server_that_does_not_answer_is_named_in_the_log_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert judged(ApiServer(), *["Bearer away"] * 3) == [HTTPStatus.SERVICE_UNAVAILABLE] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "who asks for metrics cannot be found out: it does not answer"
    ]


def test_nobody_is_asked_about_who_brings_no_token() -> None:
    server = ApiServer()
    judged(server, "", "Basic x", "Bearer")
    assert server.asked == []


def test_an_answer_holds_for_seconds_and_no_answer_for_none() -> None:
    server, clock = ApiServer(), Clock()
    metrics_auth = MetricsAuth(server, clock)

    async def ask() -> None:
        for _ in range(3):
            for token in ("good", "poor", "away"):
                await metrics_auth(f"Bearer {token}", SCRAPER)
        clock.now += REMEMBERED_SECONDS
        await metrics_auth("Bearer good", SCRAPER)

    asyncio.run(ask())
    metrics_auth.stop()
    assert server.asked == ["good", "poor", "away", "away", "away", "good"]


def test_a_right_that_is_taken_away_ends_with_what_is_remembered() -> None:
    clock, said = Clock(), [HTTPStatus.OK, HTTPStatus.FORBIDDEN]
    metrics_auth = MetricsAuth(lambda _: said.pop(0), clock)

    async def ask() -> list[HTTPStatus | None]:
        first = await metrics_auth("Bearer good", SCRAPER)
        clock.now += REMEMBERED_SECONDS
        return [first, await metrics_auth("Bearer good", SCRAPER)]

    assert asyncio.run(ask()) == [None, HTTPStatus.FORBIDDEN]
    metrics_auth.stop()


async def flooded(
    metrics_auth: MetricsAuth, *addresses: str
) -> list[asyncio.Task[HTTPStatus | None]]:
    """Return what asks from each of these addresses with a token of its own, when each of them has
    begun to.
    """
    flood = [
        asyncio.create_task(metrics_auth(f"Bearer {number}", address))
        for number, address in enumerate(addresses)
    ]
    await asyncio.sleep(0)
    return flood


@pytest.mark.parametrize(
    ("addresses", "asked"),
    [
        ([STRANGER] * 50, WAITING_MAX_OF_ADDRESS),
        ([f"10.0.1.{number}" for number in range(50)], WAITING_MAX),
    ],
    ids=["of one address", "of many"],
)
def test_strangers_keep_neither_the_api_server_busy_nor_those_who_were_admitted(
    addresses: list[str], asked: int
) -> None:
    server, clock = ApiServer(), Clock()
    metrics_auth = MetricsAuth(server, clock)

    async def ask() -> None:
        assert await metrics_auth("Bearer good", SCRAPER) is None
        clock.now += REMEMBERED_SECONDS
        flood = await flooded(metrics_auth, *addresses)
        assert await metrics_auth("Bearer good", SCRAPER) is None
        server.answers.set()
        answers = await asyncio.gather(*flood)
        assert answers.count(HTTPStatus.TOO_MANY_REQUESTS) == len(flood) - asked
        assert answers.count(HTTPStatus.UNAUTHORIZED) == asked

    asyncio.run(ask())
    metrics_auth.stop()
    assert len(server.asked) == 2 + asked


def test_a_renewed_token_gets_in_beside_a_flood_from_an_address_that_may_ask_again_later() -> None:
    server = ApiServer()
    metrics_auth = MetricsAuth(server, Clock())

    async def ask() -> None:
        assert await metrics_auth("Bearer good", SCRAPER) is None
        flood = await flooded(metrics_auth, *[STRANGER] * 50)
        renewed = asyncio.create_task(metrics_auth("Bearer renewed", SCRAPER))
        await asyncio.sleep(0)
        assert not renewed.done()
        server.answers.set()
        assert await renewed is None
        await asyncio.gather(*flood)
        assert await metrics_auth("Bearer poor", STRANGER) is HTTPStatus.FORBIDDEN

    asyncio.run(ask())
    metrics_auth.stop()


def test_tokens_that_nobody_knows_push_none_out_that_is_known() -> None:
    server = ApiServer()
    judged(
        server,
        "Bearer good",
        *(f"Bearer x{number}" for number in range(2 * REMEMBERED_MAX)),
        "Bearer good",
    )
    assert server.asked.count("good") == 1


def test_a_server_with_a_guard_answers_only_whom_it_admits() -> None:
    metrics_auth = MetricsAuth(ApiServer())
    exposition = Exposition(lambda _: b"names of models")
    server = HttpServer([scraped(exposition, metrics_auth)], 0, "test")

    def get(*headers: str) -> bytes:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall("\r\n".join(["GET /metrics HTTP/1.1", *headers, "", ""]).encode())
            return b"".join(iter(lambda: client.recv(65536), b""))

    try:
        assert get("Host: x", "AUTHORIZATION:Bearer good").endswith(b"\r\n\r\nnames of models")
        refused = get("Host: x")
        assert refused.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"\r\nWWW-Authenticate: Bearer\r\n" in refused
        assert get("Host: x", "X-Authorization: Bearer good").startswith(b"HTTP/1.1 401")
        assert get("Host: x", "Authorization: Bearer poor").startswith(
            b"HTTP/1.1 403 Forbidden\r\n"
        )
        assert all(
            b"names" not in get("Host: x", *header)
            for header in ((), ("Authorization: Bearer \xff",))
        )
    finally:
        metrics_auth.stop()
        server.stop()
