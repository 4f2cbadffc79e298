"""One look at one ShardedModel: read everything, do what ``reconcile.advance`` says until it says nothing more, publish."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel, read_stored
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.events import Recorder
from shardwright.cluster.observer import complete, observe
from shardwright.cluster.resources import CONFIG_MAPS, SHARDED_MODELS
from shardwright.cluster.schedulers import Finding, Schedulers
from shardwright.cluster.status import write_status
from shardwright.cluster.writer import Writer
from shardwright.controller.clock import SteadyClock
from shardwright.controller.metrics import Metrics
from shardwright.controller.notes import Notes
from shardwright.controller.planner import Planner
from shardwright.controller.queue import Key
from shardwright.controller.view import Interests, View, base_key
from shardwright.errors import InputError, Problem
from shardwright.reconcile.advance import advance
from shardwright.reconcile.decision import Apply, written_kind, written_name
from shardwright.reconcile.known import nodes_of_interest
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.publish import Published
from shardwright.reconcile.record_object import read_record, record_key
from shardwright.reconcile.refusals import not_permitted
from shardwright.reconcile.seen import Cluster, Outcome, Resource, Seen
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import base_name
from shardwright.resolving.subject import Subject

log = logging.getLogger(__name__)

FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for all models: the domain of the cluster's DNS, and how many groups may be down on purpose at once."""

    cluster_domain: str = "cluster.local"
    most_moving: int | None = None


