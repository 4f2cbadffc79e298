"""Holds the Lease on its own thread, and ends the process at once if another may be writing.

The thread has its own event loop and connections, so a process busy for longer than the Lease lasts
loses nothing. One that hangs for good must not lead for ever: without the signs of life of a leader
(``Pulse``) the process ends.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from shardwright.cluster.elector import Elector
from shardwright.controller.metrics import Metrics

log = logging.getLogger(__name__)

FENCED_EXIT_CODE: Final = 1
WATCHDOG_SECONDS: Final = 0.5
HUNG_LOOKS: Final = 60
"""Looks of the watchdog, 30 s, after which an event loop that has not moved counts as hung. Basis:
assumed; the liveness probe of the chart takes 25 to 35 s, and what is known to keep the loop busy
takes less than one.
"""


class Pulse:
    """Whether the working event loop still moves, as seen by another thread.

    Looks are counted, not seconds: in a stopped process neither thread has moved.
    """

    def __init__(self, last_beat: Callable[[], float], hung_looks: int = HUNG_LOOKS) -> None:
        """``last_beat`` returns when the loop last showed that it moves."""
        self._last_beat = last_beat
        self._hung_looks = hung_looks
        self._seen: float | None = None
        self._looks = 0

    def hangs(self) -> bool:
        """Look once more, and return whether too many looks in a row have seen the same beat."""
        # By equality and not by age: a process that was stopped as a whole has an old beat and does
        # not hang (ADR 22).
        beat = self._last_beat()
        self._looks = self._looks + 1 if beat == self._seen else 0
        self._seen = beat
        return self._looks >= self._hung_looks


class Leadership(threading.Thread):
    """Tries for the Lease until :meth:`stop`; once it is ours calls ``on_lead`` on this thread."""

    def __init__(
        self,
        elector: Elector,
        metrics: Metrics,
        on_lead: Callable[[], None],
        pulse: Pulse,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """``end`` ends the process at once, with this exit code."""
        super().__init__(name="leadership", daemon=True)
        self._elector = elector
        self._metrics = metrics
        self._on_lead = on_lead
        self._pulse = pulse
        self._end = end
        # The Lease is renewed although the operator's own loop is busy (ADR 22).
        self._loop = asyncio.new_event_loop()
        self._let_go = asyncio.Event()

    def stop(self) -> None:
        """Release the Lease for another to take over, and end; nothing may be written after."""
        with suppress(RuntimeError):  # its loop has ended by itself
            self._loop.call_soon_threadsafe(self._let_go.set)
        self.join()

    def run(self) -> None:
        """Lead, or wait to, until stopped."""
        try:
            stopped = self._loop.run_until_complete(self._lead())
        except Exception:
            log.critical("a fault of ours; ending, to be started again", exc_info=True)
            stopped = False
        if not stopped:
            # os._exit and no exception: work in flight on other threads must not send one more
            # write.
            self._end(FENCED_EXIT_CODE)
        self._loop.close()

    async def _lead(self) -> bool:
        """Lead until stopped (True) or until the process must end at once (False)."""
        jobs = [
            asyncio.ensure_future(job) for job in (self._keep(), self._watch(), self._let_go.wait())
        ]
        try:
            (first, *_), _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            first.result()
        finally:
            for job in jobs:
                job.cancel()
        # We hang, or the Lease is lost. The process ends at once, so nothing is given up in order.
        if not self._let_go.is_set():
            return False
        await asyncio.gather(*jobs, return_exceptions=True)
        # Last of all: another one leads from the moment in which this is stored.
        await self._elector.release()
        return True

    async def _keep(self) -> None:
        led = False
        while True:
            await self._elector.tick()
            if self._elector.leading != led:
                led = self._elector.leading
                log.info("leading" if led else "not leading")
                if led:
                    self._on_lead()
            # Asked once more: between the tick and here the deadline may have passed.
            self._metrics.leader.set(self._elector.leading)
            await asyncio.sleep(self._elector.pause_seconds)

    async def _watch(self) -> None:
        while not self._elector.must_fence:
            if self._pulse.hangs():
                log.critical(
                    "the event loop hangs; ending at once, for nobody else can lead meanwhile"
                )
                return
            await asyncio.sleep(WATCHDOG_SECONDS)
        log.critical(
            "the API server has gone back to an earlier state, as after a restore of etcd; ending "
            "at once, to read all anew"
            if self._elector.gone_back
            else "the Lease could not be renewed in time, or is somebody else's; ending at once"
        )
