"""Probes, logs and options of the process."""

import json
import logging
import urllib.error
import urllib.request

import pytest

from shardwright.controller.health import Health, HealthServer
from shardwright.controller.logs import JsonLines
from shardwright.controller.metrics import Metrics
from shardwright.controller.options import parse_options


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_loop_that_hangs_lists_that_fail_and_a_key_that_waits_are_unhealthy() -> None:
    clock = Clock()
    health = Health(resync_seconds=100, clock=clock)
    assert health.problems() == []
    clock.now = 6
    assert health.problems() == ["the event loop hangs"]
    clock.now = 301
    health.beat()
    assert health.problems() == ["no full LIST for too long"]
    health.listed()
    health.oldest_key_seconds = 601
    assert health.problems() == ["a resource waits for too long"]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_endpoints_answer() -> None:
    health = Health(resync_seconds=100)
    server = HealthServer(health, Metrics().text, port=0)
    try:
        assert get(server.port, "/healthz") == (200, "ok")
        assert get(server.port, "/readyz")[0] == 503
        health.ready = True
        assert get(server.port, "/readyz") == (200, "ok")
        assert "shardwright_build_info" in get(server.port, "/metrics")[1]
        assert get(server.port, "/")[0] == 404
    finally:
        server.stop()


def test_a_log_line_is_one_json_object_whatever_the_message_holds() -> None:
    record = logging.LogRecord("shardwright", logging.INFO, "", 0, 'a\n{"level": "x"}\x1b[31m', (), None)
    record.key = "models/llama"
    line = JsonLines().format(record)
    assert "\n" not in line
    parsed = json.loads(line)
    assert (parsed["level"], parsed["message"], parsed["key"]) == ("info", 'a {"level": "x"} [31m', "models/llama")


def test_the_options_come_from_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("POD_NAME", "operator-1")
    monkeypatch.setenv("POD_NAMESPACE", "system")
    options = parse_options(["--port=0", "--no-leader-elect"])
    assert (options.identity, options.lease_namespace, options.leader_elect, options.port) == ("operator-1", "system", False, 0)
    assert options.kubeconfig is None
