"""Which requests the guard of the API key lets through to an application."""

import asyncio
from typing import Any

import pytest

from shardwright.rendering.programs.key_guard import KeyGuard

KEY = "k" * 32
BEARER = ("authorization", f"Bearer {KEY}")
PREFLIGHT = (("origin", "https://a.example"), ("access-control-request-method", "POST"))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)


@pytest.mark.parametrize("path", ["/v1/models", "/invocations", "/tokenize", "/ping", "/", "//v1"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "get", "TRACE"])
def test_a_path_needs_the_key(method: str, path: str) -> None:
    assert [asked(method, path), asked(method, path, BEARER)] == [401, "passed"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", "passed"),
        ("HEAD", "/health", "passed"),
        ("GET", "/metrics", "passed"),
        ("GET", "/metrics/", "passed"),
        ("POST", "/health", 401),
        ("GET", "/health/", 401),
        ("GET", "/metrics/x", 401),
        ("GET", "/health/../v1/models", 401),
        ("GET", "/v1/health", 401),
        ("GET", "health", 401),
    ],
)
def test_only_health_and_metrics_are_read_without_it(
    method: str, path: str, status: object
) -> None:
    assert asked(method, path) == status


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", KEY)],
        [("authorization", f"Basic {KEY}")],
        [("authorization", f"Bearer {KEY}x")],
        [("authorization", f"Bearer {KEY[:-1]}")],
        [("authorization", "Bearer ")],
        [("authorization", f"Bearer  {KEY}")],
        [("authorization", "")],
        [("x-api-key", KEY)],
        [("authorization", "Bearer wrong"), BEARER],
        [BEARER, BEARER],
        [("authorization", "Bearer caf\u00e9")],
    ],
)
def test_nothing_else_is_the_key(headers: list[tuple[str, str]]) -> None:
    assert asked("POST", "/v1/completions", *headers) == 401


def test_case_of_scheme_and_header_does_not_matter() -> None:
    assert asked("GET", "/v1/models", ("Authorization", f"bearer {KEY}")) == "passed"


def test_a_browser_may_ask_what_it_may_send_before_it_sends_a_key() -> None:
    assert asked("OPTIONS", "/v1/completions", *PREFLIGHT) == "passed"
    assert asked("OPTIONS", "/v1/completions", PREFLIGHT[1]) == 401
    assert asked("POST", "/v1/completions", *PREFLIGHT) == 401


def test_a_websocket_is_closed_without_the_key_whatever_its_path() -> None:
    paths = ("/v1/realtime", "/health")
    assert [asked("", path, kind="websocket") for path in paths] == [1008, 1008]
    assert asked("", "/v1/realtime", BEARER, kind="websocket") == "passed"


def test_the_start_of_the_server_passes_and_what_is_no_request_gets_nothing() -> None:
    assert asked("", "", kind="lifespan") == "passed"
    assert asked("", "", kind="later") is None


def test_without_a_key_the_engine_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "")
    with pytest.raises(KeyError):
        KeyGuard(passed)
    monkeypatch.delenv("VLLM_API_KEY")
    with pytest.raises(KeyError):
        KeyGuard(passed)


async def passed(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "passed"})


def asked(method: str, path: str, *headers: tuple[str, str], kind: str = "http") -> object:
    """Return the status or code with which the guard answers, "passed" behind it."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "method": method, "path": path, "headers": raw}
    asyncio.run(KeyGuard(passed)(scope, receive, send))
    if not sent:
        return None
    first = sent[0]
    return first["type"] if first["type"] == "passed" else first.get("status", first.get("code"))
