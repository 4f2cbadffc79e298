"""The conditions of a ShardedModel, made of the findings of one look.

Nothing is decided here, and no sentence is read back: a condition that a rule needs is a fact of
``findings``.
"""

from collections.abc import Sequence
from typing import Final

from shardwright.api.conditions import Condition, ConditionType, Reason
from shardwright.api.record import Cause
from shardwright.hardware.inventory import KnownPods
from shardwright.planning.sentences import uncounted_sentence
from shardwright.reconcile.findings import (
    Findings,
    Summary,
    rollback_message,
    summarise,
)
from shardwright.reconcile.sentences import (
    alpha_groups_sentence,
    anew_sentence,
    better_sentence,
    failure_sentence,
    fixes_sentence,
    not_ready_sentence,
)
from shardwright.reconcile.states import Awaited, GroupState
from shardwright.rendering.fixes import fixes_of_engine, fixes_of_pods

FIELDS_SAID_MAX: Final = 8
"""How many fields are said that a restart changes. Basis: assumed; the first ones tell which part
of a pod it is.
"""

_UNKNOWN_PODS: Final = {
    KnownPods.NONE: (
        "pods cannot be listed, so all GPUs count as free: allow list and watch on pods"
    ),
    KnownPods.WATCHED: "only pods of watched namespaces can be listed, so GPUs "
    "that others use count as free, and pods may wait for them: install the chart "
    "with clusterPods: true, or give the operator nodes of its own with nodeSet",
}
_CAUSES: Final = {
    Cause.ASKED: Reason.ASKED,
    Cause.ENGINE_FAILED: Reason.ENGINE_FAILED,
    Cause.PROGRESS_DEADLINE_EXCEEDED: Reason.PROGRESS_DEADLINE_EXCEEDED,
}


