"""The answers to the kubelet's probes; a model that does not serve changes nothing, as a restart
would not help.
"""

from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Final

from aiohttp import web

LONGEST_LAG_SECONDS: Final = 5.0


class Health:
    """The state behind the probes, written by the event loop and read by the server's thread."""

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
        """Return when the event loop last ran, by this clock."""
        return self._beat_at

    @property
    def alive(self) -> bool:
        """Return whether the event loop runs; a restart helps neither a backlog nor an API server
        that is away.
        """
        return self._clock() - self._beat_at <= LONGEST_LAG_SECONDS

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the probes."""
        return [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]

    async def _healthz(self, _request: web.Request) -> web.Response:
        if self.alive:
            return web.Response(text="ok")
        return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="the event loop hangs")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.ready:
            return web.Response(text="ok")
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="caches are not filled yet")
