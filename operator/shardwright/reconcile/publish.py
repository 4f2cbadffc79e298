"""What are the results of one reconcile: status, events, the model's reservations, and when to
reconcile again? Nothing is written here: the shell publishes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from shardwright.api.plan_status import plan_status
from shardwright.api.record import PlanRecord, Rollback
from shardwright.engines.versions import is_newer
from shardwright.engines.vllm.releases import NEWEST_DEFAULT
from shardwright.errors import Problem
from shardwright.hardware.inventory import KnownPods
from shardwright.pipeline.assembly import engine_status
from shardwright.planning.report import Report
from shardwright.reconcile.autoscaling import hindrance
from shardwright.reconcile.decide import Decision
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.events import Event, events_of
from shardwright.reconcile.findings import Findings, KeptEngine
from shardwright.reconcile.first_seen import Sight, Sighting
from shardwright.reconcile.group import given_up_at, groups_wanted
from shardwright.reconcile.model_status import build_status, hidden_status, service_status
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid, object_key
from shardwright.reconcile.plan_outcome import CurrentPlan
from shardwright.reconcile.quotas import Pods
from shardwright.reconcile.record_trust import SERIAL
from shardwright.reconcile.revisions import (
    History,
    Revision,
    hash_of,
    history_of,
    revision_entries,
    revisions_of,
)
from shardwright.reconcile.rights import pods_of
from shardwright.reconcile.route import Route
from shardwright.reconcile.snapshot import Cluster, ModelResource, Outcome, Refusal, Snapshot
from shardwright.reconcile.wording import pods_refused, problem_of, revision_refused
from shardwright.reconcile.writes import (
    Aside,
    Create,
    DropRevision,
    DryRunPod,
    KeepRevision,
    ObjectKey,
    written_kind,
    written_name,
)
from shardwright.rendering.gang_scheduling import ALPHA_GROUPS
from shardwright.rendering.labels import is_managed
from shardwright.rendering.names import base_name, generation_of, group_names
from shardwright.resolving.subject import Subject

CONFLICT: Final = 409  # HTTP: the name exists already

BARRED_SECONDS: Final = 60.0
"""How soon to reconcile again while pods are not admitted, although a changed quota wakes the
model. Basis: assumed; what was promised to another model may be given back, which no quota says.
"""

UNSYNCED_SECONDS: Final = 1.0
UNREADY_SECONDS: Final = 30.0
"""How soon to reconcile again while something is not ready, although its events should wake us.
Basis: assumed.
"""

NO_PODS_SECONDS: Final = 10.0
"""The same while pods are missing: the API server is asked why then. Basis: assumed; they are made
in a second.
"""


DISTRUST_SECONDS: Final = 600.0
"""How long a condition says that a plan of record was not believed. Basis: assumed; it is right
again within a second, and somebody is to notice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The writes, and the obstacles to more.

    ``record`` is the deployed plan, None if groups are only kept alive. ``problems`` are for the
    user to fix, ``refused`` is why nothing is written, or is not taken. ``history`` are the
    revisions to keep, if all groups serve. ``again_seconds`` is how soon to reconcile again for
    facts that no cache shows. ``route`` is the way of requests, if the spec names one.
    """

    decision: Decision | None = None
    record: PlanRecord | None = None
    runs: bool = False
    problems: tuple[Problem, ...] = ()
    refused: Problem | None = None
    history: History | None = None
    again_seconds: float | None = None
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The GPUs to keep for a model, without those that groups (by index) gave back."""

    record: PlanRecord
    released: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The results of one reconcile.

    ``again_at`` is when to reconcile again even if nothing happens (None: it need not be);
    ``recheck_at`` the same to be sure, or to try once more, and it may be later. ``found`` is for
    the metrics; ``report`` is the plan to show. ``record`` is the stored plan of record, None if
    there is none or nobody can tell. ``distrusted`` is why a plan of record was not believed, and
    when last, for as long as a condition says so. ``kept`` are the GPUs to keep, None for none, or
    if not ``known``; ``pods`` those that are to hold them, as quotas count them (None: nothing is
    limited). ``since`` is when each passing fact was first seen. ``kept_out`` are the API server's
    objections to the pods of StatefulSets, by uid.
    ``unseen`` are objects under its names that no cache shows as its own, to be read by name.
    ``waits_for_capacity``: reconcile when GPUs come free.
    """

    status: Mapping[str, Any]
    events: tuple[Event, ...]
    again_at: datetime | None
    found: Findings
    recheck_at: datetime | None = None
    report: Report | None = None
    record: PlanRecord | None = None
    distrusted: tuple[Problem, datetime] | None = None
    kept: Kept | None = None
    pods: Pods | None = None
    known: bool = True
    since: Mapping[Sighting, datetime] = field(default_factory=dict)
    kept_out: Mapping[str, str] = field(default_factory=dict)
    unseen: frozenset[ObjectKey] = frozenset()
    waits_for_capacity: bool = False

    @property
    def moving(self) -> int:
        """Return the number of groups that are down on purpose."""
        return sum(group.moving for group in self.found.groups)

    @property
    def starting(self) -> bool:
        """Return whether all its groups come up, none after a failure or a stop on purpose."""
        groups = self.found.groups
        # A first start is no more urgent than a new model: 1,000 new ones would wait for each
        # other's starts.
        return bool(groups) and not any(
            group.serves or group.failing or group.moving for group in groups
        )

    @property
    def failing(self) -> bool:
        """Return whether a group has failed and does not serve."""
        return any(group.failing for group in self.found.groups)

    @property
    def leaves_the_line(self) -> bool:
        """Return whether it is known to wait for GPUs no more."""
        knows = self.found.cluster_known and not self.found.hidden
        return knows and not self.waits_for_capacity

    def newly_kept(self, cluster: Cluster) -> Kept | None:
        """Return the GPUs of a plan that was only shown before, or None if they are kept already or
        its groups stand on them.
        """
        # A group that stands holds its GPUs by its pods, and the ledger counts those.
        return None if cluster.reserved or self.found.standing else self.kept


def hidden(snapshot: Snapshot, problem: Problem, now: datetime) -> Published:
    """Return the results for a model whose objects cannot be read: only conditions change."""
    return replace(
        undetermined(snapshot.resource, problem, now),
        # Waits go on: a read that fails is no sign that a fact has passed.
        since=snapshot.since,
        kept_out=snapshot.kept_out,
    )


def undetermined(resource: ModelResource, problem: Problem, now: datetime) -> Published:
    """Return the results for a model whose state no reconcile can tell."""
    found = Findings(generation=resource.generation, hidden=problem)
    return Published(
        status=hidden_status(resource.status, found, now),
        events=tuple(events_of(resource.status.get("conditions") or (), found, ())),
        again_at=None,
        # No event comes for a right that is given back.
        recheck_at=now + timedelta(seconds=UNREADY_SECONDS),
        found=found,
        known=False,
    )


def publish(
    snapshot: Snapshot, derived: Derived, planned: CurrentPlan, deployed: Deployed, now: datetime
) -> Published:
    """Return the results of a reconcile whose writes ended as ``snapshot.outcome`` says."""
    outcome = snapshot.outcome or Outcome()
    distrusted, record = _distrusted(snapshot, now), _in_place(snapshot, derived)
    found = _found(snapshot, derived, planned, deployed, outcome)
    found = replace(found, distrusted=distrusted[0] if distrusted else None)
    kept_out = _kept_out(snapshot, derived, outcome)
    before = snapshot.resource.status.get("conditions") or ()
    return Published(
        status={
            **_status(snapshot, planned, deployed, found, now),
            **_serial(snapshot, record),
            **_revisions(snapshot, deployed, outcome),
        },
        events=(*planned.events, *events_of(before, found, outcome.written)),
        again_at=_sooner(
            _again_at(snapshot, derived, found, now, kept_out), deployed.again_seconds, now
        ),
        recheck_at=_recheck_at(snapshot, found, now),
        found=found,
        report=planned.report,
        record=record,
        distrusted=distrusted,
        kept=_kept(snapshot, derived, planned, found),
        pods=_pods(snapshot, derived, planned),
        # Only a known record may free GPUs of the ledger: an unreadable one may well keep some.
        known=snapshot.cluster is not None
        and not isinstance(snapshot.subject, tuple)
        and not (derived.unreadable and derived.standing),
        since=derived.since,
        kept_out=kept_out,
        unseen=_unseen(snapshot, derived, outcome),
        waits_for_capacity=(planned.short or planned.lacks) is not None,
    )


def _pods(snapshot: Snapshot, derived: Derived, planned: CurrentPlan) -> Pods | None:
    if (
        planned.record is None
        or planned.unplaced
        or snapshot.cluster is None
        or not isinstance(snapshot.subject, Subject)
    ):
        return None
    return pods_of(snapshot, derived, snapshot.subject, planned.record)


def _in_place(snapshot: Snapshot, derived: Derived) -> PlanRecord | None:
    written = (
        # The last one written; the API server does not have a refused one.
        record
        for record, outcome in reversed(snapshot.recorded)
        if not outcome.refused
    )
    return next(written, derived.record)


def _distrusted(snapshot: Snapshot, now: datetime) -> tuple[Problem, datetime] | None:
    found = snapshot.distrusted
    return found if found and now - found[1] < timedelta(seconds=DISTRUST_SECONDS) else None


def _serial(snapshot: Snapshot, record: PlanRecord | None) -> dict[str, int]:
    # Plans older than the serial are not believed from then on.
    serial = max(snapshot.serial, record.serial if record else 0)
    # With a serial in the status, the first process that has a key would refuse an unsigned record.
    return {SERIAL: serial} if snapshot.keys and serial else {}


def _revisions(snapshot: Snapshot, deployed: Deployed, outcome: Outcome) -> dict[str, Any]:
    # If a revision could not be kept, the earlier ones stay.
    stand, history = history_of(snapshot.resource.status), deployed.history
    runs = hash_of(snapshot.subject) if isinstance(snapshot.subject, Subject) else ""
    return revision_entries(history.after(stand, outcome.written) if history else stand, runs)


def _unseen(snapshot: Snapshot, derived: Derived, outcome: Outcome) -> frozenset[ObjectKey]:
    # They lack our label, or somebody else controls them.
    there = derived.observed.objects.items()
    hidden = (
        key
        for key, live in there
        if not is_managed(live) or controller_uid(live) != snapshot.resource.owner.uid
    )
    return frozenset(
        # The caches hold only objects with our label. These are read by name in the next reconcile,
        # or their creation would answer 409 for ever.
        (*hidden, *(key for item in outcome.refused if (key := _exists(item))))
    )


def _exists(refusal: Refusal) -> ObjectKey | None:
    there = isinstance(refusal.write, Create) and refusal.code == CONFLICT
    return (
        object_key(refusal.write.content) if there and isinstance(refusal.write, Create) else None
    )


def _found(
    snapshot: Snapshot, derived: Derived, planned: CurrentPlan, deployed: Deployed, outcome: Outcome
) -> Findings:
    subject = snapshot.subject if isinstance(snapshot.subject, Subject) else None
    queued = subject is not None and subject.intent.scheduler == "Kueue"
    found = Findings(
        generation=snapshot.resource.generation,
        problems=deployed.problems,
        cluster_known=snapshot.cluster is not None or subject is None,
        standing=derived.standing,
        decision=deployed.decision,
        refused=deployed.refused or _first_refusal(outcome, queued=queued),
        route=deployed.route,
        paused=snapshot.resource.paused,
        rollback=_rollback(snapshot),
        rollback_problem=snapshot.course.problem,
        history_problem=_history_problem(snapshot, outcome),
        lost=derived.lost,
        gone=snapshot.cluster.gone if snapshot.cluster else frozenset(),
        strangers=derived.observed.strangers,
        contested=snapshot.contested,
        overfull=derived.observed.overfull,
        stands=derived.record.plan if derived.record else None,
        pods_refused=_pods_refused(snapshot, derived, outcome),
    )
    if subject is None or snapshot.cluster is None:
        return found
    return replace(
        _with_plan(found, planned, subject, snapshot.cluster, derived.observed),
        kept_engine=None if snapshot.course.rollback else _kept_engine(subject),
    )


def _with_plan(
    found: Findings, planned: CurrentPlan, subject: Subject, cluster: Cluster, observed: Observed
) -> Findings:
    intent, record = subject.intent, planned.record
    # A budget to fill takes no number from anybody.
    open_number = intent.replicas is None and not subject.request.space.fill
    return replace(
        found,
        known_pods=cluster.known_pods if record else KnownPods.ALL,
        unread=cluster.unread,
        plan=record.plan if record else None,
        no_plan=planned.short,
        lacks=planned.lacks,
        least=intent.least(record.plan if record else None),
        placed=_placed(planned, subject),
        homeless=frozenset(group_names(base_name(subject.owner.name), sorted(planned.homeless))),
        undeployable=planned.undeployable
        or (record.plan.undeployable if record and not intent.plan_only else None),
        stale=planned.stale,
        better=planned.better,
        anew=planned.anew,
        not_admitted=planned.not_admitted,
        plan_only=intent.plan_only,
        scaled_to_zero=intent.replicas == 0,
        may_sleep=intent.bounds is not None and intent.bounds[0] == 0,
        wanted=groups_wanted(intent, record.plan if record else None),
        prefix_hits=_prefix_hits(subject, record) if record else 0.0,
        most_moving=cluster.most_moving,
        alpha_groups=cluster.scheduling_api == ALPHA_GROUPS,
        number_planned_for=subject.owner if open_number and not intent.plan_only else None,
        unscaled=hindrance(subject, record.plan if record else None, observed),
    )


def _prefix_hits(subject: Subject, record: PlanRecord) -> float:
    groups = max(1, len(record.plan.groups))
    return subject.request.workload.among(groups).prefix_cache_hit_rate


def _placed(planned: CurrentPlan, subject: Subject) -> int | None:
    record = planned.record
    # A plan of another cut is not for the groups that are wanted.
    if record is None or planned.short or record.cut_hash != subject.cut_hash:
        return None
    return len(record.plan.groups) - len(planned.homeless)


def _kept_engine(subject: Subject) -> KeptEngine | None:
    version = subject.default_version
    # After a downgrade the kept version is the newer one, and there is nothing to come.
    if not version or not is_newer(NEWEST_DEFAULT, version):
        return None
    return KeptEngine(engine=subject.deployment.engine, version=version, newest=NEWEST_DEFAULT)


def _rollback(snapshot: Snapshot) -> tuple[Rollback, Revision | None] | None:
    stands = snapshot.course.rollback
    if stands is None:
        return None
    return stands, next(
        (item for item in revisions_of(snapshot.resource.status) if item.hash == stands.to), None
    )


def _history_problem(snapshot: Snapshot, outcome: Outcome) -> Problem | None:
    revisions = revisions_of(snapshot.resource.status)
    refused = (
        item for item in outcome.refused if isinstance(item.write, KeepRevision | DropRevision)
    )
    return next(
        (revision_refused(item, revisions[-1].number if revisions else None) for item in refused),
        None,
    )


def _first_refusal(outcome: Outcome, *, queued: bool) -> Problem | None:
    # Nothing that runs depends on the others: the model is none the worse if they are not taken.
    refused = (item for item in outcome.refused if not isinstance(item.write, Aside))
    return next((problem_of(item, queued=queued) for item in refused), None)


def _pods_refused(snapshot: Snapshot, derived: Derived, outcome: Outcome) -> Problem | None:
    said = _kept_out(snapshot, derived, outcome)
    names = {live["metadata"]["uid"]: name for (_, name), live in derived.observed.objects.items()}
    return next(
        (pods_refused(names[uid], text) for uid, text in sorted(said.items()) if uid in names), None
    )


def _kept_out(snapshot: Snapshot, derived: Derived, outcome: Outcome) -> dict[str, str]:
    # If nobody asked, earlier objections stay. A set at zero has no pods to ask for, and one with
    # all its pods has no objection.
    refused = {
        item.write.set_uid: item.message
        for item in outcome.refused
        if isinstance(item.write, DryRunPod) and not item.passes
    }
    taken = {write.set_uid for write in outcome.written if isinstance(write, DryRunPod)}
    at_zero = {
        live["metadata"]["uid"]
        for live in derived.observed.objects.values()
        if live.get("spec", {}).get("replicas") == 0
    }
    short = {sighting.of for sighting in derived.since if sighting.sight is Sight.NO_PODS}
    return {
        uid: text
        for uid, text in snapshot.kept_out.items()
        # The minus binds first: those at zero stay, and of the short ones all but those that a dry
        # run has let in.
        if uid in at_zero | short - taken
    } | refused


def _status(
    snapshot: Snapshot, planned: CurrentPlan, deployed: Deployed, found: Findings, now: datetime
) -> dict[str, Any]:
    owner, subject = (
        snapshot.resource.owner,
        snapshot.subject if isinstance(snapshot.subject, Subject) else None,
    )
    # A plan of record does not say why groups are missing: each look finds that out again.
    report = replace(planned.report, lacks=planned.lacks) if planned.report else None
    shown = plan_status(report) if report else None
    # The engine of the pods that are written, not of a plan that is only shown.
    runs = deployed.record.plan if deployed.record and deployed.runs else None
    engine = engine_status(subject, runs) if subject else {}
    # A group that serves is found by its address, however wrong the spec is.
    stands = deployed.runs or found.groups
    domain = snapshot.cluster.domain if snapshot.cluster else "cluster.local"
    service = (
        service_status(owner, domain, subject.deployment if subject else None) if stands else {}
    )
    return build_status(
        snapshot.resource.status.get("conditions") or (), found, shown, {**engine, **service}, now
    )


def _again_at(
    snapshot: Snapshot,
    derived: Derived,
    found: Findings,
    now: datetime,
    kept_out: Mapping[str, str],
) -> datetime | None:
    waits = (
        derived.recheck_at,
        found.decision.wake_at if found.decision else None,
        given_up_at(derived.observed.members, now),
    )
    times = [time for time in waits if time]
    if distrusted := _distrusted(snapshot, now):
        times.append(distrusted[1] + timedelta(seconds=DISTRUST_SECONDS))
    if snapshot.cluster is None:
        times.append(now + timedelta(seconds=UNSYNCED_SECONDS))
    short = {sighting.of for sighting in derived.since if sighting.sight is Sight.NO_PODS}
    if short and not snapshot.resource.paused:
        # Who has been told why is asked again only now and then.
        told = short <= kept_out.keys()
        times.append(now + timedelta(seconds=UNREADY_SECONDS if told else NO_PODS_SECONDS))
    return min(times, default=None)


def _recheck_at(snapshot: Snapshot, found: Findings, now: datetime) -> datetime | None:
    # A kind that the cluster lacks may come.
    beside_the_spec = bool(found.problems) and isinstance(snapshot.subject, Subject)
    if (
        found.refused
        or found.history_problem
        or found.contested
        or beside_the_spec
        or _unfinished(found)
    ):
        return now + timedelta(seconds=UNREADY_SECONDS)
    return now + timedelta(seconds=BARRED_SECONDS) if found.not_admitted else None


def _sooner(at: datetime | None, seconds: float | None, now: datetime) -> datetime | None:
    times = [
        time for time in (at, None if seconds is None else now + timedelta(seconds=seconds)) if time
    ]
    return min(times, default=None)


def _unfinished(found: Findings) -> bool:
    decision = found.decision
    return decision is not None and bool(
        decision.leftovers
        or decision.conflicts
        or any(not group.ready for group in decision.groups)
    )


def _kept(
    snapshot: Snapshot, derived: Derived, planned: CurrentPlan, found: Findings
) -> Kept | None:
    record, subject = planned.record, snapshot.subject
    if (
        record is None
        or planned.unplaced
        or not record.plan.deployable
        or not isinstance(subject, Subject)
        or subject.intent.plan_only
    ):
        return None
    gave_up = {generation_of(group.name)[0] for group in found.groups if group.holds_nothing}
    outcome = snapshot.outcome or Outcome()
    in_the_way = found.decision.conflicts if found.decision else ()
    stuck = subject.intent.paused or bool(found.refused or in_the_way)
    made = (written_name(write) for write in outcome.written if written_kind(write) == STATEFUL_SET)
    there = {generation_of(name)[0] for name in (*made, *(one.name for one in derived.standing))}
    base = base_name(snapshot.resource.owner.name)
    return Kept(
        record=record,
        released=frozenset(
            index
            for index, (root, nodes) in enumerate(
                zip(group_names(base, record.plan.group_numbers), record.plan.groups, strict=True)
            )
            # A group whose pods are refused for five minutes gives its GPUs back, and so does one
            # that cannot be made; late nodes are booked no longer (ADR 7, ADR 14).
            if root in gave_up
            or (stuck and root not in there)
            or not derived.late.isdisjoint(nodes)
        ),
    )
