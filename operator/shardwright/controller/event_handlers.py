"""Which models to reconcile after an event, and how soon. On the main loop only.

The full comparison: all models are listed, their GPUs booked, and they are reconciled.

A watch can miss a deletion silently, so the absence of an event is no evidence.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic, time
from typing import Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.cluster.sources import project_model
from shardwright.cluster.store import Changes
from shardwright.controller.cluster_cache import ClusterCache, base_key, user_written
from shardwright.controller.metrics import Metrics
from shardwright.controller.queue import Key, Priority, Queue, Requeue
from shardwright.controller.snapshots import RecordForm, Snapshots
from shardwright.hardware.pools import Reservation
from shardwright.rendering.bundle import KubernetesObject
from shardwright.resolving.stock import reservations_of

SETTLING_SECONDS: Final = 0.5
"""How long further changes are waited for if nothing is broken. Basis: assumed; the pods of a group
are made, bound and started one after another, and each of it is an event.
"""

FREED_SECONDS: Final = 1.0
"""The least time between two rounds of those that wait for GPUs. Basis: assumed; a model that goes
frees many nodes.
"""

TURN_SECONDS: Final = 2.0
"""How long those in line wait for a reconcile of the one before them. Basis: assumed, several times
what a reconcile takes.
"""


@dataclass(frozen=True, slots=True)
class _Woken:
    """A model woken for a turn to restart: its groups down then, and the end of the offer."""

    moving: int
    ends: float


class EventHandlers:
    """Updates the cache from events and requests reconciles if ``may_ask`` says that we lead."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: Queue,
        may_ask: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._may_ask = may_ask
        self._clock = clock
        # Models that wait, may use the GPUs that came free, and have not had their turn.
        self._round: deque[Key] = deque()
        self._turn: Key | None = None
        self._turn_ends = 0.0
        # Models that wait for a turn to restart and have not been woken for it.
        self._for_turns: deque[Key] = deque()
        self._woken: dict[Key, _Woken] = {}  # who has

    def on_model(self, content: KubernetesObject, gone: bool) -> None:  # noqa: FBT001  # a fact
        """Handle an event of a ShardedModel; our own status is no news."""
        key = content["metadata"]["namespace"], content["metadata"]["name"]
        before = self._cache.resources.get(key)
        if gone and before is not None and before["metadata"]["uid"] != content["metadata"]["uid"]:
            return  # an earlier one of the name
        if gone:
            self.on_gone(key)
            return
        self._cache.take_resource(content)
        if before is None:
            self._add(key, Priority.NEW, fresh=True)
        elif user_written(before) != user_written(content):
            self._add_changed(key)

    def on_gone(self, key: Key) -> None:
        """Request the reconcile that forgets a model which is gone."""
        self._cache.drop_resource(key)
        self._add(key, Priority.NEW, fresh=True)

    def on_concern(self, affected: Changes) -> None:
        """Request reconciles of the models that a batch of changes affects."""
        cache = self._cache
        for owner in affected.hurt:
            if key := cache.models.get(owner):
                self._add(key, Priority.BROKEN)
        # A model that is hurt is in line already, and more urgently.
        for owner in affected.models - affected.hurt:
            if key := cache.models.get(owner):
                self._add_soon(key)
        # As urgent as a move: the node may be one that a group has to leave.
        for key in cache.planned_on(affected.nodes):
            self._add(key, Priority.ROLL)
        for key in cache.snapshots(affected.config_maps):
            self._add_changed(key)
        for key in cache.barred_in(affected.allowances):
            self._add(key, Priority.WAITING)
        # Gathered, not acted on: a model that goes frees many nodes within a second, and one round
        # serves them all.
        cache.freed |= affected.freed | cache.openings(affected.nodes)
        if affected.priorities:
            self.all_again(Priority.WAITING)

    def wake_waiting(self) -> None:
        """Request reconciles, one by one and in line, of waiting models for freed GPUs.

        Of those waiting for a turn to restart, as many are reconciled as turns have come.
        """
        if self._cache.turns_came:
            # As many reconciles as turns: of all waiting models for each turn, they made most of 96
            # requests a second.
            came, self._cache.turns_came = self._cache.turns_came, 0
            self._for_turns = deque(
                key for key in self._cache.waiting_for_turn() if key not in self._woken
            )
            for _ in range(came):
                self._wake_for_turn()
        for key in [key for key, woken in self._woken.items() if self._clock() >= woken.ends]:
            del self._woken[key]
            self._wake_for_turn()
        if self._cache.freed:
            # Those of the last round stay in line: their turn has not come yet.
            served = {*self._round, *self._cache.served_by(self._cache.freed)}
            self._round = deque(sorted(served, key=self._cache.place_in_line))
            self._cache.freed.clear()
        # One whose reconcile hangs must not keep all others of the line from theirs.
        if self._turn and self._clock() >= self._turn_ends:
            self._skip(self._turn[0])
        if self._turn is None:
            self._next_turn()

    def reconciled(self, key: Key) -> None:
        """Let the next one in line have its turn, now that this one is reconciled.

        A turn to restart that it did not take goes to the next.
        """
        if key == self._turn:
            self._next_turn()
        woken = self._woken.pop(key, None)
        # It did not take the turn, so the turn is still there.
        if woken and self._cache.interests(key).moving <= woken.moving:
            self._wake_for_turn()

    def _wake_for_turn(self) -> None:
        if self._for_turns:
            key = self._for_turns.popleft()
            self._woken[key] = _Woken(
                self._cache.interests(key).moving, self._clock() + TURN_SECONDS
            )
            self._add(key, Priority.ROLL)

    def _next_turn(self) -> None:
        self._turn = self._round.popleft() if self._round else None
        if self._turn:
            self._turn_ends = self._clock() + TURN_SECONDS
            self._add(self._turn, Priority.WAITING)

    def _skip(self, namespace: str) -> None:
        # Its whole namespace: the next one of it would hang in the same way.
        theirs = [key for key in self._round if key[0] == namespace]
        self._round = deque(key for key in self._round if key[0] != namespace)
        self._turn = None
        for key in theirs:
            self._add(key, Priority.WAITING)

    def all_again(self, priority: Priority) -> None:
        """Request reconciles of all models."""
        # In one order: the queue serves namespaces in turn, whatever order they come in.
        for key in sorted(self._cache.resources):
            self._add(key, priority)

    def _add(self, key: Key, priority: Priority, *, fresh: bool = False) -> None:
        if self._may_ask():
            self._queue.add(key, priority, fresh=fresh)

    def _add_changed(self, key: Key) -> None:
        if self._may_ask():
            self._queue.change(key)

    def _add_soon(self, key: Key) -> None:
        """Request a reconcile once changes settle, as urgent as a group's failure if it failed.

        A roll whose user changes the model again waits at the pace of its namespace. A first start
        has time: models that have no pods yet come before it.
        """
        wants = self._cache.interests(key)
        priority = (
            Priority.BROKEN if wants.broken else Priority.NEW if wants.starting else Priority.ROLL
        )
        if self._may_ask():
            self._queue.add_after(key, Requeue(seconds=SETTLING_SECONDS, priority=priority))


