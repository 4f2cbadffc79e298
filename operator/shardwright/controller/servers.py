"""The HTTP servers of the process: probes on one port, metrics and plans on another.

Their answers are made elsewhere. This module begins and ends them together.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web

from shardwright.controller.exposition import Exposition
from shardwright.controller.health import Health
from shardwright.controller.http_server import HttpServer
from shardwright.controller.metrics import Metrics
from shardwright.controller.options import Options
from shardwright.controller.plans import Plans
from shardwright.controller.scrapers import Scrapers

METRICS_PATH: Final = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers. ``scrapers`` judges who may scrape (None: everybody), ``plans`` answers with
    pages (None: nobody asked for them).
    """

    probes: HttpServer
    scrapes: HttpServer
    scrapers: Scrapers | None
    plans: Plans | None

    async def stop(self) -> None:
        """Answer nothing more."""
        self.probes.stop()
        if self.scrapers:
            self.scrapers.stop()
        if self.plans:
            # A page that is made now may wait for this loop.
            await asyncio.to_thread(self.plans.stop)
        # Last: scrapers and plans answer on its loop.
        self.scrapes.stop()


def start_servers(
    options: Options,
    health: Health,
    metrics: Metrics,
    scrapers: Scrapers | None,
    plans: Plans | None,
) -> Servers:
    """Listen on both ports."""
    probes = HttpServer(health.routes(), options.health_port, "probes")
    routes = [scraped(Exposition(metrics.text), scrapers)]
    if plans:
        routes += plans.routes()
    scrapes = HttpServer(routes, options.port, "scrapes")
    return Servers(probes=probes, scrapes=scrapes, scrapers=scrapers, plans=plans)


def scraped(exposition: Exposition, scrapers: Scrapers | None) -> web.RouteDef:
    """Return the route of the metrics, which is open to those whom ``scrapers`` admit."""

    async def metrics(request: web.Request) -> web.Response:
        header = request.headers.get("authorization", "")
        refusal = await scrapers(header, request.remote or "") if scrapers else None
        if refusal is None:
            return exposition.answer(request)
        known = refusal is not HTTPStatus.UNAUTHORIZED
        return web.Response(
            status=refusal, headers={} if known else {"WWW-Authenticate": "Bearer"}
        )

    return web.get(METRICS_PATH, metrics)
