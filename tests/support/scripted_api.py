"""An HTTP server that answers as a test has scripted it and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubernetes.client import Configuration

from shardwright.cluster.access import Access


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `drop` closes the connection instead, after the request was taken."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    drop: bool = False


class ScriptedApi:
    """Answers the scripted answers one after the other, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[tuple[str, str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answer))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def access(self) -> Access:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        configuration.retries = False
        return Access(configuration=configuration)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, method: str, path: str, body: Any) -> Answer:
        self.requests.append((method, path, body))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def _handler(answer: Callable[[str, str, Any], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            given = answer(self.command, self.path, body)
            if given.drop:
                self.connection.close()
                return
            text = given.body if isinstance(given.body, bytes) else json.dumps(given.body).encode()
            self.send_response(given.status)
            for name, value in (*given.headers, ("Content-Length", str(len(text)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    return Handler
