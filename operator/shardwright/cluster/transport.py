"""The bytes of a request and its answer over kept connections; blocking, for many threads at once.

Addresses, TLS, credentials, proxies and connections are the Kubernetes client library's. Its
request function is not used: it cannot be bounded in time and bytes, leadership must be checked
once connected and before a byte is sent, and it needs 0.3 to 0.5 ms of CPU where the standard
library needs 0.1 to 0.25 on the same connection (measured).

What an answer means: an object, a refusal by the API server, or somebody else's words.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, IncompleteRead
from socket import SHUT_RDWR
from time import monotonic
from typing import Any, Final, NoReturn, cast
from urllib.parse import urlencode, urlsplit

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from shardwright.cluster.access import Access
from shardwright.cluster.calls import (
    DEADLINE_EXCEEDED,
    NOT_A_STATUS,
    TOO_LARGE,
    UNKNOWN_PATH,
    ApiError,
    Call,
    NotLeadingError,
    Urgency,
)
from shardwright.cluster.json_stream import (
    BrokenError,
    ListDocument,
    Unreadable,
    document,
    metadata_of,
)

LONGEST_RETRY_AFTER_SECONDS: Final = 30.0
NO_SUCH_PATH: Final = b"404 page not found"
"""What the API server says, in plain text, of paths that it does not serve (Go's
``http.NotFound``).
"""

PIECE_BYTES: Final = 1 << 16

EXCERPT: Final = 120  # characters of foreign text that are shown

Header = Callable[[str], str | None]
"""Returns a header of an answer by its name, None if it has none."""


def read_answer(call: Call, code: int, header: Header, text: bytes) -> dict[str, Any]:
    """Return the object of an answer.

    Raises:
        ApiError: a refusal, or no JSON object. Only a Status is the API server's own word: a load
            balancer's 404 has not deleted anything.
    """
    if code >= 300:  # noqa: PLR2004 - status codes of HTTP
        _refuse(call, code, header, text)
    body = _list(call, text) if call.project else _json(text) if text else {}
    if body is None:
        # A proxy's page with code 200: taken for an empty answer, it would say that nothing is
        # there.
        raise ApiError(
            0,
            "NotJson",
            f"{call.method} {call.path}: the answer is no JSON object: {_excerpt(text)}",
        )
    return body


def retry_after_seconds(header: Header) -> float | None:
    """Return the seconds the server asks to wait, bounded, None if it names none.

    >>> [
    ...     retry_after_seconds(headers.get)
    ...     for headers in ({"Retry-After": "7"}, {"Retry-After": "86400"}, {})
    ... ]
    [7.0, 30.0, None]
    """
    value = header("Retry-After") or ""
    if value.isascii() and value.isdecimal():
        return min(float(value), LONGEST_RETRY_AFTER_SECONDS)
    try:  # a moment of the server's clock
        # Its own Date is the other end, as our clock may be minutes off.
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(header("Date") or "")
    except (ValueError, TypeError):
        return None
    return min(max(wait, timedelta()).total_seconds(), LONGEST_RETRY_AFTER_SECONDS)


def _refuse(call: Call, code: int, header: Header, text: bytes) -> NoReturn:
    status = _json(text) or {}
    # Only a Status is the API server's own word. A 404 page of a proxy must not mean that an object
    # is gone.
    if status.get("kind") == "Status":
        message = str(status.get("message") or f"HTTP {code}")
        raise ApiError(code, str(status.get("reason") or ""), message, retry_after_seconds(header))
    what = f"{call.method} {call.path}: HTTP {code}"
    if code == HTTPStatus.NOT_FOUND and text.strip() == NO_SUCH_PATH:
        raise ApiError(
            code, UNKNOWN_PATH, f"{what}: the API server does not serve {call.resource.plural}"
        )
    if code == 429 or code >= 500:  # noqa: PLR2004  # it passes, whoever says it
        raise ApiError(code, "", f"{what}: {_excerpt(text)}", retry_after_seconds(header))
    raise ApiError(0, NOT_A_STATUS, f"{what} that is not the API server's: {_excerpt(text)}")


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        body = document(text)
    except BrokenError:
        return None
    return body if isinstance(body, dict) else None


def _list(call: Call, text: bytes) -> dict[str, Any] | None:
    """Return a LIST with the kept parts of its items, decoded one by one; None if it is no LIST."""
    page, kept = ListDocument(pieces(text)), []
    try:
        for item in page.items():
            if isinstance(item, Unreadable) or call.project is None:
                return None  # to leave it out would be to say that it is gone
            kept.append(call.project(item))
    except BrokenError:
        return None
    # A Status has neither that nor items.
    listed = metadata_of(page.fields).get("resourceVersion")
    return {**page.fields, "items": kept} if listed else None


def pieces(text: bytes) -> Iterator[bytes]:
    """Yield pieces of a text: decoded whole, one character beyond the BMP widens all to 4 bytes."""
    return (text[start : start + PIECE_BYTES] for start in range(0, len(text), PIECE_BYTES))


def _excerpt(text: bytes) -> str:
    return " ".join(text[: 4 * EXCERPT].decode(errors="replace").split())[:EXCERPT]


USER_AGENT: Final = "shardwright"
CONNECT_TIMEOUT_SECONDS: Final = 10.0
READ_TIMEOUT_SECONDS: Final = 30.0  # of silence
# of a whole exchange: as long as the API server itself works on a request by default
EXCHANGE_SECONDS: Final = 60.0
MOST_OBJECT_BYTES: Final = 3 << 20
"""Twice what etcd takes of one object by default (1.5 MiB), for JSON is longer than what is stored.
"""
MOST_PAGE_BYTES: Final = 16 << 20
"""500 objects of 32 KiB each; nodes and pods of real clusters have 5 to 20 KiB (assumed)."""
PIECE: Final = 1 << 16

FAULTS: Final = (OSError, ValueError, RecursionError, HTTPException, urllib3.exceptions.HTTPError)
"""What may go wrong with an exchange, that of a body which is nested beyond all bounds included."""

OnCall = Callable[[str, str, int, float], None]
"""Told of every finished request, on the thread that did it: verb, resource, status code (0: no
answer), seconds.
"""

OnWait = Callable[[Urgency, float], None]
"""Told of every request that has waited for its turn: how urgent it is, for how many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """The functions that count requests."""

    call: OnCall = lambda _verb, _resource, _code, _seconds: None
    wait: OnWait = lambda _urgency, _seconds: None


