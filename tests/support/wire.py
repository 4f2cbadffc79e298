"""A wire between a client and the API server, to be cut and mended while everybody else goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

_CHUNK = 1 << 16

T = TypeVar("T")


class Wire:
    """Forwards bytes from a port of its own on loopback; a context manager. TLS goes through untouched."""

    url: str

    def __init__(self, url: str) -> None:
        """`url` is where it leads; nothing listens yet."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._whole = True
        self._ends: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """End every connection, and each new one at once, until `mend`."""

        async def cut() -> None:
            self._whole = False
            for end in self._ends:
                end.transport.abort()

        self._run(cut())

    def mend(self) -> None:
        """Let connections through again."""
        self._whole = True

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        if not self._whole:  # cut while it was being opened
            for end in ends:
                end.transport.abort()
            return
        self._ends |= ends
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        self._ends -= ends


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends, then end the other side."""
    try:
        while chunk := await source.read(_CHUNK):
            sink.write(chunk)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()
