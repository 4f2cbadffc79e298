"""A proxy in front of an API server that fails as a test says: which requests, in which way, how
often.

    with FaultProxy(control_plane.url, control_plane.ca_file) as proxy:
        proxy.when("PATCH", "*/statefulsets/*", times=2).answer(503)
        with proxy.when("WATCH", "*/pods").silent() as silence:
            ...
            assert silence.hits

Rules are tried in the order in which they were made, and the first that fits has its way; `tell`
and the faults of events let the next ones have theirs. Clients speak plain HTTP on loopback to it,
so whoever they are, their token goes through.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import parse_qs, urlsplit

WATCH: Final = "WATCH"
"""What a GET is called here that asks for a watch."""

LONGEST_EXCHANGE_SECONDS: Final = 600.0
SILENCE: Final = b""
"""In place of a line of a watch: nothing comes any more."""
_KEPT: Final = ("Content-Type", "Content-Encoding", "Retry-After")
_NOT_PASSED: Final = frozenset(
    {"host", "connection", "accept-encoding", "transfer-encoding", "content-length"}
)
_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
}
_BROKEN: Final = (OSError, ValueError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that is no stream."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


class _Dropped(Exception):  # noqa: N818  # no error: what is wanted
    """The connection is to be closed without another word."""


class Exchange(Protocol):
    """One request of a client, and what can be done about it."""

    method: str
    path: str
    target: str

    def forward(self) -> http.client.HTTPResponse: ...
    def answer(self, answer: Answer, *, at_most: int | None = None) -> None: ...
    def pass_on(self, *, at_most: int | None = None) -> None: ...
    def stream(self, lines: Iterator[bytes]) -> None: ...
    def pause(self, fault: Fault, seconds: float) -> None: ...


Request = Callable[["Fault", Exchange], None]
"""Deals with a request, to the end of it."""

Event = Callable[["Fault", str, bytes], list[bytes]]
"""Returns the lines that a line of the watch of a path becomes."""


@dataclass(eq=False)
class Fault:
    """A fault that is in force until `end`, or the end of a `with`; `hits` are what it has met so
    far, as "METHOD path".
    """

    method: str
    path: str
    times: int | None
    skip: int
    hits: list[str] = field(default_factory=list)
    request: Request | None = None
    event: Event | None = None
    goes_on: bool = False
    kept: dict[str, Any] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def end(self) -> None:
        """Let everything through again, and what hangs for it end."""
        self.ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def fits(self, method: str, path: str) -> bool:
        return (
            not self.ended.is_set()
            and self.method in ("*", method)
            and fnmatchcase(path, self.path)
        )

    def takes(self, method: str, path: str) -> bool:
        """Return whether this one is met, and count it."""
        if not self.fits(method, path):
            return False
        with self._lock:
            if self.skip > 0:
                self.skip -= 1
                return False
            if self.times is not None and len(self.hits) >= self.times:
                return False
            self.hits.append(f"{method} {path}")
            return True


class When:
    """Requests of a kind, and what can happen to them: each method has it happen from now on."""

    def __init__(
        self, proxy: FaultProxy, method: str, path: str, times: int | None, skip: int
    ) -> None:
        self._proxy = proxy
        self._of = (method, path, times, skip)

    # -- requests

    def answer(
        self,
        status: int,
        *,
        retry_after: int | None = None,
        message: str = "injected",
        reason: str = "",
    ) -> Fault:
        """Answer with a Status of this code, as the API server says it; nothing reaches the API
        server.
        """
        said = _status(status, retry_after=retry_after, message=message, reason=reason)
        return self._ask(lambda _, asked: asked.answer(said))

    def answer_each(self, *statuses: int) -> Fault:
        """Answer with one of these codes after the other, as often as the rule says."""
        turns = cycle(statuses)
        return self._ask(lambda _, asked: asked.answer(_status(next(turns))))

    def html(self, status: int) -> Fault:
        """Answer as a load balancer does that knows nothing of Kubernetes."""
        page = f"<html><body><h1>{status}</h1><p>no healthy upstream</p></body></html>".encode()
        return self._ask(
            lambda _, asked: asked.answer(Answer(status, page, (("Content-Type", "text/html"),)))
        )

    def hang(self) -> Fault:
        """Take the request and say nothing until this ends; then close the connection."""

        def hang(fault: Fault, asked: Exchange) -> None:
            asked.pause(fault, LONGEST_EXCHANGE_SECONDS)
            raise _Dropped

        return self._ask(hang)

    def slow(self, seconds: float) -> Fault:
        """Pass the request on only after so long, or when this ends."""

        def wait(fault: Fault, asked: Exchange) -> None:
            asked.pause(fault, seconds)
            asked.pass_on()

        return self._ask(wait)

    def drop_before(self) -> Fault:
        """Close the connection; the request never reaches the API server."""

        def drop(_fault: Fault, _asked: Exchange) -> None:
            raise _Dropped

        return self._ask(drop)

    def drop_after(self) -> Fault:
        """Have the API server do what is asked, and lose its answer."""

        def lose(_fault: Fault, asked: Exchange) -> None:
            asked.forward().read()
            raise _Dropped

        return self._ask(lose)

    def truncate(self, after_bytes: int) -> Fault:
        """Close the connection in the midst of the answer, a watch's too."""
        return self._ask(lambda _, asked: asked.pass_on(at_most=after_bytes))

    def stale(self) -> Fault:
        """Answer each question as it was answered first: an API server that has not heard what
        happened since.
        """

        def repeat(fault: Fault, asked: Exchange) -> None:
            if asked.target not in fault.kept:
                fault.kept[asked.target] = whole(asked.forward())
            asked.answer(fault.kept[asked.target])

        return self._ask(repeat)

    def watch_error(self, code: int) -> Fault:
        """Open the watch, say in it that it has failed, and end it."""
        line = b'{"type": "ERROR", "object": %s}\n' % _status(code).body
        return self._ask(lambda _, asked: asked.stream(iter([line])))

    def tell(self, function: Callable[[], object]) -> Fault:
        """Call this before the request goes on: `kill` of a process that is about to write."""

        def tell(_fault: Fault, _asked: Exchange) -> None:
            function()

        return self._ask(tell, goes_on=True)

    def tell_after(self, function: Callable[[], object]) -> Fault:
        """Call this when the API server has done what is asked, and lose its answer."""

        def tell(_fault: Fault, asked: Exchange) -> None:
            asked.forward().read()
            function()
            raise _Dropped

        return self._ask(tell)

    # -- events of watches, those that are open too

    def silent(self) -> Fault:
        """Let no event through any more, and leave the connection open for good: its other side is
        gone without a word.
        """
        return self._alter(lambda _fault, _path, _line: [SILENCE])

    def lose(self) -> Fault:
        """Let events disappear, and the watch go on."""
        return self._alter(lambda _fault, _path, _line: [])

    def duplicate(self) -> Fault:
        """Let each event come twice."""
        return self._alter(lambda _fault, _path, line: [line, line])

    def reorder(self) -> Fault:
        """Let each event come after the next one of its watch."""

        def swap(fault: Fault, path: str, line: bytes) -> list[bytes]:
            if path in fault.kept:
                return [line, fault.kept.pop(path)]
            fault.kept[path] = line
            return []

        return self._alter(swap)

    def _ask(self, request: Request, *, goes_on: bool = False) -> Fault:
        return self._proxy.add(Fault(*self._of, request=request, goes_on=goes_on))

    def _alter(self, event: Event) -> Fault:
        return self._proxy.add(Fault(*self._of, event=event))


