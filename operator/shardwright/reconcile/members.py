"""What do the rules of a group's life need to know of its pods? A pod is read here, not judged:
whether a failure ends its group is for ``groups`` to say.

How a group stands: facts that rules decide on; ``wording`` says them to people, and nothing
reads that back.

The life of a group. Each edge names the mover: (we) by a write, (K) Kubernetes.

::

              ┌──────────────────── all pods ready (K) ───────────────────┐
              │                                                           ▼
  (we) ──▶ Starting ◀───── probe passes (K) ─────── Unready ◀─────────── Ready ──▶ Outdated
   │          │   ▲                                    │   a probe fails   │          │
   │          │   └── admitted (K) ── WaitingForQuota  │       (K)         │          │ its turn (we)
   │          │                                        │                   │          │
   │          └──────── a rank fails, a change, a restart that is asked for (we) ─────┘
   │                                       │
   │                                       ▼
   └──── pods gone, no pause (we) ──── Stopping ──▶ BackingOff ──▶ Starting (we)
                                           │
                                           └──▶ Stopped: the budget is spent; a change starts it
                                           (we)
"""  # noqa: E501 - a picture

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from shardwright.reconcile.drift import own_hash_in
from shardwright.rendering.bundle import TEMPLATE_HASH, KubernetesObject
from shardwright.rendering.guards import Guard, guards_in
from shardwright.rendering.names import LEADER_VARIABLE

REVISION_LABEL: Final = "controller-revision-hash"

# It is a word, but nobody bounds it, and it ends up in an annotation.
LONGEST_REASON: Final = 256

MESSAGE_LENGTH: Final = 1024
"""Characters that are kept of a container's last words: annotations of an object share 256 KiB."""

RANKS_MAX: Final = 4096
"""Ranks are below this. Basis: assumed, far above the nodes of any group; somebody may name a pod
as they like.
"""

UNSCHEDULABLE: Final = "Unschedulable"
"""Why a pod that finds no place is not scheduled. Source: ``PodReasonUnschedulable`` of the
Kubernetes API.
"""

PODS_REFUSED: Final = "PodsRefused"
"""Reason of a group that gives its GPUs back as the API server does not create its pods."""

FINISHED_PHASES: Final = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a member of a group failed; ``exit_code`` is None if no container of it exited.

    ``message`` is the end of the last words of the container, or of the component that ended the
    pod.
    """

    rank: int
    reason: str
    container: str = ""
    exit_code: int | None = None
    message: str = ""

    @property
    def by_engine(self) -> bool:
        """Return whether the engine ended or failed its probes; else its pod was taken away."""
        return bool(self.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One pod of a group.

    ``waiting`` is its wait before its engine runs, or empty; ``runs``: its containers run;
    ``started``: its startup probe has passed, whether it is ready or not. ``unschedulable_since``
    is when the scheduler first found no place for it. ``taken_by`` is the reason of its condition
    DisruptionTarget (eviction, preemption, a taint) or Kueue's TerminationTarget. ``gone_by`` is
    when the grace of a deleted pod ends. ``gates`` keep it from being scheduled until somebody else
    lifts them. ``config_maps`` are those that it mounts. ``own_hash`` is the template hash that it
    would have without LimitRanges. ``node_answers`` is False if its kubelet is silent: the pod's
    status is old then. ``node_gone``: its node is no more, so it is never ``ready``, whatever its
    status says.
    """

    name: str
    uid: str
    group: str  # name of its StatefulSet
    set_uid: str
    rank: int
    node: str | None
    ready: bool
    deleting: bool
    grace_seconds: int
    template_hash: str
    own_hash: str
    revision: str
    restarts: int = 0  # of its containers, in place
    waiting: str = ""
    runs: bool = False
    started: bool = False
    failure: Failure | None = None
    unschedulable_since: datetime | None = None
    taken_by: str = ""
    gone_by: datetime | None = None
    gates: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    guards: frozenset[Guard] = frozenset()
    node_answers: bool = True
    node_gone: bool = False


