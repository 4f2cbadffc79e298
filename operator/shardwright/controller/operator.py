"""The running operator: caches always warm, writes only while it leads, an end that leaves nothing half-done."""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from shardwright.cluster.access import Access
from shardwright.cluster.client import ApiError, Client, Urgency
from shardwright.cluster.config_maps import ConfigMapWatch
from shardwright.cluster.elector import Elector, LeaseIdentity
from shardwright.cluster.events import Recorder
from shardwright.cluster.permissions import may_see_pods, missing_permissions
from shardwright.controller.health import Health, HealthServer
from shardwright.controller.intake import Intake
from shardwright.controller.leadership import fence, keep_leading
from shardwright.controller.metrics import Metrics
from shardwright.controller.options import Options
from shardwright.controller.planner import Planner
from shardwright.controller.queue import Key, Queue
from shardwright.controller.reconciler import Reconciler
from shardwright.controller.resync import Resync
from shardwright.controller.view import View
from shardwright.controller.watches import Watches
from shardwright.controller.workers import Workers

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 0.5
FILES_SECONDS: Final = 5.0
SYNC_RETRY_SECONDS: Final = 2.0
WARM_UP_SECONDS: Final = 5.0  # what was deleted between the first LIST and the start of a watch is seen after this
FINISH_SECONDS: Final = 10.0  # what work in flight gets after SIGTERM


class Operator:
    """Everything wired together; :meth:`run` returns the exit code of the process."""

    def __init__(self, options: Options, access: Access) -> None:
        self._options = options
        self._access = access
        self._metrics = Metrics()
        self._health = Health()
        self._queue = Queue()
        self._view = View(wake=self._ask)
        count = self._metrics.count_call
        self._lease_client = Client(access, threads=2, on_call=count, urgency=Urgency.LEASE)
        self._elector = Elector(self._lease_client, _identity(options), timings=options.lease_timings)
        self._client = Client(access, on_call=count, may_write=self._leads, limits=options.request_limits)
        self._planner = Planner(self._view, options.catalogue_file, options.settings_file)
        self._planner.load_settings()
        self._resync = Resync(self._client, self._view, self._planner.lock, self._metrics)
        self._workers = Workers(self._queue, self._reconciler().look, self._metrics, options.workers)
        self._stopping = asyncio.Event()
        self._may_work = asyncio.Event()
        self._failed = False

    def _reconciler(self) -> Reconciler:
        recorder = Recorder(self._client, self._options.identity)
        return Reconciler(self._client, self._view, self._planner, recorder, self._metrics, self._options.cluster_domain)

    def _leads(self) -> bool:
        return self._elector.leading or not self._options.leader_elect

    def _ask(self, key: Key) -> None:
        """Ask for a look at a model; who does not lead looks at none, and lists them all when it comes to lead."""
        if self._leads():
            self._queue.add(key)

    async def run(self) -> int:
        """Run until told to stop (0) or until watching is no longer possible (1)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        server = HealthServer(self._health, self._metrics.text, self._options.port)
        log.info("listening on port %d", server.port)
        tasks = [asyncio.create_task(job) for job in self._jobs()]
        for task in tasks:
            task.add_done_callback(self._job_ended)
        watches = await self._start_watches()
        await self._stopping.wait()
        await self._stop(tasks)
        for watch in watches:
            watch.stop()
        server.stop()
        log.info("stopped")
        return 1 if self._failed else 0

    def _jobs(self) -> list[Coroutine[Any, Any, None]]:
        jobs = [self._beat(), self._keep_synced(), self._keep_files(), self._work()]
        if self._options.leader_elect:
            jobs += [keep_leading(self._elector, self._metrics, self._may_work.set), fence(self._elector)]
        else:
            self._may_work.set()
        return jobs

    async def _start_watches(self) -> tuple[Watches, ConfigMapWatch]:
        with suppress(ApiError):  # without an answer the watches will fail and say so
            self._view.pods_visible = await may_see_pods(self._client)
            for missing in await missing_permissions(self._client):
                log.error("not permitted, but needed: %s", missing)
        intake = Intake(self._view, self._ask)
        watches = Watches(
            self._access, self._on_loop(intake.on_event), self._on_loop(self._watching_ended), pods=self._view.pods_visible
        )
        config_maps = ConfigMapWatch(self._lease_client, self._on_loop(intake.on_config_map))
        watches.start()
        config_maps.start()
        return watches, config_maps

    def _on_loop(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return a function for other threads that has ``function`` called on this loop."""
        loop = asyncio.get_running_loop()

        def call(*arguments: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: we are ending
                loop.call_soon_threadsafe(function, *arguments)

        return call

    def _watching_ended(self) -> None:
        if not self._stopping.is_set():
            log.critical("watching has ended; ending, to be started again")
            self._failed = True
            self._stopping.set()

    def _job_ended(self, task: asyncio.Task[None]) -> None:
        """End the process with a job that has failed: none of them ends by itself, and the others would hide it."""
        if not self._stopping.is_set() and not task.cancelled():
            log.critical("a fault of ours; ending, to be started again", exc_info=task.exception())
            self._failed = True
            self._stopping.set()

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            self._metrics.queue_depth.set(self._queue.depth)
            self._metrics.queue_oldest.set(self._queue.oldest_seconds)
            await asyncio.sleep(BEAT_SECONDS)

    async def _keep_synced(self) -> None:
        """List everything now and then, soon after a failure, and once more when the watches surely run."""
        mean = min(WARM_UP_SECONDS, self._options.resync_seconds)
        while True:
            seconds = mean * random.uniform(0.9, 1.1)  # noqa: S311  spreads load
            synced = await self._sync()
            await asyncio.sleep(seconds if synced else SYNC_RETRY_SECONDS)
            mean = self._options.resync_seconds if synced else mean

    async def _sync(self) -> bool:
        try:
            keys = await self._resync.run()
        except ApiError as error:
            log.warning("the full LIST has failed: %s", error, extra={"reason": error.reason})
            return False
        for key in keys:
            self._ask(key)
        self._health.ready = True
        return True

    async def _keep_files(self) -> None:
        """Read the administrator's files again when they change, as the kubelet renews them."""
        while True:
            if self._planner.reload():
                for key in sorted(self._view.models.values()):
                    self._ask(key)
            await asyncio.sleep(FILES_SECONDS)

    async def _work(self) -> None:
        """Work while leading; what others wrote before is listed first."""
        await self._may_work.wait()
        while True:
            if await self._sync():
                break
            await asyncio.sleep(SYNC_RETRY_SECONDS)
        await self._workers.run()

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        """Take no more work, let what is in flight end, and let go of the Lease."""
        self._queue.close()
        await self._workers.finish(FINISH_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._elector.release()
        self._client.close()
        self._lease_client.close()


def _identity(options: Options) -> LeaseIdentity:
    return LeaseIdentity(namespace=options.lease_namespace, name=options.lease_name, holder=options.identity)
