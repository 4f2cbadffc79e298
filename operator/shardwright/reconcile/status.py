"""What does the whole status of a ShardedModel say? Nothing is decided here."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from shardwright.api.conditions import SOMETIMES, set_condition
from shardwright.api.published import (
    GROUP_NODES_MAX_ITEMS,
    SENTENCE_MAX_LENGTH,
    ShownFailure,
    ShownGroup,
)
from shardwright.planning.phrases import letters, on_gpus
from shardwright.reconcile.conditions import conditions
from shardwright.reconcile.findings import Findings, summarise
from shardwright.reconcile.sentences import waiting_sentence
from shardwright.reconcile.states import GroupState
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import leader_selector
from shardwright.rendering.names import base_name, client_service
from shardwright.rendering.scripts import HTTP_PORT

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
        "replicas": len(found.groups) + _in_line(found),
        "readyReplicas": sum(group.ready for group in found.groups),
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
    ended = {str(kind) for kind in SOMETIMES} - {str(condition.type) for condition in said}
    shown = tuple(condition for condition in before if condition["type"] not in ended)
    for condition in said:
        shown = set_condition(shown, condition, now=now)
    return [dict(condition) for condition in shown]


def _at_a_glance(found: Findings) -> dict[str, str]:
    # The columns of tables.
    ready = (
        None
        if found.plan_only or found.wanted is None
        else f"{sum(group.ready for group in found.groups)}/{found.wanted}"
    )
    shown = {"layout": letters(found.plan.layout) if found.plan else None, "ready": ready}
    return {name: value for name, value in shown.items() if value is not None}


def _summary(found: Findings, service: Mapping[str, Any]) -> Iterator[str]:
    if found.plan:
        yield f"{on_gpus(found.plan.layout)} of {found.plan.pool}"
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


def service_status(owner: Owner, cluster_domain: str) -> dict[str, str]:
    """Return the URL for clients, and the selector of one pod per group for autoscalers."""
    base = base_name(owner.name)
    host = f"{client_service(base)}.{owner.namespace}.svc.{cluster_domain}"
    selector = ",".join(f"{key}={value}" for key, value in sorted(leader_selector(base).items()))
    return {"selector": selector, "endpoint": f"http://{host}:{HTTP_PORT}"}


def groups_status(groups: Sequence[GroupState]) -> list[dict[str, Any]]:
    """Return ``status.groups``: whole entries while there is room, those not ready first.

    The API server refuses an object of several MiB, and then the status would say nothing at all.
    """
    shown, room = (
        [{"name": group.name, "ready": group.ready} for group in groups],
        GROUPS_MAX_BYTES,
    )
    # False sorts before True: room goes to those that are not ready.
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
        ready=group.ready,
        nodes=[node or "" for node in group.nodes[:GROUP_NODES_MAX_ITEMS]],
        waiting=waiting_sentence(group) or None,
        restarts=group.restarts,
        last_failure=ShownFailure(**asdict(failure) | said) if failure else None,
        last_outage_seconds=group.outage_seconds,
    )
    return shown.model_dump(by_alias=True, exclude_none=True)
