"""The HTTP servers of the process: probes on one port, metrics and plans on another."""

import asyncio
from http import HTTPStatus
from typing import Final

from aiohttp import web

from shardwright.controller.exposition import Exposition
from shardwright.controller.health import Health
from shardwright.controller.http_server import HttpServer
from shardwright.controller.metrics import Metrics
from shardwright.controller.metrics_auth import MetricsAuth
from shardwright.controller.options import Options
from shardwright.controller.plans import Plans

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