log = logging.getLogger(__name__)

AT_ONCE: Final = 8  # plans of record that are read at the same time

Booking = tuple[RecordForm | None, tuple[Reservation, ...] | None]
"""The form of a plan of record as far as one tells, and what it keeps; None if it says nothing."""


class Resync:
    """Fills the cache with models and their GPUs; ``on_gone`` gets models gone without an event."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        snapshots: Snapshots,
        metrics: Metrics,
        on_gone: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._snapshots = snapshots
        self._metrics = metrics
        self._on_gone = on_gone
        self._listing = asyncio.Lock()
        self._booked: dict[Key, Booking] = {}

    async def run(self) -> None:
        """List all models; those not found are passed to ``on_gone``.

        Raises:
            ApiError: a LIST failed, or a plan of record could not be read; what was known stands.
                An unreadable named namespace counts, but the others do not wait for it.
        """
        async with self._listing:
            ending, hidden = 0, []
            for namespace in self._cache.namespaces or (None,):
                try:
                    ending += await self._list(namespace)
                except ApiError as error:
                    if namespace is None or error.code != HTTPStatus.FORBIDDEN:
                        raise
                    # The others are listed: a namespace that was deleted must not stop them all.
                    hidden.append(namespace)
                    log.warning(
                        "namespace %s is not watched: %s",
                        namespace,
                        error,
                        extra={"reason": error.reason},
                    )
            self._metrics.being_deleted.set(ending)
            if not hidden:
                self._metrics.last_sync.labels(SHARDED_MODELS.plural).set(time())

    async def _list(self, namespace: str | None) -> int:
        derived, found, ending = (
            # Known before the LIST: a model that comes while it is read is in none of its pages,
            # and not gone.
            {key for key in self._cache.resources if namespace in {None, key[0]}},
            set(),
            0,
        )
        async for page in self._client.pages(SHARDED_MODELS, namespace, project=project_model):
            for item in page:
                key = item["metadata"]["namespace"], item["metadata"]["name"]
                found.add(key)
                ending += "deletionTimestamp" in item["metadata"]
                if (
                    key in self._cache.resources or key not in derived
                ):  # else it has ended while it was on its way to us
                    self._take(item)
        for gone in derived - found:
            self._on_gone(gone)
        return ending

    async def book(self) -> None:
        """Book the GPUs of deployed models' plans of record: running ones first, then older ones.

        Records unchanged since the last call are not read.

        Raises:
            ApiError: a plan of record could not be read.
        """
        models = {key: item for key, item in self._cache.resources.items() if holds_gpus(item)}
        # A standby that starts to lead asks for all of them again, and its first reconcile waits
        # for it.
        self._booked = await self._bookings(models)
        # The others have ended while their plans were read.
        keys = models.keys() & self._cache.resources.keys()
        for key in sorted(keys, key=self._precedence):
            _, wanted = self._booked[key]
            if wanted is not None:
                self._cache.reserve(key, wanted)
        # GPUs that are kept for models that are gone, or hold nothing any more, are given back
        # last, so that nobody plans on them in between.
        for owner in self._cache.ledger.owners() - {base_key(key) for key in keys}:
            self._cache.freed |= self._cache.ledger.forget(owner)

    def _precedence(self, key: Key) -> tuple[bool, str, Key]:
        item = self._cache.resources[key]
        runs = bool(self._cache.store.members_of(base_key(key)))
        # Plans whose pods run hold their GPUs in any case, so they are booked first (ADR 7).
        return not runs, str(item["metadata"].get("creationTimestamp") or ""), key

    async def _bookings(self, models: Mapping[Key, KubernetesObject]) -> dict[Key, Booking]:
        gate, derived = asyncio.Semaphore(AT_ONCE), self._booked

        async def read(key: Key, item: KubernetesObject) -> Booking:
            form = self._snapshots.record_form(item)
            if form is not None and key in derived and derived[key][0] == form:
                return derived[key]
            # Bounded: after a start thousands of records are read while the first reconciles wait.
            async with gate:
                record, form = await self._snapshots.kept_record(item)
            # None, not empty: nothing is known, so its bookings stay as they are.
            if record is None or not record.plan.deployable:
                return form, None
            return form, tuple(reservations_of(base_key(key), record.plan, record.generations))

        found = await asyncio.gather(*(read(*model) for model in models.items()))
        return dict(zip(models, found, strict=True))

    def _take(self, item: KubernetesObject) -> None:
        metadata = item["metadata"]
        derived = self._cache.resources.get((metadata["namespace"], metadata["name"]))
        # A watch may have been faster than the pages of the LIST.
        if derived is None or _version(item) > _version(derived):
            self._cache.take_resource(item)


def _version(item: KubernetesObject) -> int:
    text = str(item["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


def holds_gpus(model: KubernetesObject) -> bool:
    """Return whether the plan of a model reserves its nodes."""
    spec = model.get("spec", {})
    return (
        spec.get("mode") != "PlanOnly"
        and spec.get("replicas") != 0
        and "deletionTimestamp" not in model["metadata"]
    )