NOT_COUNTED: Final = Meters()


class Transport:
    """Exchanges requests for answers; ``may_write`` is asked immediately before a write is sent."""

    def __init__(self, access: Access, on_call: OnCall, may_write: Callable[[], bool]) -> None:
        self._configuration = access.configuration
        self._more_headers = access.headers
        self._on_call = on_call
        self._may_write = may_write
        self._library = ApiClient(access.configuration)
        # The library's pool: TLS, client certificates and proxies of a kubeconfig are set up in it
        # already.
        self._pool = self._library.rest_client.pool_manager.connection_from_url(
            self._configuration.host
        )
        self._busy: set[Any] = set()  # connections with a request on its way
        self._base: str = urlsplit(self._configuration.host).path.rstrip("/")
        if (
            self._pool.proxy and self._pool.scheme == "http"
        ):  # such a proxy is told the whole address
            self._base = self._configuration.host

    def exchange(self, call: Call, deadline: float) -> dict[str, Any]:
        """Return the object the API server answers, by the monotonic ``deadline``.

        Raises:
            ApiError: refused, unanswered, out of time, or not an answer of the API server.
        """
        started, code = monotonic(), 0
        try:
            response, text = self._converse(call, min(deadline, started + EXCHANGE_SECONDS))
            code = response.status
        except FAULTS as error:
            reason = DEADLINE_EXCEEDED if monotonic() >= deadline else "Unreachable"
            raise ApiError(
                0, reason, f"{call.method} {call.path}: {type(error).__name__}: {error}"
            ) from error
        finally:
            self._on_call(call.verb, call.resource.plural, code, monotonic() - started)
        return read_answer(call, code, response.headers.get, text)

    def _converse(self, call: Call, until: float) -> tuple[HTTPResponse, bytes]:
        connection = self._pool._get_conn()  # noqa: SLF001  # a kept one that still stands, or a new one
        keep = False
        try:
            self._connect(connection, until)
            self._busy.add(connection)
            # When the connection stands: a handshake may take ten seconds, in which a Lease can be
            # lost.
            if call.writes and not self._may_write():
                raise NotLeadingError
            socket = connection.sock
            _wait_no_longer(socket, until)
            # Of the standard library, on the connection of the other: see the top of this module.
            HTTPConnection.request(
                connection, call.method, self._target(call), _body(call), self._headers(call)
            )
            response = HTTPConnection.getresponse(connection)
            text = _read(call, response, socket, until)
            # Only after the whole body: a connection with a rest of it on the way would answer the
            # next request with that.
            keep = not response.will_close
        finally:
            self._busy.discard(connection)
            # A write that ended in a fault may still be under way on this connection.
            if not keep:
                connection.close()
            self._pool._put_conn(connection)  # noqa: SLF001 - the pool has no public way
        return response, text

    def _connect(self, connection: Any, until: float) -> None:
        if not connection.is_closed:
            return
        connection.timeout = min(_seconds_left(until), CONNECT_TIMEOUT_SECONDS)
        if self._pool.proxy and self._pool.scheme == "https":
            self._pool._prepare_proxy(connection)  # noqa: SLF001  # connects, too
        else:
            connection.connect()

    def stream(self, call: Call, read_timeout_seconds: float) -> Any:
        """Send a request and return the library's response before its body is read."""
        url = self._configuration.host + call.path + _query(call)
        timeout = (CONNECT_TIMEOUT_SECONDS, read_timeout_seconds)
        try:
            return self._library.rest_client.request(
                call.method, url, headers=self._headers(call), _request_timeout=timeout
            )
        except (ApiException, *FAULTS) as error:
            raise ApiError(0, "Unreachable", f"{call.method} {call.path}: {error}") from error

    def _target(self, call: Call) -> str:
        return self._base + call.path + _query(call)

    def _headers(self, call: Call) -> Mapping[str, str]:
        headers = {
            "Accept": call.accept,
            "Content-Type": call.content_type,
            "User-Agent": USER_AGENT,
        }
        # Asked each time: a service account's token is replaced before it expires, within the hour.
        if authorization := self._configuration.get_api_key_with_prefix("BearerToken"):
            headers["Authorization"] = authorization
        return _joined(headers, self._more_headers) if self._more_headers else headers

    def close(self) -> None:
        """Close idle connections and end the others' exchanges: threads hold up an exit."""
        self._library.close()
        for connection in list(self._busy):
            with suppress(OSError, AttributeError):  # it has ended by itself
                connection.sock.shutdown(SHUT_RDWR)


