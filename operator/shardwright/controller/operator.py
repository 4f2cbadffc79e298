"""The running operator: caches always warm, writes only while leading, nothing left half-done."""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.cluster.access import Access
from shardwright.cluster.caches import Caches, Scope
from shardwright.cluster.claims import Installation, read_complaint
from shardwright.cluster.client import ApiError, Client, Meters, Urgency
from shardwright.cluster.elector import Elector, LeaseIdentity
from shardwright.cluster.permissions import (
    Duties,
    may_read,
    may_see_pods,
    missing_permissions,
    needed,
)
from shardwright.cluster.reports import Recorder
from shardwright.cluster.store import Changes
from shardwright.controller.cluster_cache import ClusterCache
from shardwright.controller.event_handlers import FREED_SECONDS, EventHandlers, Resync
from shardwright.controller.fetches import own_fetcher
from shardwright.controller.files import Watched
from shardwright.controller.leadership import Leadership, Pulse
from shardwright.controller.metrics import Metrics
from shardwright.controller.metrics_auth import REVIEW_SECONDS, MetricsAuth
from shardwright.controller.operator_options import Options
from shardwright.controller.plan_broker import AdministratorFiles, PlanBroker
from shardwright.controller.planner_process import PlannerProcess
from shardwright.controller.plans import Plans, Sources, listed
from shardwright.controller.queue import Key, Priority, Queue, Requeue
from shardwright.controller.queue_workers import QueueWorkers
from shardwright.controller.reconciler import Parts, Reconciler
from shardwright.controller.servers import METRICS_PATH, Health, Servers
from shardwright.controller.snapshots import SetForAll, Snapshots
from shardwright.controller.watches import Watches
from shardwright.errors import InputError, Problem
from shardwright.hardware.inventory import KnownPods
from shardwright.pages.page import Listed
from shardwright.reconcile.record_object import SigningKeys, read_keys
from shardwright.resolving.subject import Subject

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 0.5
FILES_SECONDS: Final = 5.0
SYNC_RETRY_SECONDS: Final = 2.0
# what work in flight gets after SIGTERM, so that another operator leads within two seconds
FINISH_SECONDS: Final = 1.0


