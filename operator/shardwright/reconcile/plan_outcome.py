"""Is the plan of record kept in this reconcile, or must the planner be asked again? Its answers are
made in ``planner_work``, off this process; a question from here may have no answer yet.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.pipeline.plan_upgrade import is_due
from shardwright.pipeline.replanning import Held, Replanned, with_most
from shardwright.planning.gain import Better, Prospect
from shardwright.planning.missed import missed_by, needed_by
from shardwright.planning.phrases import gpus_of
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.validity import PASSES
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.disruption import is_against, planned_nodes
from shardwright.reconcile.drift import made_for
from shardwright.reconcile.events import Event, plan_event
from shardwright.reconcile.observed import STATEFUL_SET
from shardwright.reconcile.plan_choice import PlanChoice, RecordState, Wanted, choose
from shardwright.reconcile.relocation import departure_problem, worst_first
from shardwright.reconcile.rights import gpu_quotas, not_admitted, outgrown, runs_as_asked, too_many
from shardwright.reconcile.snapshot import Ask, Cluster, Snapshot
from shardwright.rendering.names import base_name, generation_of, group_names, group_number
from shardwright.rendering.render import asked_of
from shardwright.resolving.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPlan:
    """The current plan: that of record, new or kept, the report to show of it, and why it is less
    than what is asked for.

    ``short`` is why there is no plan for the present spec, ``lacks`` why groups are missing from
    the one that there is, or are ``homeless``, by number. ``unplaced``: the plan has no GPUs and
    may not run. ``undeployable`` is why it cannot be run. ``not_admitted`` is why a quota would
    refuse the pods still to be made; ``stays``: it would also refuse the current plan's pods as
    they are requested now, so all groups keep theirs. ``stale`` is the current plan's fault,
    ``better`` a better one, ``anew`` the one that would be made now. ``events`` say that it is new.
    """

    record: PlanRecord | None
    report: Report | None = None
    short: NoPlan | None = None
    lacks: NoPlan | None = None
    homeless: frozenset[int] = frozenset()
    unplaced: bool = False
    undeployable: Problem | None = None
    not_admitted: Problem | None = None
    stays: bool = False
    stale: Problem | None = None
    better: Better | None = None
    anew: Prospect | None = None
    events: tuple[Event, ...] = ()


def current_plan(
    snapshot: Snapshot, derived: Derived, subject: Subject, now: datetime
) -> CurrentPlan | Ask | Problem:
    """Return the current plan, or else the question for the planner, or why it has no answer."""
    record = derived.record
    intent = subject.intent
    stale = _fault(derived, record) or _no_room(snapshot, derived, subject)
    # Before any question: a pause must hold also where a node of the plan is gone.
    if record and intent.paused:
        return CurrentPlan(record=record, report=record.report(), stale=stale)
    if (
        # Neither planned nor queued: a namespace beyond its limit would cost the planner's time
        # (ADR 13).
        record is None and not derived.standing and (why := too_many(snapshot.cluster or Cluster()))
    ):
        return CurrentPlan(record=None, not_admitted=why)
    state = _state_of_record(snapshot, derived, subject, now)
    choice = _choice(snapshot, record, subject, state, stale=stale is not None)
    if choice is PlanChoice.KEEP and record:
        stands = CurrentPlan(record=record, report=record.report(), stale=stale)
        return _let_in(snapshot, derived, subject, stands)
    answer = _answered(snapshot, derived, subject, choice)
    if not isinstance(answer, Replanned):
        return answer
    planned = _within_quotas(
        snapshot, derived, subject, choice, _of_answer(derived, subject, answer, stale)
    )
    if not isinstance(planned, CurrentPlan):
        return planned
    # A new plan was made on free GPUs: only the existing one can lack them.
    unplaced = not state.has_its_gpus and planned.record == record
    return _let_in(snapshot, derived, subject, replace(planned, unplaced=unplaced))


def _within_quotas(
    snapshot: Snapshot, derived: Derived, subject: Subject, choice: PlanChoice, planned: CurrentPlan
) -> CurrentPlan | Ask | Problem:
    # Before it is written: a plan whose pods no quota admits kept all GPUs of a cluster (ADR 13).
    record = derived.record
    if planned.record == record or not (
        why := not_admitted(snapshot, derived, subject, planned.record)
    ):
        return planned
    part = _admitted_part(snapshot, derived, subject, choice, planned.record)
    if isinstance(part, Ask | Problem):
        return part
    stale = _fault(derived, record) or _no_room(snapshot, derived, subject)
    stands = CurrentPlan(record=record, report=planned.report, stale=stale)
    admitted = _of_answer(derived, subject, part, stale) if part else stands
    return replace(admitted, not_admitted=why)


def _admitted_part(
    snapshot: Snapshot,
    derived: Derived,
    subject: Subject,
    choice: PlanChoice,
    made: PlanRecord | None,
) -> Replanned | Ask | Problem | None:
    """Return the plan of the most groups that the quotas admit, or its question, or None if they
    admit too few, or no more than there are.
    """
    record = derived.record
    if made is None:
        return None
    same_cut = record is not None and record.cut_hash == made.cut_hash
    stand = len(record.plan.groups) + 1 if record and same_cut else 0
    counts = range(
        max(subject.intent.least(made.plan), _serving(derived), stand), len(made.plan.groups)
    )
    most = bisect_left(
        counts,
        True,
        key=lambda count: (
            not_admitted(snapshot, derived, subject, with_most(made, record, count)) is not None
        ),
    )
    return _answered(snapshot, derived, subject, choice, counts[most - 1]) if most else None


def _answered(
    snapshot: Snapshot,
    derived: Derived,
    subject: Subject,
    choice: PlanChoice,
    most: int | None = None,
) -> Replanned | Ask | Problem:
    ask = replace(_ask(snapshot, derived, subject, choice), most=most)
    answer = snapshot.answers.get(ask, ask)
    record = derived.record
    if (
        isinstance(answer, Problem)
        and record
        and choice in {PlanChoice.COMPARE, PlanChoice.IMPROVE}
    ):
        # It serves, whatever keeps us from looking for a better one.
        answer = Replanned(record=record, report=record.report())
    if isinstance(answer, Replanned) and (made := answer.record):
        rejected = _rejected(snapshot, derived, subject, made)
        return replace(answer, record=replace(made, rejected=rejected))
    return answer


def _let_in(
    snapshot: Snapshot, derived: Derived, subject: Subject, planned: CurrentPlan
) -> CurrentPlan:
    # It says so if its pods, as they are requested now, would not be admitted.
    record = derived.record
    if (
        record is None
        or planned.record != record
        or planned.undeployable
        # The pods of another cut are the new plan's, which is judged by itself.
        or record.cut_hash != subject.cut_hash
    ):
        return planned
    if derived.standing:
        # Before the first group stops: its new pods would be refused, and the old ones would be
        # gone.
        why = outgrown(snapshot, derived, subject, record)
        unplaced = planned.unplaced
    else:
        why = not_admitted(snapshot, derived, subject, record)
        unplaced = planned.unplaced or why is not None
    return replace(
        planned, not_admitted=planned.not_admitted or why, stays=why is not None, unplaced=unplaced
    )


def _state_of_record(
    snapshot: Snapshot, derived: Derived, subject: Subject, now: datetime
) -> RecordState:
    record, begun = derived.record, bool(derived.standing)
    lacking = subject.terms.lacking
    return RecordState(
        leaving=bool(derived.leaving),
        has_its_gpus=_has_its_gpus(snapshot, derived, record),
        serves=_serves(derived, record),
        due=record is not None and is_due(record, now),
        begun=begun,
        startable=record is None or begun or not needed_by(record.plan).intersection(lacking),
        surpassed=record is not None and not missed_by(record.excluded).issubset(lacking),
    )


def _choice(
    snapshot: Snapshot,
    record: PlanRecord | None,
    subject: Subject,
    state: RecordState,
    *,
    stale: bool,
) -> PlanChoice:
    # For a stale plan that serves, or one that was made without what the cluster has by now, the
    # plan that would be made now is described, too.
    intent = subject.intent
    wanted = Wanted(
        input_hash=subject.input_hash,
        cut_hash=subject.cut_hash,
        replan=intent.replan,
        replicas=intent.wants(record.plan if record else None),
        deploy=subject.request.deploy,
    )
    choice = choose(record, wanted, state)
    if choice is PlanChoice.REPLAN and _is_former(snapshot, subject):
        return PlanChoice.RESTORE
    compares = choice is PlanChoice.KEEP and (stale or state.surpassed) and state.serves
    return PlanChoice.COMPARE if compares else choice


def _serves(derived: Derived, record: PlanRecord | None) -> bool:
    serving = [state for state in derived.standing if state.ready]
    # No group too many either: one on its way out still holds GPUs that a better plan would count
    # as free.
    return record is not None and 0 < len(record.plan.groups) == len(serving) == len(
        derived.standing
    )


def _is_former(snapshot: Snapshot, subject: Subject) -> bool:
    return (
        snapshot.former is not None
        and snapshot.former.subject is subject
        and snapshot.former.plan is not None
    )


def _ask(snapshot: Snapshot, derived: Derived, subject: Subject, choice: PlanChoice) -> Ask:
    if choice is PlanChoice.RESTORE and snapshot.former:
        return _restoring(snapshot, derived, snapshot.former.plan)
    leaving = (
        frozenset(item.group for item in derived.leaving)
        if choice is PlanChoice.REHOUSE
        else frozenset[int]()
    )
    held = tuple(
        item
        for item in _held(snapshot, derived)
        # Those below the partition may stand elsewhere than the record says.
        if not derived.record or item.number < subject.intent.partition
    )
    plan = derived.record.plan if derived.record else None
    numbers = plan.group_numbers if plan else tuple(item.number for item in held)
    may_drop = choice in {PlanChoice.REPLAN, PlanChoice.COMPARE, PlanChoice.IMPROVE} or (
        choice is PlanChoice.RESCALE
        and (subject.intent.replicas is None or subject.intent.wants(plan) < len(numbers))
    )
    roots = group_names(base_name(snapshot.resource.owner.name), numbers)
    worst = worst_first(roots, numbers, derived.standing, derived.leaving) if may_drop else ()
    return Ask(
        on=derived.record,
        choice=choice,
        leaving=leaving,
        held=held,
        worst=worst,
        # Late nodes too, or the same ones would be planned again.
        lost=derived.lost | derived.late,
        same_pods=derived.record is not None
        and runs_as_asked(snapshot, derived, subject, derived.record),
        serving=_serving(derived) if choice is PlanChoice.REPLAN else 0,
        quotas=gpu_quotas(snapshot, derived, subject),
    )


def _serving(derived: Derived) -> int:
    # Also those that break while others serve: they come back. Of two generations one counts.
    if not any(state.serves for state in derived.standing):
        return 0
    return len({generation_of(state.name)[0] for state in derived.standing})


def _restoring(snapshot: Snapshot, derived: Derived, plan: Plan | None) -> Ask:
    # Groups count at their present place, not where they were meant to go meanwhile.
    said = [
        _places(item) for item in (derived.record.plan if derived.record else None, plan) if item
    ]
    held = tuple(
        # Groups stay where their StatefulSets stand, as far as the plan can run there (ADR 25).
        replace(item, nodes=_in_order(item, said))
        for item in _held(snapshot, derived)
    )
    numbers = tuple(item.number for item in held)
    worst = worst_first(
        group_names(base_name(snapshot.resource.owner.name), numbers), numbers, derived.standing, ()
    )
    lost = derived.lost | derived.late
    return Ask(
        on=derived.record,
        choice=PlanChoice.RESTORE,
        held=held,
        restored=plan,
        worst=worst,
        lost=lost,
        serving=_serving(derived),
    )


def _places(plan: Plan) -> dict[int, tuple[str, ...]]:
    return dict(zip(plan.group_numbers, plan.groups, strict=True))


def _in_order(item: Held, said: Iterable[Mapping[int, tuple[str, ...]]]) -> tuple[str, ...]:
    # Pods restart for another order of nodes. If they name none yet (in provisioning), the group is
    # where the first plan has it.
    places = (nodes for plan in said if (nodes := plan.get(item.number)))
    return next(
        (nodes for nodes in places if not item.nodes or set(nodes) == set(item.nodes)), item.nodes
    )


def _held(snapshot: Snapshot, derived: Derived) -> Iterator[Held]:
    owner = snapshot.resource.owner
    sets = {
        number: tuple(sorted(planned_nodes(live)))
        for name, live in derived.observed.sets_of(owner.uid).items()
        if (number := group_number(base_name(owner.name), name)) is not None
    }
    yield from (Held(number=number, nodes=nodes) for number, nodes in sorted(sets.items()))


def _of_answer(
    derived: Derived, subject: Subject, answer: Replanned, stale: Problem | None
) -> CurrentPlan:
    record = derived.record
    made = answer.record
    # No group that runs is ended for a plan that cannot be run.
    if made and not made.plan.deployable and derived.standing and subject.request.deploy:
        return CurrentPlan(record=record, report=answer.report, undeployable=made.plan.undeployable)
    if answer.waits_for:
        moved = made is not None and made != record
        # The new plan's: it may fix the fault of the one before.
        left = _fault(derived, made) if moved else stale
        return CurrentPlan(
            record=made,
            report=answer.report,
            short=answer.short,
            lacks=answer.lacks,
            homeless=answer.homeless,
            stale=left,
            events=_news(made) if moved else (),
        )
    if record and made and record.input_hash == made.input_hash and record.plan == made.plan:
        return CurrentPlan(
            record=record,
            report=record.report(),
            stale=stale,
            better=answer.better,
            anew=answer.anew,
        )
    return CurrentPlan(record=made, report=answer.report, events=_news(made))


def _rejected(snapshot: Snapshot, derived: Derived, subject: Subject, made: PlanRecord) -> str:
    """Return the request that a group did not come up with, if that group goes with a new plan
    while others keep their other pods.

    A rejected request stays so for as long as the same cut is wanted.
    """
    record = derived.record
    # Another cut is another template, which has not failed.
    if record is None or record.cut_hash != made.cut_hash:
        return ""
    domain = (snapshot.cluster or Cluster()).domain
    stated = subject.deployment
    deployment = replace(
        stated,
        groups=replace(stated.groups, sought=record.sought),
        cluster=replace(stated.cluster, cluster_domain=domain),
    )
    base = base_name(snapshot.resource.owner.name)
    against = False
    others = False
    for index, number in enumerate(record.plan.group_numbers):
        for state in derived.standing:
            live = derived.observed.objects.get((STATEFUL_SET, state.name))
            if live is None or group_number(base, state.name) != number:
                continue
            has_it = made_for(live, asked_of(record.plan, deployment, index))
            others |= number in made.plan.group_numbers and not has_it
            against |= number not in made.plan.group_numbers and has_it and is_against(state)
    return subject.deployment.groups.asked if against and others else record.rejected


def _news(record: PlanRecord | None) -> tuple[Event, ...]:
    return (plan_event(record.plan),) if record else ()


def _fault(derived: Derived, record: PlanRecord | None) -> Problem | None:
    # A group must leave the node, or the fault will not pass by itself.
    groups = record.plan.groups if record else ()
    leaving = [
        item
        for item in derived.leaving
        if item.group < len(groups) and item.node in groups[item.group]
    ]
    planned = {node for group in groups for node in group}
    lasting = (
        item.problem for item in derived.unfit if item.fault not in PASSES and item.node in planned
    )
    return departure_problem(leaving) or next(lasting, None)


def _has_its_gpus(snapshot: Snapshot, derived: Derived, record: PlanRecord | None) -> bool:
    # A plan that was only shown has none reserved; a node that has lost a GPU since its pods
    # started has none to give.
    if record is None or snapshot.cluster is None or snapshot.cluster.reserved:
        return True
    return (
        _short_node(
            snapshot,
            record.plan,
            # Pods that run have their GPUs, however many of the node's are healthy by now.
            frozenset(member.node or "" for member in derived.observed.members),
        )
        is None
    )


def _no_room(snapshot: Snapshot, derived: Derived, subject: Subject) -> Problem | None:
    """Return the problem of a plan that is only shown and could no longer be started."""
    if (
        derived.record is None
        or not subject.intent.plan_only
        or (node := _short_node(snapshot, derived.record.plan)) is None
    ):
        return None
    free = (snapshot.cluster.free or {}).get(node, 0) if snapshot.cluster else 0
    return Problem(
        code="PlanInvalid",
        what=f"planned node {node} has {gpus_of(free, 'free')}",
        limit=f"the plan needs {derived.record.plan.gpus_per_node} there",
        remedy="it is planned anew when it is deployed; change the spec to see another plan now",
    )


def _short_node(snapshot: Snapshot, plan: Plan, held: frozenset[str] = frozenset()) -> str | None:
    """Return the first planned node on which others leave too few GPUs, or None; on ``held`` nodes
    its pods have them already.
    """
    free = snapshot.cluster.free if snapshot.cluster else None
    if free is None:
        return None
    wanted: dict[str, int] = {}
    for node in (node for group in plan.groups for node in group):
        wanted[node] = wanted.get(node, 0) + plan.gpus_per_node
    return next(
        (
            node
            for node, gpus in sorted(wanted.items())
            if node not in held and free.get(node, 0) < gpus
        ),
        None,
    )
