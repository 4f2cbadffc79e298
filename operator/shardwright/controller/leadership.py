"""Keeps the Lease and ends the process at once when it is lost: another operator may already be writing."""

import asyncio
import logging
import os
from collections.abc import Callable

from shardwright.cluster.elector import Elector
from shardwright.controller.metrics import Metrics

log = logging.getLogger(__name__)

FENCED_EXIT_CODE = 1
WATCHDOG_SECONDS = 0.5


async def keep_leading(elector: Elector, metrics: Metrics, on_lead: Callable[[], None]) -> None:
    """Try for the Lease for ever, and say when we have got it; never returns."""
    led = False
    while True:
        await elector.tick()
        if elector.leading != led:
            led = elector.leading
            log.info("leading" if led else "not leading")
            if led:
                on_lead()
        metrics.leader.set(elector.leading)
        await asyncio.sleep(elector.pause_seconds)


async def fence(elector: Elector) -> None:
    """End the process when we led and do not lead any more; never returns."""
    while True:
        if elector.must_fence:
            log.critical("the Lease could not be renewed in time, or is somebody else's; ending at once")
            os._exit(FENCED_EXIT_CODE)
        await asyncio.sleep(WATCHDOG_SECONDS)
