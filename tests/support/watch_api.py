"""An HTTP server that speaks just enough LIST and WATCH, with every fault that a test has
scripted.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from kubernetes.client import Configuration

from shardwright.cluster.access import Access
from shardwright.cluster.client import Client
from shardwright.cluster.handover import Change, Key

TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: its parts one after the other (an Event is waited for), then how it ends.

    `end` finishes it properly, `cut` closes the connection in its midst, `hold` leaves it open and
    silent until the server ends.
    """

    parts: Sequence[bytes | threading.Event] = ()
    status: int = 200
    ending: Literal["end", "cut", "hold"] = "end"
    chunked: bool = True


def a_list(*objects: Any, version: int = 1, cursor: str = "") -> Reply:
    metadata = {"resourceVersion": str(version), **({"continue": cursor} if cursor else {})}
    return Reply(
        parts=[json.dumps({"kind": "List", "metadata": metadata, "items": objects}).encode()]
    )


def a_watch(*events: Any, ending: Literal["end", "cut", "hold"] = "hold") -> Reply:
    """Events are pairs of type and object, bytes as they are, or threading Events to wait for."""
    return Reply(
        parts=[line(event) if isinstance(event, tuple) else event for event in events],
        ending=ending,
    )


def line(event: tuple[str, Any]) -> bytes:
    return json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"


def a_refused_reply(code: int, message: str = "no") -> Reply:
    return Reply(
        status=code,
        parts=[json.dumps({"kind": "Status", "code": code, "message": message}).encode()],
    )


def an_object(
    name: str, version: int, value: Any = "", namespace: str = "models"
) -> dict[str, Any]:
    """An object of which a projection takes `value`."""
    return {
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": str(version)},
        "value": value,
    }


class WatchApi:
    """Answers each LIST and each WATCH with the next reply of its script; at its end, a LIST is
    refused and a watch is silent.
    """

    def __init__(
        self, lists: Sequence[Reply], watches: Sequence[Reply] = (), rights: Sequence[bool] = ()
    ) -> None:
        self._scripts = {"list": deque(lists), "watch": deque(watches)}
        self._rights = deque(rights)  # the answers to "may I?", in turn; after them: yes
        self.asked_rights: list[Any] = []
        self._ended = threading.Event()
        self.requests: list[dict[str, str]] = []
        self.accepted: list[str] = []
        self.connections = 0
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self})
        )
        self._server.daemon_threads = True
        self._client = Client(self._access(), threads=1)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    @property
    def client(self) -> Client:
        return self._client

    def _access(self) -> Access:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        configuration.retries = False
        return Access(configuration=configuration)

    def reply(self, path: str, query: dict[str, str], accept: str) -> Reply:
        del path
        self.requests.append(query)
        self.accepted.append(accept)
        verb = "watch" if "watch" in query else "list"
        script = self._scripts[verb]
        if not script:
            return (
                Reply(ending="hold")
                if verb == "watch"
                else a_refused_reply(500, "the script has ended")
            )
        return script.popleft()

    def review(self, attributes: Any) -> Reply:
        """Answer a SelfSubjectAccessReview."""
        self.asked_rights.append(attributes)
        allowed = self._rights.popleft() if self._rights else True
        return Reply(parts=[json.dumps({"status": {"allowed": allowed}}).encode()])

    def hold(self) -> None:
        self._ended.wait(TIMEOUT_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    api: WatchApi
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.api.connections += 1
        super().setup()

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self._answer(
            self.api.reply(asked.path, dict(parse_qsl(asked.query)), self.headers["Accept"])
        )

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self.api.review(review["spec"]["resourceAttributes"]))

    def _answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header(
            *(("Transfer-Encoding", "chunked") if reply.chunked else ("Connection", "close"))
        )
        self.end_headers()
        with suppress(OSError):  # the client has gone
            self._send(reply)
        self.close_connection = self.close_connection or reply.ending != "end"

    def _send(self, reply: Reply) -> None:
        for part in reply.parts:
            if isinstance(part, threading.Event):
                part.wait(TIMEOUT_SECONDS)
            elif part:
                self.wfile.write(
                    f"{len(part):x}\r\n".encode() + part + b"\r\n" if reply.chunked else part
                )
        if reply.ending == "hold":
            self.api.hold()
        elif reply.ending == "end" and reply.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        return


class Delivered:
    """What a reader has handed over, and what comes of it all."""

    def __init__(self) -> None:
        self.batches: list[tuple[dict[Key, Any], bool]] = []
        self.state: dict[Key, Any] = {}
        self._news = threading.Condition()

    def __call__(self, changes: Mapping[Key, Change[Any]], listed: bool) -> None:  # noqa: FBT001
        with self._news:
            self.batches.append(({key: change.value for key, change in changes.items()}, listed))
            for key, change in changes.items():
                if change.value is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = change.value
            self._news.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds; what it looks at may change without a word to us."""
        with self._news:
            for _ in range(int(TIMEOUT_SECONDS * 50)):
                if self._news.wait_for(condition, 0.02):
                    return
        raise AssertionError(f"it never came to this; delivered: {self.batches}")
