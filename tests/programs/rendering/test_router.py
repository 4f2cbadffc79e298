"""When is a router's pod ready?"""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shardwright.rendering.programs.router import has_both, has_workers


@contextmanager
def telling(metrics: str) -> Iterator[int]:
    """Serve metrics like those of vllm-router 0.1.17, and yield the port."""

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(metrics.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(
    ("metrics", "ready"),
    [
        ("# TYPE vllm_router_active_workers gauge\nvllm_router_active_workers 2\n", True),
        ("# TYPE vllm_router_active_workers gauge\nvllm_router_active_workers 0\n", False),
        ('vllm_router_worker_health{worker="http://10.0.0.1:8000"} 1\n', False),
        ("", False),
    ],
    ids=["it knows two groups", "it may not list pods", "its group is gone", "it has just started"],
)
def test_a_router_is_ready_while_it_knows_a_group(metrics: str, *, ready: bool) -> None:
    with telling(metrics) as port:
        assert has_workers(port) is ready


def test_and_not_where_it_does_not_answer() -> None:
    with telling("") as port:
        pass
    assert not has_workers(port)


@contextmanager
def paired(status: int, key: str = "") -> Iterator[int]:
    """Answer like the router of a pair of vllm-router 0.1.17, which asks for the key everywhere."""

    class Readiness(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = not key or self.headers["Authorization"] == f"Bearer {key}"
            there = self.path == "/readiness"
            self.send_response((status if there else 404) if known else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Readiness) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(("status", "ready"), [(200, True), (503, False)])
def test_the_router_of_a_pair_is_ready_while_it_has_both_halves(
    status: int, *, ready: bool
) -> None:
    with paired(status) as port:
        assert has_both(port) is ready


@pytest.mark.parametrize(("given", "ready"), [("right", True), ("wrong", False)])
def test_the_router_of_a_pair_is_asked_with_the_key_of_the_engines(
    given: str, monkeypatch: pytest.MonkeyPatch, *, ready: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", given)
    with paired(200, key="right") as port:
        assert has_both(port) is ready


def test_a_router_of_a_pair_that_does_not_answer_is_not_ready() -> None:
    with paired(200) as port:
        pass
    assert not has_both(port)
