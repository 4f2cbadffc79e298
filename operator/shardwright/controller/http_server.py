"""HTTP for probes and scrapes: answered by a thread and a loop of its own, so that a hung loop of
the operator cannot hide.

One loop serves all connections: whoever is slow costs a socket for a few seconds, and no thread.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

LONGEST_REQUEST_BYTES: Final = 1 << 14
# What a client has for its request, and for taking the answer.
EXCHANGE_SECONDS: Final = 5.0
# for one more goes the oldest of the address that has the most: seldom a probe's
MOST_CONNECTIONS: Final = 64
# What a connection holds of an answer; the rest is shared by all that take it.
SLICE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The request of a client; of its query nothing is read. The names of headers are in small
    letters.
    """

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The answer. ``encoding`` is that of the body (``gzip``), empty if it is sent as it is.
    ``challenges`` say how a client that is not known may show who it is: a header for each, as
    Chromium asks for no password if one header has two.
    """

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    encoding: str = ""
    challenges: tuple[str, ...] = ("Bearer",)

    def head(self) -> bytes:
        """Return the status line and the headers."""
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            *(
                [f"Content-Encoding: {self.encoding}", "Vary: Accept-Encoding"]
                if self.encoding
                else []
            ),
            *(
                [f"WWW-Authenticate: {challenge}" for challenge in self.challenges]
                if self.status is HTTPStatus.UNAUTHORIZED
                else []
            ),
            "Connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


Respond = Callable[[HttpRequest], HttpReply]
RespondBelow = Callable[[HttpRequest, str], Awaitable[HttpReply]]
"""Answers all paths below one, to whom it admits itself: the request, and the address it comes
from.
"""

Admits = Callable[[str, str], Awaitable[HTTPStatus | None]]
"""Takes the header ``Authorization`` (empty: there is none) and the client's address; returns why
the client is refused, None if it is admitted.
"""


class HttpServer:
    """Serves ``answers``, by path, on ``port`` (0: any free one) of all addresses, IPv6 and IPv4,
    until stopped.

    Without ``admits`` everybody is answered. ``rooms`` answer requests that begin with their path,
    and admit whom they will.
    """

    def __init__(
        self,
        answers: Mapping[str, Respond],
        port: int,
        name: str,
        admits: Admits | None = None,
        rooms: Mapping[str, RespondBelow] = MappingProxyType({}),
    ) -> None:
        self._answers = answers
        self._rooms = rooms
        self._admits = admits
        # Oldest first, with the client's address.
        self._connections: dict[asyncio.StreamWriter, str] = {}
        self._socket = listening_socket(port)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete,
            args=[self._serve()],
            name=name,
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._accept, sock=self._socket, limit=LONGEST_REQUEST_BYTES
        )
        await self._stopping.wait()
        # A server that is closed leaks what it is just accepting.
        self._loop.remove_reader(self._socket)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            # Again and again: an exchange may be accepted between two rounds.
            for connection in self._connections:
                connection.transport.abort()
            await asyncio.gather(*others, return_exceptions=True)
        server.close()
        await asyncio.sleep(0)  # what is aborted is closed in the next turn

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # Without a name: it has gone already.
        address, *_ = writer.get_extra_info("peername") or ("",)
        self._connections[writer] = address
        if len(self._connections) > MOST_CONNECTIONS:
            self._evict()
        try:
            with suppress(
                OSError,
                TimeoutError,
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
            ):
                async with asyncio.timeout(EXCHANGE_SECONDS):
                    await self._respond(
                        await reader.readuntil(b"\r\n\r\n"), writer, address
                    )
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._connections.pop(writer, None)

    def _evict(self) -> None:
        """End the oldest connection of the address that has the most: whoever floods ends his
        own.
        """
        ((most, _),) = Counter(self._connections.values()).most_common(1)
        oldest = next(
            connection
            for connection, address in self._connections.items()
            if address == most
        )
        del self._connections[oldest]
        oldest.transport.abort()

    async def _respond(
        self, head: bytes, writer: asyncio.StreamWriter, address: str
    ) -> None:
        request = _parsed(head)
        reply = await self._replied(request, address)
        # A slice is written when the one before is gone.
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(reply.head())
        text = memoryview(b"" if request.method == "HEAD" else reply.body)
        for start in range(0, len(text), SLICE_BYTES):
            await writer.drain()
            writer.write(text[start : start + SLICE_BYTES])
        # a transport that is closed while it holds something cannot be aborted after its end
        await writer.drain()

    async def _replied(self, request: HttpRequest, address: str) -> HttpReply:
        if request.method not in {"GET", "HEAD"}:
            return HttpReply(HTTPStatus.METHOD_NOT_ALLOWED)
        room = next(
            (
                room
                for path, room in self._rooms.items()
                if f"{request.path}/".startswith(f"{path}/")
            ),
            None,
        )
        if room:
            return await room(request, address)
        refusal = (
            await self._admits(request.headers.get("authorization", ""), address)
            if self._admits
            else None
        )
        return HttpReply(refusal) if refusal else self._answer(request)

    def _answer(self, request: HttpRequest) -> HttpReply:
        answer = self._answers.get(request.path)
        return (
            answer(request)
            if answer
            else HttpReply(HTTPStatus.NOT_FOUND, " ".join(self._answers).encode())
        )


def _parsed(head: bytes) -> HttpRequest:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    # Of a header that comes twice the first one counts.
    fields = (line.partition(":") for line in reversed(lines))
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return HttpRequest(
        method=method, path=rest.partition(" ")[0].partition("?")[0], headers=headers
    )


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on all IPv6 and IPv4 addresses, or on those of the family that
    this machine has.

    Raises:
        OSError: the port is taken.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 is compiled in, and turned off
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True
            )
    return socket.create_server(("", port))
