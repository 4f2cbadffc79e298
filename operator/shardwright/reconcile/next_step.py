"""What is the next step for one ShardedModel, given a snapshot? A pure function: the shell carries
a step out and calls ``next_step`` again with the result until nothing is left to do. The order is:
ask the planner, write the plan of record, perhaps ask for a surge (back to the record), write the
rest, publish.

A model that is rolled back is treated as if its spec were the earlier revision. Running groups are
touched only by a valid, placed, deployable plan for the present spec; meanwhile they are kept
alive: a group that breaks starts again as it was.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from shardwright.api.record import PlanRecord
from shardwright.errors import InputError, Problem
from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.beside import came_back, question_beside
from shardwright.reconcile.decide import (
    Desired,
    KnownGroups,
    decide,
    is_leftover,
    keep_alive,
    not_as_they_are,
    placed,
    standing_drain,
)
from shardwright.reconcile.derived import Derived, derive
from shardwright.reconcile.due_writes import questions, taken_up, to_hand_over
from shardwright.reconcile.events import refuge_event, surge_event
from shardwright.reconcile.fetched import fetched
from shardwright.reconcile.objects_now import Present, objects_now
from shardwright.reconcile.observed import Observed, controller_uid, object_key
from shardwright.reconcile.plan_outcome import CurrentPlan, current_plan
from shardwright.reconcile.pod_inputs import following, restored_pods
from shardwright.reconcile.protected import protected_pods
from shardwright.reconcile.publish import Deployed, Published, hidden, publish
from shardwright.reconcile.record_object import record_key, record_object, record_place, would_end
from shardwright.reconcile.revisions import Course, Revision, Served, hash_of, history_of, renewed
from shardwright.reconcile.rights import not_admitted
from shardwright.reconcile.rollback import former_of, given_up, rollback_of
from shardwright.reconcile.route import fallen_back, route_of
from shardwright.reconcile.snapshot import Ask, Cluster, Outcome, Snapshot
from shardwright.reconcile.wording import place_taken, problem_of
from shardwright.reconcile.write_cause import WISHED, Origin, WriteCause
from shardwright.reconcile.writes import Write, ended_groups
from shardwright.rendering.bundle import Bundle
from shardwright.rendering.deployment import Owner
from shardwright.rendering.names import base_name, generation_name, group_names
from shardwright.rendering.pod import start_deadline_seconds
from shardwright.resolving.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next thing to do: read or ask, else write, else publish the findings.

    ``records`` is the plan of record that the writes put in place: its GPUs are kept from now on.
    ``subject`` is the planner's subject. ``recalls`` is a revision to read first; ``tell`` asks for
    the request of the resource, word for word.
    """

    recalls: Revision | None = None
    tell: bool = False
    subject: Subject | None = None
    ask: Ask | None = None
    records: PlanRecord | None = None
    writes: tuple[Write, ...] = ()
    published: Published | None = None

    def doubtful_ends(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the groups that the step ends on the word of caches alone, which may lag."""
        return frozenset() if snapshot.certain else ended_groups(self.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """The current plan, and how it is carried out in this reconcile."""

    planned: CurrentPlan
    deployed: Deployed

    @property
    def is_good(self) -> bool:
        decision = self.deployed.decision
        record = self.deployed.record
        states = decision.groups if decision and record else ()
        expected = len(record.plan.groups) if record else 0
        return (
            self.planned.short is None
            and 0 < expected == len(states)
            and all(state.available and not state.hold for state in states)
        )


def next_step(snapshot: Snapshot, now: datetime) -> Step:
    """Return the next step for a model."""
    # First: without its objects nobody can tell which writes would end a group that serves.
    if isinstance(snapshot.observed, Problem):
        return Step(published=hidden(snapshot, snapshot.observed, now))
    on_course = _on_course(snapshot)
    if isinstance(on_course, Step):
        return on_course
    step = _look(on_course, snapshot.observed, now)
    because = _because(snapshot, step)
    # What has no cause of its own follows from what the reconcile is about.
    writes = (
        replace(write, cause=because) if write.cause is WISHED else write for write in step.writes
    )
    return replace(step, writes=tuple(writes))


def _because(snapshot: Snapshot, step: Step) -> WriteCause:
    resource, found = snapshot.resource, step.published.found if step.published else None
    if resource.status.get("observedGeneration") != resource.generation:
        return WriteCause(Origin.WISH, f"spec of generation {resource.generation}")
    if found and found.stale:
        return WriteCause(Origin.WORLD, found.stale.what)
    return WriteCause(Origin.WORLD, "groups and objects that are there, or this release")


def admits(snapshot: Snapshot, subject: Subject, now: datetime, record: PlanRecord) -> bool:
    """Return whether the namespace of a model would let the pods of a plan in."""
    observed = snapshot.observed
    if isinstance(observed, Problem):
        return False
    return not_admitted(snapshot, derive(snapshot, observed, now), subject, record) is None


def _on_course(snapshot: Snapshot) -> Step | Snapshot:
    # The subject that is to run is the spec, or the revision that is rolled back to.
    course = rollback_of(snapshot)
    snapshot = replace(snapshot, course=course)
    # An unusable spec has no hash, so nobody can tell whether the rollback is still from this spec.
    if course.rollback is None or isinstance(snapshot.subject, tuple):
        return snapshot
    former = former_of(snapshot, course.rollback)
    return (
        Step(recalls=former)
        if isinstance(former, Revision)
        else replace(snapshot, subject=former.subject, former=former)
    )


def _look(snapshot: Snapshot, observed: Observed, now: datetime) -> Step:
    derived = derive(snapshot, observed, now)
    stands = derived.record
    # A spec that is refused takes none of its reasons from what runs on.
    as_it_stands = CurrentPlan(record=stands, report=stands.report() if stands else None)
    # Before the caches are asked for: groups are kept alive also where no node is known yet.
    if isinstance(snapshot.subject, tuple):
        deployed = _without_subject(snapshot, derived, snapshot.subject, now)
        return _end(snapshot, derived, as_it_stands, deployed, now)
    # Caches are not full yet: with half of the nodes known, every decision could be wrong.
    if snapshot.cluster is None:
        return Step(published=publish(snapshot, derived, as_it_stands, Deployed(), now))
    missing = _not_there(snapshot.cluster, derived, snapshot.subject) or _not_to_be_had(
        snapshot.resource.owner, derived, snapshot.subject
    )
    planned = (
        missing
        # Where no group relies on it, an unreadable record is replaced by a new plan.
        or (derived.unreadable if derived.standing else None)
        or current_plan(snapshot, derived, snapshot.subject, now)
    )
    # The planner's answer takes seconds: the shell asks and reconciles again, so the event loop
    # goes on.
    if isinstance(planned, Ask):
        return Step(ask=planned, subject=snapshot.subject)
    if isinstance(planned, Problem):
        deployed = _kept(snapshot, derived, now, problems=(planned,))
        return _end(snapshot, derived, as_it_stands, deployed, now)
    return _put_in_place(snapshot, derived, snapshot.subject, planned, now)


def _not_there(cluster: Cluster, derived: Derived, subject: Subject) -> Problem | None:
    """Return what pods name and the cluster does not have: no plan would get them started."""
    missing = cluster.priorities.problem_of(subject.deployment.pods.priority_class)
    # Before a plan keeps GPUs that no pod could come to hold; groups that run go on.
    starts = not derived.standing and not subject.intent.plan_only and subject.intent.replicas != 0
    return missing or (cluster.scheduler_problem if starts else None)


def _not_to_be_had(owner: Owner, derived: Derived, subject: Subject) -> Problem | None:
    """Return why no plan of record could be written, before one is looked for: pods of a model that
    was here before hold the very GPUs, and the planner would say that they are not free.
    """
    place = record_place(owner)
    live = derived.observed.objects.get(object_key(place))
    writes = not subject.intent.plan_only and not subject.intent.paused
    if not writes or derived.standing or live is None or is_leftover(live, place):
        return None
    return place_taken(place, live, leftover=False) if controller_uid(live) != owner.uid else None


def _without_subject(
    snapshot: Snapshot, derived: Derived, problems: tuple[Problem, ...], now: datetime
) -> Deployed:
    if snapshot.fetching is None or snapshot.resource.paused:
        return _kept(snapshot, derived, now, problems=problems)
    found = fetched(snapshot, snapshot.fetching, now)
    # Groups of an earlier spec serve on while the config of a new one is read.
    deployed = _kept(snapshot, derived, now, problems=(found.problem,))
    decision = deployed.decision and replace(
        deployed.decision, writes=(*deployed.decision.writes, *found.writes)
    )
    return replace(deployed, decision=decision, again_seconds=found.again_seconds)


def _put_in_place(
    snapshot: Snapshot, derived: Derived, subject: Subject, planned: CurrentPlan, now: datetime
) -> Step:
    # The plan of record is written before any object of it.
    # A paused model keeps its record: the plan is only shown.
    if planned.record and not subject.intent.paused:
        made = _with_their_drain(snapshot, derived, planned.record)
        if problem := _held_up(snapshot, derived, subject, made):
            return _end(
                snapshot,
                derived,
                CurrentPlan(record=None),
                _kept(snapshot, derived, now, problems=(problem,)),
                now,
            )
        record = _numbered(
            snapshot,
            derived,
            snapshot.course.kept_in(_where_it_is(snapshot, derived, subject, made)),
        )
        planned, placing = replace(planned, record=record), _record(snapshot, derived, record)
        if isinstance(placing, Step):
            return placing
        if isinstance(placing, Problem):
            # The refused plan was not written, so no event may say that there is a new one.
            stands = replace(planned, record=derived.record, events=())
            return _end(
                snapshot, derived, stands, _kept(snapshot, derived, now, refused=placing), now
            )
    return _run(snapshot, derived, subject, planned, now)


def _run(
    snapshot: Snapshot, derived: Derived, subject: Subject, planned: CurrentPlan, now: datetime
) -> Step:
    deployed = _deploy(snapshot, derived, subject, planned, now)
    # Before any write of this decision: it would start groups with the very spec that is being
    # given up.
    if course := given_up(snapshot, subject, planned.record, deployed.decision):
        carried = _Carried(planned=planned, deployed=deployed)
        return _taken_back(snapshot, derived, carried, course, now)
    beside = _beside(snapshot, derived, subject, planned, deployed)
    if isinstance(beside, Step):
        return beside
    if isinstance(beside, Problem):
        return _end(snapshot, derived, planned, _kept(snapshot, derived, now, refused=beside), now)
    if beside:
        planned = beside
        # Decided again: a group has a new generation now, so other objects are rendered.
        deployed = _deploy(snapshot, derived, subject, beside, now)
    carried = _Carried(planned=planned, deployed=deployed)
    return _good(snapshot, derived, subject, carried, now)


def _good(
    snapshot: Snapshot, derived: Derived, subject: Subject, carried: _Carried, now: datetime
) -> Step:
    planned = carried.planned
    deployed = carried.deployed
    if planned.record and not snapshot.resource.paused and carried.is_good:
        # Pods of another release serve under the same spec: a revision must not take this release's
        # pods for the proven ones.
        mixed = any(
            group.pending for group in (deployed.decision.groups if deployed.decision else ())
        )
        served = Served(
            subject=subject,
            record=planned.record,
            restored=restored_pods(snapshot, subject, planned.record),
            mixed=mixed,
        )
        history = renewed(history_of(snapshot.resource.status), served, snapshot.told, now)
        # A revision keeps the request word for word, and this reconcile was not told it.
        if history is None:
            return Step(tell=True)
        deployed = replace(deployed, history=history)
    return _end(snapshot, derived, planned, deployed, now)


def _taken_back(
    snapshot: Snapshot, derived: Derived, carried: _Carried, course: Course, now: datetime
) -> Step:
    # Written down before anything follows from it; all groups stay as they are until then.
    planned = carried.planned
    record = (
        _numbered(snapshot, derived, course.kept_in(planned.record)) if planned.record else None
    )
    placing = _record(snapshot, derived, record) if record else None
    if isinstance(placing, Step):
        return placing
    # Only a written decision counts: a refused one would be forgotten with this process.
    if placing is None:
        snapshot, planned = replace(snapshot, course=course), replace(planned, record=record)
    return _end(snapshot, derived, planned, carried.deployed, now)


def _where_it_is(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> PlanRecord:
    # Groups planned on nodes in provisioning have got some by now.
    if not record.sought:
        return record
    try:
        return following(
            record, objects_now(snapshot, subject, derived, record).objects, derived.observed
        )
    # Deploying tells why it cannot be rendered; here the record stays as it is.
    except InputError:
        return record


def _with_their_drain(snapshot: Snapshot, derived: Derived, record: PlanRecord) -> PlanRecord:
    # A plan that replaces an unbelieved one cannot know with how long a drain groups have started.
    if snapshot.refused is None or derived.record is not None:
        return record
    stands = standing_drain(derived.observed, snapshot.resource.owner.uid)
    plan = replace(record.plan, drain_seconds=stands or record.plan.drain_seconds)
    return replace(record, plan=plan)


def _held_up(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> Problem | None:
    # Only a plan that replaces an unbelieved one can be somebody's attempt to restart groups (ADR
    # 12).
    if snapshot.refused is None or derived.record is not None:
        return None
    owner = snapshot.resource.owner
    try:
        rendered = objects_now(snapshot, subject, derived, record).objects
    except InputError:
        # Rendered to nothing it changes each template, so every group with pods speaks against it.
        rendered = ()
    ended = not_as_they_are(derived.observed, owner.uid, rendered)
    return would_end(record_key(owner)[1], ended) if ended else None


def _numbered(snapshot: Snapshot, derived: Derived, record: PlanRecord) -> PlanRecord:
    there = (
        *((derived.record,) if derived.record else ()),
        # Attempts count: one whose answer was lost may have been written, and two records of one
        # serial could be swapped.
        *(attempt for attempt, _ in snapshot.recorded),
    )
    newest = max((snapshot.serial, *(item.serial for item in there)))
    # A new serial for the same record would be a write in each reconcile.
    serial = next((item.serial for item in there if item == record), newest + 1)
    # 0: it was taken over, and is signed now.
    return replace(record, serial=max(serial, 1) if snapshot.keys else serial)


def _record(snapshot: Snapshot, derived: Derived, record: PlanRecord) -> Step | Problem | None:
    """Return the step that writes a plan of record, what prevents it, or None if there.

    A changed one is written again; if that is refused, the plan still counts.
    """
    owner = snapshot.resource.owner
    stands = record == derived.record
    tried = next(
        # The last one counts: the same record may have been refused earlier in this reconcile and
        # taken later.
        (outcome for attempt, outcome in reversed(snapshot.recorded) if attempt == record),
        None,
    )
    if tried is None:
        content = record_object(owner, record, snapshot.keys)
        # It is right in memory, and somebody keeps setting it back: the rest need not wait for it.
        if stands and object_key(content) in snapshot.contested:
            return None
        if writes := placed(content, owner.uid, derived.observed):
            return Step(records=record, writes=writes)
        if stands:
            return None
        live = derived.observed.objects[object_key(content)]
        return place_taken(content, live, leftover=is_leftover(live, content))
    return problem_of(tried.refused[0], queued=False) if tried.refused and not stands else None


def _deploy(
    snapshot: Snapshot, derived: Derived, subject: Subject, planned: CurrentPlan, now: datetime
) -> Deployed:
    record = planned.record
    problem = (snapshot.cluster or Cluster()).scheduler_problem
    if record is None or not _may_run(subject, planned, record):
        return _kept(snapshot, derived, now)
    # Told before the pods hang; groups that run are not the scheduler's concern.
    if problem and record.plan.groups and not subject.intent.plan_only:
        return _kept(snapshot, derived, now, refused=problem)
    # Only the plan knows how many bytes of weights a start has to load.
    seconds = derived.rules.progress_deadline_seconds
    if seconds is None:
        seconds = start_deadline_seconds(record.plan, subject.deployment)
    pods, owner = record.plan.nodes_per_replica, snapshot.resource.owner
    ready = protected_pods(derived.observed, owner.uid, pods, seconds, now)
    route = route_of(subject.deployment, derived.observed, derived.since, now)
    try:
        bundle = objects_now(snapshot, subject, derived, record, Present(ready=ready, route=route))
    except InputError as error:
        return _kept(snapshot, derived, now, problems=error.problems)
    # Both are empty where nothing was ever rejected: equality alone would say that it was.
    rejected = record.rejected == subject.deployment.groups.asked != ""
    rules = replace(
        derived.rules,
        rejected=rejected,
        revision=hash_of(subject),
        restores=restored_pods(snapshot, subject, record) is not None,
        progress_deadline_seconds=seconds,
    )
    decided = _decided(snapshot, replace(derived, rules=rules), planned, bundle, now)
    return replace(decided, route=route, again_seconds=route.again_seconds if route else None)


def _may_run(subject: Subject, planned: CurrentPlan, record: PlanRecord) -> bool:
    if (
        # All four keep what runs alive: a plan that is only shown must not end groups.
        planned.undeployable
        or planned.unplaced
        or planned.stays
        or not (record.plan.deployable or subject.intent.plan_only)
    ):
        return False
    # A record for other replicas still says how to run those that have room; one for another cut
    # does not.
    fewer = (
        planned.short or planned.not_admitted
    ) is not None and record.cut_hash == subject.cut_hash
    return record.input_hash == subject.input_hash or fewer


def _decided(
    snapshot: Snapshot, derived: Derived, planned: CurrentPlan, bundle: Bundle, now: datetime
) -> Deployed:
    owner, record, cluster = (
        snapshot.resource.owner,
        planned.record,
        snapshot.cluster or Cluster(),
    )
    place = record_place(owner)  # written by now
    objects = (place, *bundle.objects)
    config = snapshot.resource.config
    desired = Desired(
        owner_uid=owner.uid, objects=objects, keys=bundle.keys, config=config, rules=derived.rules
    )
    # The record's own write was settled before (_record); a repair here would write it twice.
    decision = decide(desired, derived.observed.having(place, owner.uid), now, cluster.most_moving)
    return Deployed(decision=decision, record=record, runs=bool(bundle.objects))


def _beside(
    snapshot: Snapshot, derived: Derived, subject: Subject, planned: CurrentPlan, deployed: Deployed
) -> CurrentPlan | Step | Problem | None:
    """Return how the first group that is to stop surges on free GPUs, or None if there are none.

    If its plan of record is not taken, that is the problem: nobody stops a group for a lost answer.
    """
    if subject.intent.paused or deployed.decision is None or planned.record is None:
        return None
    if (back := came_back(snapshot, derived, subject, planned.record)) is not None:
        record = _numbered(snapshot, derived, back)
        return _record(snapshot, derived, record) or replace(planned, record=record)
    ask = question_beside(derived, subject, planned.record, deployed.decision)
    answer = snapshot.answers.get(ask) if ask else None
    # After the writes of this reconcile it is too late to ask: they have stopped the group.
    if ask and answer is None and not snapshot.outcome:
        return Step(ask=ask, subject=subject)
    # No free GPUs: the group stops first and starts in its own place, as without maxSurge.
    if ask is None or not isinstance(answer, Replanned) or answer.record is None:
        return None
    if ask.is_refuge and not_admitted(snapshot, derived, subject, answer.record):
        return None
    return _placed_beside(snapshot, derived, planned, ask, answer.record)


def _placed_beside(
    snapshot: Snapshot, derived: Derived, planned: CurrentPlan, ask: Ask, found: PlanRecord
) -> CurrentPlan | Step | Problem:
    record = _numbered(snapshot, derived, found)
    placing = _record(snapshot, derived, record)
    if placing is not None or ask.beside is None:
        return placing or planned
    group, generation = ask.beside
    root = group_names(base_name(snapshot.resource.owner.name), record.plan.group_numbers)[group]
    name, nodes = generation_name(root, generation - 1), record.plan.groups[group]
    event = refuge_event(name, nodes) if ask.is_refuge else surge_event(name, nodes)
    return replace(planned, record=record, report=record.report(), events=(*planned.events, event))


def _kept(
    snapshot: Snapshot,
    derived: Derived,
    now: datetime,
    *,
    problems: tuple[Problem, ...] = (),
    refused: Problem | None = None,
) -> Deployed:
    # A paused resource gets no writes.
    if snapshot.resource.paused:
        return Deployed(problems=problems, refused=refused)
    most_moving = (snapshot.cluster or Cluster()).most_moving
    groups = KnownGroups(
        owner_uid=snapshot.resource.owner.uid,
        rules=derived.rules,
        # A guessed number of pods would leave some ranks waiting for peers that nobody makes.
        size=derived.record.plan.nodes_per_replica if derived.record else None,
    )
    decision = keep_alive(derived.observed, groups, now, most_moving)
    owner = snapshot.resource.owner
    if service := fallen_back(owner, derived.observed, derived.since, now):
        back = placed(service, owner.uid, derived.observed)
        decision = replace(decision, writes=(*decision.writes, *back))
    return Deployed(decision=decision, problems=problems, refused=refused)


def _end(
    snapshot: Snapshot, derived: Derived, planned: CurrentPlan, deployed: Deployed, now: datetime
) -> Step:
    # The writes have been sent: caches may not show them yet, and deciding again would send some
    # twice.
    if snapshot.outcome is not None:
        return Step(published=publish(snapshot, derived, planned, deployed, now))
    kept = deployed.history.writes if deployed.history else ()
    writes = (
        ()
        if snapshot.resource.paused
        else (
            *to_hand_over(snapshot, deployed, derived),
            *taken_up(snapshot, deployed),
            *kept,
            *questions(snapshot, derived, now),
        )
    )
    return Step(
        writes=writes,
        published=publish(snapshot.done(Outcome(written=writes)), derived, planned, deployed, now),
    )