def read_member(pod: KubernetesObject) -> Member | None:
    """Return the member that a pod is, or None if no StatefulSet controls it."""
    metadata = pod["metadata"]
    owner, labels = controlling_set(metadata), metadata.get("labels") or {}
    rank = _rank(metadata["name"].removeprefix(f"{owner.get('name')}-"))
    if not owner or rank is None:
        return None
    return Member(
        name=metadata["name"],
        uid=metadata["uid"],
        group=owner["name"],
        set_uid=owner["uid"],
        rank=rank,
        node=pod.get("spec", {}).get("nodeName"),
        ready=_condition(pod, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        grace_seconds=int(metadata.get("deletionGracePeriodSeconds") or 0),
        template_hash=labels.get(TEMPLATE_HASH, ""),
        own_hash=own_hash_in(labels),
        revision=labels.get(REVISION_LABEL, ""),
        guards=guards_in(labels),
        restarts=sum(
            status.get("restartCount", 0)
            for status in pod.get("status", {}).get("containerStatuses") or ()
        ),
        waiting=_waiting(pod),
        runs=_runs(pod),
        started=_started(pod),
        failure=_failure(pod, rank),
        unschedulable_since=_unschedulable_since(pod),
        taken_by=_taken_by(pod),
        gone_by=_time(metadata.get("deletionTimestamp")),
        gates=_gates(pod),
        config_maps=mounted_config_maps(pod.get("spec", {})),
    )


def _rank(ordinal: str) -> int | None:
    if (
        # isdecimal alone takes the digits of every script.
        not (ordinal.isascii() and ordinal.isdecimal())
        # Whoever makes the pod names it, and int() of a long text takes its time.
        or len(ordinal) > len(str(RANKS_MAX))
    ):
        return None
    rank = int(ordinal)
    return rank if rank < RANKS_MAX else None


def nodes_of(members: Sequence[Member]) -> tuple[str | None, ...]:
    """Return the node of each rank up to the last with a pod; None for a missing one."""
    by_rank = {member.rank: member.node for member in members}
    return tuple(by_rank.get(rank) for rank in range(max(by_rank, default=-1) + 1))


def controlling_set(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the owner reference of the StatefulSet that controls a pod, or an empty mapping."""
    owners = metadata.get("ownerReferences") or ()
    sets = (
        o
        for o in owners
        if o.get("controller") and o["kind"] == "StatefulSet" and o["apiVersion"] == "apps/v1"
    )
    return next(sets, {})


def mounted_config_maps(pod_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the ConfigMaps that a pod mounts as volumes."""
    mounted = {
        (volume.get("configMap") or {}).get("name", "") for volume in pod_spec.get("volumes") or ()
    }
    # Sorted: members are compared across reconciles, and a set has no order.
    return tuple(sorted(mounted - {""}))


def peers_service_of(spec: Mapping[str, Any]) -> str | None:
    """Return the name of the Service by which a StatefulSet's pods find each other, or None for a
    group of one pod.
    """
    pod = (spec.get("template") or {}).get("spec") or {}
    named = {
        variable.get("name")
        for container in pod.get("containers") or ()
        for variable in container.get("env") or ()
    }
    return spec.get("serviceName") if LEADER_VARIABLE in named else None


def claim_templates(pod_spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the ResourceClaimTemplates that the pods of a template use."""
    named = {
        claim.get("resourceClaimTemplateName") or ""
        for claim in pod_spec.get("resourceClaims") or ()
    }
    return frozenset(named - {""})


def mounted_secrets(pod_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the Secrets that the pods of a template mount as volumes."""
    mounted = {
        (volume.get("secret") or {}).get("secretName", "")
        for volume in pod_spec.get("volumes") or ()
    }
    return tuple(sorted(mounted - {""}))


def _condition(pod: KubernetesObject, kind: str) -> Mapping[str, Any]:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _gates(pod: KubernetesObject) -> tuple[str, ...]:
    return tuple(str(gate["name"]) for gate in pod.get("spec", {}).get("schedulingGates") or ())


def _waiting(pod: KubernetesObject) -> str:
    if gates := _gates(pod):
        return f"held back by {', '.join(gates)}"
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}".rstrip(
            ": "
        )
    for status in _container_statuses(pod):
        if waiting := status.get("state", {}).get("waiting"):
            reason = waiting.get("reason", "Waiting")
            return f"{status['name']} {reason}" + (
                f" of {status['image']}"
                # For ErrImagePull, ImagePullBackOff and InvalidImageName the image is half of the
                # answer.
                if "Image" in reason and "image" in status
                else ""
            )
    return ""


def _runs(pod: KubernetesObject) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return bool(statuses) and all("running" in status.get("state", {}) for status in statuses)


def _started(pod: KubernetesObject) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return bool(statuses) and all(status.get("started") for status in statuses)


def _container_statuses(pod: KubernetesObject) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _unschedulable_since(pod: KubernetesObject) -> datetime | None:
    scheduled = _condition(pod, "PodScheduled")
    since = scheduled.get("lastTransitionTime")
    if scheduled.get("status") != "False" or scheduled.get("reason") != UNSCHEDULABLE or not since:
        return None
    return datetime.fromisoformat(since)


def _time(stamp: str | None) -> datetime | None:
    return datetime.fromisoformat(stamp) if stamp else None


def _taken_by(pod: KubernetesObject) -> str:
    # Kubernetes' own condition goes first; the other is Kueue's.
    for kind in ("DisruptionTarget", "TerminationTarget"):
        taken = _condition(pod, kind)
        if taken.get("status") == "True":
            return str(taken.get("reason") or "")[:LONGEST_REASON]
    return ""


def _failure(pod: KubernetesObject, rank: int) -> Failure | None:
    # Init containers retry by themselves.
    status = pod.get("status", {})
    finished = status.get("phase") in FINISHED_PHASES
    # Before its containers: those of an evicted pod have ended too, and their exit codes say
    # nothing about why.
    if finished and (status.get("reason") or _taken_by(pod)):
        return Failure(
            rank=rank,
            reason=_cut(status.get("reason") or _taken_by(pod)),
            message=_last(status.get("message")),
        )
    for container in status.get("containerStatuses") or ():
        # One that the kubelet has restarted runs now; how it ended is in lastState.
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get(
            "terminated"
        )
        # A restart of which nobody kept the end is still a restart.
        if ended or container.get("restartCount", 0) > 0:
            return _ended(rank, container["name"], ended or {})
    if (
        not finished or "deletionTimestamp" in pod["metadata"]
    ):  # it ends without a word because it is deleted
        return None
    return Failure(rank=rank, reason="Failed", message=_last(status.get("message")))


def _ended(rank: int, container: str, ended: Mapping[str, Any]) -> Failure:
    reason, code = _cut(ended.get("reason") or "Error"), ended.get("exitCode")
    return Failure(
        rank=rank,
        reason=reason,
        container=container,
        exit_code=code,
        message=_last(ended.get("message")),
    )


def _cut(reason: object) -> str:
    return str(reason)[:LONGEST_REASON]


def _last(message: object) -> str:
    # The end: an error is the last thing that a process says.
    return str(message or "").strip()[-MESSAGE_LENGTH:]


class Situation(StrEnum):
    """The stages of the life of a group."""

    STARTING = "Starting"  #: its pods are being created, bound or started
    WAITING_FOR_QUOTA = "WaitingForQuota"  #: a queue holds its pods back
    READY = "Ready"  #: all its pods are ready together
    UNREADY = "Unready"  #: it was ready, its engines run, and a readiness probe fails
    OUTDATED = "Outdated"  #: it serves as it was until it is its turn to restart
    STOPPING = "Stopping"  #: all its pods stop, before all start again
    BACKING_OFF = "BackingOff"  #: it is at zero until a pause is over
    STOPPED = "Stopped"  #: it is at zero until somebody changes something


AT_ZERO: Final = frozenset({Situation.STOPPING, Situation.BACKING_OFF, Situation.STOPPED})
"""Situations of a group whose pods all stop, or have stopped."""


class Awaited(StrEnum):
    """The kinds of wait of a group."""

    DELETION = "Deletion"  #: its StatefulSet is being deleted
    EARLIER_PODS = "EarlierPods"  #: pods of an earlier StatefulSet are still there
    PODS_GONE = "PodsGone"  #: its pods end before it starts again
    LATE_POD = "LatePod"  #: a pod that should be gone is still there
    STOP = "Stop"  #: it stops as a whole
    STOP_AGAIN = "StopAgain"  #: somebody scaled it up while it stopped
    NODES = "Nodes"  #: nodes that an autoscaler makes for it
    LATE_NODES = "LateNodes"  #: the same, for longer than that takes
    ROOM = "Room"  #: others have taken GPUs of its nodes: its pods were preempted
    PAUSE = "Pause"  #: the back-off after a failure
    CHANGE = "Change"  #: the restart budget is spent: somebody must change something
    TURN = "Turn"  #: other groups restart first
    PARTITION = "Partition"  #: a lower ``spec.rollout.partition``: it keeps the pods that it has
    #: a group with the changed pods does not come up: it keeps those that it has
    STOPPED_ROLLOUT = "StoppedRollout"
    OVERDUE = "Overdue"  #: it has its nodes, and has not come up within the time of a start
    FORMER = "Former"  #: the former generation serves meanwhile
    FORMER_TOO = "FormerToo"  #: the former generation, which is not ready either
    PODS_CREATED = "PodsCreated"  #: some of its pods do not exist yet
    POD = "Pod"  #: what Kubernetes says that a pod waits for
    NODE_GONE = "NodeGone"  #: the node of a pod that exists is no more
    PROBE = "Probe"  #: an engine that served fails its readiness probe
    PEERS = "Peers"  #: an engine runs and has not met all ranks of its group
    START = "Start"  #: an engine starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One thing that a group waits for, and the ranks that it concerns (empty: the group).

    ``said`` is a name, a number or the words of Kubernetes, to be shown.
    """

    what: Awaited
    ranks: tuple[int, ...] = ()
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """How a group stands, and when to reconcile again even if nothing happens (``look_at``).

    ``serves``: it is ready, with whichever pods; ``updated``: with those that are wanted;
    ``available``: it has been ready for as long as is asked for. ``unplaced`` are the ranks that
    the scheduler finds no place for. ``last_failure`` is remembered; ``failing``: it is why the
    group does not serve, and no change has come since. ``budget_spent``: the engine has failed too
    often in a row. ``outage_seconds`` is how long the last restart took from its stop until all
    ranks were ready. ``moving``: it is down because of a restart on purpose. ``pending`` are pod
    fields that the next restart changes although the request is the same, ``rerendered``: because
    another release rendered them, not only for another LimitRange or pull policy; ``unguarded`` the
    guards that its pods lack until then. ``hold`` is why it keeps its pods although others are
    wanted.
    """

    name: str
    situation: Situation
    serves: bool = False
    updated: bool = False
    waits: tuple[Wait, ...] = ()
    unplaced: frozenset[int] = frozenset()
    restarts: int = 0
    last_failure: Failure | None = None
    failing: bool = False
    look_at: datetime | None = None
    nodes: tuple[str | None, ...] = ()
    budget_spent: bool = False
    outage_seconds: int | None = None
    moving: bool = False
    pending: tuple[str, ...] = ()
    unguarded: frozenset[Guard] = frozenset()
    rerendered: bool = False
    hold: Wait | None = None
    available: bool = False

    @property
    def ready(self) -> bool:
        """Return whether it serves, with the pods that are wanted or that it is to keep."""
        return self.situation is Situation.READY

    @property
    def late(self) -> bool:
        """Return whether it takes longer to come up than a start may take."""
        return any(wait.what is Awaited.OVERDUE for wait in self.waits)

    def settled(self, pods: int) -> bool:
        """Return whether all its pods are bound and nothing stops it, so that it needs no place."""
        bound = len(self.nodes) == pods and None not in self.nodes
        return bound and self.situation not in AT_ZERO

    @property
    def holds_nothing(self) -> bool:
        """Return whether it keeps no GPUs: its pods are refused, or others took its GPUs."""
        why = self.last_failure.reason if self.last_failure else ""
        refused = why == PODS_REFUSED and self.situation in AT_ZERO
        return refused or any(wait.what is Awaited.ROOM for wait in self.waits)

    @property
    def gave_its_place_back(self) -> bool:
        """Return whether it went to zero because the scheduler found no place for all its ranks."""
        why = self.last_failure.reason if self.last_failure and self.failing else ""
        return why == UNSCHEDULABLE and self.situation in {
            Situation.STOPPING,
            Situation.BACKING_OFF,
        }
