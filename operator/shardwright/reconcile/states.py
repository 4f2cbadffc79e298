"""How a group stands: facts that rules decide on; ``sentences`` says them to people, and nothing
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

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from shardwright.reconcile.members import PODS_REFUSED, UNSCHEDULABLE, Failure


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

    ``ready``: it serves, with the pods that are wanted or that it is to keep; ``serves``: with any;
    ``available``: it has been ready for as long as is asked for. ``unplaced`` are the ranks that
    the scheduler finds no place for. ``last_failure`` is remembered; ``failing``: it is why the
    group does not serve, and no change has come since. ``budget_spent``: the engine has failed too
    often in a row. ``outage_seconds`` is how long the last restart took from its stop until all
    ranks were ready. ``moving``: it is down because of a restart on purpose. ``pending`` are pod
    fields that the next restart changes although the request is the same. ``hold`` is why it keeps
    its pods although others are wanted.
    """

    name: str
    ready: bool
    situation: Situation
    serves: bool = False
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
    hold: Wait | None = None
    available: bool = False

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
