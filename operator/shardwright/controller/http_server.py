"""HTTP for probes and scrapes: answered by a thread and a loop of its own, so that a hung loop of the operator cannot hide.

One loop serves all connections: whoever is slow costs a socket for a few seconds, and no thread.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

LONGEST_REQUEST_BYTES: Final = 1 << 14
EXCHANGE_SECONDS: Final = 5.0  # what a client has for its request, and for taking the answer
MOST_CONNECTIONS: Final = 64  # for one more goes the oldest of the address that has the most: seldom a probe's
SLICE_BYTES: Final = 1 << 16  # what a connection holds of an answer; the rest is shared by all that take it


Reply = tuple[HTTPStatus, bytes]
Answer = Callable[[], Reply]
Admits = Callable[[str, str], Awaitable[HTTPStatus | None]]
"""Of the header ``Authorization`` (empty: there is none) and the address it comes from, why who sends it is refused, None where
he is not."""


class HttpServer:
    """Serves ``answers``, by path, on ``port`` (0: any free one) of all addresses, IPv6 and IPv4, until stopped.

    Without ``admits`` everybody is answered.
    """

    def __init__(self, answers: Mapping[str, Answer], port: int, name: str, admits: Admits | None = None) -> None:
        self._answers = answers
        self._admits = admits
        self._connections: dict[asyncio.StreamWriter, str] = {}  # oldest first, with the client's address
        self._socket = listening_socket(port)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._socket, limit=LONGEST_REQUEST_BYTES)
        await self._stopping.wait()
        self._loop.remove_reader(self._socket)  # a server that is closed leaks what it is just accepting
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for connection in self._connections:
                connection.transport.abort()
            await asyncio.gather(*others, return_exceptions=True)
        server.close()
        await asyncio.sleep(0)  # what is aborted is closed in the next turn

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, *_ = writer.get_extra_info("peername") or ("",)  # none: it has gone already
        self._connections[writer] = address
        if len(self._connections) > MOST_CONNECTIONS:
            self._evict()
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(EXCHANGE_SECONDS):
                    await self._respond(await reader.readuntil(b"\r\n\r\n"), writer, address)
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._connections.pop(writer, None)

    def _evict(self) -> None:
        """End the oldest connection of the address that has the most: whoever floods ends his own."""
        ((most, _),) = Counter(self._connections.values()).most_common(1)
        oldest = next(connection for connection, address in self._connections.items() if address == most)
        del self._connections[oldest]
        oldest.transport.abort()

    async def _respond(self, head: bytes, writer: asyncio.StreamWriter, address: str) -> None:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        refusal = None if method in {b"GET", b"HEAD"} else HTTPStatus.METHOD_NOT_ALLOWED
        if self._admits and not refusal:
            refusal = await self._admits(_authorization(head), address)
        status, body = (refusal, b"") if refusal else self._answer(path)
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Content-Type: text/plain; version=0.0.4; charset=utf-8",
            f"Content-Length: {len(body)}",
            *(["WWW-Authenticate: Bearer"] if status is HTTPStatus.UNAUTHORIZED else []),
            "Connection: close",
        )
        writer.transport.set_write_buffer_limits(high=0)  # a slice is written when the one before is gone
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        text = memoryview(b"" if method == b"HEAD" else body)
        for start in range(0, len(text), SLICE_BYTES):
            await writer.drain()
            writer.write(text[start : start + SLICE_BYTES])
        await writer.drain()  # a transport that is closed while it holds something cannot be aborted after its end

    def _answer(self, path: str) -> Reply:
        answer = self._answers.get(path)
        return answer() if answer else (HTTPStatus.NOT_FOUND, " ".join(self._answers).encode())


def _authorization(head: bytes) -> str:
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    found = (value for name, _, value in fields if name.strip().lower() == b"authorization")
    return next(found, b"").strip().decode("latin-1")


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on all IPv6 and IPv4 addresses, or on those of the family that this machine has.

    Raises:
        OSError: the port is taken.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 is compiled in, and turned off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
