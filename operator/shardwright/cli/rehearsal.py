"""What would the operator do next with a ShardedModel? Its own decisions, without writing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.cli.changed_values import FieldChange, removed_fields
from shardwright.cli.live_models import LiveModel
from shardwright.cli.surroundings import Surroundings
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.pipeline.assembly import engine_status
from shardwright.pipeline.replanning import Replanned, place_beside
from shardwright.planning.report import Plan, Report
from shardwright.reconcile.annotations import read_annotations
from shardwright.reconcile.derived import nodes_of_interest
from shardwright.reconcile.drift import OF_PODS, asks_the_same, drifted_fields
from shardwright.reconcile.members import Awaited, GroupState, Situation
from shardwright.reconcile.next_step import next_step
from shardwright.reconcile.observed import STATEFUL_SET, Observed
from shardwright.reconcile.planner_work import answer
from shardwright.reconcile.publish import Published
from shardwright.reconcile.record_object import record_key
from shardwright.reconcile.revisions import AskedSpec, Former, Revision, unusable
from shardwright.reconcile.snapshot import Ask, Cluster, ModelResource, Outcome, Snapshot
from shardwright.reconcile.writes import (
    Apply,
    Aside,
    Create,
    CreateKey,
    Delete,
    ObjectKey,
    Patch,
    Why,
    Write,
    written_kind,
    written_name,
)
from shardwright.rendering.bundle import CONTENT_HASH, OWN_HASH, TEMPLATE_HASH, KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.names import MADE_SECRETS, base_name, generation_of, made_secret
from shardwright.resolving.stock import OwnGpus, take_stock
from shardwright.resolving.subject import Subject

_HASHES: Final = (CONTENT_HASH, OWN_HASH, TEMPLATE_HASH)
"""Fields that only say that something else has changed."""


_HELD: Final = frozenset({Awaited.PARTITION, Awaited.STOPPED_ROLLOUT})
"""Why a group keeps its pods although others are wanted."""


_UNSAID: Final = AskedSpec(text='{"spec": {}}')
"""Stands for what a revision keeps of a model, which is shown nowhere."""


class Fate(StrEnum):
    """What happens to a group."""

    STAYS = "Stays"  #: its pods stay as they are
    RESTARTS = "Restarts"  #: all its pods end and start again, in its turn
    BESIDE = "Beside"  #: it starts anew on other GPUs, and serves meanwhile
    #: it keeps its pods although others are wanted: a partition, or a rollout that has
    # stopped
    KEEPS = "Keeps"
    STARTS = "Starts"  #: there is none yet
    ENDS = "Ends"  #: it is not wanted any more
    UNKNOWN = "Unknown"  #: it stays, or restarts for fields that could not be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFate:
    """What happens to a group, and which fields of its pods differ; ``removed`` are those that will
    be gone.

    ``last_outage_seconds`` is the length of its last restart, None if there was none.
    """

    name: str
    fate: Fate
    fields: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    last_outage_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """An object, not a group, that is ``created``, ``changed`` or ``deleted``; ``fields`` are those
    that differ, ``removed`` those that will be gone.
    """

    kind: str
    name: str
    how: str
    fields: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The outcome.

    ``start_seconds`` is how long a group may take to start (None: nothing is deployed), ``refused``
    why it is not known what would be removed.
    """

    groups: tuple[GroupFate, ...]
    objects: tuple[ObjectChange, ...]
    published: Published
    start_seconds: int | None = None
    refused: tuple[str, ...] = ()

    @property
    def record(self) -> PlanRecord | None:
        """Return the plan of record after all steps."""
        return self.published.record

    @property
    def restarts(self) -> tuple[str, ...]:
        """Return the groups that would restart, and not serve meanwhile."""
        return tuple(group.name for group in self.groups if group.fate is Fate.RESTARTS)

    @property
    def report(self) -> Report | None:
        """Return the report that would be published."""
        return self.published.report


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDifference:
    """The changes of one ShardedModel.

    ``exists`` says whether it is in the cluster. ``plan_before`` is None if it has no plan.
    ``restarts_anyway`` are groups that this release would restart for the present spec as well.
    """

    name: str
    namespace: str
    exists: bool
    fields: tuple[FieldChange, ...]
    plan_before: Plan | None
    rehearsed: Rehearsed
    restarts_anyway: tuple[str, ...] = ()

    @property
    def plan_after(self) -> Plan | None:
        """Return the plan after all steps."""
        return self.rehearsed.record.plan if self.rehearsed.record else None

    @property
    def differs(self) -> bool:
        """Return whether anything would change, or may, as it could not be compared."""
        groups = any(
            group.fate is not Fate.STAYS or group.fields for group in self.rehearsed.groups
        )
        plans = self.plan_before != self.plan_after
        return not self.exists or bool(
            self.fields or groups or plans or self.rehearsed.objects or self.rehearsed.refused
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The operator's writes for a model if a subject were its spec, and what it would publish."""

    model: LiveModel
    subject: Subject
    published: Published
    writes: Mapping[ObjectKey, Write]

    @property
    def applies(self) -> Mapping[ObjectKey, KubernetesObject]:
        """Return the contents of the objects that would be changed."""
        return {
            key: write.content for key, write in self.writes.items() if isinstance(write, Apply)
        }


def rehearse(
    model: LiveModel, subject: Subject, around: Surroundings, generation: int, now: datetime
) -> Rehearsal:
    """Return what the operator would do with a model if a subject were its spec."""
    snapshot = _seen(model, subject, around, generation)
    while True:
        step = next_step(snapshot, now)
        if step.tell:
            snapshot = replace(snapshot, told=_UNSAID)
        elif step.recalls is not None:
            former = model.formers.get(step.recalls.hash) or Former(
                hash=step.recalls.hash, subject=(_unread(step.recalls),)
            )
            subject = former.subject if isinstance(former.subject, Subject) else subject
            snapshot = replace(snapshot, former=former)
        elif step.ask is not None:
            snapshot = snapshot.answered(step.ask, _answer(subject, step.ask, around))
        elif step.records is not None:
            snapshot = snapshot.put_down(step.records, Outcome(written=step.writes))
        elif step.published is not None:
            return Rehearsal(
                model=model,
                subject=subject,
                published=step.published,
                writes=_by_object(step.published, step.writes),
            )


def _unread(revision: Revision) -> Problem:
    return unusable(revision.number, "has not been read")


def _seen(model: LiveModel, subject: Subject, around: Surroundings, generation: int) -> Snapshot:
    observed = Observed(
        objects=model.objects, members=model.members, absent_kinds=model.absent_kinds
    )
    wanted = nodes_of_interest(observed, model.record)
    nodes = {_name(facts): facts for facts in around.nodes if _name(facts) in wanted}
    metadata = model.content["metadata"]
    return Snapshot(
        resource=ModelResource(
            owner=model.owner,
            generation=generation,
            annotations=metadata.get("annotations") or {},
            status=model.content.get("status") or {},
            paused=subject.intent.paused,
        ),
        subject=subject,
        record=model.record,
        observed=observed,
        cluster=Cluster(nodes=nodes),
        certain=True,
    )


def _name(facts: Any) -> str:
    return facts.name if isinstance(facts, NodeFacts) else str(facts.node)


def _answer(subject: Subject, ask: Ask, around: Surroundings) -> Replanned:
    """Return the planner's answer for existing nodes: others only the operator knows."""
    number = ask.on.plan.group_numbers[ask.beside[0]] if ask.on and ask.beside else None
    own = OwnGpus(beside=number)
    stock = take_stock(subject, around.nodes, around.usage, around.reservations, own)
    inventory = stock.without_nodes(ask.lost)
    if ask.beside is None or ask.on is None:
        return answer(subject, ask, inventory)
    group, generation = ask.beside
    nodes = place_beside(subject, ask.on.plan, inventory)
    return Replanned(
        record=ask.on.moved(group, nodes, generation) if nodes else None, report=ask.on.report()
    )


def _by_object(published: Published, writes: tuple[Write, ...]) -> dict[ObjectKey, Write]:
    decided = published.found.decision.writes if published.found.decision else ()
    return {
        (written_kind(write), written_name(write)): write
        for write in (*decided, *writes)
        if not isinstance(write, Aside | CreateKey)
    }


def rehearsed_of(rehearsal: Rehearsal, stored: Mapping[ObjectKey, KubernetesObject]) -> Rehearsed:
    """Return what happens to groups and other objects; ``stored`` has changed objects as the API
    server would store them, which shows what would be removed.
    """
    model, published = rehearsal.model, rehearsal.published
    removed = {key: removed_fields(content, model.objects[key]) for key, content in stored.items()}
    fates = [
        _fate(state, rehearsal, removed.get((STATEFUL_SET, state.name)))
        for state in published.found.groups
    ]
    named = {fate.name for fate in fates}
    ends = (
        name
        for (kind, name), write in rehearsal.writes.items()
        if isinstance(write, Delete) and kind == STATEFUL_SET
    )
    gone = [
        GroupFate(name=name, fate=Fate.ENDS)
        for name in ends
        if name not in named and not _is_former(name, fates)
    ]
    return Rehearsed(
        groups=(*_alike(fates), *gone),
        objects=tuple(
            change
            for key, write in rehearsal.writes.items()
            for change in _change(key, write, model, removed.get(key, ()))
        ),
        published=published,
        start_seconds=_start_seconds(rehearsal) if fates else None,
    )


def _start_seconds(rehearsal: Rehearsal) -> int | None:
    if (record := rehearsal.published.record) is None:
        return None
    engine = engine_status(rehearsal.subject, record.plan)["engine"]
    seconds: int | None = engine.get("startBudget", {}).get("loadSeconds")
    return seconds


def _is_former(name: str, fates: Iterable[GroupFate]) -> bool:
    return generation_of(name)[0] in {generation_of(fate.name)[0] for fate in fates}


def _fate(state: GroupState, rehearsal: Rehearsal, known: tuple[str, ...] | None) -> GroupFate:
    key = STATEFUL_SET, state.name
    live, write = rehearsal.model.objects.get(key), rehearsal.writes.get(key)
    if live is None:
        beside = (
            any(wait.what in {Awaited.FORMER, Awaited.FORMER_TOO} for wait in state.waits)
            or generation_of(state.name)[1]
        )
        return GroupFate(name=state.name, fate=Fate.BESIDE if beside else Fate.STARTS)
    memory = read_annotations(live)
    removed = tuple(path.removeprefix(OF_PODS) for path in known or () if path.startswith(OF_PODS))
    fields = removed
    if isinstance(write, Apply):
        fields = (*pod_fields(write.content, live, rehearsal.model.owner), *removed)
    return GroupFate(
        name=state.name,
        fate=_fate_of(state, write, None if fields else live, compared=known is not None),
        fields=fields,
        removed=removed,
        last_outage_seconds=memory.outage_seconds,
    )


def _fate_of(
    state: GroupState, write: Write | None, alike: KubernetesObject | None, *, compared: bool
) -> Fate:
    if isinstance(write, Apply | Patch) and write.why in {Why.ROLLOUT, Why.REQUESTED}:
        same = isinstance(write, Apply) and alike and asks_the_same(write.content, alike)
        if not (same and write.why is Why.ROLLOUT):
            return Fate.RESTARTS
        return Fate.STAYS if compared else Fate.UNKNOWN
    if state.hold and state.hold.what in _HELD:
        return Fate.KEEPS
    return Fate.RESTARTS if state.situation is Situation.OUTDATED else Fate.STAYS


def _alike(fates: Sequence[GroupFate]) -> Iterator[GroupFate]:
    """Yield the fates; a group that waits for its turn changes and surges like the first."""
    first = next((fate for fate in fates if fate.fields), None)
    surge = any(fate.fate is Fate.BESIDE for fate in fates)
    for fate in fates:
        changes = fate.fate in {Fate.RESTARTS, Fate.KEEPS}
        known = (
            replace(fate, fields=first.fields, removed=first.removed)
            if first and changes and not fate.fields
            else fate
        )
        yield (replace(known, fate=Fate.BESIDE) if surge and fate.fate is Fate.RESTARTS else known)


def pod_fields(rendered: KubernetesObject, live: KubernetesObject, owner: Owner) -> tuple[str, ...]:
    """Return the fields of its pods in which a live StatefulSet differs from a rendered one.

    Secrets that the operator creates have unknown names here, and count as equal.
    """
    found = drifted_fields(
        rendered["spec"]["template"], _with_plain_names(live["spec"]["template"], owner)
    )
    return tuple(path for path in found if not path.endswith(_HASHES))


def _with_plain_names(template: Mapping[str, Any], owner: Owner) -> Any:
    base = base_name(owner.name)
    text = json.dumps(template)
    for content in MADE_SECRETS:
        text = re.sub(
            rf"{re.escape(base)}-{content}-[0-9a-f]{{32}}",
            made_secret(base, content, owner.uid),
            text,
        )
    return json.loads(text)


def _change(
    key: ObjectKey, write: Write, model: LiveModel, removed: tuple[str, ...]
) -> Iterator[ObjectChange]:
    kind, name = key
    if kind == STATEFUL_SET or key == record_key(model.owner):
        return
    if isinstance(write, Create):
        yield ObjectChange(kind=kind, name=name, how="created")
    elif isinstance(write, Delete):
        yield ObjectChange(kind=kind, name=name, how="deleted")
    elif isinstance(write, Apply):
        fields = (*drifted_fields(write.content, model.objects[key]), *removed)
        if shown := tuple(path for path in fields if not path.endswith(_HASHES)):
            yield ObjectChange(kind=kind, name=name, how="changed", fields=shown, removed=removed)
