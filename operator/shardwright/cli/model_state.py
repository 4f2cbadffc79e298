"""How do ShardedModels stand? Facts from their status, and the progress of their groups' pods.

Nothing that the operator has written down is worked out anew.

Which commands should the user run next? Decided by a model's reason and its groups' pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from shardwright.api.conditions import ConditionType, Reason
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.modelspec.catalogue import like_ids
from shardwright.reconcile.annotations import read_time
from shardwright.reconcile.group import RESTART
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
    groups that serve out of those that are wanted, ``gpus`` those of all (None: unknown),
    ``most_seconds`` the longest that a start may take. ``conditions`` are others worth a line,
    ``meant`` known models with ids like the one looked up at the hub.
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
    gpus: int | None
    groups: tuple[StandingGroup, ...]
    most_seconds: int | None
    endpoint: str
    clients: str
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
        gpus=_whole(status.get("gpus")),
        groups=tuple(
            _group(group, metadata["uid"], pods, now) for group in mappings(status.get("groups"))
        ),
        most_seconds=_whole(budget.get("loadSeconds")),
        endpoint=text_or_empty(status.get("endpoint")),
        clients=text_or_empty(status.get("clients")),
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
    # Also of one that is ready: its former generation may serve meanwhile.
    starts = not all(member.started for member, _ in members)
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


MOST: Final = 3
"""Commands shown for a model. Basis: assumed, the first ones lead to the cause."""

Advice = tuple[str, str]
"""A command, and its purpose."""


def advice(standing: ModelState, program: str) -> tuple[Advice, ...]:
    """Return the commands to run for a model, none if it is ready, for our name ``program``."""
    if standing.ready == "True":
        return ()
    kubectl = f"kubectl -n {standing.namespace}"
    waiting = (
        group
        for group in standing.groups
        if group.missing
        or (group.pods and not (group.ready and all(pod.ready for pod in group.pods)))
    )
    found = (*(_of_group(kubectl, group) for group in waiting), _of_model(standing, program))
    return tuple(islice(dict.fromkeys(found), MOST))


def _of_group(kubectl: str, group: StandingGroup) -> Advice:
    """Return what to run for the first of a group's pods that holds the others up."""
    if group.missing:
        command = f"{kubectl} describe statefulset {group.name}"
        return command, "why its pods are not created"
    pod = min(group.pods, key=lambda one: (one.ready, one.runs, one.rank))
    if pod.failure and pod.failure.container:
        command = f"{kubectl} logs {pod.name} -c {pod.failure.container} --previous"
        return command, "what its engine said last"
    if pod.deleting and pod.node:
        command = f"kubectl describe node {pod.node}"
        return command, "why the node does not give the pod back"
    if pod.runs:
        return f"{kubectl} logs -f {pod.name} -c {ENGINE}", "what its engine says"
    return f"{kubectl} describe pod {pod.name}", "what the pod waits for"


_EDIT: Final = ("kubectl -n {n} edit smodel {m}", "correct what the message names")
_EXPLAIN: Final = ("{p} explain {m} -n {n}", "what was ruled out, and what comes closest")
_RETRY: Final = (
    "{p} rollout retry {m} -n {n}",
    "have the spec tried again, once the cause is gone",
)
_HISTORY: Final = ("{p} rollout history {m} -n {n}", "which revisions there are")
_QUOTA: Final = ("kubectl -n {n} describe resourcequota,limitrange", "what the namespace may have")
_EVENTS: Final = ("kubectl -n {n} events --for smodel/{m}", "what has happened to it")
_OPERATOR: Final = (
    "kubectl get pods -A -l app.kubernetes.io/name=shardwright-operator",
    "whether the operator runs",
)

BY_REASON: Final[Mapping[str, Advice]] = MappingProxyType(
    {
        Reason.PAUSED: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"paused":false}}}}'""",
            "go on",
        ),
        Reason.SCALED_TO_ZERO: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"replicas":null}}}}'""",
            "run as many groups as the plan says",
        ),
        Reason.PLAN_ONLY: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"mode":"Deploy"}}}}'""",
            "deploy it",
        ),
        Reason.INSUFFICIENT_CAPACITY: _EXPLAIN,
        Reason.NOTHING_FITS: _EXPLAIN,
        Reason.NOT_DEPLOYABLE: _EXPLAIN,
        Reason.INVALID_SPEC: _EDIT,
        Reason.MODEL_UNKNOWN: _EDIT,
        Reason.CONFIG_MISSING: _EDIT,
        Reason.CONFIG_INVALID: _EDIT,
        Reason.QUOTA_EXCEEDED: _QUOTA,
        Reason.PODS_REFUSED: _QUOTA,
        Reason.RESTART_BUDGET_SPENT: (
            f'kubectl -n {{n}} annotate smodel {{m}} {RESTART}="$(date +%s)" --overwrite',
            "start it again, once the cause is gone",
        ),
        Reason.ROLLED_BACK: _RETRY,
        Reason.REVISION_UNUSABLE: _HISTORY,
        Reason.WAITING_FOR_QUOTA: (
            "kubectl -n {n} get workloads.kueue.x-k8s.io",
            "what its queue says",
        ),
        Reason.POD_SECURITY_FORBIDS: (
            "kubectl get namespace {n} --show-labels",
            "which Pod Security level it has",
        ),
        Reason.CLUSTER_READING: _OPERATOR,
        "": _OPERATOR,
    }
)
"""The command for each reason of Ready; other reasons get the model's events. {n} is the namespace,
{m} the model, {p} the name we are called by.
"""


def _of_model(standing: ModelState, program: str) -> Advice:
    # A status of another generation says nothing about this spec: look at the operator then.
    command, purpose = (
        _OPERATOR if not standing.current else BY_REASON.get(standing.reason, _EVENTS)
    )
    said = {"n": standing.namespace, "m": standing.name, "p": program}
    return command.format(**said), purpose
