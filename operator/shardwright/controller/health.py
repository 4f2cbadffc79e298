"""``/healthz``, ``/readyz`` and ``/metrics``; answered by a thread of its own, so that a hung loop cannot hide."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Final

LONGEST_LAG_SECONDS: Final = 5.0
LONGEST_KEY_AGE_SECONDS: Final = 600.0


class Health:
    """What the probes look at; written by the event loop, read by the server's threads."""

    def __init__(self, resync_seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._resync_seconds = resync_seconds
        self._clock = clock
        self._beat_at = clock()
        self._listed_at = clock()
        self.oldest_key_seconds = 0.0
        self.ready = False

    def beat(self) -> None:
        """Note that the event loop runs."""
        self._beat_at = self._clock()

    def listed(self) -> None:
        """Note that a full LIST has succeeded."""
        self._listed_at = self._clock()

    def problems(self) -> list[str]:
        """Return why the process should be restarted; empty while it is well."""
        now = self._clock()
        checks = (
            (now - self._beat_at > LONGEST_LAG_SECONDS, "the event loop hangs"),
            (now - self._listed_at > 3 * self._resync_seconds, "no full LIST for too long"),
            (self.oldest_key_seconds > LONGEST_KEY_AGE_SECONDS, "a resource waits for too long"),
        )
        return [text for failed, text in checks if failed]


class HealthServer:
    """Serves on ``port`` (0: any free one) until stopped."""

    def __init__(self, health: Health, metrics: Callable[[], bytes], port: int) -> None:
        self._server = ThreadingHTTPServer(("", port), _handler(health, metrics))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


def _handler(health: Health, metrics: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = _answer(self.path, health, metrics)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    return Handler


def _answer(path: str, health: Health, metrics: Callable[[], bytes]) -> tuple[int, bytes]:
    match path:
        case "/healthz":
            problems = health.problems()
            return (500, "\n".join(problems).encode()) if problems else (200, b"ok")
        case "/readyz":
            return (200, b"ok") if health.ready else (503, b"caches are not filled yet")
        case "/metrics":
            return 200, metrics()
        case _:
            return 404, b"/healthz /readyz /metrics"
