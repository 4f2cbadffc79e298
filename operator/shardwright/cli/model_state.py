"""How ShardedModels stand, as facts: who waits for whom and since when; read from their status,
StatefulSets and pods.

No cluster is asked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shardwright.api.conditions import ConditionType, Reason
from shardwright.api.resource import read_stored
from shardwright.errors import InputError
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.modelspec.catalogue import like_ids
from shardwright.reconcile.annotations import read_annotations
from shardwright.reconcile.decide import standing_groups
from shardwright.reconcile.group import LifeRules
from shardwright.reconcile.incidents import read_time
from shardwright.reconcile.life_rules import life_rules
from shardwright.reconcile.members import read_member
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.states import AT_ZERO, Awaited, GroupState, Situation, Wait
from shardwright.resolving.intent import intent_of

ENGINE: Final = "engine"
"""The container that loads the weights."""

_LOADING: Final = frozenset({Awaited.START, Awaited.PEERS})

_WORTH_SAYING: Final = (
    ConditionType.STALLED,
    ConditionType.DEGRADED,
    ConditionType.PLAN_STALE,
    ConditionType.FIELD_CONFLICT,
    ConditionType.FOREIGN_PODS,
    ConditionType.RECORD_REFUSED,
    ConditionType.TURN_AWAITED,
    ConditionType.ROLLOUT_PENDING,
    ConditionType.ROLLOUT_STOPPED,
    ConditionType.ROLLED_BACK,
)
"""Conditions that are worth a line where they are True."""

_UNREAD_CONFIG: Final = frozenset(
    {
        Reason.CONFIG_FETCHING,
        Reason.CONFIG_FETCH_FAILED,
        Reason.HUB_ACCESS_DENIED,
        Reason.HUB_MODEL_MISSING,
    }
)
"""Reasons of a model that is looked for at the hub; of a name that is not there it says either
that nobody may see it or that there is none.
"""

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """An engine that starts: for how long all its ranks run, and for how long they may; None if
    nobody says.
    """

    seconds: float
    most_seconds: int | None

    @property
    def share(self) -> float | None:
        """Return which part of its time is over, at most 1."""
        return min(1.0, self.seconds / self.most_seconds) if self.most_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingGroup:
    """How a group stands. ``said`` are its status's words, if its pods may not be read; then
    ``state`` is None.
    """

    name: str
    ready: bool
    state: GroupState | None = None
    since: datetime | None = None
    loading: Loading | None = None
    said: str = ""

    @property
    def waited_for(self) -> tuple[Wait, ...]:
        """Return the waits of ranks that others wait for in turn."""
        return tuple(
            wait
            for wait in (self.state.waits if self.state else ())
            if wait.ranks and wait.what is not Awaited.PEERS
        )

    @property
    def waiting_for_peers(self) -> tuple[int, ...]:
        """Return the ranks that run and have not met the others."""
        waits = self.state.waits if self.state else ()
        return tuple(
            rank for wait in waits if wait.what is Awaited.PEERS for rank in wait.ranks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """How a ShardedModel stands. ``current``: its status is about the spec as it is. ``conditions``
    are others worth a line. ``wanted`` groups are to run (None: the plan is only shown); ``meant``
    are known models that may be meant by the one that is looked for.
    """

    name: str
    namespace: str
    ready: str  # "True", "False" or "Unknown"
    reason: str
    message: str
    since: datetime | None
    current: bool
    plan: Content
    groups: tuple[StandingGroup, ...]
    wanted: int | None
    endpoint: str
    conditions: tuple[Content, ...]
    meant: tuple[str, ...] = ()


def standing_of(
    content: Content,
    sets: Iterable[Content] | None,
    pods: Iterable[Content] | None,
    now: datetime,
) -> ModelState:
    """Return the state of a model. ``sets`` and ``pods`` are those of its namespace, None if they
    may not be read.
    """
    metadata = content["metadata"]
    status = mapping(content.get("status"))
    conditions = mappings(status.get("conditions"))
    ready = next(
        (item for item in conditions if item.get("type") == ConditionType.READY), {}
    )
    generation = metadata.get("generation")
    shown = mappings(status.get("groups"))
    return ModelState(
        name=metadata["name"],
        namespace=metadata["namespace"],
        ready=text_or_empty(ready.get("status")) or "Unknown",
        reason=text_or_empty(ready.get("reason")),
        message=text_or_empty(ready.get("message")),
        since=read_time(text_or_empty(ready.get("lastTransitionTime"))),
        current=status.get("observedGeneration") == generation,
        plan=mapping(status.get("plan")),
        groups=_groups(content, sets, pods, now)
        if sets is not None and pods is not None
        else tuple(map(_said, shown)),
        wanted=_wanted(content),
        endpoint=text_or_empty(status.get("endpoint")),
        conditions=tuple(_worth_saying(conditions, ready)),
        meant=_meant(content, ready),
    )


def _wanted(content: Content) -> int | None:
    """Return how many groups are to run, None for a plan that is only shown."""
    spec = mapping(content.get("spec"))
    if spec.get("mode") == "PlanOnly":
        return None
    layout = mapping(mapping(mapping(content.get("status")).get("plan")).get("layout"))
    replicas = layout.get("replicas", spec.get("replicas", 1))
    return replicas if isinstance(replicas, int) else 1


def _meant(
    content: Content,
    ready: Content,
) -> tuple[str, ...]:
    """Return known models like one that is looked for at the hub: its id may be misspelt."""
    if ready.get("reason") not in _UNREAD_CONFIG:
        return ()
    return like_ids(
        text_or_empty(mapping(mapping(content.get("spec")).get("model")).get("id"))
    )


def _worth_saying(conditions: Sequence[Content], ready: Content) -> Iterable[Content]:
    said = ready.get("message")
    return (
        item
        for item in conditions
        if item.get("status") == "True"
        and item.get("type") in _WORTH_SAYING
        and item.get("message") != said
    )


def _said(group: Content) -> StandingGroup:
    return StandingGroup(
        name=text_or_empty(group.get("name")),
        ready=group.get("ready") is True,
        said=text_or_empty(group.get("waiting")),
    )


def _groups(
    content: Content, sets: Iterable[Content], pods: Iterable[Content], now: datetime
) -> tuple[StandingGroup, ...]:
    uid = content["metadata"]["uid"]
    ours = {
        item["metadata"]["name"]: item for item in sets if controller_uid(item) == uid
    }
    uids = {item["metadata"]["uid"] for item in ours.values()}
    theirs = {
        pod["metadata"]["name"]: pod for pod in pods if controller_uid(pod) in uids
    }
    members = tuple(member for pod in theirs.values() if (member := read_member(pod)))
    observed = Observed(
        objects={(STATEFUL_SET, name): item for name, item in ours.items()},
        members=members,
    )
    budget = mapping(
        mapping(mapping(content.get("status")).get("engine")).get("startBudget")
    ).get("loadSeconds")
    most = budget if isinstance(budget, int) else None
    states = standing_groups(observed, uid, now, _rules(content))
    return tuple(_group(state, ours[state.name], theirs, most, now) for state in states)


def _rules(content: Content) -> LifeRules:
    try:
        return life_rules(
            intent_of(read_stored(content).spec),
            mapping(content["metadata"].get("annotations")),
        )
    except InputError:
        return LifeRules()


def _group(
    state: GroupState,
    live: Content,
    pods: Mapping[str, Content],
    most: int | None,
    now: datetime,
) -> StandingGroup:
    memory = read_annotations(live)
    its = [
        pod for pod in pods.values() if controller_uid(pod) == live["metadata"]["uid"]
    ]
    since = (
        memory.ready_since
        if state.ready
        else memory.stopped_at
        if state.situation in AT_ZERO
        else _made_at(its)
    )
    return StandingGroup(
        name=state.name,
        ready=state.ready,
        state=state,
        since=since,
        loading=_loading(state, its, most, now),
    )


def _made_at(pods: Iterable[Content]) -> datetime | None:
    """Return when the newest of these pods was made, None if that is not known of any."""
    said = (text_or_empty(pod["metadata"].get("creationTimestamp")) for pod in pods)
    return max((time for text in said if (time := read_time(text))), default=None)


def _loading(
    state: GroupState, pods: Sequence[Content], most: int | None, now: datetime
) -> Loading | None:
    """Return how long a group has loaded its weights, None if it does not."""
    loads = state.situation is Situation.STARTING and any(
        wait.what in _LOADING for wait in state.waits
    )
    runs = [time for pod in pods if (time := _runs_since(pod))]
    if not loads or not len(runs) == len(pods) > 0:
        return None
    seconds = max(0.0, (now - max(runs)).total_seconds())
    return Loading(seconds=seconds, most_seconds=most)


def _runs_since(pod: Content) -> datetime | None:
    """Return since when the engine of a pod runs, None if it does not."""
    for status in mappings(mapping(pod.get("status")).get("containerStatuses")):
        if status.get("name") == ENGINE:
            return read_time(
                text_or_empty(
                    mapping(mapping(status.get("state")).get("running")).get(
                        "startedAt"
                    )
                )
            )
    return None
