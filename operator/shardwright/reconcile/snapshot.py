"""Everything that one reconcile of a ShardedModel has read, with the results of its writes so far,
as one frozen value. A reconcile never reads anything else, so its decisions can be replayed from
this value. Nothing is read or decided here: ``cluster`` reads, ``next_step`` decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shardwright.api.admission import NamespaceLimits
from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import KnownPods, NodeExclusion
from shardwright.planning.report import Plan
from shardwright.reconcile.first_seen import Sighting
from shardwright.reconcile.observed import STATEFUL_SET, Observed
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.priorities import Priorities
from shardwright.reconcile.quotas import Allowance, Pods
from shardwright.reconcile.revisions import AskedSpec, Course, Former
from shardwright.reconcile.signing import SigningKeys
from shardwright.reconcile.writes import DryRunPod, ObjectKey, Write
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import HubFetch
from shardwright.replanning import Held, Replanned
from shardwright.resolving.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResource:
    """The resource itself, without its spec, which is resolved into a ``Subject``.

    ``status`` was published last; only the times since when its conditions hold are taken from it.
    ``paused`` is taken from the spec even if the rest of the spec cannot be used. ``config`` is the
    ConfigMap for the config of the model, whether it exists or not.
    """

    owner: Owner
    generation: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    paused: bool = False
    config: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The facts of the cluster around one model.

    Args:
        nodes: Facts of the nodes of its plan and of its pods by name; those without GPUs, and those
            that do not exist, are not in it.
        free: How many GPUs other models and pods leave on each planned node, None if pods cannot be
            listed.
        known_pods: Which pods are known.
        unread: Watched namespaces of which something was never read.
        reserved: Whether the GPUs of its plan of record are kept for it.
        scheduling_api: Version of the API by which the scheduler that it names is told of groups,
            empty if it names none.
        scheduler_problem: Why that scheduler cannot be told.
        most_moving: How many of its groups may be down on purpose at once for the sake of all
            models (None: any number).
        domain: DNS domain of the cluster.
        priorities: The PriorityClasses that there are.
        allowance: The allowance of its namespace.
        promised: Pods of other models of the namespace that are still to be made.
        limits: The operator's limits for its namespace; ``older`` models of it are there,
            ``waiting`` others wait for GPUs, and others keep ``gpus``.
    """

    nodes: Mapping[str, NodeFacts | NodeExclusion] = field(default_factory=dict)
    free: Mapping[str, int] | None = None
    known_pods: KnownPods = KnownPods.ALL
    unread: frozenset[str] = frozenset()
    reserved: bool = True
    scheduling_api: str = ""
    scheduler_problem: Problem | None = None
    most_moving: int | None = None
    domain: str = "cluster.local"
    priorities: Priorities = field(default_factory=Priorities)
    allowance: Allowance = field(default_factory=Allowance)
    promised: tuple[Pods, ...] = ()
    limits: NamespaceLimits = field(default_factory=NamespaceLimits)
    older: int = 0
    waiting: int = 0
    gpus: int = 0

    def silent_nodes(self, observed: Observed) -> frozenset[str]:
        """Return the nodes of these pods whose kubelet does not answer or says that it cannot run
        pods.
        """
        names = {member.node for member in observed.members if member.node}
        return frozenset(
            # A node without a Node object is not silent: it is gone, which is another fault with
            # another patience.
            name
            for name in names
            if (node := self.nodes.get(name)) and not node.ready
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """A config to be read from the hub, the Job that reads it (None: there is none), and the output
    of its pod so far. ``problem`` says why the config or the Job's state cannot be read.
    """

    fetch: HubFetch
    job: KubernetesObject | None = None
    left: str = ""
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question for the planner: how to carry out a choice on a plan of record, with the groups
    that leave their nodes.

    ``held`` are the nodes that groups have now, if there is no plan of record that says so, or an
    earlier plan is to be ``restored``, and of those below the partition, which may be elsewhere
    than it says. ``worst`` are the numbers of the groups in the order in which they go if fewer are
    wanted. ``lost`` are nodes that do not give pods of the model back, or that should have been
    made by now: nothing is planned there. With ``beside`` (group, generation) it is asked for a
    second place for one group instead, while the first one serves.
    """

    # Not compared: it is the same throughout a reconcile, and hashing a record of 1,000 groups for
    # each question is not.
    on: PlanRecord | None = field(compare=False)
    choice: PlanChoice = PlanChoice.KEEP
    leaving: frozenset[int] = frozenset()
    held: tuple[Held, ...] = ()
    restored: Plan | None = field(default=None, compare=False)
    worst: tuple[int, ...] = ()
    lost: frozenset[str] = frozenset()
    beside: tuple[int, int] | None = None

    @property
    def only_compares(self) -> bool:
        """Return whether nothing is deployed by the answer, so that it keeps no GPUs."""
        return self.choice is PlanChoice.COMPARE

    @property
    def goes_first(self) -> bool:
        """Return whether a broken group waits for the answer: it waits behind no other model."""
        return self.choice is PlanChoice.REHOUSE

    @property
    def vacated(self) -> frozenset[str]:
        """Return the nodes that groups leave because they are lost or ill."""
        if self.choice is not PlanChoice.REHOUSE or self.on is None:
            return frozenset()
        groups = self.on.plan.groups
        return frozenset(node for index in self.leaving for node in groups[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A write that was not carried out; ``passes``: the API server may take the same one a little
    later.

    ``code`` is the HTTP status (0: no answer), ``reason`` the API server's word for it, ``message``
    its sentence. ``problem`` is our own explanation, if we have a better one.
    """

    write: Write
    code: int
    reason: str
    message: str
    passes: bool
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of writes: those that were carried out, and those that were refused."""

    written: tuple[Write, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def changed(self) -> bool:
        """Return whether something was written; a dry run of a pod only asks."""
        return any(not isinstance(write, DryRunPod) for write in self.written)

    @property
    def refusal(self) -> Refusal | None:
        """Return the first refusal of something that was to be written, None if there is none."""
        to_write = (item for item in self.refused if not isinstance(item.write, DryRunPod))
        return next(to_write, None)

    def then(self, later: "Outcome") -> "Outcome":
        """Return the results of both."""
        return Outcome(
            written=(*self.written, *later.written), refused=(*self.refused, *later.refused)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that one reconcile has read, with the planner's answers and the results of its
    writes so far.

    Args:
        resource: The resource itself.
        subject: Its resolved spec, or the problems for the user to correct.
        record: The plan of record that is believed, or why the one that there is cannot be read;
            None if there is none.
        serial: The serial of the newest plan of record.
        refused: Why the plan of record that is stored is not believed, or was not signed by us;
            None if all is well.
        distrusted: The same as it was last found, and when that was.
        keys: The keys by which plans of record are signed.
        observed: Its present objects, or why they cannot be read.
        cluster: Known facts of the cluster, None until every cache is full.
        since: When each passing fact was first seen, by the clock that never jumps.
        contested: Objects that somebody else keeps setting back and that are not repaired again
            yet, with their fields.
        kept_out: The API server's objections to the pods of StatefulSets, by uid, as last asked.
        fetching: How far the Job is that reads the config of its model, if nobody has given one.
        certain: Whether its objects have been read fresh from the API server, as it must be before
            anything is ended.
        answers: The planner's answers in this reconcile, or why it has none.
        recorded: Plans of record that were written in this reconcile, and the result of each.
        course: Whether the spec itself is run, as found in this reconcile.
        former: The revision to restore, if it was asked for.
        told: The resource's request, word for word, if it was asked for.
        outcome: The outcome of writing everything else.
    """

    resource: ModelResource
    subject: Subject | tuple[Problem, ...]
    record: PlanRecord | Problem | None
    serial: int = 0
    refused: Problem | None = None
    distrusted: tuple[Problem, datetime] | None = None
    keys: SigningKeys = field(default_factory=SigningKeys)
    observed: Observed | Problem
    cluster: Cluster | None
    since: Mapping[Sighting, datetime] = field(default_factory=dict)
    contested: Mapping[ObjectKey, tuple[str, ...]] = field(default_factory=dict)
    kept_out: Mapping[str, str] = field(default_factory=dict)
    fetching: Fetching | None = None
    certain: bool = False
    answers: Mapping[Ask, Replanned | Problem] = field(default_factory=dict)
    recorded: tuple[tuple[PlanRecord, Outcome], ...] = ()
    course: Course = field(default_factory=Course)
    former: Former | None = None
    told: AskedSpec | None = None
    outcome: Outcome | None = None

    @property
    def groups(self) -> int:
        """Return the number of groups that concern a reconcile: the existing, the planned or the
        wanted ones, whichever are most.
        """
        objects = self.observed.objects if isinstance(self.observed, Observed) else {}
        there = sum(kind == STATEFUL_SET for kind, _ in objects)
        wanted = self.subject.intent.replicas if isinstance(self.subject, Subject) else 0
        records = (
            self.record,
            *(answer.record for answer in self.answers.values() if isinstance(answer, Replanned)),
        )
        # The shell goes by it: a look at more than 16 groups is worked out on a thread (ADR 6).
        return max(
            there,
            wanted,
            *(len(record.plan.groups) for record in records if isinstance(record, PlanRecord)),
            0,
        )

    def answered(self, ask: Ask, answer: Replanned | Problem) -> "Snapshot":
        """Return the facts of this reconcile with the planner's answer, or why there is none."""
        return replace(self, answers={**self.answers, ask: answer})

    def beside(self, gpus: int) -> "Snapshot":
        """Return the facts of this reconcile with the number of GPUs that other models of the
        namespace keep by now.
        """
        if self.cluster is None:
            return self
        return replace(self, cluster=replace(self.cluster, gpus=gpus))

    def put_down(self, record: PlanRecord, outcome: Outcome) -> "Snapshot":
        """Return the facts of this reconcile after a plan of record has been written."""
        return replace(self, recorded=(*self.recorded, (record, outcome)))

    def done(self, outcome: Outcome) -> "Snapshot":
        """Return the facts of this reconcile after everything else has been written."""
        return replace(self, outcome=outcome)
