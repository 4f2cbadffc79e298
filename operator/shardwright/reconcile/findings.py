"""What one look at a ShardedModel found, and the conditions that say so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.conditions import Condition, ConditionType, Reason
from shardwright.api.record import Cause, Rollback
from shardwright.errors import Problem
from shardwright.planning.gain import Better
from shardwright.planning.phrases import uncounted_sentence, ways_sentence
from shardwright.planning.report import NoPlan, Plan
from shardwright.reconcile.decide import Decision
from shardwright.reconcile.decision import ObjectKey
from shardwright.reconcile.revisions import Revision
from shardwright.reconcile.sentences import (
    better_sentence,
    failure_sentence,
    fixes_sentence,
    not_ready_sentence,
    rollback_sentence,
)
from shardwright.reconcile.states import Awaited, GroupState, Situation
from shardwright.rendering.fixes import fixes_of_engine, fixes_of_pods

_PASSING: Final = frozenset({Reason.WAITING_FOR_QUOTA, Reason.API_UNAVAILABLE, Reason.PROGRESSING})
"""Reasons for which nothing was written, and which pass without the user."""

_BROKEN: Final = frozenset({Situation.BACKING_OFF, Situation.UNREADY})

FIELDS_SAID_MAX: Final = 8
"""How many fields are said that a restart changes. Basis: assumed; the first ones tell which part of a pod it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEngine:
    """An engine whose version the spec leaves open: the one that it is kept at, and the newer one that is the default now."""

    engine: str
    version: str
    newest: str


