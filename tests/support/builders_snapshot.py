"""What one reconcile has read, and an operator around ``next_step`` that reads, asks, writes and publishes
as the shell does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, lru_cache
from json import dumps, loads
from typing import Any

from shardwright.api.record import PlanRecord
from shardwright.api.resource import parse_manifest
from shardwright.errors import InputError, Problem
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import GpuUsage
from shardwright.pipeline.replanning import Replanned, place_beside
from shardwright.reconcile.first_seen import Sighting
from shardwright.reconcile.members import Situation, read_member
from shardwright.reconcile.next_step import Step, next_step
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.planner_work import answer, dated, waits_for_itself
from shardwright.reconcile.publish import Kept, Published
from shardwright.reconcile.quotas import Allowance, read_ranges
from shardwright.reconcile.record_object import SigningKeys, read_record, record_key
from shardwright.reconcile.record_trust import kept_version
from shardwright.reconcile.revisions import AskedSpec, Former, as_kept, as_now, read_revision
from shardwright.reconcile.snapshot import Ask, Cluster, ModelResource, Outcome, Snapshot
from shardwright.reconcile.write_cause import Contest
from shardwright.reconcile.writes import HandOver, ObjectKey, Write
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import base_name, revision_name
from shardwright.resolving.model import Question
from shardwright.resolving.stock import AS_THEY_STAND, OwnGpus, reservations_of, take_stock
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_reconcile import OWNER_UID
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import ADMITTING
from tests.support.contradictions import contradictions
from tests.support.small_cluster import GPU, SmallCluster

OWNER = Owner(name="llama", namespace="models", uid=OWNER_UID)
ONE_NODE = {"parallelism": {"tensor": 8, "pipeline": 1}}
"""Groups of one whole node."""

TWO_NODES = {
    "model": {"id": "meta-llama/Llama-3.1-405B-Instruct"},
    "parallelism": {"tensor": 8, "pipeline": 2},
}
"""Groups of two whole nodes."""

MOST_LOOKS = 8
"""How many reconciles may follow each other, woken by nothing but what they write themselves."""


@cache
def _subject(spec: str, version: str | None = None) -> Subject | tuple[Problem, ...]:
    manifest = a_sharded_model(OWNER.name, OWNER.namespace, **loads(spec))
    manifest["metadata"]["uid"] = OWNER.uid
    try:
        return resolve(
            Question(resource=parse_manifest(manifest), kept_version=version, settings=ADMITTING)
        )
    except InputError as error:
        return error.problems


@dataclass
class Operator:
    """An operator of one model on a small cluster: everything around ``next_step`` that takes no
    decision.

    ``spec`` and ``annotations`` are the resource's. ``problems`` are what is wrong with it,
    whatever the spec says. ``version`` is the engine's by default as long as there is no plan of
    record. ``moves`` are all pairs of situations that a StatefulSet was seen in one after the
    other.
    """

    cluster: SmallCluster
    spec: dict[str, Any]
    annotations: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    version: str | None = None
    most_moving: int | None = None
    allowance: Allowance = field(default_factory=Allowance)
    contested: dict[ObjectKey, Contest] = field(default_factory=dict)
    scheduler_problem: Problem | None = None
    absent_kinds: frozenset[str] = frozenset()
    generation: int = 1
    kept: Kept | None = None
    since: Mapping[Sighting, datetime] = field(default_factory=dict)
    kept_out: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    moves: set[tuple[Situation, Situation]] = field(default_factory=set)
    situations: dict[str, Situation] = field(default_factory=dict)
    written: list[Write] = field(default_factory=list)
    asked: list[Ask] = field(default_factory=list)
    last: Outcome = field(default_factory=Outcome)
    reconciled: int = -1

    def edit(self, **spec: Any) -> None:
        self.spec = self.spec | spec
        self.generation += 1
        self.cluster.version += 1

    def limit(self, **most: str) -> None:
        """Let the namespace have a LimitRange that allows each container so much at most, or
        none.
        """
        limits = [{"type": "Container", "max": most}] if most else []
        self.allowance = Allowance(
            ranges=read_ranges({"metadata": {"name": "team"}, "spec": {"limits": limits}})
        )
        self.cluster.version += 1

    def fork(self) -> Operator:
        """Return an operator and a cluster that are just as these, to go on with."""
        own = {
            name: copy(getattr(self, name))
            for name in (
                "spec",
                "annotations",
                "contested",
                "moves",
                "situations",
                "written",
                "asked",
            )
        }
        return replace(self, cluster=self.cluster.fork(), **own)

    @property
    def subject(self) -> Subject | tuple[Problem, ...]:
        return self._subject(_record(Observed(objects=self.cluster.objects)))

    def _subject(self, record: PlanRecord | Problem | None) -> Subject | tuple[Problem, ...]:
        version = kept_version(None, record, 0) if isinstance(record, PlanRecord) else self.version
        return self.problems or _subject(
            dumps({"mode": "Deploy"} | self.spec, sort_keys=True), version
        )

    def seen(self) -> Snapshot:
        """Return what a reconcile reads now."""
        objects = dict(self.cluster.objects)
        pods = self.cluster.pods.values()
        members = tuple(member for item in pods if (member := read_member(item)))
        theirs = {member.uid for member in members}
        strangers = (item["metadata"] for item in pods if item["metadata"]["uid"] not in theirs)
        observed = Observed(
            objects=objects,
            members=members,
            absent_kinds=self.absent_kinds,
            strangers=tuple(
                sorted(
                    item["name"]
                    for item in strangers
                    if item["labels"].get(MODEL) == base_name(OWNER.name)
                )
            ),
        )
        record = _record(observed)
        resource = ModelResource(
            owner=OWNER,
            generation=self.generation,
            annotations=self.annotations,
            status=self.status,
            paused=bool(self.spec.get("paused")),
        )
        return Snapshot(
            resource=resource,
            subject=self._subject(record),
            record=record,
            observed=observed,
            cluster=self._cluster(observed, record),
            since=self.since,
            contested=self.contested,
            kept_out=self.kept_out,
        )

    def _cluster(self, observed: Observed, record: PlanRecord | Problem | None) -> Cluster:
        cluster = self.cluster
        planned = (
            {node for group in record.plan.groups for node in group}
            if isinstance(record, PlanRecord)
            else set()
        )
        bound = {member.node for member in observed.members if member.node}
        return Cluster(
            nodes={name: facts for name, facts in cluster.facts.items() if name in planned | bound},
            gone=frozenset(bound.intersection(cluster.gone_since)),
            free={
                name: cluster.gpus(name) - cluster.others.get(name, 0)
                for name in planned.intersection(cluster.nodes)
            },
            reserved=self.kept is not None,
            scheduler_problem=self.scheduler_problem,
            most_moving=self.most_moving,
            allowance=self.allowance,
        )

    def reconcile(self, snapshot: Snapshot | None = None) -> Published:
        """Carry one reconcile out, to what it leaves behind."""
        snapshot, self.reconciled = snapshot or self.seen(), self.cluster.version
        while True:
            step = next_step(snapshot, self.cluster.now)
            if step.recalls or step.tell:
                snapshot = self.read_on(snapshot, step)
            elif step.ask:
                assert step.subject
                self.asked.append(step.ask)
                snapshot = snapshot.answered(
                    step.ask, self.answer(replace(snapshot, subject=step.subject), step.ask)
                )
            elif step.records:
                self.kept = Kept(record=step.records)
                snapshot = snapshot.put_down(step.records, self._write(step))
            else:
                published = self._written(snapshot, step)
                if published:
                    return self._publish(published)
                snapshot = snapshot.done(self.last)

    def read_on(self, snapshot: Snapshot, step: Step) -> Snapshot:
        """Return the same with what a step asks to be read."""
        live = self.live()
        if not step.recalls:
            return replace(snapshot, told=AskedSpec(text=dumps(live)))
        content = self.cluster.revisions.get(
            revision_name(base_name(OWNER.name), step.recalls.digest)
        )
        found = read_revision(content, OWNER.uid, step.recalls)
        if isinstance(found, Problem):
            return replace(snapshot, former=Former(hash=step.recalls.hash, subject=(found,)))
        subject = _subject(
            dumps(loads(as_now(found, live))["spec"], sort_keys=True), found.engine_version
        )
        return replace(
            snapshot,
            former=as_kept(
                Former(hash=step.recalls.hash, subject=subject, plan=found.plan, pods=found.pods),
                step.recalls,
            ),
        )

    def live(self) -> dict[str, Any]:
        """Return the resource as the API server holds it."""
        manifest = a_sharded_model(OWNER.name, OWNER.namespace, **({"mode": "Deploy"} | self.spec))
        manifest["metadata"] |= {"uid": OWNER.uid, "generation": self.generation}
        return manifest

    def _write(self, step: Step) -> Outcome:
        self.last = self.cluster.carry_out(step.writes)
        self.written += self.last.written
        for write in self.last.written:
            if isinstance(write, HandOver):
                self.edit(replicas=write.replicas)
        return self.last

    def _written(self, snapshot: Snapshot, step: Step) -> Published | None:
        """Return what a reconcile leaves behind, None where it is to be found out what came of its
        writes.
        """
        outcome = self._write(step) if step.writes else Outcome()
        return step.published if outcome.written == step.writes or snapshot.outcome else None

    def _publish(self, published: Published) -> Published:
        if published.known:
            self.kept = published.kept
        self.since, self.kept_out, self.status = (
            published.since,
            published.kept_out,
            published.status,
        )
        situations = {group.name: group.situation for group in published.found.groups}
        self.moves |= {
            (self.situations[name], after)
            for name, after in situations.items()
            if name in self.situations and self.situations[name] is not after
        }
        self.situations = situations
        broken = contradictions(published.status, len(self.cluster.serving()))
        assert broken == [], broken
        return published

    def answer(self, snapshot: Snapshot, ask: Ask) -> Replanned:
        """Return what the planner answers, with all that it knows of the cluster."""
        assert isinstance(snapshot.subject, Subject)
        subject, record = snapshot.subject, ask.on
        if ask.beside and record:
            group, generation = ask.beside
            place = self.stock(subject, ask, OwnGpus(beside=record.plan.group_numbers[group]))
            nodes = place_beside(subject, record.plan, place)
            moved = record.moved(group, nodes, generation) if nodes else None
            return Replanned(record=moved, report=record.report())
        made = answer(subject, ask, self.stock(subject, ask))
        if waits_for_itself(ask, made):
            made = answer(subject, ask, self.stock(subject, ask, OwnGpus(vacated=True)))
        return dated(made, ask, self.cluster.now)

    def stock(self, subject: Subject, ask: Ask, own_gpus: OwnGpus = AS_THEY_STAND) -> Inventory:
        """Return what there is for the model beside what pods and its own plan hold."""
        others = [
            GpuUsage(node=node, resource=GPU, gpus=gpus)
            for node, gpus in self.cluster.others.items()
        ]
        key = (OWNER.namespace, base_name(OWNER.name))
        own = [replace(usage, owner=key) for usage in self.cluster.usage()]
        kept = (
            reservations_of(key, self.kept.record.plan, self.kept.record.generations)
            if self.kept
            else ()
        )
        facts = [found for name, found in self.cluster.facts.items() if name not in ask.lost]
        return take_stock(subject, facts, [*own, *others], tuple(kept), own_gpus)

    def run(self, seconds: float, step: float = 10.0) -> Published:
        """Let time pass, and look when the operator would: when something has changed, and when a
        reconcile has asked for it.

        What it writes wakes it at once, before anybody has acted on it.
        """
        return deque(self.moments(seconds, step), maxlen=1)[0]

    def moments(self, seconds: float, step: float = 10.0) -> Iterator[Published]:
        """Let time pass in the same way; yield now and after each step what was published last.

        A loop of short runs would look at every step, whether there is anything to see or not.
        """
        ends = self.cluster.now + timedelta(seconds=seconds)
        published = self._rest(self.reconcile())
        yield published
        while self.cluster.now < ends:
            self.cluster.pass_time(step)
            published = self._rest(published)
            yield published

    def _rest(self, published: Published) -> Published:
        looks = 0
        while self.reconciled != self.cluster.version or (not looks and self._is_due(published)):
            published, looks = self.reconcile(), looks + 1
            assert looks <= MOST_LOOKS, f"still writing: {self.last.written}"
        return published

    def _is_due(self, published: Published) -> bool:
        times = (published.again_at, published.recheck_at)
        return any(time is not None and self.cluster.now >= time for time in times)


def _record(observed: Observed) -> PlanRecord | Problem | None:
    """Return what the plan of record says, whoever wrote it."""
    content = observed.objects.get(record_key(OWNER))
    return _said(dumps(content, sort_keys=True)) if content else None


@lru_cache(maxsize=64)
def _said(content: str) -> PlanRecord | Problem | None:
    """Return the same of a ConfigMap as text: from reconcile to look it hardly ever changes."""
    stored = read_record(loads(content), OWNER.uid, SigningKeys())
    return stored.said if stored else None
