"""The proxy does to a request what a rule says, to those that it names, as often as it says, and
nothing to all others.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness.fault_proxy import FaultProxy
from tests.support.scripted_api import Answer, ScriptedApi
from tests.support.watch_api import WatchApi, a_list, a_watch, an_object

SETS = "/apis/apps/v1/namespaces/models/statefulsets"
PODS = "/api/v1/pods"


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    """An API server that says which of the answers this one is."""
    api = ScriptedApi(*(Answer(body={"number": number}) for number in range(1, 9)))
    yield api
    api.stop()


@pytest.fixture
def proxy(api: ScriptedApi) -> Iterator[FaultProxy]:
    with FaultProxy(api.access().configuration.host) as proxy:
        yield proxy


def ask(
    proxy: FaultProxy, method: str = "GET", path: str = SETS, body: Any = None
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Return status, body and headers of an answer."""
    connection = http.client.HTTPConnection(str(urlsplit(proxy.url).netloc), timeout=10)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    return (
        response.status,
        json.loads(text) if text.startswith(b"{") else text.decode(),
        response.headers,
    )


def ask_again(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", SETS)
    return connection.getresponse().read()


def asked(api: ScriptedApi) -> list[str]:
    return [f"{method} {path}" for method, path, _ in api.requests]


def watched(proxy: FaultProxy, events: int, path: str = PODS) -> list[Any]:
    """Return the first lines of a watch, None where it ends before."""
    connection = http.client.HTTPConnection(str(urlsplit(proxy.url).netloc), timeout=10)
    try:
        connection.request("GET", f"{path}?watch=true")
        response = connection.getresponse()
        return [json.loads(line) if (line := response.readline()) else None for _ in range(events)]
    finally:
        connection.close()


def names(lines: list[Any]) -> list[str]:
    return [line["object"]["metadata"]["name"] for line in lines]


def test_a_fault_proxy_without_a_fault_passes_everything_unchanged(
    api: ScriptedApi, proxy: FaultProxy
) -> None:
    assert ask(proxy, "PATCH", f"{SETS}/a?force=true", {"spec": {}})[:2] == (200, {"number": 1})
    assert api.requests == [("PATCH", f"{SETS}/a?force=true", {"spec": {}})]


def test_a_fault_meets_the_requests_that_it_names_as_often_as_it_says(
    api: ScriptedApi, proxy: FaultProxy
) -> None:
    fault = proxy.when("PATCH", "*/statefulsets/*", times=2, skip=1).answer(503)
    codes = [ask(proxy, "PATCH", f"{SETS}/a", {})[0] for _ in range(4)]
    assert codes == [200, 503, 503, 200]
    assert [ask(proxy, "PATCH", "/api/v1/namespaces/models/services/a", {})[0], ask(proxy)[0]] == [
        200,
        200,
    ]
    assert fault.hits == [f"PATCH {SETS}/a"] * 2
    assert len(api.requests) == 4


def test_an_answer_is_a_status_and_says_when_to_come_again(
    api: ScriptedApi, proxy: FaultProxy
) -> None:
    proxy.when("POST").answer(429, retry_after=3)
    status, body, headers = ask(proxy, "POST", body={})
    assert (status, body["kind"], body["code"], headers["Retry-After"]) == (429, "Status", 429, "3")
    assert api.requests == []


def test_answers_come_one_after_the_other(api: ScriptedApi, proxy: FaultProxy) -> None:
    with proxy.when(times=3).answer_each(500, 501):
        assert [ask(proxy)[0] for _ in range(4)] == [500, 501, 500, 200]
    assert len(asked(api)) == 1


def test_a_page_is_no_answer_of_an_api_server(proxy: FaultProxy) -> None:
    proxy.when().html(502)
    status, body, headers = ask(proxy)
    assert (status, headers["Content-Type"]) == (502, "text/html")
    assert body.startswith("<html>")


def test_a_fault_that_has_ended_meets_nobody(proxy: FaultProxy) -> None:
    with proxy.when().answer(500):
        assert ask(proxy)[0] == 500
    assert ask(proxy)[0] == 200


@pytest.mark.parametrize(
    ("kind", "arrives"), [("drop_before", []), ("drop_after", [f"POST {SETS}"])]
)
def test_a_request_is_lost_before_it_is_done_or_its_answer_after(
    api: ScriptedApi, proxy: FaultProxy, kind: str, arrives: list[str]
) -> None:
    getattr(proxy.when("POST", times=1), kind)()
    with pytest.raises(http.client.RemoteDisconnected):
        ask(proxy, "POST", body={})
    assert asked(api) == arrives


def test_somebody_is_told_before_a_request_goes_on_or_when_it_is_done(
    api: ScriptedApi, proxy: FaultProxy
) -> None:
    told: list[int] = []
    proxy.when("POST").tell(lambda: told.append(len(api.requests)))
    assert ask(proxy, "POST", body={})[0] == 200
    proxy.when("PATCH").tell_after(lambda: told.append(len(api.requests)))
    with pytest.raises(http.client.RemoteDisconnected):
        ask(proxy, "PATCH", body={})
    assert told == [0, 2]


def test_a_request_that_hangs_ends_with_the_fault(api: ScriptedApi, proxy: FaultProxy) -> None:
    hangs = proxy.when("GET").hang()
    proxy.when("POST", times=1).tell(hangs.end)
    connection = http.client.HTTPConnection(str(urlsplit(proxy.url).netloc), timeout=10)
    connection.request("GET", SETS)
    assert ask(proxy, "POST", body={})[0] == 200
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    connection.close()
    assert asked(api) == [f"POST {SETS}"]


def test_a_slow_request_is_answered_all_the_same(api: ScriptedApi, proxy: FaultProxy) -> None:
    slow = proxy.when().slow(0.01)
    assert ask(proxy)[:2] == (200, {"number": 1})
    assert slow.hits == [f"GET {SETS}"]
    assert asked(api) == [f"GET {SETS}"]


def test_an_answer_breaks_off_in_its_midst(proxy: FaultProxy) -> None:
    proxy.when().truncate(5)
    with pytest.raises(http.client.IncompleteRead) as broken:
        ask(proxy)
    assert broken.value.partial == b'{"num'


def test_a_server_that_has_heard_of_nothing_answers_as_it_did_first(proxy: FaultProxy) -> None:
    with proxy.when("GET").stale():
        assert [
            ask(proxy)[1]["number"],
            ask(proxy)[1]["number"],
            ask(proxy, path=PODS)[1]["number"],
        ] == [1, 1, 2]
    assert ask(proxy)[1]["number"] == 3


def test_what_is_cut_is_mended_when_the_fault_ends(proxy: FaultProxy) -> None:
    connection = http.client.HTTPConnection(str(urlsplit(proxy.url).netloc), timeout=10)
    assert ask_again(connection) == b'{"number": 1}'
    with proxy.cut():
        with pytest.raises(ConnectionError):  # it was open
            ask_again(connection)
        with pytest.raises(http.client.RemoteDisconnected):  # and a new one
            ask(proxy)
    connection.close()
    assert ask(proxy)[0] == 200


@pytest.fixture
def watches() -> Iterator[FaultProxy]:
    """A proxy before an API server whose watch has four events, and is silent then."""
    events = [("ADDED", an_object(name, version)) for version, name in enumerate("abcd", 1)]
    with (
        WatchApi([a_list()], [a_watch(*events)]) as api,
        FaultProxy(api.client._transport._configuration.host) as proxy,
    ):
        yield proxy


def test_a_watch_goes_through_event_by_event(watches: FaultProxy) -> None:
    assert names(watched(watches, 4)) == ["a", "b", "c", "d"]


def test_events_come_twice(watches: FaultProxy) -> None:
    watches.when("WATCH", times=2).duplicate()
    assert names(watched(watches, 6)) == ["a", "a", "b", "b", "c", "d"]


def test_events_come_out_of_order(watches: FaultProxy) -> None:
    watches.when("WATCH", "*/pods").reorder()
    assert names(watched(watches, 4)) == ["b", "a", "d", "c"]


def test_events_disappear(watches: FaultProxy) -> None:
    watches.when("WATCH", times=2, skip=1).lose()
    assert names(watched(watches, 2)) == ["a", "d"]


def test_a_watch_falls_silent_and_stays_open(watches: FaultProxy) -> None:
    connection = http.client.HTTPConnection(str(urlsplit(watches.url).netloc), timeout=0.3)
    silence = watches.when("WATCH", skip=1).silent()
    connection.request("GET", f"{PODS}?watch=true")
    response = connection.getresponse()
    assert names([json.loads(response.readline())]) == ["a"]
    with pytest.raises(TimeoutError):
        response.readline()
    connection.close()
    assert silence.hits == [f"WATCH {PODS}"]


def test_a_watch_says_that_it_has_failed_and_ends(watches: FaultProxy) -> None:
    watches.when("WATCH").watch_error(410)
    error, end = watched(watches, 2)
    assert (error["type"], error["object"]["code"], error["object"]["reason"], end) == (
        "ERROR",
        410,
        "Expired",
        None,
    )


def test_a_watch_breaks_off_in_the_midst_of_an_event(watches: FaultProxy) -> None:
    watches.when("WATCH").truncate(100)
    with pytest.raises((http.client.IncompleteRead, json.JSONDecodeError)):
        watched(watches, 4)


def test_a_list_is_no_watch(watches: FaultProxy) -> None:
    watches.when("WATCH").answer(500)
    assert ask(watches, path=PODS)[0] == 200
