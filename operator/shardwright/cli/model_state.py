"""How do ShardedModels stand? Facts from their status, and the progress of their groups' pods.

Nothing that the operator has written down is worked out anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shardwright.api.conditions import ConditionType, Reason
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.modelspec.catalogue import like_ids
from shardwright.reconcile.incidents import read_time
from shardwright.reconcile.members import Member, read_member

ENGINE: Final = "engine"
"""The container that loads the weights."""

_SUMMED_UP: Final = frozenset(
    {ConditionType.READY, ConditionType.PLANNED, ConditionType.RECONCILING}
)
"""Conditions that are not worth a line while they are True."""

_UNREAD_CONFIG: Final = frozenset(
    {
        Reason.CONFIG_FETCHING,
        Reason.CONFIG_FETCH_FAILED,
        Reason.HUB_ACCESS_DENIED,
        Reason.HUB_MODEL_MISSING,
    }
)
"""Reasons of a model looked up at the hub, which does not tell a hidden one from a missing one."""

Content = Mapping[str, Any]

PodsByGroup = Mapping[tuple[str, str], Sequence[tuple[Member, datetime | None]]]
"""Pods by namespace and group, each with the start time of its engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingGroup:
    """How a group stands: ``said`` are its status's words, ``pods`` those that may be read.

    ``loading`` is the time, in seconds, since its last engine of a start began to run; None unless
    all run.
    """

    name: str
    ready: bool
    said: str = ""
    restarts: int | None = None
    nodes: tuple[str, ...] = ()
    pods: tuple[Member, ...] = ()
    loading: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """How a ShardedModel stands.

    ``current`` says whether its status is about the present spec. ``running`` is the number of
    ready groups out of all, ``most_seconds`` the longest that a start may take. ``conditions`` are
    others worth a line, ``meant`` known models with ids like the one looked up at the hub.
    """

    name: str
    namespace: str
    ready: str  # "True", "False" or "Unknown"
    reason: str
    message: str
    since: datetime | None
    current: bool
    plan: Content
    layout: str
    running: str
    groups: tuple[StandingGroup, ...]
    most_seconds: int | None
    endpoint: str
    conditions: tuple[Content, ...]
    meant: tuple[str, ...] = ()


def read_pods(pods: Iterable[Content]) -> PodsByGroup:
    """Return the pods that StatefulSets control."""
    found: dict[tuple[str, str], list[tuple[Member, datetime | None]]] = {}
    for pod in pods:
        if member := read_member(pod):
            key = pod["metadata"]["namespace"], member.group
            found.setdefault(key, []).append((member, _runs_since(pod)))
    return found


def standing_of(content: Content, pods: PodsByGroup, now: datetime) -> ModelState:
    """Return the state of a model."""
    metadata, status = content["metadata"], mapping(content.get("status"))
    conditions = mappings(status.get("conditions"))
    ready = next((item for item in conditions if item.get("type") == ConditionType.READY), {})
    said = text_or_empty(ready.get("message"))
    budget = mapping(mapping(status.get("engine")).get("startBudget"))
    most = budget.get("loadSeconds")
    return ModelState(
        name=metadata["name"],
        namespace=metadata["namespace"],
        ready=text_or_empty(ready.get("status")) or "Unknown",
        reason=text_or_empty(ready.get("reason")),
        message=said,
        since=read_time(text_or_empty(ready.get("lastTransitionTime"))),
        current=status.get("observedGeneration") == metadata.get("generation"),
        plan=mapping(status.get("plan")),
        layout=text_or_empty(status.get("layout")),
        running=text_or_empty(status.get("ready")),
        groups=tuple(
            _group(group, metadata["namespace"], pods, now)
            for group in mappings(status.get("groups"))
        ),
        most_seconds=most if isinstance(most, int) else None,
        endpoint=text_or_empty(status.get("endpoint")),
        conditions=tuple(
            item
            for item in conditions
            if item.get("status") == "True"
            and item.get("type") not in _SUMMED_UP
            and item.get("message") != said
        ),
        meant=_meant(content, ready),
    )


def _meant(content: Content, ready: Content) -> tuple[str, ...]:
    """Return known models with similar ids, if the hub is asked: the id may be misspelt."""
    if ready.get("reason") not in _UNREAD_CONFIG:
        return ()
    return like_ids(text_or_empty(mapping(mapping(content.get("spec")).get("model")).get("id")))


def _group(group: Content, namespace: str, pods: PodsByGroup, now: datetime) -> StandingGroup:
    name, ready = text_or_empty(group.get("name")), group.get("ready") is True
    restarts, nodes = group.get("restarts"), group.get("nodes")
    members = pods.get((namespace, name), ())
    started = [since for _, since in members if since]
    starts = not (ready or all(member.started for member, _ in members))
    return StandingGroup(
        name=name,
        ready=ready,
        said=text_or_empty(group.get("waiting")),
        restarts=restarts if isinstance(restarts, int) else None,
        nodes=tuple(map(text_or_empty, nodes)) if isinstance(nodes, list) else (),
        pods=tuple(member for member, _ in members),
        # Since the last engine: before that a start takes no time.
        loading=max(0.0, (now - max(started)).total_seconds())
        if starts and len(started) == len(members)
        else None,
    )


def _runs_since(pod: Content) -> datetime | None:
    for status in mappings(mapping(pod.get("status")).get("containerStatuses")):
        if status.get("name") == ENGINE:
            return read_time(
                text_or_empty(mapping(mapping(status.get("state")).get("running")).get("startedAt"))
            )
    return None