class Operator:
    """Everything wired together; :meth:`run` returns the exit code."""

    def __init__(self, options: Options, access: Access) -> None:
        self._options = options
        self._access = access
        self._metrics = Metrics(options.max_model_series, options.installation)
        self._health = Health()
        self._queue = Queue(options.workers)
        self._cache = ClusterCache(namespaces=options.watch_namespaces)
        meters = Meters(call=self._metrics.count_call, wait=self._metrics.count_wait)
        # A client of its own: the Lease is renewed over connections that no other request holds.
        self._lease_client = Client(access, threads=2, meters=meters).at(Urgency.LEASE)
        self._elector = Elector(
            self._lease_client, _identity(options), timings=options.lease_timings
        )
        self._client = self._make_client(meters)
        self._worker = PlannerProcess(options.budget, self._metrics)
        self._planner = self._make_planner()
        self._planner.load_settings()
        self._keys = _signing_keys(options)
        self._handlers = EventHandlers(self._cache, self._queue, self._leads)
        self._snapshots = self._make_reading()
        self._resync = Resync(
            self._client, self._cache, self._snapshots, self._metrics, self._handlers.on_gone
        )
        self._reconciler = self._make_reconciler()
        self._workers = QueueWorkers(
            self._queue, self._look, self._reconciler.say_fault, self._metrics
        )
        self._caches: Caches | None = None
        self._leadership: Leadership | None = None
        self._reads = asyncio.Event()
        self._sync_due, self._syncing = asyncio.Event(), asyncio.Lock()
        self._stopping = asyncio.Event()
        self._may_work = asyncio.Event()
        self._failed = False
        # Without a name there is nothing to claim: a laptop, or one operator installed by hand.
        self._claims_hold = not options.installation

    def _make_client(self, meters: Meters) -> Client:
        return Client(
            self._access, meters=meters, may_write=self._leads, limits=self._options.request_limits
        )

    def _make_planner(self) -> PlanBroker:
        return PlanBroker(
            self._cache,
            self._worker,
            AdministratorFiles(
                catalogue=self._options.catalogue_file, settings=self._options.settings_file
            ),
            self._metrics,
        )

    def _make_reading(self) -> Snapshots:
        options = self._options
        return Snapshots(
            self._client,
            self._cache,
            self._planner,
            SetForAll(most_moving=options.max_moving_groups, cluster_domain=options.cluster_domain),
            keys=lambda: self._keys.content,
        )

    def _make_reconciler(self) -> Reconciler:
        return Reconciler(
            Parts(
                client=self._client,
                cache=self._cache,
                planner=self._planner,
                snapshots=self._snapshots,
                recorder=Recorder(self._client, self._options.identity),
                metrics=self._metrics,
            )
        )

    def _make_scrapers(self) -> MetricsAuth | None:
        if self._options.metrics_authentication == "None":
            return None
        return MetricsAuth(
            lambda token: may_read(self._client, token, METRICS_PATH, REVIEW_SECONDS)
        )

    def _make_plans(self) -> Plans | None:
        if not self._options.plans:
            return None
        return Plans(
            self._client, Sources(models=self._listed, plan=self._shown), asyncio.get_running_loop()
        )

    async def _listed(self) -> list[Listed]:
        return [listed(content) for content in self._cache.resources.values()]

    async def _shown(self, key: Key) -> tuple[Subject, PlanRecord] | None:
        live = self._cache.resources.get(key)
        return (
            await self._snapshots.shown(key, live, self._reconciler.note_of(key)) if live else None
        )

    async def _look(self, key: Key, priority: Priority) -> Requeue | None:
        try:
            return await self._reconciler.reconcile(key, priority)
        finally:
            self._handlers.reconciled(key)

    def _leads(self) -> bool:
        return self._claims_hold and (self._elector.leading or not self._options.leader_elect)

    async def run(self) -> int:
        """Run until told to stop (0) or until a part of it has failed (1)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        # Before anything is read: a start that takes long must answer its probes.
        servers = Servers(
            self._options, self._health, self._metrics, self._make_scrapers(), self._make_plans()
        )
        log.info(
            "listening on port %d for probes, %d for scrapes",
            servers.probes.port,
            servers.scrapes.port,
        )
        heard, namespaces = (self._on_loop(self._handlers.on_model), self._options.watch_namespaces)
        watches = Watches(self._client, self._access, heard, namespaces=namespaces)
        tasks = self._start(watches)
        await self._stopping.wait()
        await self._stop(tasks)
        watches.stop()
        if self._caches:
            self._caches.stop()
        await servers.stop()
        log.info("stopped")
        return 1 if self._failed else 0

    def _start(self, watches: Watches) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(job) for job in (self._start_reading(watches), *self._jobs())]
        # The first one is done once reading has begun; the others never are.
        for task in tasks[1:]:
            task.add_done_callback(self._job_ended)
        return tasks

    def _jobs(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._beat(),
            self._keep_synced(),
            self._keep_files(),
            self._wake_waiting(),
            self._work(),
        ]

    def _start_to_lead(self) -> None:
        if not self._options.leader_elect:
            self._may_work.set()
            return
        pulse, on_lead = (Pulse(lambda: self._health.last_beat), self._on_loop(self._may_work.set))
        self._leadership = Leadership(self._elector, self._metrics, on_lead, pulse)
        self._leadership.start()

    async def _start_reading(self, watches: Watches) -> None:
        """Watch everything and try to lead, once scope and rights are known.

        Models are read last: before the caches are full they would be reconciled in vain.
        """
        # Before the Lease: an operator that may not be here must not take it from one that may.
        if not await self._is_ours():
            return
        self._start_to_lead()
        watches.start()
        while True:
            if await self._asked_for_pods():
                break
            await asyncio.sleep(SYNC_RETRY_SECONDS)
        # Before the planner process resolves: a model by its id alone would be refused without a
        # fetcher.
        await self._look_at_itself()
        with suppress(OSError):  # who asks it something starts it again
            self._worker.start()  # while the caches fill
        cache = self._cache
        caches = Caches(
            self._client,
            cache.store,
            self._on_concern,
            scope=Scope(
                namespaces=cache.namespaces, pods=cache.known_pods, stated=self._planner.stated
            ),
        )
        caches.start()
        self._caches = caches
        await caches.filled.wait()
        self._note_namespaces(caches)
        self._reads.set()
        fetches = self._planner.fetcher is not None and self._planner.settings.config_fetch.enabled
        duties = Duties(namespaces=cache.namespaces, fetches=fetches)
        with suppress(ApiError):
            for missing in await missing_permissions(self._client, needed(duties)):
                log.error("not permitted, but needed: %s", missing)

    async def _is_ours(self) -> bool:
        """Return whether nodes and namespaces are this installation's; end the process if they are
        another's.
        """
        options = self._options
        if not options.installation:
            return True
        installation = Installation(
            name=options.installation,
            node_set=self._planner.stated.node_set,
            namespaces=options.watch_namespaces,
        )
        while True:
            try:
                complaint = await read_complaint(self._client, installation)
                break
            except ApiError as error:
                log.warning("claims cannot be read: %s", error, extra={"reason": error.reason})
                await asyncio.sleep(SYNC_RETRY_SECONDS)
        if complaint:
            self._fail(f"two installations must share neither nodes nor namespaces: {complaint}")
        return not complaint

    def _fail(self, why: str) -> None:
        log.critical("ending, for %s", why)
        self._failed = True
        self._stopping.set()

    async def _look_at_itself(self) -> None:
        while True:
            try:
                found = await own_fetcher(
                    self._client, self._options.lease_namespace, self._options.identity
                )
                break
            except ApiError as error:
                log.warning("our own pod cannot be read yet: %s", error)
                await asyncio.sleep(SYNC_RETRY_SECONDS)
        self._planner.fetcher = found
        self._planner.reload()

    def _note_namespaces(self, caches: Caches) -> None:
        """Note unreadable namespaces; models of one that is readable again are listed at once."""
        self._metrics.show_namespaces(self._cache.namespaces, caches.refused)
        if caches.filled.is_set() and caches.unread != self._cache.unread:
            self._cache.unread = caches.unread
            self._sync_due.set()

    def _on_concern(self, affected: Changes) -> None:
        self._snapshots.config_maps.forget_gone(affected.config_maps)
        self._handlers.on_concern(affected)

    async def _asked_for_pods(self) -> bool:
        try:
            others = KnownPods.WATCHED if self._options.watch_namespaces else KnownPods.NONE
            self._cache.known_pods = KnownPods.ALL if await may_see_pods(self._client) else others
        # Not known is not refused: with pods unseen all GPUs would count as free.
        except ApiError as error:
            log.warning("the API server does not answer: %s", error, extra={"reason": error.reason})
            return False
        return True

    def _on_loop(self, function: Callable[..., None]) -> Callable[..., None]:
        loop = asyncio.get_running_loop()

        def call(*arguments: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: we are ending
                loop.call_soon_threadsafe(function, *arguments)

        return call

    def _job_ended(self, task: asyncio.Task[None]) -> None:
        # None ends by itself, and the others would hide it.
        if not self._stopping.is_set() and not task.cancelled():
            log.critical("a fault of ours; ending, to be started again", exc_info=task.exception())
            self._failed = True
            self._stopping.set()

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            self._metrics.show_load(self._queue.load(), self._cache.moving)
            if self._caches:
                if self._snapshots.note_absent(self._caches.absent_kinds):
                    self._handlers.all_again(Priority.RESYNC)
                self._note_namespaces(self._caches)
            await asyncio.sleep(BEAT_SECONDS)

    async def _wake_waiting(self) -> None:
        while True:
            self._handlers.wake_waiting()
            await asyncio.sleep(FREED_SECONDS)

    async def _keep_synced(self) -> None:
        while True:
            self._sync_due.clear()
            synced = await self._sync()
            mean = self._options.resync_seconds if synced else SYNC_RETRY_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._sync_due.wait(),
                    mean * random.uniform(0.9, 1.1),  # noqa: S311  # spreads load
                )

    async def _sync(self) -> bool:
        await self._reads.wait()
        # One at a time: a standby's booking that ends late must undo nothing that reconciles have
        # booked since it leads.
        async with self._syncing:
            try:
                await self._resync.run()
                if not (self._cache.synced and self._leads()):
                    # Booked before anybody plans: GPUs that plans of record keep must not look
                    # free.
                    await self._resync.book()
            except ApiError as error:
                log.warning("the full LIST has failed: %s", error, extra={"reason": error.reason})
                return False
        if self._caches:
            self._snapshots.note_absent(self._caches.absent_kinds)
        # After the booking: from here on reconciles plan.
        self._cache.synced = True
        self._handlers.all_again(Priority.RESYNC)
        self._health.ready = True
        return True

    async def _keep_files(self) -> None:
        # The kubelet renews them.
        while True:
            # A list, not a generator: both are read again, whether the first has changed or not.
            if any([self._planner.reload(), self._keys.reload()]):
                self._handlers.all_again(Priority.NEW)
            await asyncio.sleep(FILES_SECONDS)

    async def _work(self) -> None:
        """Work while leading, once the former leader's writes are listed."""
        await self._may_work.wait()
        # Once more: another installation may have come while this process stood by (ADR 34).
        try:
            async with asyncio.timeout(self._options.lease_duration_seconds):
                self._claims_hold = await self._is_ours()
        except TimeoutError:
            # A leader that does not work keeps the Lease from one that could.
            self._fail("its claims could not be read for as long as a Lease lasts")
        if not self._claims_hold:
            return
        # Others have led until now: their bookings are in their plans of record alone.
        self._cache.synced = False
        while True:
            if await self._sync():
                break
            await asyncio.sleep(SYNC_RETRY_SECONDS)
        # Only after a LIST: a standby's caches may lag behind the last writes of the leader before.
        await self._workers.run()

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        self._queue.close()
        # Before any task is cancelled: a reconcile that is cut off between two writes is not wrong,
        # but late.
        await self._workers.finish(FINISH_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._leadership:
            # After the last write: another one leads from that moment on.
            await asyncio.to_thread(self._leadership.stop)
        self._worker.stop()
        self._client.close()
        self._lease_client.close()


def _signing_keys(options: Options) -> Watched[SigningKeys]:
    """Return the keys from the file that is named.

    Raises:
        InputError: it cannot be used: without them nothing that was signed before would be
            believed.
    """
    keys = Watched(options.signing_keys_file, "the file of signing keys", read_keys, SigningKeys())
    # No key is made up: plans signed with one that is lost at the next start would all be refused
    # (ADR 12).
    if options.signing_keys_file is None:
        log.warning(
            "there is no key (--signing-keys-file): plans of record are not signed, and used "
            "where they agree with the cluster"
        )
        return keys
    try:
        keys.load()
    except ValueError as error:
        raise InputError(
            [Problem(code="SigningKeysUnusable", path="--signing-keys-file", what=str(error))]
        ) from error
    return keys


def _identity(options: Options) -> LeaseIdentity:
    return LeaseIdentity(
        namespace=options.lease_namespace, name=options.lease_name, holder=options.identity
    )
