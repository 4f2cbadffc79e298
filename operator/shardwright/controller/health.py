"""``/healthz``, ``/readyz`` and ``/metrics``; answered by a thread and a loop of their own, so that a hung loop cannot hide.

One loop serves all connections: whoever is slow costs a socket for a few seconds, and no thread.
"""

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import Final

LONGEST_LAG_SECONDS: Final = 5.0
LONGEST_REQUEST_BYTES: Final = 1 << 14
EXCHANGE_SECONDS: Final = 5.0  # what a client has for its request, and for taking the answer
SCRAPE_REST: Final = 10  # times as long as the metrics took to write, they are not written again
MOST_CONNECTIONS: Final = 64  # the oldest goes for one more: a probe that sends at once is answered long before


class Health:
    """What the probes look at; written by the event loop, read by the server's thread."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._beat_at = clock()
        self.ready = False

    def beat(self) -> None:
        """Note that the event loop runs."""
        self._beat_at = self._clock()

    @property
    def alive(self) -> bool:
        """Return whether the event loop runs; a restart mends nothing else, neither a backlog nor an API server that is away."""
        return self._clock() - self._beat_at <= LONGEST_LAG_SECONDS


class HealthServer:
    """Serves on ``port`` (0: any free one) of all addresses, IPv6 and IPv4, until stopped."""

    def __init__(self, health: Health, metrics: Callable[[], bytes], port: int) -> None:
        self._health = health
        self._metrics = metrics
        self._connections: OrderedDict[asyncio.StreamWriter, None] = OrderedDict()
        self._text = b""
        self._scrape_again_at = 0.0
        self._socket = listening_socket(port)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], name="health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._socket, limit=LONGEST_REQUEST_BYTES)
        await self._stopping.wait()
        server.close()
        for connection in self._connections:
            connection.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > MOST_CONNECTIONS:
            self._connections.popitem(last=False)[0].transport.abort()
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(EXCHANGE_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head))
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._connections.pop(writer, None)

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        status, body = self._answer(path) if method in {b"GET", b"HEAD"} else (HTTPStatus.METHOD_NOT_ALLOWED, b"")
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Content-Type: text/plain; version=0.0.4; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)

    def _answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        match path:
            case "/healthz":
                return (
                    (HTTPStatus.OK, b"ok") if self._health.alive else (HTTPStatus.INTERNAL_SERVER_ERROR, b"the event loop hangs")
                )
            case "/readyz":
                ready = self._health.ready
                return (HTTPStatus.OK, b"ok") if ready else (HTTPStatus.SERVICE_UNAVAILABLE, b"caches are not filled yet")
            case "/metrics":
                return HTTPStatus.OK, self._scraped()
            case _:
                return HTTPStatus.NOT_FOUND, b"/healthz /readyz /metrics"

    def _scraped(self) -> bytes:
        """Return the metrics, the same again for a while: whoever asks without end costs a tenth of a core, not all of it."""
        started = monotonic()
        if started >= self._scrape_again_at:
            self._text = self._metrics()
            self._scrape_again_at = started + SCRAPE_REST * (monotonic() - started)
        return self._text


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on all IPv6 and IPv4 addresses, or on those of the family that this machine has.

    Raises:
        OSError: the port is taken.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 is compiled in, and turned off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
