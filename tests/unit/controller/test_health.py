"""Probes and metrics of the process."""

import asyncio
import gzip
import hashlib
import os
import socket
import threading
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from aiohttp import web

from shardwright.controller.http_server import (
    LONGEST_REQUEST_BYTES,
    MOST_CONNECTIONS,
    Encode,
    Exposition,
    HttpServer,
    in_slices,
    listening_socket,
)
from shardwright.controller.metrics import Metrics
from shardwright.controller.servers import Health, scraped
from tests.support.clocks import Clock


class Scrapes:
    count = 0

    def __call__(self, _encode: Encode) -> bytes:
        self.count += 1
        return b"x" * 1_000_000


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def server(health: Health) -> Iterator[HttpServer]:
    metrics = scraped(Exposition(Metrics().text), None)
    server = HttpServer([*health.routes(), metrics], 0, "test")
    yield server
    server.stop()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def sent(port: int, data: bytes) -> bytes:
    """Return all that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        pieces = []
        try:
            while piece := client.recv(65536):
                pieces.append(piece)
        except ConnectionResetError:
            pass
        return b"".join(pieces)


def test_only_a_loop_that_hangs_is_unhealthy() -> None:
    """A restart helps with neither a backlog nor an API server that is away: those are alerts."""
    clock = Clock()
    health = Health(clock)
    assert health.alive
    clock.now = 6
    assert not health.alive
    health.beat()
    assert health.alive


def test_health_readiness_and_metrics_have_endpoints_and_nothing_else_has(
    health: Health, server: HttpServer
) -> None:
    assert get(server.port, "/healthz") == (200, "ok")
    assert get(server.port, "/readyz")[0] == 503
    health.ready = True
    assert get(server.port, "/readyz?verbose") == (200, "ok")
    assert "shardwright_build_info" in get(server.port, "/metrics")[1]
    assert get(server.port, "/")[0] == 404


def test_prometheus_gets_open_metrics_compressed_and_others_the_text_as_it_is(
    server: HttpServer,
) -> None:
    as_prometheus = {
        "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.4",
        "Accept-Encoding": "gzip",
    }
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/metrics?x=1", headers=as_prometheus
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        headers, packed = answer.headers, answer.read()
    assert headers["Content-Type"].startswith(
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    )
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(packed).endswith(b"\n# EOF\n")
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        headers, text = answer.headers, answer.read().decode()
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "Content-Encoding" not in headers
    assert {"process_resident_memory_bytes", "python_info", "python_gc_collections_total"} <= {
        line.split("{")[0].split(" ")[0] for line in text.splitlines()
    }


def test_a_hung_loop_is_said(server: HttpServer, health: Health) -> None:
    health._clock = lambda: float("inf")
    assert get(server.port, "/healthz") == (500, "the event loop hangs")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_probes_are_answered_over_ipv4_and_ipv6(server: HttpServer, host: str) -> None:
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    assert get(server.port, "/healthz", host) == (200, "ok")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("refusal", ["no dual stack", "no IPv6 address"])
def test_without_ipv6_it_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch, refusal: str) -> None:
    create = socket.create_server

    def refuse(address: tuple[str, int], **options: object) -> socket.socket:
        if options:
            raise OSError(99, "Cannot assign requested address")
        return create(address)

    if refusal == "no dual stack":
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    else:
        monkeypatch.setattr(socket, "create_server", refuse)
    with listening_socket(0) as listening:
        assert listening.family == socket.AF_INET


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        listening_socket(server.port)


def test_clients_that_say_nothing_keep_nobody_from_asking(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardwright.controller.http_server.EXCHANGE_SECONDS", 600)
    silent = [
        socket.create_connection(("127.0.0.1", server.port), timeout=10)
        for _ in range(2 * MOST_CONNECTIONS)
    ]
    try:
        assert get(server.port, "/healthz") == (200, "ok")
        assert silent[0].recv(1) == b""
    finally:
        for client in silent:
            client.close()


def test_who_opens_connection_after_connection_ends_his_own(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardwright.controller.http_server.EXCHANGE_SECONDS", 600)
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, timeout=10, source_address=("127.0.0.2", 0)) as probe:
        flood = [socket.create_connection(address, timeout=10) for _ in range(2 * MOST_CONNECTIONS)]
        try:
            assert flood[0].recv(1) == b""
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert probe.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
        finally:
            for client in flood:
                client.close()


def test_a_client_that_says_nothing_for_long_is_left(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardwright.controller.http_server.EXCHANGE_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        assert silent.recv(1) == b""


def test_an_answer_that_takes_too_long_is_not_made_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardwright.controller.http_server.EXCHANGE_SECONDS", 0.05)
    ended = threading.Event()

    async def answer(_request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(20):
                await asyncio.Event().wait()
        finally:
            ended.set()
        return web.Response()

    server = HttpServer([web.get("/", answer)], 0, "test")
    try:
        assert sent(server.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        assert ended.wait(10)
    finally:
        server.stop()


def test_a_client_that_takes_no_answer_keeps_nobody_from_asking(health: Health) -> None:
    scrapes = Scrapes()
    metrics = scraped(Exposition(scrapes), None)
    server = HttpServer([*health.routes(), metrics], 0, "test")
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert get(server.port, "/healthz") == (200, "ok")
    finally:
        server.stop()
    assert scrapes.count == 1


def test_the_text_of_the_metrics_is_shared_by_all_who_take_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shardwright.controller.http_server.EXCHANGE_SECONDS", 600)
    text = os.urandom(12 << 20)

    async def answer(_request: web.Request) -> web.Response:
        return in_slices(text, {})

    server = HttpServer([web.get("/metrics", answer)], 0, "test")
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(8)]
    tracemalloc.start()
    try:
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        for client in clients:
            assert digest_of_body(client) == hashlib.sha256(text).digest()
        assert tracemalloc.get_traced_memory()[1] < len(text) / 4
    finally:
        tracemalloc.stop()
        for client in clients:
            client.close()
        server.stop()
    assert [record.getMessage() for record in caplog.records] == []


def digest_of_body(client: socket.socket) -> bytes:
    """Return the SHA-256 of the body of an answer, none of which is kept."""
    with client.makefile("rb", 65536) as answer:
        while answer.readline() != b"\r\n":
            pass
        body = hashlib.sha256()
        while piece := answer.read(65536):
            body.update(piece)
    return body.digest()


def test_metrics_are_not_written_anew_for_everybody_who_asks_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, scrapes = Clock(), Scrapes()
    monkeypatch.setattr("shardwright.controller.http_server.monotonic", clock)

    def scrape(encode: Encode) -> bytes:
        clock.now += 0.7
        return scrapes(encode)

    server = HttpServer([scraped(Exposition(scrape), None)], 0, "test")
    try:
        for moment in (1.0, 2.0, 7.0, 9.0):
            clock.now = max(clock.now, moment)
            assert len(get(server.port, "/metrics")[1]) == 1_000_000
    finally:
        server.stop()
    assert scrapes.count == 2


def test_what_is_no_request_ends_its_connection_only(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert sent(server.port, b"x" * (2 * LONGEST_REQUEST_BYTES)) == b""
    assert sent(server.port, b"\xff\xfe\r\n\r\n") == b""
    assert sent(server.port, b"GET /metrics HTTP/1.1\r\nno header\r\n\r\n") == b""
    assert sent(server.port, b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").startswith(
        b"HTTP/1.1 405 Method Not Allowed\r\n"
    )
    head = sent(server.port, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"\r\nConnection: close\r\n" in head
    assert head.endswith(b"\r\n\r\n")
    assert get(server.port, "/healthz") == (200, "ok")
    assert caplog.records == []


def test_a_request_of_many_headers_is_as_long_as_one_may_be(server: HttpServer) -> None:
    header = b"X: " + b"x" * (LONGEST_REQUEST_BYTES // 3) + b"\r\n"
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    assert sent(server.port, asked + 2 * header + b"\r\n").endswith(b"ok")
    assert sent(server.port, asked + 3 * header + b"\r\n") == b""


def test_one_header_or_path_may_be_nearly_as_long_as_a_request(server: HttpServer) -> None:
    long = b"x" * (15 << 10)
    ended = b" HTTP/1.1\r\nHost: x\r\n"
    header = b"GET /healthz" + ended + b"Authorization: Bearer " + long + b"\r\n\r\n"
    path = b"GET /healthz?" + long + ended + b"\r\n"
    assert [sent(server.port, asked)[-2:] for asked in (header, path)] == [b"ok"] * 2


def test_probes_are_answered_while_the_metrics_are_flooded(health: Health) -> None:
    """200 clients ask and take nothing, or only half ask; the probes have a thread, a port and
    connections of their own.
    """
    large = Exposition(lambda _: b"x" * 1_000_000)
    scrapes = HttpServer([scraped(large, None)], 0, "scrapes")
    probes = HttpServer(health.routes(), 0, "probes")
    threads = threading.active_count()
    clients = []
    try:
        for number in range(200):
            client = socket.create_connection(("127.0.0.1", scrapes.port), timeout=10)
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"\r\n" * (number % 2))
            clients.append(client)
            if number % 10 == 0:
                assert get(probes.port, "/healthz") == (200, "ok")
        assert threading.active_count() == threads
    finally:
        for client in clients:
            client.close()
        scrapes.stop()
        probes.stop()
