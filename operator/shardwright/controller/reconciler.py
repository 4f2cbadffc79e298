"""One reconcile of one ShardedModel: read everything, take steps until none is left, publish.

A clock that never jumps: the wall clock at the start, carried on by the monotonic one.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar

from shardwright.cluster.calls import UNKNOWN_PATH
from shardwright.cluster.client import Client
from shardwright.cluster.reports import Recorder, write_status
from shardwright.cluster.writer import Writer
from shardwright.controller.cluster_cache import ClusterCache, Dependencies, user_written
from shardwright.controller.full_objects import ChangedError
from shardwright.controller.look_log import Refusals, log_transitions, log_write, target_of
from shardwright.controller.metrics import Metrics
from shardwright.controller.observations import Observation, Observations
from shardwright.controller.plan_broker import PlanBroker
from shardwright.controller.planner_process import WorkError
from shardwright.controller.queue import Key, Priority, Requeue, retry_pause_seconds
from shardwright.controller.queue_workers import NotAllTakenError, Preemption
from shardwright.controller.rate_limits import Rechecks, gist_of, write_at
from shardwright.controller.revision_reader import RevisionReader
from shardwright.controller.snapshots import Snapshots, resource_of
from shardwright.hardware.inventory import KnownPods
from shardwright.reconcile.disruption import turn_is_gone
from shardwright.reconcile.next_step import Step, admits, next_step
from shardwright.reconcile.publish import Published, undetermined
from shardwright.reconcile.snapshot import Ask, Cluster, Outcome, Refusal, Snapshot
from shardwright.reconcile.wording import internal_error
from shardwright.reconcile.writes import Write, broken_groups, written_kind
from shardwright.rendering.bundle import KubernetesObject
from shardwright.resolving.subject import Subject


class SteadyClock:
    """The time of one process; other processes and nodes may be minutes off."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # Read once: whoever sets the wall clock later moves no time that this process compares.
        self._started = datetime.now(UTC)
        self._zero = clock()

    def now(self) -> datetime:
        """Return this clock's time."""
        # Begun with the wall clock, as its times are also written into annotations that people read
        # (ADR 8).
        return self._started + timedelta(seconds=self._clock() - self._zero)


P = ParamSpec("P")
R = TypeVar("R")

# Until the next reconcile, where the model has changed under this one.
CHANGED_SECONDS: Final = 0.1

GROUPS_AT_ONCE: Final = 16
"""Groups of a model up to which a reconcile works on the event loop. Basis: measured, 0.8 to 1.3 ms
of CPU a group in each pure call (``python -m benchmarks.reconcile``).
"""

WRITTEN_SECONDS: Final = 0.5
"""How long after a write there is another reconcile: our own writes are no news, and other steps
may follow from them. Basis: assumed; the first pods have been made by then.
"""


REFUSED_DOUBLINGS: Final = 4
"""Doublings of the first pause after a lasting refusal (a quota, a policy): 1.6 s instead of 0.1 s.
Basis: measured, a namespace whose quota refuses each of 7 new models a second cost the others 19
refused requests a second, 2.7 a model (``python -m benchmarks.neighbours``).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a reconcile works with."""

    client: Client
    cache: ClusterCache
    planner: PlanBroker
    snapshots: Snapshots
    recorder: Recorder
    metrics: Metrics


