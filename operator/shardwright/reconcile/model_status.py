"""Which conditions does a ShardedModel have after the findings of one reconcile? Nothing is decided
here, and no sentence is read back.

What does the whole status of a ShardedModel say? Nothing is decided here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, NamedTuple

from shardwright.api.conditions import ALWAYS, Condition, ConditionType, Reason, set_condition
from shardwright.api.published import (
    GROUP_NODES_MAX_ITEMS,
    SENTENCE_MAX_LENGTH,
    ShownFailure,
    ShownGroup,
)
from shardwright.api.record import Cause
from shardwright.hardware.inventory import KnownPods
from shardwright.planning.phrases import letters, on_gpus
from shardwright.planning.sentences import uncounted_sentence, unproven_sentence
from shardwright.reconcile.findings import (
    Findings,
    Summary,
    partly_message,
    rollback_message,
    summarise,
    why_missing,
)
from shardwright.reconcile.members import Awaited, GroupState
from shardwright.reconcile.wording import (
    SHOWN,
    alpha_groups_sentence,
    anew_sentence,
    better_sentence,
    clients_sentence,
    contested_sentence,
    failure_sentence,
    fixes_sentence,
    hand_over_sentence,
    named,
    not_ready_sentence,
    waiting_sentence,
)
from shardwright.rendering.deployment import Deployment, Owner
from shardwright.rendering.fixes import fixes_of_engine
from shardwright.rendering.guards import Guard
from shardwright.rendering.labels import leader_selector
from shardwright.rendering.names import base_name, client_service
from shardwright.rendering.scripts import HTTP_PORT

FIELDS_SAID_MAX: Final = 8
"""How many fields that a restart changes are named. Basis: assumed; the first ones tell which
part of a pod it is.
"""

_UNKNOWN_PODS: Final = {
    KnownPods.NONE: "pods cannot be listed, so all GPUs count as free: allow list and "
    "watch on pods",
    KnownPods.WATCHED: "only pods of watched namespaces can be listed, so GPUs "
    "that others use count as free, and pods may wait for them: install the chart "
    "with clusterPods: true, or give the operator nodes of its own with nodeSet",
}
_CAUSES: Final = {
    Cause.ASKED: Reason.ASKED,
    Cause.ENGINE_FAILED: Reason.ENGINE_FAILED,
    Cause.PROGRESS_DEADLINE_EXCEEDED: Reason.PROGRESS_DEADLINE_EXCEEDED,
}


_OPENED: Final = {
    Guard.KEY: "some paths of the engine take requests without the API key",
    Guard.MEDIA: "requests can have media fetched from any host, if the model takes media",
    Guard.FILES: "the engine can write the weights in its cache, or has the token of the hub",
}


class ConditionSaid(NamedTuple):
    """A condition's status (None: unknown), reason and message ("": the reason's meaning)."""

    status: bool | None
    reason: str
    message: str = ""


_IDLE: Final = ConditionSaid(status=False, reason=Reason.IDLE)


def conditions(found: Findings) -> tuple[Condition, ...]:
    """Return all conditions of the resource."""
    summary = summarise(found)
    outcome = summary.reason, summary.message
    if found.hidden:
        unknown = {kind: ConditionSaid(None, *outcome) for kind in ConditionType if kind in ALWAYS}
        known = {
            ConditionType.RECONCILING: _IDLE,
            ConditionType.STALLED: ConditionSaid(True, *outcome),
        }
        return tuple(_conditions(found, unknown | known))
    said: dict[ConditionType, ConditionSaid | None] = {
        ConditionType.READY: ConditionSaid(summary.ready, *outcome),
        ConditionType.PLANNED: _planned(found, ConditionSaid(False, *outcome)),
        ConditionType.RECONCILING: _reconciling(summary, found),
        ConditionType.STALLED: ConditionSaid(True, *outcome) if summary.stalled else _IDLE,
        ConditionType.DEGRADED: _degraded(found),
        ConditionType.PLAN_STALE: _plan_stale(found),
        ConditionType.PARTLY_PLACED: partly_placed(found),
        ConditionType.FIELD_CONFLICT: _contested(found),
        ConditionType.FOREIGN_PODS: _strangers(found),
        ConditionType.RECORD_REFUSED: _distrusted(found),
        ConditionType.TURN_AWAITED: _limited(found),
        ConditionType.ROLLOUT_PENDING: _pending(found),
        ConditionType.ROLLOUT_STOPPED: rollout_stopped(found),
        ConditionType.ROLLED_BACK: rolled_back(found),
        ConditionType.NO_WAY_BACK: no_way_back(found),
        ConditionType.UNPROVEN: _unproven(found),
        ConditionType.REPLICAS_PLANNED: _replicas_planned(found),
        ConditionType.NOT_SCALED: _not_scaled(found),
        ConditionType.NOT_ROUTED: _not_routed(found),
    }
    return tuple(_conditions(found, {kind: it for kind, it in said.items() if it}))


def partly_placed(found: Findings) -> ConditionSaid | None:
    """Return how many groups have no place and why, or None if that applies to none."""
    if not found.missing:
        return None
    return ConditionSaid(True, why_missing(found), partly_message(found))


def _unproven(found: Findings) -> ConditionSaid | None:
    if found.plan is None or found.plan.performance.promised:
        return None
    return ConditionSaid(True, Reason.BYTES_STATED, unproven_sentence())


def _not_scaled(found: Findings) -> ConditionSaid | None:
    unscaled = found.unscaled
    return ConditionSaid(True, unscaled.code, unscaled.sentence()) if unscaled else None


def _not_routed(found: Findings) -> ConditionSaid | None:
    route = found.route
    if route is None or route.unmet is None:
        return None
    # A router that knows no group is not ready, and no group is late for it.
    if route.offered and not any(group.ready for group in found.placed_groups):
        return None
    return ConditionSaid(True, route.unmet.code, route.unmet.sentence())


def _reconciling(summary: Summary, found: Findings) -> ConditionSaid:
    if not summary.reconciling:
        return _IDLE
    if summary.ready and (partly := partly_placed(found)):
        return partly
    return ConditionSaid(True, summary.reason, summary.message)


def _conditions(
    found: Findings, said: Mapping[ConditionType, ConditionSaid]
) -> Iterator[Condition]:
    for kind, (status, reason, message) in said.items():
        meaning = reason.meaning if isinstance(reason, Reason) else ""
        yield Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message or meaning,
            observed_generation=found.generation,
        )


def _planned(found: Findings, missing: ConditionSaid) -> ConditionSaid:
    plan = found.plan
    refused = found.not_admitted and not found.partly_placed
    if found.problems or found.no_plan or refused or not found.cluster_known:
        return missing
    if plan is None:
        return ConditionSaid(None, Reason.PROGRESSING)
    if found.known_pods is not KnownPods.ALL:
        message = f"{_unread(found)}{_UNKNOWN_PODS[found.known_pods]}"
        return ConditionSaid(True, Reason.FREE_CAPACITY_UNKNOWN, message)
    if plan.uncounted:
        message = uncounted_sentence(plan.uncounted)
        return ConditionSaid(True, Reason.OPTIONS_NOT_COUNTED, message)
    if found.alpha_groups:
        return ConditionSaid(True, Reason.GROUPS_OF_ALPHA_API, alpha_groups_sentence())
    return ConditionSaid(True, Reason.PLANNED, next(iter(plan.reasons), ""))


def _unread(found: Findings) -> str:
    # First of all, because a Role is soon made.
    if not found.unread or found.known_pods is not KnownPods.WATCHED:
        return ""
    names = sorted(found.unread)
    return (
        f"namespace{'s' if names[1:] else ''} {', '.join(names)} of watchNamespaces cannot be "
        "read, so GPUs in use there count as free: give its Role back with helm upgrade; "
    )


def _degraded(found: Findings) -> ConditionSaid:
    failed = [group for group in found.groups if group.failing]
    if failed:
        message = "; ".join(f"{group.name}: {failure_sentence(group)}" for group in failed[:SHOWN])
        spent = any(group.budget_spent for group in failed)
        reason = Reason.RESTART_BUDGET_SPENT if spent else Reason.GROUPS_NOT_READY
        return ConditionSaid(True, reason, message)
    if found.gone:
        names = named(sorted(found.gone))
        message = f"nodes that are gone: {names}; pods on them serve nobody"
        return ConditionSaid(True, Reason.NODE_LOST, message)
    if found.lost:
        nodes = ", ".join(sorted(found.lost)[:SHOWN])
        message = (
            f"pods on {nodes} should be gone and are not; their groups go on elsewhere where "
            "there is room"
        )
        return ConditionSaid(True, Reason.NODE_LOST, message)
    return _IDLE


def _contested(found: Findings) -> ConditionSaid | None:
    # Always the first by name: a message that alternates would be a write in each reconcile.
    if found.overfull:
        (kind, name), excess = min(found.overfull.items())
        others = len(found.overfull) - 1
        more = f" (and {others} more)" if others else ""
        message = (
            f"{kind} {name} is larger than anything that the operator writes: {excess}{more}; "
            "take out what was added to it"
        )
        return ConditionSaid(True, Reason.OBJECT_OVERFULL, message)
    if found.contested:
        key = min(found.contested)
        message = contested_sentence(key, found.contested[key])
        return ConditionSaid(True, Reason.FIELD_CONTESTED, message)
    return None


def _strangers(found: Findings) -> ConditionSaid | None:
    if not found.strangers:
        return None
    message = (
        f"{named(found.strangers)}: labelled as pods of this model, and no StatefulSet of it "
        "controls them"
    )
    return ConditionSaid(True, Reason.FOREIGN_PODS, message)


def _distrusted(found: Findings) -> ConditionSaid | None:
    if not found.distrusted:
        return None
    return ConditionSaid(True, Reason.PLAN_RECORD_REFUSED, found.distrusted.sentence())


def _limited(found: Findings) -> ConditionSaid | None:
    waiting = [group.name for group in found.awaiting_turn]
    if not waiting:
        return None
    message = (
        f"{', '.join(waiting[:SHOWN])}: as many groups of all models restart as the operator "
        "allows at once"
    )
    return ConditionSaid(True, Reason.OTHERS_RESTART, message)


def _pending(found: Findings) -> ConditionSaid | None:
    said = {}
    if held := found.held_by(Awaited.PARTITION):
        said[Reason.HELD_BY_PARTITION] = (
            f"{_names(held)}: below spec.rollout.partition, "
            "they keep their pods until it is lowered"
        )
    if open_groups := [group for group in found.groups if group.unguarded]:
        lacking = {one for group in open_groups for one in group.unguarded}
        opened = ", and ".join(said for one, said in _OPENED.items() if one in lacking)
        said[Reason.GUARD_MISSING] = (
            f"{_names(open_groups)}: made by a release without a guard of this one; until they "
            f"restart, {opened}"
        )
    if older := found.of_another_rendering:
        fields = sorted({field for group in older for field in group.pending})
        changes = ", ".join(fields[:FIELDS_SAID_MAX])
        why = (
            "by another release of the operator"
            if any(group.rerendered for group in older)
            else "for another LimitRange or image pull policy"
        )
        said[Reason.OLDER_RENDERING] = (
            f"{_names(older)}: rendered {why}; the next restart of a group changes {changes} of "
            "its pods"
        )
    if kept := found.kept_engine:
        fixed = fixes_sentence(fixes_of_engine(kept.engine, kept.version, kept.newest))
        said[Reason.OLDER_ENGINE] = (
            f"{kept.engine} {kept.version} is kept as it was planned; {kept.newest} is the "
            "default of this release, and comes with spec.engine.version or "
            f"rollout.onUpgrade: Roll{fixed}"
        )
    return ConditionSaid(True, next(iter(said)), "; ".join(said.values())) if said else None


def rollout_stopped(found: Findings) -> ConditionSaid | None:
    """Return that groups keep their pods because one with the changed pods fails, or None."""
    held = found.held_by(Awaited.STOPPED_ROLLOUT)
    if not held:
        return None
    names = {group.hold.said for group in held if group.hold}
    against = [group for group in found.groups if group.name in names]
    failed = any(
        group.failing and group.last_failure and group.last_failure.by_engine for group in against
    )
    why = "the group that did not come up with the changed pods is gone"
    until = "a group that is added comes up with them"
    if against:
        why, until = "; ".join(map(not_ready_sentence, against)), "it serves"
    message = (
        f"{why}; {_names(held)} keep the pods that they have until {until}: correct the spec, "
        "or set it back"
    )
    by_engine = failed or not against
    reason = Reason.ENGINE_FAILED if by_engine else Reason.PROGRESS_DEADLINE_EXCEEDED
    return ConditionSaid(True, reason, message)


def rolled_back(found: Findings) -> ConditionSaid | None:
    """Return that an earlier revision runs in place of the spec, or None."""
    if found.rollback is None:
        return None
    return ConditionSaid(True, _CAUSES[found.rollback[0].cause], rollback_message(found))


def no_way_back(found: Findings) -> ConditionSaid | None:
    """Return that a requested rollback is not made, or could not be made later, or None."""
    problems = found.of_going_back
    # One that runs names them itself.
    if found.rollback or not problems:
        return None
    message = "; ".join(problem.sentence() for problem in problems)
    return ConditionSaid(True, problems[0].code, message)


def _replicas_planned(found: Findings) -> ConditionSaid | None:
    if found.plan is None or found.number_planned_for is None:
        return None
    message = hand_over_sentence(found.number_planned_for, found.plan.wanted)
    return ConditionSaid(True, Reason.REPLICAS_LEFT_OUT, message)


def _names(groups: Iterable[GroupState]) -> str:
    return named([group.name for group in groups])


def _plan_stale(found: Findings) -> ConditionSaid:
    if found.stale:
        anew = anew_sentence(found.anew, found.better)
        said = "; ".join(filter(None, (found.stale.sentence(), anew)))
        return ConditionSaid(True, Reason.NODES_CHANGED, said)
    if found.better:
        return ConditionSaid(True, Reason.BETTER_PLAN, better_sentence(found.better))
    return ConditionSaid(False, Reason.PLAN_VALID if found.plan else Reason.IDLE)


GROUPS_MAX_BYTES: Final = 256 * 1024
"""Bytes that the whole entries of ``status.groups`` may take together, as JSON with escapes.
Basis: assumed; etcd takes 1.5 MiB for an object, of which the fields' owners (``managedFields``)
take as much again as short entries do, the plan's part up to 300 KiB, and the spec its config.
"""


def build_status(
    before: Iterable[Mapping[str, Any]],
    found: Findings,
    plan: Mapping[str, Any] | None,
    service: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """Return the whole status; conditions keep the time of their last transition from ``before``.

    ``plan`` is ``status.plan``, None if nothing could be planned. ``service`` is the result of
    :func:`service_status`, empty if nothing is deployed, and the engine if it is known.
    """
    return {
        "observedGeneration": found.generation,
        "conditions": _shown(before, found, now),
        "summary": [_bounded(line) for line in _summary(found, service)],
        **_at_a_glance(found),
        **({"plan": dict(plan)} if plan else {}),
        "groups": groups_status(found.groups),
        "replicas": found.there + _in_line(found),
        "readyReplicas": found.serving,
        **({} if found.refused or not found.cluster_known else {"updatedReplicas": found.updated}),
        **service,
    }


def _in_line(found: Findings) -> int:
    # They count, as the pods of a StatefulSet do that nobody has placed; none is to run of a plan
    # that is only shown.
    return 0 if found.plan_only else max(0, found.missing - len(found.homeless))


def _shown(
    before: Iterable[Mapping[str, Any]], found: Findings, now: datetime
) -> list[dict[str, Any]]:
    said = conditions(found)
    ended = {str(kind) for kind in ConditionType} - {str(condition.type) for condition in said}
    shown = tuple(condition for condition in before if condition["type"] not in ended)
    for condition in said:
        shown = set_condition(shown, condition, now=now)
    return [dict(condition) for condition in shown]


def _at_a_glance(found: Findings) -> dict[str, str | int]:
    # The columns of tables. A spec that is refused takes none from what runs on.
    plan, wanted = found.plan or found.stands, found.asked_for
    shown: dict[str, str | int] = (
        {"layout": letters(plan.layout), "gpus": plan.layout.gpus} if plan else {}
    )
    return shown | ({} if wanted is None else {"ready": f"{found.serving}/{wanted}"})


def _summary(found: Findings, service: Mapping[str, Any]) -> Iterator[str]:
    if plan := found.plan or found.stands:
        yield f"{on_gpus(plan.layout)} of {plan.pool}"
    summary = summarise(found)
    yield (f"{summary.reason}: {summary.message}" if summary.message else str(summary.reason))
    if "endpoint" in service:
        yield str(service["endpoint"])


def _bounded(line: str) -> str:
    # The message of Ready may be longer than the schema's limit, and stands whole in the condition.
    whole = line.encode()
    if len(whole) <= SENTENCE_MAX_LENGTH:
        return line
    # The ellipsis has three bytes; a character that the cut has split is left out.
    return whole[: SENTENCE_MAX_LENGTH - 3].decode(errors="ignore") + "…"


def hidden_status(before: Mapping[str, Any], found: Findings, now: datetime) -> dict[str, Any]:
    """Return the status of a model in an unknown state: conditions say so, other fields stay."""
    return {
        **before,
        "observedGeneration": found.generation,
        "conditions": _shown(before.get("conditions") or (), found, now),
    }


def service_status(
    owner: Owner, cluster_domain: str, deployment: Deployment | None = None
) -> dict[str, str]:
    """Return the URL, the selector of one pod per group for autoscalers, and of a known deployment
    who its clients are.
    """
    base = base_name(owner.name)
    name = deployment.service if deployment else client_service(base)
    host = f"{name}.{owner.namespace}.svc.{cluster_domain}"
    selector = ",".join(f"{key}={value}" for key, value in sorted(leader_selector(base).items()))
    clients = {"clients": clients_sentence(deployment)} if deployment else {}
    return {"selector": selector, "endpoint": f"http://{host}:{HTTP_PORT}", **clients}


def groups_status(groups: Sequence[GroupState]) -> list[dict[str, Any]]:
    """Return ``status.groups``: whole entries while there is room, those that wait first.

    The API server refuses an object of several MiB, and then the status would say nothing at all.
    """
    shown, room = (
        [{"name": group.name, "ready": group.serves} for group in groups],
        GROUPS_MAX_BYTES,
    )
    # False sorts before True: room goes to those that do not serve, or not as they are to.
    for index in sorted(range(len(groups)), key=lambda index: groups[index].ready):
        whole = group_status(groups[index])
        # Bytes with escapes, as json.dumps makes them: more than the server stores, never less.
        room -= len(json.dumps(whole))
        if room < 0:
            break
        shown[index] = whole
    return shown


def group_status(group: GroupState) -> dict[str, Any]:
    """Return one entry of ``status.groups``."""
    failure = group.last_failure
    said = {"message": failure.message or None} if failure else {}
    shown = ShownGroup(
        name=group.name,
        ready=group.serves,
        nodes=[node or "" for node in group.nodes[:GROUP_NODES_MAX_ITEMS]],
        waiting=waiting_sentence(group) or None,
        restarts=group.restarts,
        last_failure=ShownFailure(**asdict(failure) | said) if failure else None,
        last_outage_seconds=group.outage_seconds,
    )
    return shown.model_dump(by_alias=True, exclude_none=True)
