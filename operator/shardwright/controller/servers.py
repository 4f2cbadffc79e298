"""The HTTP servers of the process: probes on one port, metrics and plans on another.

The answers to the kubelet's probes; a model that does not serve changes nothing, as a restart
would not help.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Final

from aiohttp import web

from shardwright.controller.http_server import Exposition, HttpServer
from shardwright.controller.metrics import Metrics
from shardwright.controller.metrics_auth import MetricsAuth
from shardwright.controller.operator_options import Options
from shardwright.controller.plans import Plans

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


METRICS_PATH: Final = "/metrics"


class Servers:
    """The servers, listening from the start; ``metrics_auth`` None: all may scrape, ``plans`` None:
    no pages.
    """

    def __init__(
        self,
        options: Options,
        health: Health,
        metrics: Metrics,
        metrics_auth: MetricsAuth | None,
        plans: Plans | None,
    ) -> None:
        self._metrics_auth, self._plans = metrics_auth, plans
        self.probes = HttpServer(health.routes(), options.health_port, "probes")
        routes = [scraped(Exposition(metrics.text), metrics_auth)]
        routes += plans.routes() if plans else []
        self.scrapes = HttpServer(routes, options.port, "scrapes")

    async def stop(self) -> None:
        """Stop all servers."""
        self.probes.stop()
        if self._metrics_auth:
            self._metrics_auth.stop()
        if self._plans:
            # A page that is made now may wait for this loop.
            await asyncio.to_thread(self._plans.stop)
        # Last: scrapers and plans answer on its loop.
        self.scrapes.stop()


def scraped(exposition: Exposition, metrics_auth: MetricsAuth | None) -> web.RouteDef:
    """Return the route of the metrics, open to those whom ``metrics_auth`` admits."""

    async def metrics(request: web.Request) -> web.Response:
        header = request.headers.get("authorization", "")
        refusal = await metrics_auth(header, request.remote or "") if metrics_auth else None
        if refusal is None:
            return exposition.answer(request)
        known = refusal is not HTTPStatus.UNAUTHORIZED
        return web.Response(status=refusal, headers={} if known else {"WWW-Authenticate": "Bearer"})

    return web.get(METRICS_PATH, metrics)
