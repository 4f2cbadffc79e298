"""The answers to the probes of the kubelet.

A model that does not serve changes nothing here: a restart would not help.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import monotonic
from typing import Final

from shardwright.controller.http_server import HttpReply, HttpRequest, Respond

LONGEST_LAG_SECONDS: Final = 5.0
OK: Final = HttpReply(HTTPStatus.OK, b"ok")


class Health:
    """The state that the probes look at; written by the event loop, read by the thread of its
    server.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._beat_at = clock()
        # Not ready before the caches are full: a standby that has read nothing could not take over
        # at once.
        self.ready = False

    def beat(self) -> None:
        """Note that the event loop runs."""
        self._beat_at = self._clock()

    @property
    def last_beat(self) -> float:
        """Return when the event loop has last shown that it runs, by this clock."""
        return self._beat_at

    @property
    def alive(self) -> bool:
        """Return whether the event loop runs; a restart would help neither with a backlog nor
        with an API server that is away.
        """
        return self._clock() - self._beat_at <= LONGEST_LAG_SECONDS

    def answers(self) -> Mapping[str, Respond]:
        """Return the handlers of the probes, by path."""
        return {"/healthz": self._healthz, "/readyz": self._readyz}

    def _healthz(self, _request: HttpRequest) -> HttpReply:
        return (
            OK
            if self.alive
            else HttpReply(HTTPStatus.INTERNAL_SERVER_ERROR, b"the event loop hangs")
        )

    def _readyz(self, _request: HttpRequest) -> HttpReply:
        return (
            OK
            if self.ready
            else HttpReply(HTTPStatus.SERVICE_UNAVAILABLE, b"caches are not filled yet")
        )