class Reconciler:
    """Looks at models; see :meth:`look`."""

    def __init__(
        self,
        client: Client,
        view: View,
        planner: Planner,
        recorder: Recorder,
        metrics: Metrics,
        terms: Terms,
    ) -> None:
        self._client = client
        self._writer = Writer(client)
        self._schedulers = Schedulers(client)
        self._view = view
        self._planner = planner
        self._recorder = recorder
        self._metrics = metrics
        self._terms = terms
        self._notes = Notes()
        self._clock = SteadyClock()

    async def look(self, key: Key) -> float | None:
        """Bring a model one step further and return in how many seconds to look again, None for when it changes.

        Raises:
            ApiError: the API server could not be read, or does not take the status; the look is to be repeated.
        """
        live = await self._client.get(SHARDED_MODELS, *key)
        if live is None or "deletionTimestamp" in live["metadata"]:
            self._view.forget(key)
            self._notes.forget(key)
            self._metrics.drop(key)
            return None
        published, outcomes = await self._advance(key, await self._read(key, live))
        self._take_over(key, published)
        await self._publish(key, live, published, outcomes)
        if published.again_at is None:
            return None
        return max(0.0, (published.again_at - self._clock.now()).total_seconds())

    async def _advance(self, key: Key, seen: Seen) -> tuple[Published, Outcome]:
        """Do what the pure core says until there is nothing left to do; return what to publish, and all that was written."""
        done = Outcome()
        while True:
            step = advance(seen, self._clock.now())
            if step.ask is not None and isinstance(seen.subject, Subject):
                seen = seen.answered(step.ask, await self._planner.answer(key, seen.subject, step.ask))
                continue
            outcome = await self._writer.carry_out(step.writes)
            done = Outcome(written=(*done.written, *outcome.written), refused=(*done.refused, *outcome.refused))
            if step.records is not None:
                seen = seen.put_down(step.records, outcome)
            elif outcome.refused:
                seen = seen.done(outcome)
            if step.published is not None and not (outcome.refused and step.writes):
                return step.published, done

    async def _read(self, key: Key, live: Mapping[str, Any]) -> Seen:
        """Return everything that a look needs to know."""
        owner, notes = _owner(live), self._notes.of(key)
        resource = Resource(
            owner=owner,
            generation=live["metadata"]["generation"],
            annotations=live["metadata"].get("annotations") or {},
            status=live.get("status") or {},
            paused=(live.get("spec") or {}).get("paused") is True,
        )
        subject = await self._resolve(key, live)
        observed = await self._observe(owner)
        record = None if isinstance(observed, Problem) else read_record(owner, observed)
        cluster = None
        if not isinstance(observed, Problem) and self._view.synced:
            cluster = await self._around(key, subject, observed, record)
        return Seen(
            resource=resource,
            subject=subject,
            record=record,
            observed=observed,
            cluster=cluster,
            since=notes.since,
            contested=notes.contested(self._clock.now()),
            kept_out=notes.kept_out,
        )

    async def _observe(self, owner: Owner) -> Observed | Problem:
        """Return what there is of a model, whatever labels it carries, or why it cannot be read."""
        try:
            more = await self._schedulers.resources()
            observed = await observe(self._client, owner.namespace, f"{MODEL}={base_name(owner.name)}", more)
            return await complete(self._client, owner.namespace, observed, [record_key(owner)])
        except ApiError as error:
            if error.code != FORBIDDEN:
                raise
            return not_permitted(str(error), owner.namespace)

    async def _around(
        self, key: Key, subject: Subject | tuple[Problem, ...], observed: Observed, record: PlanRecord | Problem | None
    ) -> Cluster:
        """Return what is known of the cluster around a model."""
        names = nodes_of_interest(observed, record)
        nodes = {name: node for name in names if (node := self._view.nodes.get(name))}
        scheduler = await self._scheduler(subject)
        others = self._view.moving_elsewhere(key)
        return Cluster(
            nodes=nodes,
            free=self._view.free(key, names),
            reserved=bool(self._view.ledger.kept(base_key(key))),
            scheduling_api=scheduler.api,
            scheduler_problem=scheduler.problem,
            most_moving=None if self._terms.most_moving is None else max(0, self._terms.most_moving - others),
            domain=self._terms.cluster_domain,
        )

    async def _scheduler(self, subject: Subject | tuple[Problem, ...]) -> Finding:
        named = subject.intent.scheduler if isinstance(subject, Subject) else "None"
        return Finding() if named == "None" else (await self._schedulers.find())[named]

    async def _resolve(self, key: Key, live: Mapping[str, Any]) -> Subject | tuple[Problem, ...]:
        """Return what a spec resolves to, or what the user must correct."""
        try:
            resource = read_stored(live)
            return self._planner.resolve(resource, await self._config_text(key, resource))
        except InputError as error:
            return error.problems

    async def _config_text(self, key: Key, resource: ShardedModel) -> str | None:
        reference = resource.spec.model.config_map_ref
        interests = self._view.interests.setdefault(key, Interests())
        interests.config_map = (resource.metadata.namespace, reference.name) if reference else None
        if reference is None:
            return None
        config_map = await self._client.get(CONFIG_MAPS, resource.metadata.namespace, reference.name)
        text: str | None = ((config_map or {}).get("data") or {}).get(reference.key)
        return text

    def _take_over(self, key: Key, published: Published) -> None:
        """Keep what a look has found for the next one, and the GPUs of what stands."""
        self._notes.take_over(key, published, self._clock.now())
        interests = self._view.interests.setdefault(key, Interests())
        interests.moving = published.moving
        if not published.known:
            return
        interests.waits_for_capacity = published.waits_for_capacity
        groups = published.kept.record.plan.groups if published.kept else ()
        interests.nodes = frozenset(node for group in groups for node in group)
        self._view.keep(key, published.kept)

    async def _publish(self, key: Key, live: Mapping[str, Any], published: Published, done: Outcome) -> None:
        self._metrics.show(key, published.found, published.report)  # before the status: who has read that finds the series
        await write_status(self._client, live, published.status)
        for event in published.events:
            await self._recorder.record(live, event)
        for write in done.written:
            target = f"{written_kind(write)}/{written_name(write)}"
            fields = write.fields if isinstance(write, Apply) else ()
            log.info("%s %s", type(write).__name__.lower(), target, extra={"key": "/".join(key), "fields": fields})
        for refusal in done.refused:
            target = f"{written_kind(refusal.write)}/{written_name(refusal.write)}"
            log.warning("not taken: %s: %s", target, refusal.message, extra={"key": "/".join(key), "reason": refusal.reason})


def _owner(live: Mapping[str, Any]) -> Owner:
    metadata = live["metadata"]
    return Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