_CAUSES: Final = {
    Cause.ASKED: Reason.ASKED,
    Cause.ENGINE_FAILED: Reason.ENGINE_FAILED,
    Cause.PROGRESS_DEADLINE_EXCEEDED: Reason.PROGRESS_DEADLINE_EXCEEDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that the conditions and the metrics of a model are made from.

    ``plan`` is the plan that stands, ``no_plan`` why there is none for the current spec. ``problems`` are what
    the user must correct, ``refused`` what the API server did not take or keep, or why nothing was sent to it.
    ``undeployable`` is why the plan is not run, ``pods_refused`` why pods are not created. ``stale`` is what is wrong with
    the plan that stands, ``better`` one that would be better. ``wanted`` is how many groups shall run, None where that cannot be
    told. ``standing`` are the groups that exist. ``decision`` is None where nothing may be deployed. ``hidden`` is why what
    there is cannot be read: nothing else is known then. ``lost`` are nodes that do not give pods of the model back,
    ``strangers`` pods with its labels that nobody of it controls, ``contested`` objects that somebody else keeps setting back,
    with their fields.
    ``kept_engine`` is the engine's version by default where an earlier release has chosen it, unless a revision is run.
    ``distrusted`` is why a plan of record was not believed a while ago, ``barred`` why the pods of a new plan are not let in.
    ``most_moving`` is how many groups may be down on purpose for the sake of all models. ``rollback`` is what is run
    instead of what the spec says, ``rollback_problem`` why what was asked for is not gone back to.
    """

    generation: int
    problems: tuple[Problem, ...] = ()
    cluster_known: bool = True
    free_capacity_known: bool = True
    plan: Plan | None = None
    no_plan: NoPlan | None = None
    stale: Problem | None = None
    better: Better | None = None
    plan_only: bool = False
    paused: bool = False
    scaled_to_zero: bool = False
    wanted: int | None = None
    standing: tuple[GroupState, ...] = ()
    decision: Decision | None = None
    refused: Problem | None = None
    hidden: Problem | None = None
    undeployable: Problem | None = None
    pods_refused: Problem | None = None
    lost: frozenset[str] = frozenset()
    strangers: tuple[str, ...] = ()
    contested: Mapping[ObjectKey, tuple[str, ...]] = field(default_factory=dict)
    kept_engine: KeptEngine | None = None
    distrusted: Problem | None = None
    barred: Problem | None = None
    most_moving: int | None = None
    rollback: tuple[Rollback, Revision | None] | None = None
    rollback_problem: Problem | None = None

    @property
    def spec_rejected(self) -> bool:
        """Return whether what the spec says did not come up, and was taken back."""
        return self.rollback is not None and self.rollback[0].cause is not Cause.ASKED

    @property
    def awaiting_turn(self) -> tuple[GroupState, ...]:
        """Return the groups that are to restart and wait because groups of other models do."""
        waiting = (group for group in self.groups if group.situation is Situation.OUTDATED and not group.hold)
        return tuple(waiting) if self.most_moving == 0 else ()

    @property
    def of_another_release(self) -> tuple[GroupState, ...]:
        """Return the groups whose pods another release of the operator rendered, and this one would render otherwise."""
        return tuple(group for group in self.groups if group.pending)

    def held_by(self, what: Awaited) -> tuple[GroupState, ...]:
        """Return the groups that keep the pods that they have for this reason, although others are wanted."""
        return tuple(group for group in self.groups if group.hold and group.hold.what is what)

    @property
    def groups(self) -> tuple[GroupState, ...]:
        """Return how the groups stand."""
        return self.decision.groups if self.decision else self.standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The outcome in a word and a sentence, and what it means for who waits."""

    reason: str
    message: str
    ready: bool = False
    stalled: bool = False

    @property
    def reconciling(self) -> bool:
        """Return whether work goes on that will end by itself."""
        return not (self.ready or self.stalled or self.reason == Reason.PAUSED)


def summarise(found: Findings) -> Summary:
    """Return the first thing that keeps the model from serving, or that it serves."""
    return _blocked_by_user(found) or _blocked_by_cluster(found) or _resting(found) or _running(found)


def _blocked_by_user(found: Findings) -> Summary | None:
    conflicts = found.decision.conflicts if found.decision else ()
    problems = found.problems or conflicts
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Summary(reason=_reason(problems[0]), message=problems[0].sentence() + more, stalled=True)
    if found.hidden:
        return Summary(reason=_reason(found.hidden), message=found.hidden.sentence(), stalled=True)
    if found.refused:
        reason = _reason(found.refused)
        return Summary(reason=reason, message=found.refused.sentence(), stalled=reason not in _PASSING)
    return None


def _blocked_by_cluster(found: Findings) -> Summary | None:
    if not found.cluster_known:
        return Summary(reason=Reason.CLUSTER_READING, message="nodes and pods have not been listed yet")
    if found.no_plan:
        heals = found.no_plan.heals_by_itself
        reason = Reason.INSUFFICIENT_CAPACITY if heals else Reason.NOTHING_FITS
        late = [not_ready_sentence(group) for group in found.groups if _waits_for(group, Awaited.LATE_NODES)]
        if late:
            return Summary(reason=Reason.NODES_DID_NOT_COME, message="; ".join(late[:3]))
        said = (found.no_plan.problem.sentence(), ways_sentence(found.no_plan.ways_out))
        return Summary(reason=reason, message="; ".join(filter(None, said)), stalled=not heals)
    if found.barred:
        return Summary(reason=Reason.QUOTA_EXCEEDED, message=found.barred.sentence(), stalled=True)
    return None


def _resting(found: Findings) -> Summary | None:
    if found.decision and found.decision.leftovers:
        message = f"{', '.join(found.decision.leftovers[:3])} of an earlier ShardedModel of this name is still to be deleted"
        return Summary(reason=Reason.PROGRESSING, message=message)
    if found.plan_only:
        message = "planned and shown; spec.mode says not to deploy it"
        return Summary(reason=Reason.PLAN_ONLY, message=message, ready=not found.groups)
    if found.undeployable:
        return Summary(reason=Reason.NOT_DEPLOYABLE, message=found.undeployable.sentence(), stalled=True)
    if found.scaled_to_zero:
        return Summary(reason=Reason.SCALED_TO_ZERO, message="spec.replicas is 0", ready=not found.groups)
    if found.paused and not (found.decision and _all_ready(found)):
        return Summary(reason=Reason.PAUSED, message="spec.paused is true: nothing is changed")
    return None


def _running(found: Findings) -> Summary:
    if _all_ready(found) and found.spec_rejected:
        return Summary(reason=Reason.ROLLED_BACK, message=rolled_back(found).message, stalled=True)
    if _all_ready(found):
        return Summary(reason=Reason.SERVING, message=f"{len(found.groups)} of {len(found.groups)} groups ready", ready=True)
    ready, held = sum(group.ready for group in found.groups), found.held_by(Awaited.STOPPED_ROLLOUT)
    waiting = [*(group for group in found.groups if not group.ready), *(group for group in held if group.ready)]
    if not waiting:
        return Summary(reason=Reason.PROGRESSING, message="objects are being written")
    message = f"{ready} of {len(found.groups)} groups ready; " + "; ".join(not_ready_sentence(group) for group in waiting[:3])
    if found.pods_refused:
        return Summary(reason=Reason.PODS_REFUSED, message=f"{found.pods_refused.sentence()}; {message}", stalled=True)
    stopped = any(group.situation is Situation.STOPPED or group.late for group in waiting)
    return Summary(reason=_why_not_ready(waiting), message=message, stalled=stopped)


def _all_ready(found: Findings) -> bool:
    return bool(found.groups) and all(group.ready for group in found.groups) and not found.held_by(Awaited.STOPPED_ROLLOUT)


def _why_not_ready(waiting: list[GroupState]) -> Reason:
    if any(group.budget_spent for group in waiting):
        return Reason.RESTART_BUDGET_SPENT
    if any(group.late for group in waiting):
        return Reason.PROGRESS_DEADLINE_EXCEEDED
    if any(group.unplaced or group.gave_its_place_back or _seeks(group) for group in waiting):
        return _why_without_a_place(waiting)
    if any(group.situation is Situation.WAITING_FOR_QUOTA for group in waiting):
        return Reason.WAITING_FOR_QUOTA
    return _why_on_its_way(waiting)


def _why_on_its_way(waiting: list[GroupState]) -> Reason:
    if any(group.situation in _BROKEN or (group.situation is Situation.STOPPING and group.failing) for group in waiting):
        return Reason.GROUPS_NOT_READY
    if any(_waits_for(group, Awaited.STOPPED_ROLLOUT) for group in waiting):
        return Reason.GROUPS_NOT_READY
    if any(group.situation in {Situation.STOPPING, Situation.OUTDATED} for group in waiting):
        return Reason.ROLLING_OUT
    return Reason.PROGRESSING


def _why_without_a_place(waiting: list[GroupState]) -> Reason:
    if any(_waits_for(group, Awaited.LATE_NODES) for group in waiting):
        return Reason.NODES_DID_NOT_COME
    return Reason.WAITING_FOR_NODES if any(map(_seeks, waiting)) else Reason.UNSCHEDULABLE


def _seeks(group: GroupState) -> bool:
    return _waits_for(group, Awaited.NODES) or _waits_for(group, Awaited.LATE_NODES)


def _waits_for(group: GroupState, what: Awaited) -> bool:
    return any(wait.what is what for wait in group.waits)


def _reason(problem: Problem) -> str:
    return problem.code if problem.code in set(Reason) else Reason.INVALID_SPEC


def conditions(found: Findings) -> tuple[Condition, ...]:
    """Return all conditions of the resource."""
    summary = summarise(found)
    if found.hidden:
        return tuple(_of_hidden(found, kind, summary) for kind in ConditionType)
    return (
        _condition(found, ConditionType.READY, summary.ready, summary.reason, summary.message),
        _planned(found),
        _summarised(found, ConditionType.RECONCILING, summary.reconciling, summary),
        _summarised(found, ConditionType.STALLED, summary.stalled, summary),
        _degraded(found),
        _plan_stale(found),
        _contested(found),
        _strangers(found),
        _distrusted(found),
        _limited(found),
        _pending(found),
        rollout_stopped(found),
        rolled_back(found),
    )


def _of_hidden(found: Findings, kind: ConditionType, summary: Summary) -> Condition:
    """Return a condition of a model that cannot be read: somebody must act, of everything else nothing is known."""
    if kind in {ConditionType.RECONCILING, ConditionType.STALLED}:
        return _summarised(found, kind, kind == ConditionType.STALLED, summary)
    return _condition(found, kind, None, summary.reason, summary.message)


def _summarised(found: Findings, kind: ConditionType, holds: bool, summary: Summary) -> Condition:  # noqa: FBT001  a fact, not an option
    if holds:
        return _condition(found, kind, True, summary.reason, summary.message)
    return _condition(found, kind, False, Reason.IDLE)


def _planned(found: Findings) -> Condition:
    if found.problems or found.no_plan or found.barred or not found.cluster_known:
        summary = summarise(found)
        return _condition(found, ConditionType.PLANNED, False, summary.reason, summary.message)
    if found.plan is None:
        return _condition(found, ConditionType.PLANNED, None, Reason.PROGRESSING)
    if not found.free_capacity_known:
        message = "pods cannot be listed, so all GPUs count as free: allow list and watch on pods"
        return _condition(found, ConditionType.PLANNED, True, Reason.FREE_CAPACITY_UNKNOWN, message)
    if found.plan.uncounted:
        message = uncounted_sentence(found.plan.uncounted)
        return _condition(found, ConditionType.PLANNED, True, Reason.OPTIONS_NOT_COUNTED, message)
    return _condition(found, ConditionType.PLANNED, True, Reason.PLANNED, next(iter(found.plan.reasons), ""))


def _degraded(found: Findings) -> Condition:
    failed = [group for group in found.groups if group.failing]
    if failed:
        message = "; ".join(f"{group.name}: {failure_sentence(group)}" for group in failed[:3])
        spent = any(group.budget_spent for group in failed)
        reason = Reason.RESTART_BUDGET_SPENT if spent else Reason.GROUPS_NOT_READY
        return _condition(found, ConditionType.DEGRADED, True, reason, message)
    if found.lost:
        nodes = ", ".join(sorted(found.lost)[:3])
        message = f"pods on {nodes} should be gone and are not; their groups go on elsewhere where there is room"
        return _condition(found, ConditionType.DEGRADED, True, Reason.NODE_LOST, message)
    return _condition(found, ConditionType.DEGRADED, False, Reason.IDLE)


def _contested(found: Findings) -> Condition:
    """Return whether somebody else keeps setting fields of our objects back."""
    if not found.contested:
        return _condition(found, ConditionType.FIELD_CONFLICT, False, Reason.IDLE)
    (kind, name), fields = min(found.contested.items())
    message = f"somebody keeps changing {', '.join(fields[:3])} of {kind} {name}; it is set right every few minutes only"
    return _condition(found, ConditionType.FIELD_CONFLICT, True, Reason.FIELD_CONTESTED, message)


def _strangers(found: Findings) -> Condition:
    """Return whether pods that are not ours carry the labels of the model: its Service may send them requests."""
    if not found.strangers:
        return _condition(found, ConditionType.FOREIGN_PODS, False, Reason.IDLE)
    more = f" and {len(found.strangers) - 3} more" if len(found.strangers) > 3 else ""  # noqa: PLR2004
    message = f"{', '.join(found.strangers[:3])}{more}: labelled as pods of this model, and no StatefulSet of it controls them"
    return _condition(found, ConditionType.FOREIGN_PODS, True, Reason.FOREIGN_PODS, message)


def _distrusted(found: Findings) -> Condition:
    """Return whether somebody else has written the plan of record a while ago."""
    if not found.distrusted:
        return _condition(found, ConditionType.RECORD_REFUSED, False, Reason.IDLE)
    return _condition(found, ConditionType.RECORD_REFUSED, True, Reason.PLAN_RECORD_REFUSED, found.distrusted.sentence())


def _limited(found: Findings) -> Condition:
    """Return whether groups wait for their turn because groups of other models restart."""
    waiting = [group.name for group in found.awaiting_turn]
    if not waiting:
        return _condition(found, ConditionType.TURN_AWAITED, False, Reason.IDLE)
    message = f"{', '.join(waiting[:3])}: as many groups of all models restart as the operator allows at once"
    return _condition(found, ConditionType.TURN_AWAITED, True, Reason.OTHERS_RESTART, message)


def _pending(found: Findings) -> Condition:
    """Return whether groups keep pods that would be rendered otherwise now."""
    said = {}
    if held := found.held_by(Awaited.PARTITION):
        said[Reason.HELD_BY_PARTITION] = f"{_names(held)}: below spec.rollout.partition, they keep their pods until it is lowered"
    if older := found.of_another_release:
        fields = sorted({field for group in older for field in group.pending})
        coming = f"the next restart of a group changes {', '.join(fields[:FIELDS_SAID_MAX])} of its pods"
        said[Reason.OLDER_RENDERING] = (
            f"{_names(older)}: rendered by another release of the operator or for another LimitRange; {coming}"
            f"{fixes_sentence(fixes_of_pods(fields))}"
        )
    if kept := found.kept_engine:
        newer = f"{kept.engine} {kept.version} is kept as it was planned; {kept.newest} is the default of this release"
        mended = fixes_sentence(fixes_of_engine(kept.engine, kept.version, kept.newest))
        said[Reason.OLDER_ENGINE] = f"{newer}, and comes with spec.engine.version or rollout.onUpgrade: Roll{mended}"
    if not said:
        return _condition(found, ConditionType.ROLLOUT_PENDING, False, Reason.IDLE)
    return _condition(found, ConditionType.ROLLOUT_PENDING, True, next(iter(said)), "; ".join(said.values()))


def rollout_stopped(found: Findings) -> Condition:
    """Return whether groups keep their pods because one with the changed pods does not come up."""
    held = found.held_by(Awaited.STOPPED_ROLLOUT)
    if not held:
        return _condition(found, ConditionType.ROLLOUT_STOPPED, False, Reason.IDLE)
    against = [group for group in found.groups if any(item.hold and item.hold.said == group.name for item in held)]
    failed = any(group.failing and group.last_failure and group.last_failure.by_engine for group in against)
    why = "; ".join(map(not_ready_sentence, against)) or "the group that did not come up with the changed pods is gone"
    until = "it serves" if against else "a group that is added comes up with them"
    message = f"{why}; {_names(held)} keep the pods that they have until {until}: correct the spec, or set it back"
    reason = Reason.ENGINE_FAILED if failed or not against else Reason.PROGRESS_DEADLINE_EXCEEDED
    return _condition(found, ConditionType.ROLLOUT_STOPPED, True, reason, message)


def rolled_back(found: Findings) -> Condition:
    """Return whether an earlier revision runs in place of what the spec says, and why; or why none does that was asked for."""
    if found.rollback is None:
        problem = found.rollback_problem
        said, reason = (problem.sentence(), Reason.REVISION_UNKNOWN) if problem else ("", Reason.IDLE)
        return _condition(found, ConditionType.ROLLED_BACK, False, reason, said)
    stands, revision = found.rollback
    message = rollback_sentence(stands, revision.number if revision else None, revision.image if revision else "")
    if found.rollback_problem:
        message = f"{message}; {found.rollback_problem.sentence()}"
    return _condition(found, ConditionType.ROLLED_BACK, True, _CAUSES[stands.cause], message)


def _names(groups: Sequence[GroupState]) -> str:
    """Return the names of groups, the first three."""
    more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""  # noqa: PLR2004
    return ", ".join(group.name for group in groups[:3]) + more


def _plan_stale(found: Findings) -> Condition:
    if found.stale:
        return _condition(found, ConditionType.PLAN_STALE, True, Reason.NODES_CHANGED, found.stale.sentence())
    if found.better:
        return _condition(found, ConditionType.PLAN_STALE, True, Reason.BETTER_PLAN, better_sentence(found.better))
    return _condition(found, ConditionType.PLAN_STALE, False, Reason.PLAN_VALID if found.plan else Reason.IDLE)


def _condition(
    found: Findings,
    kind: ConditionType,
    status: bool | None,  # noqa: FBT001  a fact, not an option
    reason: str,
    message: str = "",
) -> Condition:
    said = message or (reason.meaning if isinstance(reason, Reason) else "")
    return Condition(type=kind, status=status, reason=reason, message=said, observed_generation=found.generation)
