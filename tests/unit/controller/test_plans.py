"""The pages of plans: for whom, how many at once, how large; what the API server says of rights is
scripted.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any, NamedTuple

import pytest

from shardwright.api.record import PlanRecord
from shardwright.cluster.permissions import PLANS_AUDIENCE
from shardwright.controller import plans
from shardwright.controller.http_server import HttpServer
from shardwright.controller.plans import Plans, Sources, listed
from shardwright.controller.queue import Key
from shardwright.pages.page import Listed
from shardwright.resolving.subject import Subject
from tests.support.clocks import Clock
from tests.support.scripted_api import Answer, ScriptedApi, serving

WHO = {
    "status": {"authenticated": True, "audiences": [PLANS_AUDIENCE], "user": {"username": "mara"}}
}
MAY = Answer(201, {"status": {"allowed": True}})
NOT = Answer(201, {"status": {"allowed": False}})
ROWS = [
    Listed(namespace=name, name="llama", model="m/<b>", ready="Ready", plan="8 x H100")
    for name in ("a", "b")
]


async def _rows() -> Sequence[Listed]:
    return ROWS


async def _none(key: Key) -> tuple[Subject, PlanRecord] | None:
    del key
    return None


class Reply(NamedTuple):
    status: HTTPStatus
    body: bytes
    challenges: list[str]


def ask(pages: Plans, path: str = "/plans", header: str = "Bearer t") -> Reply:
    server = HttpServer(pages.routes(), 0, "plans")
    try:
        return fetched(server.port, path, header)
    finally:
        server.stop()


def fetched(port: int, path: str, header: str) -> Reply:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"Authorization": header} if header else {})
    with connection.getresponse() as reply:
        challenges = reply.headers.get_all("WWW-Authenticate", [])
        return Reply(HTTPStatus(reply.status), reply.read(), challenges)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop of the operator, on a thread of its own."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


def asked_with(
    loop: asyncio.AbstractEventLoop, *answers: Answer, path: str = "/plans"
) -> tuple[Reply, ScriptedApi]:
    with serving(Answer(201, WHO), *answers, may_write=lambda: False) as (api, client):
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        reply = ask(pages, path)
        pages.stop()
    return reply, api


def test_the_list_has_the_namespaces_that_may_be_seen_and_escapes_what_they_say(
    loop: asyncio.AbstractEventLoop,
) -> None:
    reply, api = asked_with(loop, NOT, MAY, NOT)  # everywhere, a, b

    assert reply.status is HTTPStatus.OK
    assert b'href="/plans/a/llama"' in reply.body
    assert b"/plans/b/" not in reply.body
    assert b"m/<b>" not in reply.body
    reviews = [body["spec"].get("resourceAttributes") for _, _, body in api.requests]
    assert reviews[1:] == [
        {"group": "shardwright.io", "resource": "shardedmodels", "verb": "list", "namespace": where}
        for where in ("", "a", "b")
    ]


def test_who_may_get_one_plan_may_not_therefore_list_those_of_its_namespace(
    loop: asyncio.AbstractEventLoop,
) -> None:
    who = Answer(201, WHO)
    with serving(who, MAY, NOT, NOT, may_write=lambda: False) as (api, client):
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        one, those = ask(pages, "/plans/a/gone"), ask(pages, "/plans/a")
        pages.stop()

    assert (one.status, those) == (
        HTTPStatus.NOT_FOUND,
        (HTTPStatus.FORBIDDEN, b"you may not list ShardedModels in a\n", []),
    )
    assert [
        (asked["verb"], asked["namespace"])
        for _, _, body in api.requests
        if (asked := body["spec"].get("resourceAttributes"))
    ] == [("get", "a"), ("list", ""), ("list", "a")]


def test_who_may_list_all_is_asked_about_once(loop: asyncio.AbstractEventLoop) -> None:
    reply, api = asked_with(loop, MAY)

    assert b'href="/plans/b/llama"' in reply.body
    assert len(api.requests) == 2


def test_answers_hold_for_seconds_so_that_a_list_that_took_too_long_goes_on_next_time(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """The API server fails for once after the first of two namespaces."""
    clock = Clock()
    answers = (Answer(201, WHO), NOT, MAY, Answer(500, {}), MAY, Answer(201, WHO), MAY)
    with serving(*answers, may_write=lambda: False) as (api, client):
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        pages._users._clock = pages._rights._clock = clock
        replies = []
        for moment in (0.0, 9.0, 9.0, 10.0):
            clock.now = moment
            replies.append((ask(pages).status, len(api.requests)))
        pages.stop()

    assert replies == [
        (HTTPStatus.SERVICE_UNAVAILABLE, 4),
        (HTTPStatus.OK, 5),
        (HTTPStatus.OK, 5),
        (HTTPStatus.OK, 7),
    ]


def test_a_token_that_is_nobodys_is_asked_about_once(loop: asyncio.AbstractEventLoop) -> None:
    with serving(Answer(201, {}), may_write=lambda: False) as (api, client):
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        statuses = [ask(pages).status for _ in range(2)]
        kept = repr(list(pages._users._found))
        pages.stop()

    assert statuses == [HTTPStatus.UNAUTHORIZED] * 2
    assert len(api.requests) == 1
    assert kept == repr([hashlib.sha256(b"t").digest()])


@pytest.mark.parametrize(
    ("path", "answer", "status"),
    [
        ("/plans/a/llama", NOT, HTTPStatus.FORBIDDEN),
        ("/plans/a/gone", MAY, HTTPStatus.NOT_FOUND),
        ("/plans/a", NOT, HTTPStatus.FORBIDDEN),
        ("/plans/a/", NOT, HTTPStatus.FORBIDDEN),
        ("/plans/a/b/c", MAY, HTTPStatus.NOT_FOUND),
        ("/plans", Answer(500, {}), HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
def test_what_is_not_shown_says_why(
    loop: asyncio.AbstractEventLoop, path: str, answer: Answer, status: HTTPStatus
) -> None:
    assert asked_with(loop, answer, path=path)[0].status is status


@pytest.mark.parametrize(
    "path", ["/plans/..", "/plans/%2e%2e", "/plans/a/%2E%2e", "/plans/a%0d%0ab", "/plans/a/A"]
)
def test_what_is_no_name_is_not_found_without_asking_the_api_server(
    loop: asyncio.AbstractEventLoop, path: str
) -> None:
    reply, api = asked_with(loop, MAY, path=path)

    assert (reply.status, api.requests) == (HTTPStatus.NOT_FOUND, [])


def test_a_request_without_a_token_is_unauthorized_without_asking_the_api_server(
    loop: asyncio.AbstractEventLoop,
) -> None:
    with serving(MAY) as (api, client):
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        assert [ask(pages, header=header).status for header in ("", "Basic x", "Bearer ")] == [
            HTTPStatus.UNAUTHORIZED
        ] * 3
        pages.stop()
    assert api.requests == []


def test_a_browser_is_asked_for_a_token_and_sends_it_as_a_password(
    loop: asyncio.AbstractEventLoop,
) -> None:
    typed = f"Basic {base64.b64encode(b'anybody:t').decode()}"
    with serving(Answer(201, WHO), MAY, may_write=lambda: False) as (api, client):
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        asked, shown = ask(pages, header=""), ask(pages, header=typed)
        pages.stop()

    assert asked.challenges == ['Basic realm="shardwright plans"', "Bearer"]
    assert shown.status is HTTPStatus.OK
    assert api.requests[0][2]["spec"] == {"token": "t", "audiences": [PLANS_AUDIENCE]}


def test_a_flood_waits_for_nothing(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(Plans, "_page", lambda *_: free.wait(10) and "a page")
    statuses = []
    with serving(MAY) as (_, client), ThreadPoolExecutor(4) as people:
        pages = Plans(client, Sources(models=_rows, plan=_none), loop)
        server = HttpServer(pages.routes(), 0, "plans")
        asking = [people.submit(fetched, server.port, "/plans", "Bearer t") for _ in range(4)]
        for reply in as_completed(asking):
            statuses.append(reply.result().status)
            if len(statuses) == 2:
                free.set()
        pages.stop()
        server.stop()

    assert statuses == [HTTPStatus.TOO_MANY_REQUESTS] * 2 + [HTTPStatus.OK] * 2


def test_a_page_that_is_too_large_is_not_sent(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "PAGE_MAX_BYTES", 100)

    assert asked_with(loop, MAY)[0].status is HTTPStatus.INSUFFICIENT_STORAGE


def test_a_row_is_made_of_what_the_status_says() -> None:
    content: dict[str, Any] = {
        "metadata": {"namespace": "a", "name": "b"},
        "spec": {"model": {"id": "m"}},
        "status": {
            "conditions": [{"type": "Ready", "reason": "Progressing"}],
            "plan": {"gpus": 8, "product": "NVIDIA-H100-80GB-HBM3"},
        },
    }

    assert listed(content) == Listed(
        namespace="a", name="b", model="m", ready="Progressing", plan="8 x NVIDIA-H100-80GB-HBM3"
    )
    assert listed({"metadata": {"namespace": "a", "name": "b"}}).plan == ""
