"""HTTP for probes and scrapes on its own thread and loop: a hung operator loop cannot hide.

aiohttp bounds neither its connections nor the time and bytes of a request, so that is done here.

The metrics as they are scraped; ``metrics`` makes the series.
"""

import asyncio
import gzip
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

# All that a client may send: it has one exchange, and no answer reads a body.
LONGEST_REQUEST_BYTES: Final = 1 << 14
# The time that a client has for its request, and for taking the answer.
EXCHANGE_SECONDS: Final = 5.0
# for one more goes the oldest of the address that has the most: seldom a probe's
MOST_CONNECTIONS: Final = 64
# The part of an answer that a connection holds; the rest is shared by all that take it.
SLICE_BYTES: Final = 1 << 16


class HttpServer:
    """Serves ``routes`` on ``port`` (0: any free one) of all addresses until stopped."""

    def __init__(self, routes: Iterable[web.RouteDef], port: int, name: str) -> None:
        # Here and not on the thread: a port that is taken ends the start with its error.
        self._socket = listening_socket(port)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=[self._serve(routes)], name=name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self, routes: Iterable[web.RouteDef]) -> None:
        app = web.Application()
        app.add_routes(routes)
        app.on_response_prepare.append(_ends_exchange)
        # Who has waited for too long, or has gone, is not answered on.
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        places: dict[_Connection, str] = {}
        server = await self._loop.create_server(
            lambda: _Connection(cast("web.Server", runner.server), places), sock=self._socket
        )
        await self._stopping.wait()
        # A server that is closed leaks the connection that it is just accepting.
        self._loop.remove_reader(self._socket)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            # Again and again: an exchange may be accepted between two rounds.
            for connection in places:
                connection.abort()
            await asyncio.gather(*others, return_exceptions=True)
        server.close()
        await runner.cleanup()


class _Connection(web.RequestHandler):
    """A connection that ends when it takes too long, sends too much or gives way to another.

    ``places`` are the open connections, oldest first, with the client's address.
    """

    def __init__(self, manager: web.Server, places: "dict[_Connection, str]") -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            lingering_time=0,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes it so itself
            # Of all that may be sent one line may be the most: a token with many claims is long.
            max_line_size=LONGEST_REQUEST_BYTES,
            max_field_size=LONGEST_REQUEST_BYTES,
        )
        self._places = places
        self._may_send = LONGEST_REQUEST_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.abort = cast("asyncio.Transport", transport).abort
        # Around the answer, too: whoever reads it slowly holds a place just as well.
        self._end = self._loop.call_later(EXCHANGE_SECONDS, self.abort)
        # Without a name: it has gone already.
        self._places[self] = (transport.get_extra_info("peername") or ("",))[0]
        if len(self._places) > MOST_CONNECTIONS:
            # Who floods ends his own.
            ((most, _),) = Counter(self._places.values()).most_common(1)
            oldest = next(one for one, who in self._places.items() if who == most)
            del self._places[oldest]
            oldest.abort()

    def data_received(self, data: bytes) -> None:
        self._may_send -= len(data)
        if self._may_send >= 0:
            super().data_received(data)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._end.cancel()
        self._places.pop(self, None)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        # Who sends what is no request gets no answer, and writes no log.
        if isinstance(exc, HttpProcessingError):
            self.abort()
            return web.Response(status=status)
        return super().handle_error(request, status, exc, message)


async def _ends_exchange(_request: web.Request, response: web.StreamResponse) -> None:
    # One exchange a connection: a kept one would hold its place against probes while it is idle.
    response.force_close()
    response.headers["Connection"] = "close"
    del response.headers["Server"]  # no versions for strangers


def in_slices(body: bytes, headers: Mapping[str, str]) -> web.Response:
    """Return a response of which a connection holds one slice at a time."""
    return web.Response(body=_slices(body), headers={**headers, "Content-Length": str(len(body))})


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), SLICE_BYTES):
        yield body[start : start + SLICE_BYTES]


def listening_socket(port: int) -> socket.socket:
    """Return a socket on all IPv6 and IPv4 addresses, or those of the one family the machine has.

    Raises:
        OSError: the port is taken.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 is compiled in, and turned off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


# So many times as long as the metrics took to write they are not written again.
SCRAPE_REST: Final = 10

GZIP_LEVEL: Final = 1
"""Basis: measured; the series of 1,000 models, 4.5 MB that take 0.47 s of CPU to write, become 0.18
MB in 8 ms more.
"""

Encode = Callable[[CollectorRegistry], bytes]

OPEN_METRICS: Final = "application/openmetrics-text"


@dataclass
class _Text:
    encode: Encode
    content_type: str
    plain: bytes = b""
    packed: bytes = b""
    again_at: float = 0.0


class Exposition:
    """The text of the metrics, reused for a while.

    A client that asks without end costs a tenth of a core for each of the two formats.
    """

    def __init__(self, write: Callable[[Encode], bytes]) -> None:
        self._write = write
        # Two, so that nobody has us keep the metrics in all the formats that the library has.
        self._open = _Text(*choose_encoder(f"{OPEN_METRICS}; version=1.0.0"))
        self._plain = _Text(*choose_encoder(""))

    def answer(self, request: web.Request) -> web.Response:
        """Return the answer to a scrape."""
        accepted = request.headers.get("accept", "")
        text = self._open if OPEN_METRICS in accepted else self._plain
        started = monotonic()
        if started >= text.again_at:
            text.plain = self._write(text.encode)
            text.packed = gzip.compress(text.plain, GZIP_LEVEL)
            # In proportion to the time that it took, so that many series are written as seldom as
            # they must be.
            text.again_at = started + SCRAPE_REST * (monotonic() - started)
        headers = {"Content-Type": text.content_type}
        if not gzip_accepted(request.headers.get("accept-encoding", "")):
            return in_slices(text.plain, headers)
        packed = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return in_slices(text.packed, headers | packed)