class FaultProxy:
    """A proxy on loopback; a context manager. `url` is where it listens."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        """`url` is that of the API server, `ca_file` what it is believed by; nothing listens
        yet.
        """
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._context = (
            ssl.create_default_context(cafile=str(ca_file)) if parts.scheme == "https" else None
        )
        self._faults: list[Fault] = []
        self._open: set[_Handler] = set()
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopped.set()
        self._server.shutdown()
        for fault in self._faults:
            fault.end()
        self._end_connections()
        self._server.server_close()

    def when(
        self, method: str = "*", path: str = "*", *, times: int | None = None, skip: int = 0
    ) -> When:
        """Name requests: by method (a GET that watches is a `WATCH`) and path, `*` standing for
        anything.

        The first `skip` of them go through as ever, then `times` are met (None: all).
        """
        return When(self, method, path, times, skip)

    def cut(self) -> Fault:
        """End every connection, and each new one at its first request, until the fault ends."""
        fault = self.when().drop_before()
        self._end_connections()
        return fault

    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def requests_met(self, method: str, path: str) -> Iterator[Fault]:
        """Yield the faults that meet a request, one that does not let it go on as the last."""
        for fault in list(self._faults):
            if fault.request and fault.takes(method, path):
                yield fault
                if not fault.goes_on:
                    return

    def altered(self, path: str, line: bytes) -> list[bytes]:
        """Return the lines that a line of a watch becomes."""
        lines = [line]
        for fault in list(self._faults):
            if fault.event:
                lines = [
                    new for old in lines for new in self._altered_by(fault, fault.event, path, old)
                ]
        return lines

    def _altered_by(self, fault: Fault, event: Event, path: str, line: bytes) -> list[bytes]:
        if fault.takes(WATCH, path):
            return event(fault, path, line)
        return (
            [fault.kept.pop(path), line] if path in fault.kept else [line]
        )  # what it has held back

    def connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(
                self._host, self._port, timeout=LONGEST_EXCHANGE_SECONDS
            )
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=LONGEST_EXCHANGE_SECONDS, context=self._context
        )

    def opened(self, handler: _Handler) -> None:
        with self._lock:
            self._open.add(handler)

    def closed(self, handler: _Handler) -> None:
        with self._lock:
            self._open.discard(handler)

    def _end_connections(self) -> None:
        with self._lock:
            handlers = list(self._open)
        for handler in handlers:
            handler.end()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: connections that break are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one of its own to the API server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FaultProxy

    def setup(self) -> None:
        super().setup()
        self._far = self.proxy.connect()
        self.proxy.opened(self)

    def finish(self) -> None:
        self.proxy.closed(self)
        self._far.close()
        with suppress(OSError):
            super().finish()

    def end(self) -> None:
        """End the connection from another thread."""
        for sock in (self.connection, self._far.sock):
            with suppress(OSError, AttributeError):
                sock.shutdown(2)

    def log_message(self, *_: object) -> None:
        return

    def _handle(self) -> None:
        self.target = self.path
        parts = urlsplit(self.path)
        self.path = parts.path
        watches = parse_qs(parts.query).get("watch", [""])[0] in ("true", "1")
        self.method = WATCH if self.command == "GET" and watches else self.command
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            for fault in self.proxy.requests_met(self.method, self.path):
                assert fault.request
                fault.request(fault, self)
                if not fault.goes_on:
                    return
            self.pass_on()
        except (_Dropped, *_BROKEN):
            self.close_connection = True
            self.end()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

    def forward(self) -> http.client.HTTPResponse:
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED
        }
        for _ in range(2):
            reused = self._far.sock is not None
            try:
                self._far.request(self.command, self.target, self._body or None, headers)
                return self._far.getresponse()
            except _BROKEN:
                self._far.close()
                if not reused or self.proxy.stopped.is_set():
                    raise
        raise ConnectionError("the API server has gone")

    def pass_on(self, *, at_most: int | None = None) -> None:
        response = self.forward()
        if self.method == WATCH and response.status == http.client.OK:
            self.stream(_lines(response), at_most=at_most)
        else:
            self.answer(whole(response), at_most=at_most)

    def answer(self, answer: Answer, *, at_most: int | None = None) -> None:
        self.send_response_only(answer.status)
        for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[:at_most])
        if at_most is not None and at_most < len(answer.body):
            raise _Dropped

    def stream(self, lines: Iterator[bytes], *, at_most: int | None = None) -> None:
        self.send_response_only(http.client.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = at_most
        for line in lines:
            for part in self.proxy.altered(self.path, line):
                if part == SILENCE:
                    self.rfile.read(1)  # until the client closes it
                    raise _Dropped
                self._chunk(part[:left])
                left = None if left is None else left - len(part)
                if left is not None and left <= 0:
                    raise _Dropped
        self.wfile.write(b"0\r\n\r\n")

    def pause(self, fault: Fault, seconds: float) -> None:
        fault.ended.wait(seconds)

    def _chunk(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))


def _status(
    code: int, *, retry_after: int | None = None, message: str = "injected", reason: str = ""
) -> Answer:
    """Return a failure as the API server says it."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "message": message,
    }
    said = json.dumps(body | {"reason": reason or _REASONS.get(code, "InternalError")}).encode()
    again = (("Retry-After", str(retry_after)),) if retry_after is not None else ()
    return Answer(code, said, (("Content-Type", "application/json"), *again))


def whole(response: http.client.HTTPResponse) -> Answer:
    """Read an answer that is no stream to its end."""
    kept = tuple((name, value) for name in _KEPT if (value := response.getheader(name)) is not None)
    return Answer(response.status, response.read(), kept)


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := response.readline():
        yield line