class Reconciler:
    """Reconciles models; see :meth:`reconcile`."""

    def __init__(self, parts: Parts, clock: SteadyClock | None = None) -> None:
        self._parts = parts
        self._cache = parts.cache
        self._writer = Writer(parts.client, self._stored)
        self._observations = Observations()
        self._recalling = RevisionReader(parts.client, parts.planner, parts.snapshots)
        self._clock = clock or SteadyClock()
        self._way = Preemption()
        self._rechecks = Rechecks()
        self._refusals = Refusals()

    def note_of(self, key: Key) -> Observation:
        """Return the observation that the last reconcile of a model has left."""
        return self._observations.of(key)

    async def reconcile(self, key: Key, priority: Priority) -> Requeue | None:
        """Take a model one step further; return when to reconcile again, None: on a change.

        Raises:
            NotAllTakenError: something was not taken; all else is done and published.
            ApiError: the API server could not be read; to be repeated after a pause.
        """
        live = self._cache.resources.get(key)
        # Nothing is deleted here: owner references and the garbage collector do that (ADR 1).
        if live is None or "deletionTimestamp" in live["metadata"]:
            self._forget(key)
            return None
        # The mark is taken before anything is read, so a change in the midst of the reconcile is
        # seen by the next.
        mark, note, now = self._mark(key, live), self._observations.of(key), self._clock.now()
        # Nothing has changed that matters to it: most reconciles that a resync asks for end here.
        if note.at_rest(mark, now):
            return self._again(note.again_at, Priority.RESYNC)
        if await self._adopted(key, live):
            return Requeue(seconds=CHANGED_SECONDS, priority=Priority.ROLL)
        try:
            with self._way.looking(priority):
                snapshot = await self._parts.snapshots.read(key, live, note, now)
                published, done = await self._advance(key, live, snapshot, priority)
        # Nothing was written over the change, so the reconcile is only repeated.
        except ChangedError:
            return Requeue(seconds=CHANGED_SECONDS, priority=Priority.ROLL)
        # Before the status: the GPUs must be kept also where the API server does not take the
        # status.
        self._take_over(key, live["metadata"]["uid"], published, done)
        again_at = await self._publish(key, live, published, done)
        return self._next_look(key, mark, done, again_at, _priority(published))

    async def _adopted(self, key: Key, live: KubernetesObject) -> bool:
        """Take back what an earlier model of this name has left; return whether anything was.

        Before all else: its pods hold the GPUs that a plan would look for.
        """
        writes = await self._parts.snapshots.adoptions(key, live)
        # What is refused does not hold up the rest: it is a foreign object from then on.
        return bool(writes and (await self._write(key, writes)).written)

    def _next_look(
        self, key: Key, mark: object, done: Outcome, again_at: datetime | None, priority: Priority
    ) -> Requeue | None:
        if refused := done.refusal:
            requeue = self._after_refusal(key, refused, again_at, priority)
            raise NotAllTakenError(refused.code, refused.reason, refused.message, requeue)
        self._observations.taken(key)
        # No mark is noted: our own writes are no events to us, and their consequences are still to
        # be done.
        if done.changed:
            return Requeue(seconds=WRITTEN_SECONDS, priority=priority)
        # Changes since it began are still to be reconciled.
        self._observations.rest(key, mark, again_at)
        return self._again(again_at, priority)

    async def say_fault(self, key: Key, fault: Exception) -> None:
        """Set the conditions of a model to unknown for a fault of ours.

        Raises:
            ApiError: the status was not taken.
        """
        live = self._cache.resources.get(key)
        if live is None:
            return
        # Only the class of the fault: its message may quote a Secret.
        raised = fault.raised if isinstance(fault, WorkError) else type(fault).__name__
        published = undetermined(resource_of(live), internal_error(raised), self._clock.now())
        await self._publish(key, live, published, Outcome())

    def _after_refusal(
        self, key: Key, refusal: Refusal, again_at: datetime | None, priority: Priority
    ) -> Requeue:
        """Return when to try a refused write again: pauses double, other due work goes first."""
        failures = self._observations.refused(key) + (0 if refusal.passes else REFUSED_DOUBLINGS)
        pause = Requeue(seconds=retry_pause_seconds(failures), priority=priority)
        return min(
            filter(None, (pause, self._again(again_at, priority))),
            key=lambda requeue: requeue.seconds,
        )

    def _again(self, at: datetime | None, priority: Priority) -> Requeue | None:
        if at is None:
            return None
        return Requeue(
            seconds=max(0.0, (at - self._clock.now()).total_seconds()), priority=priority
        )

    def _mark(self, key: Key, live: KubernetesObject) -> object:
        """Return a mark that stays equal while nothing has changed that matters to a model.

        A model that waits depends on what others do, and unwatched pods may have changed.
        """
        cache, snapshots, metadata = self._cache, self._parts.snapshots, live["metadata"]
        if cache.interests(key).follows_others or cache.known_pods is KnownPods.NONE:
            # Equal to nothing: such a model is reconciled whenever it is asked for.
            return object()
        return (
            (
                metadata["uid"],
                metadata["generation"],
                metadata.get("annotations"),
                live.get("status"),
            ),
            cache.state_around(key),
            self._parts.planner.files_version,
            (snapshots.keys(), snapshots.absent_kinds),
        )

    async def _read_on(
        self, key: Key, live: KubernetesObject, snapshot: Snapshot, step: Step
    ) -> Snapshot:
        if step.recalls:
            return await self._recalling.recalled(key, live, snapshot, step.recalls)
        return replace(snapshot, told=await self._recalling.told(key, live))

    async def _advance(
        self, key: Key, live: KubernetesObject, snapshot: Snapshot, priority: Priority
    ) -> tuple[Published, Outcome]:
        done = Outcome()
        while True:
            # Before each step: a broken group's reconcile must not wait for a step of every other
            # reconcile.
            await self._way.step(priority)
            step = await _aside(snapshot.groups, next_step, snapshot, self._clock.now())
            if more := await self._know_more(key, live, snapshot, step, priority):
                snapshot = more
                continue
            outcome = await self._carry_out(key, snapshot, step)
            done = done.then(outcome)
            snapshot, published = _after(snapshot, step, outcome)
            if published:
                return published, done

    async def _know_more(
        self, key: Key, live: KubernetesObject, snapshot: Snapshot, step: Step, priority: Priority
    ) -> Snapshot | None:
        if step.recalls or step.tell:
            return await self._read_on(key, live, snapshot, step)
        if step.ask is not None and step.subject is not None:
            with self._way.letting_on(priority):
                answer = await self._answer(key, snapshot, step.subject, step.ask)
            # Bookings of others meanwhile may be the reason why there was no room for this one.
            return snapshot.answered(step.ask, answer).beside(self._cache.kept_beside(key))
        if ended := step.doubtful_ends(snapshot):
            return await self._certain(snapshot, ended, broken_groups(step.writes))
        return None

    async def _carry_out(self, key: Key, snapshot: Snapshot, step: Step) -> Outcome:
        if step.published and snapshot.cluster:
            # Before the writes: two reconciles at once must not take the same turn or the same
            # GPUs.
            self._take_turns(key, step.published, snapshot.cluster)
            self._take_gpus(key, step.published, snapshot.cluster)
            self._cache.promise(key, step.published.pods)
        return await self._write(key, step.writes)

    async def _write(self, key: Key, writes: tuple[Write, ...]) -> Outcome:
        outcome = await self._writer.carry_out(writes)
        for write in outcome.written:
            log_write(key, write)
            self._refusals.over(key, target_of(write))
        for refusal in outcome.refused:
            facts = {"reason": refusal.reason, "cause": str(refusal.write.cause)}
            self._refusals.say(key, target_of(refusal.write), refusal.message, **facts)
            if refusal.reason == UNKNOWN_PATH:
                self._parts.snapshots.note_unserved(written_kind(refusal.write))
        return outcome

    def _take_turns(self, key: Key, published: Published, cluster: Cluster) -> None:
        before, counted_on = self._cache.interests(key), cluster.most_moving or 0
        left, goes_down = (self._parts.snapshots.most_moving(key), published.moving > before.moving)
        if turn_is_gone(left, counted_on, goes_down=goes_down):
            # Another reconcile was faster: this one is repeated, and then waits for its turn.
            raise ChangedError
        self._cache.note(key, replace(before, moving=published.moving))

    def _take_gpus(self, key: Key, published: Published, cluster: Cluster) -> None:
        kept = published.newly_kept(cluster)
        if kept and not self._cache.keep(key, kept, cluster.limits.gpus):
            # Some groups may have been taken in: a plan that has only a part of its GPUs runs
            # nowhere.
            self._cache.keep(key, None)
            raise ChangedError

    async def _answer(self, key: Key, snapshot: Snapshot, subject: Subject, ask: Ask) -> Any:
        # A cache that lags must move no group (ADR 6).
        if ask.vacated and await self._parts.snapshots.certain_nodes(ask.vacated):
            raise ChangedError
        # GPUs that come free meanwhile count.
        self._cache.note(key, replace(self._cache.interests(key), waits_for_capacity=True))
        now = self._clock.now()
        admitted = partial(admits, snapshot, subject, now)
        return await self._parts.planner.answer(key, subject, ask, now, admitted)

    async def _certain(
        self, snapshot: Snapshot, groups: frozenset[str], broken: frozenset[str]
    ) -> Snapshot:
        certain = await self._parts.snapshots.freshened(snapshot, groups, broken)
        if certain is None:
            raise ChangedError
        return certain

    def _take_over(self, key: Key, uid: str, published: Published, done: Outcome) -> None:
        if published.found.rollback is None:
            self._recalling.forget(key)
        self._observations.take_over(key, uid, published, done, self._clock.now())
        if published.leaves_the_line:
            self._cache.enqueue(key, None)
        before, claimed = self._cache.interests(key), self._cache.claimed_by(key)
        self._cache.note(key, _dependencies(published, before, claimed))
        if published.known:
            self._cache.keep(key, published.kept)
            self._cache.promise(key, published.pods)

    async def _publish(
        self, key: Key, live: KubernetesObject, published: Published, done: Outcome
    ) -> datetime | None:
        now, again_at = self._clock.now(), self._again_at(key, published, done)
        groups, show = len(published.found.groups), self._parts.metrics.show
        # Written first: a reader of the status shall find the series.
        await _aside(groups, show, key, published.found, published.report)
        # Before the events: whoever follows an event finds the status that it is about.
        due = await self._write_status(key, live, published.status, now)
        for event in published.events:
            await self._parts.recorder.record(live, event)
        return min(filter(None, (again_at, due)), default=None)

    async def _write_status(
        self, key: Key, live: KubernetesObject, status: Mapping[str, Any], now: datetime
    ) -> datetime | None:
        """Write the status unless it repeats a recent one: return when due, None if it stands."""
        if status == (live.get("status") or {}):
            return None
        gist = gist_of(status)
        # A probe or a label that flaps would write the same two statuses in turn, every second.
        due = write_at(self._observations.of(key).said, gist, now)
        if due > now:
            return due
        stored = await write_status(self._parts.client, live, status)
        log_transitions(key, live.get("status") or {}, status)
        self._observations.wrote_status(key, gist, now)
        if (
            stored
            and user_written(stored) == user_written(live)
            # By identity: an event may have brought a later form while the status was written.
            and self._cache.resources.get(key) is live
        ):
            # Otherwise its user has changed it: that is, or was, for its event to tell.
            self._cache.take_resource(stored)
        return None

    def _again_at(self, key: Key, published: Published, done: Outcome) -> datetime | None:
        waiting = self._cache.line.get(key)
        turns_at = waiting.turns_at if waiting else None
        now = self._clock.now()
        # What is refused for good is tried again after pauses of its own: a try sends all writes.
        lasts = done.refusal is not None and not done.refusal.passes
        times = (
            published.again_at,
            self._recheck_at(key, None if lasts else published.recheck_at, now),
            turns_at if turns_at and turns_at > now else None,
        )
        return min((time for time in times if time), default=None)

    def _recheck_at(self, key: Key, asked: datetime | None, now: datetime) -> datetime | None:
        """Return when to reconcile only to be sure: later if its namespace often does."""
        if asked is None:
            self._rechecks.forget(key)
            return None
        # Where pods are not watched, a reconcile is all that tells of them.
        if self._cache.known_pods is KnownPods.NONE:
            return asked
        at = self._rechecks.next(key, asked.timestamp(), now.timestamp())
        return datetime.fromtimestamp(at, UTC)

    def _stored(self, content: KubernetesObject) -> None:
        # The next reconcile sees it before any event does.
        if content["kind"] == "ConfigMap":
            # Whole, as the store has versions of ConfigMaps alone: the next reconcile need not read
            # it.
            self._parts.snapshots.config_maps.put(content)
        self._cache.store.wrote(content)

    def _forget(self, key: Key) -> None:
        self._cache.forget(key)
        self._observations.forget(key)
        self._rechecks.forget(key)
        self._refusals.forget(key)
        self._parts.planner.forget(key)
        self._recalling.forget(key)
        self._parts.metrics.drop(key)


