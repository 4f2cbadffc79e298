"""When is a router's pod ready, and who may pass it?"""

import http.client
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import DNSName

from shardwright.rendering.programs import router
from shardwright.rendering.programs.router import Guard, has_both, has_workers, main, nobody_serves
from tests.support.certificates import self_signed


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


def a_seen_pod(*, ready: bool, going: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {}
    return {"metadata": metadata, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("pods", "nobody"),
    [
        ([], True),
        ([a_seen_pod(ready=False), {"metadata": {}}], True),
        ([a_seen_pod(ready=True, going=True)], True),
        ([a_seen_pod(ready=False), a_seen_pod(ready=True)], False),
        (None, False),
    ],
    ids=["none runs", "they start", "the last one goes", "one serves", "they may not be listed"],
)
def test_nobody_serves_where_pods_may_be_listed_and_none_is_ready(
    tmp_path: Path, pods: list[dict[str, Any]] | None, *, nobody: bool
) -> None:
    (tmp_path / "namespace").write_text("models")
    (tmp_path / "token").write_text("mine")
    certificate, _ = self_signed(tmp_path, DNSName("api-server"))
    certificate.rename(tmp_path / "ca.crt")
    asked: list[str] = []

    class Pods(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(403 if pods is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"items": pods}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pods) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
        assert nobody_serves("a=b,c=0", str(tmp_path), there) is nobody
        server.shutdown()

    assert asked == ["/api/v1/namespaces/models/pods?labelSelector=a%3Db%2Cc%3D0 Bearer mine"]
    assert not nobody_serves("a=b", str(tmp_path / "without an account"), there)


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        ("Bearer right", 200),
        ("bearer right", 200),
        ("Basic right", 401),
        ("Bearer wrong", 401),
        ("right", 401),
        ("Bearer ", 401),
        (None, 401),
    ],
)
def test_a_key_is_taken_if_it_is_the_one(shown: str | None, code: int) -> None:
    with Guard("right") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        asked = urllib.request.Request(url, headers={"Authorization": shown} if shown else {})
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                answered = answer.status
        except urllib.error.HTTPError as error:
            answered = error.code
        server.shutdown()

    assert answered == code


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "is empty: the router would let everybody through"),
        ("right\n", "begins or ends in white space: no request can bring it"),
    ],
)
def test_a_router_with_a_key_that_keeps_nobody_out_or_everybody_does_not_start(
    monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", key)
    monkeypatch.setattr("sys.argv", ["router.py", "--port", "8000"])

    with pytest.raises(SystemExit, match=said) as ended:
        main()
    assert "right" not in str(ended.value)


A_ROUTER = """
import signal
import sys
class _Router:
    def __init__(self, api_key_validation_urls):
        print(*api_key_validation_urls, flush=True)
sys.modules["vllm_router"] = sys.modules["vllm_router.router"] = sys.modules[__name__]
def parse_router_args(arguments): pass
def launch_router(arguments):
    sys.modules["vllm_router.router"]._Router()
    signal.pause()
sys.modules["vllm_router.launch_router"] = sys.modules[__name__]
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"))
"""
"""A router that tells where it has keys checked, and serves nobody."""


def test_keys_are_checked_by_a_process_that_ends_with_the_router() -> None:
    started = [sys.executable, "-c", A_ROUTER, router.__file__]
    environment = {**os.environ, "VLLM_API_KEY": "right"}
    with subprocess.Popen(started, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        host, _, port = (
            running.stdout.readline().strip(" /\n").removeprefix("http://").partition(":")
        )
        assert (host, _status(int(port), "right"), _status(int(port), "wrong")) == (
            "127.0.0.1",
            200,
            401,
        )
        running.send_signal(signal.SIGKILL)
        # Its own copy of the pipe is the last.
        assert running.stdout.read() == ""

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


def _status(port: int, key: str) -> int:
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    there.request("GET", "/", headers={"Authorization": f"Bearer {key}"})
    return there.getresponse().status


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


@pytest.mark.parametrize(
    ("given", "ready"), [("right", True), ("wrong", False), ("right\nis said to nobody", False)]
)
def test_the_router_of_a_pair_is_asked_with_the_key_of_the_engines(
    given: str, monkeypatch: pytest.MonkeyPatch, *, ready: bool
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", given)
    with paired(200, key="right") as port:
        assert has_both(port) is ready


def test_a_router_of_a_pair_that_does_not_answer_is_not_ready() -> None:
    with paired(200) as port:
        pass
    assert not has_both(port)