def _joined(headers: Mapping[str, str], more: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return headers in which a name may repeat: each impersonated group has its own."""
    joined = HTTPMessage()
    for name, value in (*headers.items(), *more):
        joined[name] = value
    return cast("Mapping[str, str]", joined)


def _query(call: Call) -> str:
    return f"?{urlencode(call.query)}" if call.query else ""


def _body(call: Call) -> bytes | None:
    return None if call.body is None else json.dumps(call.body, separators=(",", ":")).encode()


def _read(call: Call, response: HTTPResponse, socket: Any, until: float) -> bytes:
    """Return a body, bounded in length and time whatever the server sends."""
    most = MOST_PAGE_BYTES if call.verb == "list" else MOST_OBJECT_BYTES
    pieces, size = [], 0
    while response.length != 0 and (piece := response.read1(PIECE)):
        pieces.append(piece)
        size += len(piece)
        # By its header already, so that nothing of an answer that is too large is read in vain.
        if size + (response.length or 0) > most:
            raise ApiError(
                0,
                TOO_LARGE,
                f"{call.method} {call.path}: the answer has "
                f"more than {most >> 20} MiB, and is not read",
            )
        if response.length != 0:
            _wait_no_longer(socket, until)
    # Fewer bytes than its header says: the beginning of a LIST must not pass for all of it.
    if response.length:
        raise IncompleteRead(b"", response.length)
    response.close()
    return b"".join(pieces)


def _wait_no_longer(socket: Any, until: float) -> None:
    socket.settimeout(min(_seconds_left(until), READ_TIMEOUT_SECONDS))


def _seconds_left(until: float) -> float:
    seconds = until - monotonic()
    if seconds <= 0:
        raise TimeoutError("its time is over")
    return seconds