async def _aside(groups: int, work: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Return the result of ``work``, on a thread for many groups so that others need not wait."""
    if groups <= GROUPS_AT_ONCE:
        return work(*arguments, **options)
    return await asyncio.to_thread(work, *arguments, **options)


def _after(snapshot: Snapshot, step: Step, outcome: Outcome) -> tuple[Snapshot, Published | None]:
    if step.records is not None:
        return snapshot.put_down(step.records, outcome), None
    if outcome.refused:
        return snapshot.done(outcome), None
    return snapshot, step.published


def _dependencies(
    published: Published, before: Dependencies, claimed: frozenset[str]
) -> Dependencies:
    now = replace(
        before, moving=published.moving, starting=published.starting, broken=published.failing
    )
    # Otherwise a reconcile that could read nothing would wake nobody when its nodes change.
    if not published.known:
        return now
    groups = published.kept.record.plan.groups if published.kept else ()
    return replace(
        now,
        nodes=frozenset(node for group in groups for node in group) | claimed,
        waits_for_capacity=published.waits_for_capacity,
        waits_for_turn=bool(published.found.awaiting_turn),
        not_admitted=published.found.not_admitted is not None,
    )


def _priority(published: Published) -> Priority:
    if published.failing:
        return Priority.BROKEN
    return Priority.ROLL if published.moving else Priority.RESYNC
