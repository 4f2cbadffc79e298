"""The client against a server that misbehaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shardwright.cluster.client import MERGE_PATCH, ApiError, Meters
from shardwright.cluster.reports import write_status
from shardwright.cluster.resources import COMPUTE_DOMAINS, CONFIG_MAPS, NODES, SHARDED_MODELS
from tests.support.scripted_api import Answer, serving

BUSY = Answer(429, {"message": "slow down"}, (("Retry-After", "0"),))
BROKEN = Answer(500, {"message": "etcd is away"})
STORED = Answer(body={"metadata": {"uid": "u", "resourceVersion": "8"}})
LOST = Answer(drop=True)
GONE = Answer(404, {"reason": "NotFound", "message": "not found"})
NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.cluster.client.RETRY_DELAYS_SECONDS", (0.001, 0.001, 0.001))


def run(call: Callable[[], Awaitable[Any]]) -> Any:
    async def once() -> Any:
        return await call()

    return asyncio.run(once())


@pytest.mark.parametrize("fault", [BUSY, BROKEN, LOST], ids=["busy", "broken", "reply lost"])
def test_a_passing_fault_is_tried_again(fault: Answer) -> None:
    with serving(fault, fault, Answer(body={"kind": "ConfigMap"})) as (api, client):
        assert run(lambda: client.get(CONFIG_MAPS, "models", "a")) == {"kind": "ConfigMap"}
        assert len(api.requests) == 3


def test_a_kind_that_the_server_does_not_have_is_an_error_and_asked_for_once() -> None:
    with serving(Answer(404, b"404 page not found\n")) as (api, client):
        for call in (
            lambda: client.get(COMPUTE_DOMAINS, "models", "a"),
            lambda: client.list(COMPUTE_DOMAINS, "models"),
        ):
            with pytest.raises(ApiError, match="does not serve computedomains") as error:
                run(call)
            assert (error.value.code, error.value.reason, error.value.passes) == (
                404,
                "UnknownPath",
                False,
            )
        assert len(api.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, b"<html><body>404 Not Found</body></html>"),
        Answer(404, b'{"message": "no Route matched"}'),
        Answer(404, b""),
        Answer(302, b"", (("Location", "/login"),)),
    ],
    ids=["HTML", "a gateway's JSON", "nothing", "a login page"],
)
def test_an_answer_that_is_not_the_api_servers_is_no_evidence_that_an_object_is_gone(
    answer: Answer,
) -> None:
    with serving(answer) as (_, client):
        with pytest.raises(ApiError) as error:
            run(lambda: client.get(SHARDED_MODELS, "models", "a"))
        assert (error.value.code, error.value.reason, error.value.passes) == (0, "NotAStatus", True)
        with pytest.raises(ApiError):
            run(lambda: client.delete(CONFIG_MAPS, "models", "a", uid="u"))


def test_a_foreign_refusal_says_what_it_was() -> None:
    page = b"<html>\n <h1>Forbidden by " + b"x" * 500
    with serving(Answer(403, page)) as (_, client), pytest.raises(ApiError) as error:
        run(lambda: client.get(CONFIG_MAPS, "models", "a"))
    path = "/api/v1/namespaces/models/configmaps/a"
    excerpt = ("<html> <h1>Forbidden by " + "x" * 500)[:120]
    assert str(error.value) == f"GET {path}: HTTP 403 that is not the API server's: {excerpt}"


def test_a_fault_that_stays_is_an_error_after_the_last_retry() -> None:
    with serving(BROKEN) as (api, client):
        with pytest.raises(ApiError, match="etcd is away") as error:
            run(lambda: client.get(CONFIG_MAPS, "models", "a"))
        assert (error.value.code, error.value.passes, len(api.requests)) == (500, True, 4)


def test_a_refusal_is_not_tried_again() -> None:
    refusal = Answer(422, {"reason": "Invalid", "message": "spec.replicas: must be positive"})
    with serving(refusal) as (api, client):
        with pytest.raises(ApiError, match=r"spec\.replicas"):
            run(lambda: client.create(CONFIG_MAPS, "models", {}))
        assert len(api.requests) == 1


def test_what_does_not_exist_is_none() -> None:
    with serving(GONE) as (_, client):
        assert run(lambda: client.get(CONFIG_MAPS, "models", "a")) is None


@pytest.mark.parametrize(
    "body",
    [b"<html>login</html>", b'{"items": [', b"[]", b"{}"],
    ids=["HTML", "cut off", "no object", "no list"],
)
def test_what_is_no_list_is_an_error_and_never_an_empty_list(body: bytes) -> None:
    with serving(Answer(body=body)) as (_, client), pytest.raises(ApiError):
        run(lambda: client.list(NODES))


def test_a_too_deeply_nested_answer_is_read_without_its_depths_at_the_first_try() -> None:
    with serving(Answer(body=b'{"metadata": {"uid": "u", "managedFields": %b}}' % NESTED)) as (
        api,
        client,
    ):
        stored = run(lambda: client.patch_status(SHARDED_MODELS, "models", "a", {"status": {}}))
        assert stored["metadata"]["uid"] == "u"
        assert len(api.requests) == 1


def test_what_is_nested_and_breaks_off_is_no_answer() -> None:
    with (
        serving(Answer(body=b'{"spec": ' + NESTED)) as (_, client),
        pytest.raises(ApiError) as error,
    ):
        run(lambda: client.get(SHARDED_MODELS, "models", "a"))
    assert (error.value.code, error.value.reason) == (0, "NotJson")


def test_a_long_list_is_read_page_by_page() -> None:
    first = Answer(body={"metadata": {"continue": "next"}, "items": [{"a": 1}]})
    second = Answer(body={"metadata": {}, "items": [{"a": 2}]})
    with serving(first, second) as (api, client):
        assert run(lambda: client.list(NODES, labelSelector="x=y")) == [{"a": 1}, {"a": 2}]
        assert [path for _, path, _ in api.requests] == [
            "/api/v1/nodes?limit=500&labelSelector=x%3Dy",
            "/api/v1/nodes?limit=500&labelSelector=x%3Dy&continue=next",
        ]


def test_a_list_whose_second_page_has_expired_is_an_error() -> None:
    first = Answer(body={"metadata": {"continue": "next"}, "items": [{"a": 1}]})
    with (
        serving(first, Answer(410, {"reason": "Expired", "message": "too old"})) as (_, client),
        pytest.raises(ApiError),
    ):
        run(lambda: client.list(NODES))


def test_nothing_is_written_by_who_may_not() -> None:
    with serving(Answer(), may_write=lambda: False) as (api, client):
        with pytest.raises(ApiError, match="another operator leads"):
            run(lambda: client.create(CONFIG_MAPS, "models", {}))
        assert api.requests == []


def test_every_request_is_counted_with_its_code() -> None:
    counted: list[tuple[str, str, int, float]] = []
    with serving(BROKEN, GONE, meters=Meters(call=lambda *call: counted.append(call))) as (
        _,
        client,
    ):
        run(lambda: client.get(CONFIG_MAPS, "models", "a"))
    assert [call[:3] for call in counted] == [
        ("get", "configmaps", 500),
        ("get", "configmaps", 404),
    ]
    assert all(seconds > 0 for *_, seconds in counted)


def test_a_deletion_names_the_uid_and_is_content_when_it_is_gone() -> None:
    with serving(GONE) as (api, client):
        run(lambda: client.delete(CONFIG_MAPS, "models", "a", uid="u", grace_seconds=5))
        assert api.requests[0][2] == {
            "preconditions": {"uid": "u"},
            "propagationPolicy": "Background",
            "gracePeriodSeconds": 5,
        }


def test_status_is_written_on_change_only() -> None:
    status = {"replicas": 1, "old": True}
    live = {
        "metadata": {"namespace": "models", "name": "a", "uid": "u"},
        "spec": {"mode": "PlanOnly"},
        "status": status,
    }
    with serving(STORED) as (api, client):
        assert run(lambda: write_status(client, live, {"replicas": 1, "old": True})) is None
        stored = {
            "metadata": {"uid": "u", "resourceVersion": "8"},
            "spec": {"mode": "PlanOnly"},
            "status": {"replicas": 2},
        }
        assert run(lambda: write_status(client, live, {"replicas": 2})) == stored
        path = SHARDED_MODELS.path("models", "a", "status")
        body = {"metadata": {"uid": "u"}, "status": {"replicas": 2, "old": None}}
        assert api.requests == [("PATCH", f"{path}?fieldManager=shardwright", body)]


def test_the_status_of_a_resource_that_is_gone_is_not_missed() -> None:
    live = {"metadata": {"namespace": "models", "name": "a", "uid": "u"}}
    with serving(GONE) as (_, client):
        assert run(lambda: write_status(client, live, {"replicas": 2})) is None


def changed(**live: Any) -> Answer:
    return Answer(body={"metadata": {"namespace": "models", "name": "a", "uid": "u"}, **live})


def test_a_status_write_that_conflicts_is_made_again_on_what_is_there_now() -> None:
    live = {"metadata": {"namespace": "models", "name": "a", "uid": "u"}, "status": {"replicas": 1}}
    now = changed(status={"replicas": 1, "conditions": []})
    with serving(Answer(409), now, STORED) as (api, client):
        stored = run(lambda: write_status(client, live, {"replicas": 2}))
        assert stored is not None
        assert (stored["metadata"]["resourceVersion"], stored["status"]) == ("8", {"replicas": 2})
        assert [method for method, _, _ in api.requests] == ["PATCH", "GET", "PATCH"]
        assert api.requests[2][2] == {
            "metadata": {"uid": "u"},
            "status": {"replicas": 2, "conditions": None},
        }


def test_a_status_that_meets_a_change_every_time_is_an_error() -> None:
    live = {"metadata": {"namespace": "models", "name": "a", "uid": "u"}}
    with serving(*(Answer(409), changed()) * 5) as (api, client), pytest.raises(ApiError):
        run(lambda: write_status(client, live, {"replicas": 2}))
    assert [method for method, _, _ in api.requests] == ["PATCH", "GET"] * 4 + ["PATCH"]


@pytest.mark.parametrize(
    "now",
    [GONE, Answer(body={"metadata": {"uid": "another"}})],
    ids=["gone", "another of its name"],
)
def test_a_status_of_what_is_not_there_any_more_is_not_missed(now: Answer) -> None:
    live = {"metadata": {"namespace": "models", "name": "a", "uid": "u"}}
    with serving(Answer(409), now) as (api, client):
        assert run(lambda: write_status(client, live, {"replicas": 2})) is None
        assert len(api.requests) == 2


def test_a_patch_keeps_its_type() -> None:
    with serving(Answer()) as (api, client):
        run(
            lambda: client.patch(
                CONFIG_MAPS, CONFIG_MAPS.path("models", "a"), {"x": 1}, MERGE_PATCH
            )
        )
        assert api.requests[0][2] == {"x": 1}


def test_of_a_list_with_a_projection_each_item_is_taken_alone() -> None:
    seen: list[str] = []

    def kept(item: dict[str, Any]) -> dict[str, Any]:
        seen.append(item["metadata"]["name"])
        return {"name": item["metadata"]["name"]}

    items = [{"metadata": {"name": name}, "spec": {}} for name in ("a", "b")]
    first = Answer(body={"metadata": {"resourceVersion": "9", "continue": "x"}, "items": items})
    with serving(
        first, Answer(body={"metadata": {"resourceVersion": "9"}, "items": items[:1]})
    ) as (api, client):

        async def pages() -> list[Any]:
            return [page async for page in client.pages(SHARDED_MODELS, project=kept)]

        assert run(pages) == [[{"name": "a"}, {"name": "b"}], [{"name": "a"}]]
        assert len(api.requests) == 2
    assert seen == ["a", "b", "a"]


@pytest.mark.parametrize(
    "text",
    [b'{"items": [{"metadata": ', b"[]", b'{"kind": "Status", "metadata": {}}'],
    ids=["cut off", "no object", "no list"],
)
def test_what_is_no_list_is_not_taken_for_an_empty_one(text: bytes) -> None:
    async def pages(client: Any) -> list[Any]:
        return [page async for page in client.pages(SHARDED_MODELS, project=lambda item: item)]

    with serving(*[Answer(200, text)] * 4) as (_, client), pytest.raises(ApiError):
        run(lambda: pages(client))
