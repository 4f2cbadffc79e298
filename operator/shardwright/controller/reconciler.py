"""One look at one ShardedModel: read, plan, decide, write, report. All decisions are made by pure functions."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel, read_stored
from shardwright.api.status import plan_status
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.events import Recorder
from shardwright.cluster.observer import complete, observe
from shardwright.cluster.resources import CONFIG_MAPS, SHARDED_MODELS
from shardwright.cluster.schedulers import Finding, Schedulers
from shardwright.cluster.status import write_status
from shardwright.cluster.writer import RefusedError, carry_out
from shardwright.controller.metrics import Metrics
from shardwright.controller.planner import Planned, Planner
from shardwright.controller.queue import Key
from shardwright.controller.view import Interests, View
from shardwright.errors import InputError
from shardwright.pipeline import bundle_for, engine_status
from shardwright.planning.report import Report
from shardwright.reconcile.availability import unavailable
from shardwright.reconcile.decide import Decision, Desired, decide, placed, standing_groups
from shardwright.reconcile.decision import Write
from shardwright.reconcile.departures import Needs, away_nodes, homeless_groups
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.generations import generations, lost_nodes, unsettled_groups
from shardwright.reconcile.groups import LifeRules
from shardwright.reconcile.memory import ready_pods
from shardwright.reconcile.news import Event, news, plan_event, surge_event
from shardwright.reconcile.observed import Observed, object_key
from shardwright.reconcile.record_object import read_record, record_key, record_object
from shardwright.reconcile.refusals import not_permitted, object_refused
from shardwright.reconcile.rules import groups_wanted, life_rules
from shardwright.reconcile.status import build_status, hidden_status, service_status
from shardwright.rendering.bundle import Bundle
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import GENERATION_MAX, base_name, generation_of
from shardwright.resolving.subject import Subject

log = logging.getLogger(__name__)

FORBIDDEN: Final = 403

REFUSALS: Final = frozenset({400, 403, 422})
"""Codes by which the API server refuses an object for good, until somebody changes something."""

UNSYNCED_SECONDS: Final = 1.0
UNREADY_SECONDS: Final = 30.0  # look again at what is not ready, although its events should wake us


@dataclass(slots=True)
class Look:
    """What is known and what has been done, as one look goes on."""

    live: Mapping[str, Any]
    found: Findings
    report: Report | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    written: Sequence[Write] = ()
    events: tuple[Event, ...] = ()
    deployed: bool = False
    again_seconds: float | None = None
    refusal: ApiError | None = None
    scheduler: str = "None"
    rules: LifeRules = field(default_factory=LifeRules)
    lost: frozenset[str] = frozenset()


class Reconciler:
    """Looks at models; see :meth:`look`."""

    def __init__(
        self,
        client: Client,
        view: View,
        planner: Planner,
        recorder: Recorder,
        metrics: Metrics,
        cluster_domain: str,
    ) -> None:
        self._client = client
        self._schedulers = Schedulers(client)
        self._view = view
        self._planner = planner
        self._recorder = recorder
        self._metrics = metrics
        self._cluster_domain = cluster_domain

    async def look(self, key: Key) -> float | None:
        """Bring a model one step further and return in how many seconds to look again, None for when it changes.

        Raises:
            ApiError: the API server did not answer or refused; the look is to be repeated.
        """
        live = await self._client.get(SHARDED_MODELS, *key)
        if live is None or "deletionTimestamp" in live["metadata"]:
            self._view.forget(key)
            self._planner.forget(key)
            self._metrics.drop(key)
            return None
        look = Look(live=live, found=Findings(generation=live["metadata"]["generation"]))
        await self._advance(key, look)
        await self._publish(key, look)
        if look.refusal:
            raise look.refusal
        return look.again_seconds

    async def _advance(self, key: Key, look: Look) -> None:
        """Go as far as the input allows; what the user must correct ends it, and touches nothing that runs."""
        owner = _owner(look.live)
        try:
            observed = await self._observe(owner)
        except ApiError as error:
            if error.code != FORBIDDEN:
                raise
            look.refusal, look.found = error, replace(look.found, hidden=not_permitted(str(error), owner.namespace))
            return
        record = read_record(owner, observed)
        look.report = record.report() if record else None
        look.found = replace(look.found, standing=standing_groups(observed, owner.uid, datetime.now(UTC)))
        interests = self._view.interests.setdefault(key, Interests())
        try:
            subject = await self._resolve(read_stored(look.live), interests)
        except InputError as error:
            look.found = replace(look.found, problems=error.problems)
            return
        look.engine = engine_status(subject)
        look.rules = life_rules(subject.intent, look.live["metadata"].get("annotations") or {})
        standing = standing_groups(observed, owner.uid, datetime.now(UTC), look.rules)
        look.found = replace(look.found, standing=standing)
        if not self._view.synced:
            look.found = replace(look.found, cluster_known=False)
            look.again_seconds = UNSYNCED_SECONDS
            return
        await self._serve(key, look, subject, observed)

    async def _observe(self, owner: Owner) -> Observed:
        """Return what there is of a model and of its plan of record, as its nodes let it be seen."""
        more = await self._schedulers.resources()
        observed = await observe(self._client, owner.namespace, f"{MODEL}={base_name(owner.name)}", more)
        return await complete(self._client, owner.namespace, observed.seen_from(self._view.not_ready()), [record_key(owner)])

    async def _resolve(self, resource: ShardedModel, interests: Interests) -> Subject:
        reference = resource.spec.model.config_map_ref
        if reference is None:
            interests.config_map = None
            return self._planner.resolve(resource, None)
        interests.config_map = resource.metadata.namespace, reference.name
        config_map = await self._client.get(CONFIG_MAPS, *interests.config_map)
        return self._planner.resolve(resource, ((config_map or {}).get("data") or {}).get(reference.key))

    async def _serve(self, key: Key, look: Look, subject: Subject, observed: Observed) -> None:
        """Plan and, where the plan is for the spec as it is, deploy."""
        look.lost = lost_nodes(observed.members, self._view.not_ready(), datetime.now(UTC))
        planned = await self._plan(key, look, subject, observed)
        if look.events:  # the record has been written
            observed = observed.without(record_key(_owner(look.live)))
        record, intent = planned.record, subject.intent
        self._note_interests(key, planned)
        look.report = planned.report
        look.again_seconds = planned.recheck_seconds
        look.found = replace(
            look.found,
            free_capacity_known=self._view.pods_visible,
            plan=record.plan if record else None,
            no_plan=planned.no_plan,
            stale=planned.stale,
            plan_only=intent.plan_only,
            paused=intent.paused,
            lost=look.lost,
            scaled_to_zero=intent.replicas == 0,
            wanted=groups_wanted(intent, record.plan if record else None),
        )
        if record and not look.refusal and _is_for(subject, planned, record):
            await self._deploy(look, subject, record, observed)

    def _note_interests(self, key: Key, planned: Planned) -> None:
        interests = self._view.interests.setdefault(key, Interests())
        interests.waits_for_capacity = planned.no_plan is not None
        groups = planned.record.plan.groups if planned.record else ()
        interests.nodes = frozenset(node for group in groups for node in group)

    async def _plan(self, key: Key, look: Look, subject: Subject, observed: Observed) -> Planned:
        """Plan, write the record and reserve its nodes, all before anybody else may plan."""
        owner, intent = _owner(look.live), subject.intent
        record = read_record(owner, observed)
        serving = bool(look.found.standing) and all(group.ready for group in look.found.standing)
        interests = self._view.interests.setdefault(key, Interests())
        async with self._planner.lock:
            interests.waits_for_capacity = True  # what comes free while this is planned must be looked at again
            if intent.paused and record:
                planned = Planned(record=record, report=record.report())
            else:
                needs = self._needs(look, record, observed) if record else Needs()
                planned = await self._planner.plan(key, subject, record, serving=serving, needs=needs)
            if planned.record and planned.record != record and not intent.paused:
                written = await self._write_record(look, owner, planned.record, observed)
                record = planned.record if written else record
            self._view.reserve(key, None if intent.plan_only else record)
        return planned

    def _needs(self, look: Look, record: PlanRecord, observed: Observed) -> Needs:
        base, groups, now = base_name(_owner(look.live).name), record.plan.groups, datetime.now(UTC)
        return Needs(
            lost=look.lost,
            away=away_nodes(self._view.not_ready(), now),
            unsettled=unsettled_groups(groups, base, look.found.standing),
            homeless=homeless_groups(len(groups), base, look.found.standing, observed.members, now),
        )

    async def _write_record(self, look: Look, owner: Owner, record: PlanRecord, observed: Observed) -> bool:
        """Return whether the record is in its place now: refused, or where somebody else is, it reserves nothing."""
        writes = placed(record_object(owner, record), owner.uid, observed)
        written = bool(writes) and await self._write(look, writes)
        look.events = (plan_event(record.plan),) if written else ()
        return written

    async def _deploy(self, look: Look, subject: Subject, record: PlanRecord, observed: Observed) -> None:
        owner = _owner(look.live)
        look.scheduler = subject.intent.scheduler
        scheduler = Finding() if look.scheduler == "None" else (await self._schedulers.find())[look.scheduler]
        if scheduler.problem and record.plan.groups and not look.found.plan_only:
            look.found = replace(look.found, refused=scheduler.problem)
            look.again_seconds = UNREADY_SECONDS
            return
        try:
            bundle = self._objects(look, subject, record, observed, scheduler.api)
        except InputError as error:
            look.found = replace(look.found, problems=error.problems)
            return
        objects = (record_object(owner, record), *bundle.objects)
        observed = await complete(self._client, owner.namespace, observed, [object_key(content) for content in objects])
        now = datetime.now(UTC)
        desired = Desired(owner_uid=owner.uid, objects=objects, keys=bundle.keys, rules=look.rules)
        decision = decide(desired, observed, now)
        if decision.stopping and not subject.intent.paused:
            moved = await self._move_beside(look, subject, record, decision, observed)
            if moved:
                await self._deploy(look, subject, moved, observed.without(record_key(owner)))
                return
        look.found = replace(look.found, decision=decision)
        look.deployed = bool(bundle.objects)
        if look.deployed:
            look.engine = engine_status(subject, record.plan)
        if not subject.intent.paused and await self._write(look, decision.writes):
            look.written = decision.writes
        look.again_seconds = _soonest(look.again_seconds, decision, now)

    async def _move_beside(
        self, look: Look, subject: Subject, record: PlanRecord, decision: Decision, observed: Observed
    ) -> PlanRecord | None:
        """Plan the first group that is to stop on free GPUs as well; return the record that was written, None without any."""
        owner, group = _owner(look.live), decision.stopping[0]
        generation = generation_of(decision.groups[group].name)[1] + 1
        if generation > GENERATION_MAX:
            return None
        async with self._planner.lock:
            moved = await self._planner.beside(subject, record, group, generation)
            if moved is None or not await self._write_record(look, owner, moved, observed):
                return None
            self._view.reserve((owner.namespace, owner.name), moved)
        look.events = (surge_event(decision.groups[group].name, moved.plan.groups[group]),)
        return moved

    def _objects(self, look: Look, subject: Subject, record: PlanRecord, observed: Observed, scheduling_api: str) -> Bundle:
        plan, owner = record.plan, _owner(look.live)
        if look.found.plan_only or not plan.deployable:
            return Bundle(objects=())
        sets = [live for (kind, _), live in observed.objects.items() if kind == "StatefulSet"]
        bundle = bundle_for(
            subject,
            plan,
            ready_pods=ready_pods(sets, len(plan.groups), plan.nodes_per_replica),
            cluster_domain=self._cluster_domain,
            generations=generations(base_name(owner.name), plan.groups, observed, owner.uid, look.lost, record.generations),
            scheduling_api=scheduling_api or None,
        )
        if problem := unavailable(bundle.objects, observed):
            raise InputError([problem])
        return bundle

    async def _write(self, look: Look, writes: Sequence[Write]) -> bool:
        """Write and return whether all of it was taken; a refusal is shown to the user and then tried again."""
        try:
            await carry_out(self._client, writes)
        except ApiError as error:
            if error.code not in REFUSALS or error.reason == "NotLeading":
                raise
            look.refusal = error
            known = error.problem if isinstance(error, RefusedError) else None
            refused = known or object_refused(str(error), writes, queued=look.scheduler == "Kueue")
            look.found = replace(look.found, refused=refused)
            return False
        return True

    async def _publish(self, key: Key, look: Look) -> None:
        before = (look.live.get("status") or {}).get("conditions") or ()
        status = self._status(look)
        self._metrics.show(key, look.found, look.report)  # before the status: who has read that finds the series
        await write_status(self._client, look.live, status)
        for event in (*look.events, *news(before, look.found, look.written)):
            await self._recorder.record(look.live, event)
        _log(key, look)

    def _status(self, look: Look) -> dict[str, Any]:
        status, now = look.live.get("status") or {}, datetime.now(UTC)
        if look.found.hidden:
            return hidden_status(status, look.found, now)
        shown = plan_status(look.report) if look.report else None
        stands = look.deployed or look.found.groups  # what serves is found by its address whatever is wrong with the spec
        service = service_status(_owner(look.live), self._cluster_domain) if stands else {}
        return build_status(status.get("conditions") or (), look.found, shown, {**look.engine, **service}, now)


def _log(key: Key, look: Look) -> None:
    for write in look.written:
        content = getattr(write, "content", None)
        target = "/".join(object_key(content)) if content else f"{write.kind}/{write.name}"  # type: ignore[union-attr]
        verb = type(write).__name__.lower()
        log.info("%s %s", verb, target, extra={"key": "/".join(key), "fields": getattr(write, "because", ())})


def _owner(live: Mapping[str, Any]) -> Owner:
    metadata = live["metadata"]
    return Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])


def _is_for(subject: Subject, planned: Planned, record: PlanRecord) -> bool:
    """Return whether a record says how to run the spec as it is: all of it, or the groups that there is room for."""
    fewer = planned.no_plan is not None and record.cut_hash == subject.cut_hash
    return record.input_hash == subject.input_hash or fewer


def _soonest(seconds: float | None, decision: Decision, now: datetime) -> float | None:
    """Return when to look again: at the end of a grace or a back-off, and now and then while not all is ready."""
    times = [seconds] if seconds is not None else []
    if decision.wake_at:
        times.append(max(0.0, (decision.wake_at - now).total_seconds()))
    if decision.leftovers or decision.conflicts or any(not group.ready for group in decision.groups):
        times.append(UNREADY_SECONDS)
    return min(times, default=None)
