"""An HTTP server that answers as a test has scripted it and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubernetes.client import Configuration

from shardwright.cluster.access import Access
from shardwright.cluster.client import Client

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; a failure whose `body` is an object is a Status, as the API server says it, and
    bytes are sent as they are.
    """

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    drop: bool = False
    """Close the connection instead, after the request was taken."""
    hang: bool = False
    """Say nothing until the server stops."""
    trickle: bool = False
    """Send spaces before the body for ever, slowly."""
    cut: bool = False
    """Close the connection in the middle of the body."""
    chunked: bool = False
    close: bool = False
    """Close the connection after the answer, without having said so."""

    def text(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        failure = (
            {"kind": "Status", "reason": REASONS.get(self.status, "")} if self.status >= 400 else {}
        )
        return json.dumps({**failure, **self.body} if failure else self.body).encode()


class ScriptedApi:
    """Answers the scripted answers one after the other, the last one for ever; `by_path` those of a
    part of a path, always.
    """

    def __init__(self, *answers: Answer, by_path: Mapping[str, Answer] | None = None) -> None:
        self._answers = list(answers)
        self._by_path = by_path or {}
        self.requests: list[tuple[str, str, Any]] = []
        self.connections = 0
        self._stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def access(self) -> Access:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        configuration.retries = False
        return Access(configuration=configuration)

    def stop(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the server stops, or this long; return whether it has stopped."""
        return self._stopped.wait(seconds)

    def answer(self, method: str, path: str, body: Any) -> Answer:
        self.requests.append((method, path, body))
        for part, answer in self._by_path.items():
            if part in path:
                return answer
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@contextmanager
def serving(*answers: Answer, **options: Any) -> Iterator[tuple[ScriptedApi, Client]]:
    """Give a server that answers so, and a client of it with these options."""
    api = ScriptedApi(*answers)
    client = Client(api.access(), threads=2, **options)
    try:
        yield api, client
    finally:
        client.close()
        api.stop()


def _handler(api: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            api.connections += 1
            super().setup()

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            given = api.answer(self.command, self.path, body)
            if given.hang:
                api.wait()
            if given.drop or given.hang:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            with suppress(OSError):
                self._send(given)
            self.close_connection = given.close or given.cut

        def _send(self, given: Answer) -> None:
            text = given.text()
            framing = (
                ("Transfer-Encoding", "chunked")
                if given.chunked
                else ("Content-Length", str(len(text) + (10**6 if given.trickle else 0)))
            )
            self.send_response_only(given.status)
            for name, value in (*given.headers, framing):
                self.send_header(name, value)
            self.end_headers()
            while given.trickle and not api.wait(0.01):
                self.wfile.write(b" ")
            if given.chunked:
                text = (
                    b"".join(
                        b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (text[:7], text[7:])
                    )
                    + b"0\r\n\r\n"
                )
            self.wfile.write(text[: len(text) // 2] if given.cut else text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    return Handler
