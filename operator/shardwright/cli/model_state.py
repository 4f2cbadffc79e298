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
from shardwright.reconcile.members import Failure, Member, read_member
from shardwright.reconcile.observed import controller_uid

ENGINE: Final = "engine"
"""The container that loads the weights."""

_SUMMED_UP: Final = frozenset(
    {
        ConditionType.READY,
        ConditionType.PLANNED,
        ConditionType.RECONCILING,
        ConditionType.REPLICAS_PLANNED,
    }
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

PodsOfGroup = tuple[int, Sequence[tuple[Member, datetime | None]]]
"""How many pods a group is to have, and those that there are, each with since when its engine runs.
"""

PodsByGroup = Mapping[tuple[str | None, str], PodsOfGroup]
"""By the uid of the model and the name of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingGroup:
    """How a group stands: ``said`` are its status's words, ``failure`` is why it failed last,
    ``pods`` are those that may be seen, ``missing`` is how many its StatefulSet has not created.

    ``loading`` is the time, in seconds, since its last engine of a start began to run; None unless
    all run.
    """

    name: str
    ready: bool
    said: str = ""
    restarts: int | None = None
    failure: Failure | None = None
    nodes: tuple[str, ...] = ()
    pods: tuple[Member, ...] = ()
    missing: int = 0
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


def read_pods(sets: Iterable[Content], pods: Iterable[Content]) -> PodsByGroup:
    """Return the pods that these StatefulSets control: others may have their names and labels."""
    found: dict[str, list[tuple[Member, datetime | None]]] = {}
    for pod in pods:
        if member := read_member(pod):
            found.setdefault(member.set_uid, []).append((member, _runs_since(pod)))
    return {
        (controller_uid(item), item["metadata"]["name"]): (
            _whole(mapping(item.get("spec")).get("replicas")) or 0,
            found.get(item["metadata"]["uid"], ()),
        )
        for item in sets
    }


def standing_of(content: Content, pods: PodsByGroup, now: datetime) -> ModelState:
    """Return the state of a model."""
    metadata, status = content["metadata"], mapping(content.get("status"))
    conditions = mappings(status.get("conditions"))
    ready = next((item for item in conditions if item.get("type") == ConditionType.READY), {})
    said = text_or_empty(ready.get("message"))
    budget = mapping(mapping(status.get("engine")).get("startBudget"))
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
            _group(group, metadata["uid"], pods, now) for group in mappings(status.get("groups"))
        ),
        most_seconds=_whole(budget.get("loadSeconds")),
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


def _group(group: Content, uid: str, pods: PodsByGroup, now: datetime) -> StandingGroup:
    name, ready = text_or_empty(group.get("name")), group.get("ready") is True
    nodes = group.get("nodes")
    wanted, members = pods.get((uid, name), (0, ()))
    missing = max(0, wanted - len(members))
    started = [since for _, since in members if since]
    starts = not (ready or all(member.started for member, _ in members))
    return StandingGroup(
        name=name,
        ready=ready,
        said=text_or_empty(group.get("waiting")),
        restarts=_whole(group.get("restarts")),
        failure=_failure(mapping(group.get("lastFailure"))),
        nodes=tuple(map(text_or_empty, nodes)) if isinstance(nodes, list) else (),
        pods=tuple(member for member, _ in members),
        missing=missing,
        # It begins when the last engine does: before that a start takes no time.
        loading=max(0.0, (now - max(started)).total_seconds())
        if starts and not missing and len(started) == len(members)
        else None,
    )


def _failure(said: Content) -> Failure | None:
    if not said:
        return None
    return Failure(
        rank=_whole(said.get("rank")) or 0,
        reason=text_or_empty(said.get("reason")),
        container=text_or_empty(said.get("container")),
        exit_code=_whole(said.get("exitCode")),
        message=text_or_empty(said.get("message")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _runs_since(pod: Content) -> datetime | None:
    for status in mappings(mapping(pod.get("status")).get("containerStatuses")):
        if status.get("name") == ENGINE:
            return read_time(
                text_or_empty(mapping(mapping(status.get("state")).get("running")).get("startedAt"))
            )
    return None
