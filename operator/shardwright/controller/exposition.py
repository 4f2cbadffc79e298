"""The metrics as they are scraped; ``metrics`` makes the series."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from shardwright.controller.http_server import in_slices

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
