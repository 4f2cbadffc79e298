"""What did one reconcile of a ShardedModel find, and what is its outcome in a reason and a
sentence? The rules that led to these facts are in ``decide`` and ``disruption``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from shardwright.api.conditions import Reason
from shardwright.api.record import Cause, Rollback
from shardwright.errors import Problem
from shardwright.hardware.inventory import KnownPods
from shardwright.planning.gain import Better, Prospect
from shardwright.planning.report import NoPlan, Plan
from shardwright.reconcile.decide import Decision
from shardwright.reconcile.members import Awaited, GroupState, Situation
from shardwright.reconcile.quotas import IN_USE
from shardwright.reconcile.revisions import Revision
from shardwright.reconcile.route import Route
from shardwright.reconcile.wording import (
    SHOWN,
    leftovers_sentence,
    no_place_sentence,
    no_room_sentence,
    not_ready_sentence,
    placed_sentence,
    rollback_sentence,
    serving_sentence,
)
from shardwright.reconcile.write_cause import Contest
from shardwright.reconcile.writes import ObjectKey
from shardwright.rendering.deployment import Owner
from shardwright.rendering.names import generation_of

_PASSING: Final = frozenset(
    {
        Reason.WAITING_FOR_QUOTA,
        Reason.API_UNAVAILABLE,
        Reason.PROGRESSING,
        Reason.CONFIG_FETCHING,
        Reason.HUB_UNAVAILABLE,
    }
)
"""Reasons for which nothing was written, and which pass without the user."""

_BROKEN: Final = frozenset({Situation.BACKING_OFF, Situation.UNREADY})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEngine:
    """An engine whose version the spec leaves open: the kept one, and the newer default."""

    engine: str
    version: str
    newest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that the conditions and the metrics of a model are made from.

    ``plan`` is the current plan, ``no_plan`` why there is none for the present spec, ``lacks`` why
    groups are missing from it or ``homeless``, by name without generation. ``placed`` groups have a
    place (None: there is no plan for the present spec); ``least`` must have one. ``problems``
    are for the user to correct; ``refused`` is the API server's refusal, or why nothing was sent.
    ``stands`` is the plan of record, also where there is no ``plan`` as the spec cannot be used.
    ``undeployable`` is why the plan is not run, ``not_admitted`` why a quota refuses the pods of a
    new plan, ``pods_refused`` why pods are not created. ``stale`` is the fault of the current plan,
    ``better`` a better one, ``anew`` the one that would be made now. ``wanted`` is how many groups
    shall run (None: unknown), ``standing`` the groups that exist. ``decision`` is None if nothing
    may be deployed. ``hidden`` is why the model's state is unknown: then nothing else is known.
    ``lost`` are nodes that do not give pods back, ``gone`` those of pods that are no more,
    ``strangers`` pods with the model's labels that nobody of it controls. ``contested`` are objects
    that somebody keeps undoing; ``overfull`` objects that somebody has filled, with the oversized
    fields. ``kept_engine`` is the engine's version if an earlier release chose it and no revision
    is run.
    ``distrusted`` is why a plan of record was not believed a while ago. ``most_moving`` is how many
    groups may be down on purpose across models. ``rollback`` is the revision that runs instead of
    the spec, ``rollback_problem`` why a requested one is not restored, ``history_problem`` why the
    serving state is not kept as a revision. ``alpha_groups``: its PodGroups are of an API that the
    next release of Kubernetes lacks. ``unread`` are watched namespaces of which something was never
    read. ``number_planned_for`` is the model that runs as many groups as its plan says, and could
    be given another number (None: it says how many itself, or fills a budget, or runs none).
    ``unscaled`` is why no autoscaler is told of a model that is to be scaled; one that
    ``may_sleep`` has no group while nobody asks.
    ``prefix_hits`` is the share of input tokens that the plan counts as cached.
    ``route`` is the way of requests, None if the spec names none or nothing is deployed.
    """

    generation: int
    problems: tuple[Problem, ...] = ()
    cluster_known: bool = True
    known_pods: KnownPods = KnownPods.ALL
    unread: frozenset[str] = frozenset()
    plan: Plan | None = None
    stands: Plan | None = None
    no_plan: NoPlan | None = None
    lacks: NoPlan | None = None
    homeless: frozenset[str] = frozenset()
    placed: int | None = None
    least: int = 1
    stale: Problem | None = None
    better: Better | None = None
    anew: Prospect | None = None
    plan_only: bool = False
    paused: bool = False
    scaled_to_zero: bool = False
    may_sleep: bool = False
    wanted: int | None = None
    prefix_hits: float = 0.0
    standing: tuple[GroupState, ...] = ()
    decision: Decision | None = None
    refused: Problem | None = None
    hidden: Problem | None = None
    undeployable: Problem | None = None
    pods_refused: Problem | None = None
    lost: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    strangers: tuple[str, ...] = ()
    contested: Mapping[ObjectKey, Contest] = field(default_factory=dict)
    overfull: Mapping[ObjectKey, str] = field(default_factory=dict)
    kept_engine: KeptEngine | None = None
    distrusted: Problem | None = None
    not_admitted: Problem | None = None
    most_moving: int | None = None
    rollback: tuple[Rollback, Revision | None] | None = None
    rollback_problem: Problem | None = None
    history_problem: Problem | None = None
    alpha_groups: bool = False
    number_planned_for: Owner | None = None
    unscaled: Problem | None = None
    route: Route | None = None

    @property
    def spec_rejected(self) -> bool:
        """Return whether the spec did not come up and was rolled back."""
        return self.rollback is not None and self.rollback[0].cause is not Cause.ASKED

    @property
    def of_going_back(self) -> tuple[Problem, ...]:
        """Return why a revision is not restored, or could not be restored later."""
        return tuple(filter(None, (self.rollback_problem, self.history_problem)))

    @property
    def revision_number(self) -> int | None:
        """Return the number of the revision to restore, or None without one or if unknown."""
        revision = self.rollback[1] if self.rollback else None
        return revision.number if revision else None

    @property
    def awaiting_turn(self) -> tuple[GroupState, ...]:
        """Return the groups that wait to restart because groups of other models do."""
        waiting = (
            group
            for group in self.groups
            if group.situation is Situation.OUTDATED and not group.hold
        )
        return tuple(waiting) if self.most_moving == 0 else ()

    @property
    def of_another_rendering(self) -> tuple[GroupState, ...]:
        """Return the groups whose pods would be rendered otherwise now for the same request."""
        return tuple(group for group in self.groups if group.pending)

    def held_by(self, what: Awaited) -> tuple[GroupState, ...]:
        """Return the groups that keep their pods for this reason although others are wanted."""
        return tuple(group for group in self.groups if group.hold and group.hold.what is what)

    @property
    def missing(self) -> int:
        """Return how many of the wanted groups have no place while others have one."""
        if self.plan is None or self.placed is None:
            return 0
        # Of a plan that is only shown no group is to run.
        return max(0, (self.wanted or self.plan.wanted) - self.placed)

    @property
    def partly_placed(self) -> bool:
        """Return whether some groups have no place, and those that have one may serve."""
        return self.missing > 0 and (self.placed or 0) >= max(1, self.least)

    @property
    def placed_groups(self) -> tuple[GroupState, ...]:
        """Return the states of the groups that do not wait where they were for another place."""
        return tuple(
            group for group in self.groups if generation_of(group.name)[0] not in self.homeless
        )

    @property
    def groups(self) -> tuple[GroupState, ...]:
        """Return the states of the groups."""
        return self.decision.groups if self.decision else self.standing

    @property
    def there(self) -> int:
        """Return how many groups exist; of two generations one counts."""
        return len({generation_of(group.name)[0] for group in self.groups})

    @property
    def serving(self) -> int:
        """Return how many groups serve, whatever their revision."""
        return len({generation_of(group.name)[0] for group in self.groups if group.serves})

    @property
    def updated(self) -> int:
        """Return how many groups serve as the spec says."""
        return 0 if self.rollback else sum(group.updated for group in self.groups)

    @property
    def asked_for(self) -> int | None:
        """Return how many groups are wanted, or were when the spec could be used (None: unknown,
        or none is to run).
        """
        if self.plan_only or self.wanted is not None:
            return None if self.plan_only else self.wanted
        return (self.stands.wanted if self.stands else self.there) if self.groups else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The outcome in a reason and a sentence, and whether a waiting client may go on."""

    reason: str
    message: str
    ready: bool = False
    stalled: bool = False

    partly: bool = False

    @property
    def reconciling(self) -> bool:
        """Return whether work goes on that will end by itself: groups may have to come yet while
        all that have a place serve.
        """
        done = self.ready and not self.partly
        return not (done or self.stalled or self.reason == Reason.PAUSED)


def summarise(found: Findings) -> Summary:
    """Return the first thing that keeps the model from serving, or that it serves."""
    return (
        _blocked_by_user(found) or _blocked_by_cluster(found) or _resting(found) or _running(found)
    )


def _blocked_by_user(found: Findings) -> Summary | None:
    conflicts = found.decision.conflicts if found.decision else ()
    problems = found.problems or conflicts
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return _blocked(problems[0], more)
    if found.hidden:
        return replace(_blocked(found.hidden), stalled=True)
    return _blocked(found.refused) if found.refused else None


def _blocked(problem: Problem, more: str = "") -> Summary:
    # Most problem codes are not reasons of conditions: they say what is wrong with a field.
    reason = problem.code if problem.code in set(Reason) else Reason.INVALID_SPEC
    return Summary(
        reason=reason, message=f"{problem.sentence()}{more}", stalled=reason not in _PASSING
    )


def _blocked_by_cluster(found: Findings) -> Summary | None:
    if not found.cluster_known:
        return Summary(
            reason=Reason.CLUSTER_READING, message="nodes and pods have not been listed yet"
        )
    if found.no_plan:
        if late := _late(found):
            return Summary(reason=Reason.NODES_DID_NOT_COME, message=late)
        said = [no_room_sentence(found.no_plan)]
        if found.rollback:
            said.append(no_place_sentence(found.revision_number))
        reason = why_no_room(found.no_plan)
        return Summary(
            reason=reason, message="; ".join(said), stalled=not found.no_plan.heals_by_itself
        )
    if found.missing and not found.partly_placed:
        return Summary(reason=why_missing(found), message=partly_message(found))
    # What runs is not the quota's concern, and the rest waits for it.
    if found.not_admitted and not found.partly_placed:
        return Summary(
            reason=Reason.QUOTA_EXCEEDED,
            message=found.not_admitted.sentence(),
            stalled=found.not_admitted.code != IN_USE,
        )
    return None


def why_no_room(none: NoPlan) -> Reason:
    """Return the reason for which groups have no place."""
    return Reason.INSUFFICIENT_CAPACITY if none.heals_by_itself else Reason.NOTHING_FITS


def partly_message(found: Findings) -> str:
    """Return how many groups have a place, and why not all."""
    said = [placed_sentence(found.placed or 0, found.missing, found.least)]
    if late := _late(found):
        said.append(late)
    elif found.lacks:
        said.append(no_room_sentence(found.lacks))
    elif found.not_admitted:
        said.append(found.not_admitted.sentence())
    elif found.paused:
        said.append("spec.paused is true: none is added")
    return "; ".join(said)


def why_missing(found: Findings) -> Reason:
    """Return the reason for which groups are missing from the plan."""
    if _late(found):
        return Reason.NODES_DID_NOT_COME
    if found.lacks:
        return why_no_room(found.lacks)
    if found.not_admitted:
        return Reason.QUOTA_EXCEEDED
    return Reason.PAUSED if found.paused else Reason.PROGRESSING


def _late(found: Findings) -> str:
    # Late nodes are why there is no room; the planner only knows that there is none.
    late = (group for group in found.groups if _waits_for(group, Awaited.LATE_NODES))
    return "; ".join(not_ready_sentence(group) for group in islice(late, SHOWN))


def _resting(found: Findings) -> Summary | None:
    if found.decision and found.decision.leftovers:
        message = leftovers_sentence(found.decision.leftovers)
        return Summary(reason=Reason.PROGRESSING, message=message)
    if found.plan_only:
        message = "planned and shown; spec.mode says not to deploy it"
        # Groups from before the mode was changed are still on their way out.
        return Summary(reason=Reason.PLAN_ONLY, message=message, ready=not found.groups)
    if found.undeployable:
        return Summary(
            reason=Reason.NOT_DEPLOYABLE, message=found.undeployable.sentence(), stalled=True
        )
    if found.scaled_to_zero:
        return _at_zero(found)
    # A pause takes nothing from a model that serves.
    if found.paused and not (found.decision and _all_ready(found)):
        return Summary(reason=Reason.PAUSED, message="spec.paused is true: nothing is changed")
    return None


def _at_zero(found: Findings) -> Summary:
    reason, said, missing = Reason.SCALED_TO_ZERO, "spec.replicas is 0", None
    if found.may_sleep:
        missing = found.unscaled or (found.route.unmet if found.route else None)
        held = "the router holds the next request until a group serves"
        if missing:
            held = f"no request starts a group: {missing.sentence()}"
        reason, said = Reason.ASLEEP, f"{said}, and {held}"
    return Summary(reason=reason, message=said, ready=not (missing or found.groups))


def _running(found: Findings) -> Summary:
    # Stalled although all groups serve: the spec of observedGeneration does not run, and a pipeline
    # must not take it for done (ADR 25).
    if _all_ready(found) and found.spec_rejected:
        return Summary(reason=Reason.ROLLED_BACK, message=rollback_message(found), stalled=True)
    if _all_ready(found):
        ready = len(found.placed_groups)
        rest = placed_sentence(found.placed or 0, found.missing) if found.partly_placed else ""
        return Summary(
            reason=Reason.SERVING,
            message="; ".join(filter(None, (serving_sentence(ready, ready, ready), rest))),
            ready=True,
            partly=found.partly_placed and not found.paused,
        )
    held = found.held_by(Awaited.STOPPED_ROLLOUT)
    waiting = [
        *(group for group in found.placed_groups if not group.ready),
        *(group for group in held if group.ready),
    ]
    if not waiting:
        return Summary(reason=Reason.PROGRESSING, message="objects are being written")
    serving = serving_sentence(found.serving, found.updated, found.asked_for or found.there)
    message = "; ".join((serving, *map(not_ready_sentence, waiting[:SHOWN])))
    if found.pods_refused:
        return Summary(
            reason=Reason.PODS_REFUSED,
            message=f"{found.pods_refused.sentence()}; {message}",
            stalled=True,
        )
    stopped = any(group.situation is Situation.STOPPED or group.late for group in waiting)
    return Summary(reason=_why_not_ready(waiting), message=message, stalled=stopped)


def _all_ready(found: Findings) -> bool:
    return (
        bool(found.placed_groups)
        and all(group.ready for group in found.placed_groups)
        # Groups held by a stopped rollout serve, but not by the present spec.
        and not found.held_by(Awaited.STOPPED_ROLLOUT)
    )


def _why_not_ready(waiting: list[GroupState]) -> Reason:
    # Problems that need a user come first, those that pass by themselves last.
    if any(group.budget_spent for group in waiting):
        return Reason.RESTART_BUDGET_SPENT
    if any(group.late for group in waiting):
        return Reason.PROGRESS_DEADLINE_EXCEEDED
    if any(_waits_for(group, Awaited.NODE_GONE) for group in waiting):
        return Reason.NODE_LOST
    if any(group.unplaced or group.gave_its_place_back or _seeks(group) for group in waiting):
        return _why_without_a_place(waiting)
    if any(group.situation is Situation.WAITING_FOR_QUOTA for group in waiting):
        return Reason.WAITING_FOR_QUOTA
    return _why_on_its_way(waiting)


def _why_on_its_way(waiting: list[GroupState]) -> Reason:
    if any(
        group.situation in _BROKEN
        or (group.situation is Situation.STOPPING and group.failing)
        or _waits_for(group, Awaited.STOPPED_ROLLOUT)
        for group in waiting
    ):
        return Reason.GROUPS_NOT_READY
    if any(group.situation in {Situation.STOPPING, Situation.OUTDATED} for group in waiting):
        return Reason.ROLLING_OUT
    return Reason.PROGRESSING


def _why_without_a_place(waiting: list[GroupState]) -> Reason:
    if any(_waits_for(group, Awaited.LATE_NODES) for group in waiting):
        return Reason.NODES_DID_NOT_COME
    seeks = any(map(_seeks, waiting))
    return Reason.WAITING_FOR_NODES if seeks else Reason.UNSCHEDULABLE


def _seeks(group: GroupState) -> bool:
    return _waits_for(group, Awaited.NODES) or _waits_for(group, Awaited.LATE_NODES)


def _waits_for(group: GroupState, what: Awaited) -> bool:
    return any(wait.what is what for wait in group.waits)


def rollback_message(found: Findings) -> str:
    """Return which revision runs in place of the spec, and why; empty if none does."""
    if found.rollback is None:
        return ""
    stands, revision = found.rollback
    image, placed = revision.image if revision else "", found.no_plan is None
    message = rollback_sentence(stands, found.revision_number, image, placed=placed)
    problems = (problem.sentence() for problem in found.of_going_back)
    return "; ".join((message, *problems))
