"""The metrics as they are scraped."""

from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Final

from shardwright.controller.http_server import Reply

SCRAPE_REST: Final = 10  # times as long as the metrics took to write, they are not written again


class Exposition:
    """The text of the metrics, the same again for a while: whoever asks without end costs a tenth of a core, not all of it."""

    def __init__(self, write: Callable[[], bytes]) -> None:
        self._write = write
        self._text = b""
        self._again_at = 0.0

    def __call__(self) -> Reply:
        """Answer a scrape."""
        started = monotonic()
        if started >= self._again_at:
            self._text = self._write()
            self._again_at = started + SCRAPE_REST * (monotonic() - started)
        return HTTPStatus.OK, self._text