def conditions(found: Findings) -> tuple[Condition, ...]:
    """Return all conditions of the resource."""
    summary = summarise(found)
    if found.hidden:
        return tuple(_of_hidden(found, kind, summary) for kind in ConditionType)
    return (
        _condition(
            found, ConditionType.READY, summary.ready, summary.reason, summary.message
        ),
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
    """Return a condition of a model in an unknown state: somebody must act, and nothing else is
    known.
    """
    if kind in {ConditionType.RECONCILING, ConditionType.STALLED}:
        return _summarised(found, kind, kind == ConditionType.STALLED, summary)
    return _condition(found, kind, None, summary.reason, summary.message)


def _summarised(
    found: Findings,
    kind: ConditionType,
    holds: bool,  # noqa: FBT001  # a fact, not an option
    summary: Summary,
) -> Condition:
    if holds:
        return _condition(found, kind, True, summary.reason, summary.message)
    return _condition(found, kind, False, Reason.IDLE)


def _planned(found: Findings) -> Condition:
    if found.problems or found.no_plan or found.barred or not found.cluster_known:
        summary = summarise(found)
        return _condition(
            found, ConditionType.PLANNED, False, summary.reason, summary.message
        )
    if found.plan is None:
        return _condition(found, ConditionType.PLANNED, None, Reason.PROGRESSING)
    if found.known_pods is not KnownPods.ALL:
        message = f"{_unread(found)}{_UNKNOWN_PODS[found.known_pods]}"
        return _condition(
            found, ConditionType.PLANNED, True, Reason.FREE_CAPACITY_UNKNOWN, message
        )
    if found.plan.uncounted:
        message = uncounted_sentence(found.plan.uncounted)
        return _condition(
            found, ConditionType.PLANNED, True, Reason.OPTIONS_NOT_COUNTED, message
        )
    if found.alpha_groups:
        return _condition(
            found,
            ConditionType.PLANNED,
            True,
            Reason.GROUPS_OF_ALPHA_API,
            alpha_groups_sentence(),
        )
    return _condition(
        found,
        ConditionType.PLANNED,
        True,
        Reason.PLANNED,
        next(iter(found.plan.reasons), ""),
    )


def _unread(found: Findings) -> str:
    """Return which watched namespaces are not seen either: first, for a Role is soon made."""
    if not found.unread or found.known_pods is not KnownPods.WATCHED:
        return ""
    names = sorted(found.unread)
    named = f"namespace{'s' if names[1:] else ''} {', '.join(names)}"
    return (
        f"{named} of watchNamespaces cannot be read, so GPUs in use there count as free: give "
        "its Role back with helm upgrade; "
    )


def _degraded(found: Findings) -> Condition:
    failed = [group for group in found.groups if group.failing]
    if failed:
        message = "; ".join(
            f"{group.name}: {failure_sentence(group)}" for group in failed[:3]
        )
        spent = any(group.budget_spent for group in failed)
        reason = Reason.RESTART_BUDGET_SPENT if spent else Reason.GROUPS_NOT_READY
        return _condition(found, ConditionType.DEGRADED, True, reason, message)
    if found.lost:
        nodes = ", ".join(sorted(found.lost)[:3])
        message = (
            f"pods on {nodes} should be gone and are not; their groups go on elsewhere where "
            "there is room"
        )
        return _condition(
            found, ConditionType.DEGRADED, True, Reason.NODE_LOST, message
        )
    return _condition(found, ConditionType.DEGRADED, False, Reason.IDLE)


def _contested(found: Findings) -> Condition:
    """Return whether somebody else keeps setting fields of our objects back, or has filled one of
    them.
    """
    if found.overfull:
        (kind, name), excess = min(found.overfull.items())
        more = (
            f" (and {len(found.overfull) - 1} more)" if len(found.overfull) > 1 else ""
        )
        message = (
            f"{kind} {name} is larger than anything that the operator writes: {excess}{more}; "
            "take out what was added to it"
        )
        return _condition(
            found, ConditionType.FIELD_CONFLICT, True, Reason.OBJECT_OVERFULL, message
        )
    if not found.contested:
        return _condition(found, ConditionType.FIELD_CONFLICT, False, Reason.IDLE)
    # The first by name in every look: a message that alternates would be a write each time.
    (kind, name), fields = min(found.contested.items())
    message = (
        f"somebody keeps changing {', '.join(fields[:3])} of {kind} {name}; it is set right "
        "every few minutes only"
    )
    return _condition(
        found, ConditionType.FIELD_CONFLICT, True, Reason.FIELD_CONTESTED, message
    )


def _strangers(found: Findings) -> Condition:
    """Return whether pods that are not ours carry the labels of the model: its Service may send
    them requests.
    """
    if not found.strangers:
        return _condition(found, ConditionType.FOREIGN_PODS, False, Reason.IDLE)
    more = f" and {len(found.strangers) - 3} more" if len(found.strangers) > 3 else ""  # noqa: PLR2004 - three are named
    message = (
        f"{', '.join(found.strangers[:3])}{more}: labelled as pods of this model, and no "
        "StatefulSet of it controls them"
    )
    return _condition(
        found, ConditionType.FOREIGN_PODS, True, Reason.FOREIGN_PODS, message
    )


def _distrusted(found: Findings) -> Condition:
    """Return whether somebody else has written the plan of record a while ago."""
    if not found.distrusted:
        return _condition(found, ConditionType.RECORD_REFUSED, False, Reason.IDLE)
    return _condition(
        found,
        ConditionType.RECORD_REFUSED,
        True,
        Reason.PLAN_RECORD_REFUSED,
        found.distrusted.sentence(),
    )


def _limited(found: Findings) -> Condition:
    """Return whether groups wait for their turn because groups of other models restart."""
    waiting = [group.name for group in found.awaiting_turn]
    if not waiting:
        return _condition(found, ConditionType.TURN_AWAITED, False, Reason.IDLE)
    message = (
        f"{', '.join(waiting[:3])}: as many groups of all models restart as the operator "
        "allows at once"
    )
    return _condition(
        found, ConditionType.TURN_AWAITED, True, Reason.OTHERS_RESTART, message
    )


def _pending(found: Findings) -> Condition:
    """Return whether groups keep pods that would be rendered otherwise now."""
    said = {}
    if held := found.held_by(Awaited.PARTITION):
        said[Reason.HELD_BY_PARTITION] = (
            f"{_names(held)}: below spec.rollout.partition, "
            "they keep their pods until it is lowered"
        )
    if older := found.of_another_release:
        fields = sorted({field for group in older for field in group.pending})
        coming = (
            "the next restart of a group changes "
            f"{', '.join(fields[:FIELDS_SAID_MAX])} of its pods"
        )
        said[Reason.OLDER_RENDERING] = (
            f"{_names(older)}: rendered by another release of the operator, or for another "
            "LimitRange or image pull policy; "
            f"{coming}{fixes_sentence(fixes_of_pods(fields))}"
        )
    if kept := found.kept_engine:
        newer = (
            f"{kept.engine} {kept.version} is kept as it was planned; {kept.newest} is the "
            "default of this release"
        )
        fixed = fixes_sentence(fixes_of_engine(kept.engine, kept.version, kept.newest))
        said[Reason.OLDER_ENGINE] = (
            f"{newer}, and comes with spec.engine.version or rollout.onUpgrade: Roll{fixed}"
        )
    if not said:
        return _condition(found, ConditionType.ROLLOUT_PENDING, False, Reason.IDLE)
    return _condition(
        found,
        ConditionType.ROLLOUT_PENDING,
        True,
        next(iter(said)),
        "; ".join(said.values()),
    )


def rollout_stopped(found: Findings) -> Condition:
    """Return whether groups keep their pods because one with the changed pods does not come up."""
    held = found.held_by(Awaited.STOPPED_ROLLOUT)
    if not held:
        return _condition(found, ConditionType.ROLLOUT_STOPPED, False, Reason.IDLE)
    against = [
        group
        for group in found.groups
        if any(item.hold and item.hold.said == group.name for item in held)
    ]
    failed = any(
        group.failing and group.last_failure and group.last_failure.by_engine
        for group in against
    )
    why = (
        "; ".join(map(not_ready_sentence, against))
        or "the group that did not come up with the changed pods is gone"
    )
    until = "it serves" if against else "a group that is added comes up with them"
    message = (
        f"{why}; {_names(held)} keep the pods that they have until {until}: correct the spec, "
        "or set it back"
    )
    reason = (
        Reason.ENGINE_FAILED
        if failed or not against
        else Reason.PROGRESS_DEADLINE_EXCEEDED
    )
    return _condition(found, ConditionType.ROLLOUT_STOPPED, True, reason, message)


def rolled_back(found: Findings) -> Condition:
    """Return whether an earlier revision runs in place of the spec, and why; or why none does that
    was asked for.
    """
    if found.rollback is None:
        problems = found.of_going_back
        reason = problems[0].code if problems else Reason.IDLE
        said = "; ".join(problem.sentence() for problem in problems)
        return _condition(found, ConditionType.ROLLED_BACK, False, reason, said)
    return _condition(
        found,
        ConditionType.ROLLED_BACK,
        True,
        _CAUSES[found.rollback[0].cause],
        rollback_message(found),
    )


def _names(groups: Sequence[GroupState]) -> str:
    """Return the names of groups, the first three."""
    more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""  # noqa: PLR2004 - three are named
    return ", ".join(group.name for group in groups[:3]) + more


def _plan_stale(found: Findings) -> Condition:
    if found.stale:
        said = "; ".join(
            filter(
                None, (found.stale.sentence(), anew_sentence(found.anew, found.better))
            )
        )
        return _condition(
            found, ConditionType.PLAN_STALE, True, Reason.NODES_CHANGED, said
        )
    if found.better:
        return _condition(
            found,
            ConditionType.PLAN_STALE,
            True,
            Reason.BETTER_PLAN,
            better_sentence(found.better),
        )
    return _condition(
        found,
        ConditionType.PLAN_STALE,
        False,
        Reason.PLAN_VALID if found.plan else Reason.IDLE,
    )


def _condition(
    found: Findings,
    kind: ConditionType,
    status: bool | None,  # noqa: FBT001  # a fact, not an option
    reason: str,
    message: str = "",
) -> Condition:
    said = message or (reason.meaning if isinstance(reason, Reason) else "")
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=said,
        observed_generation=found.generation,
    )
