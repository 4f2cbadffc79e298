"""What has one reconcile of a ShardedModel read, and what are the results of its writes? One frozen
value, so that its decisions can be replayed: a reconcile reads nothing else. ``cluster`` reads,
``next_step`` decides.
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
from shardwright.layouts.layout import GpuQuota
from shardwright.pipeline.replanning import Held, Replanned
from shardwright.planning.report import Plan
from shardwright.reconcile.first_seen import Sighting
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.quotas import Allowance, Pods, Priorities
from shardwright.reconcile.record_object import SigningKeys
from shardwright.reconcile.revisions import AskedSpec, Course, Former
from shardwright.reconcile.write_cause import Contest
from shardwright.reconcile.writes import DryRunPod, ObjectKey, Write
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import HubFetch
from shardwright.resolving.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResource:
    """The resource itself, without its spec, which is resolved into a ``Subject``.

    ``status`` was published last; only the times of its conditions are taken from it. ``paused`` is
    taken from the spec even if the rest cannot be used. ``config`` is the ConfigMap for the model's
    config, whether it exists or not. ``version`` is the one of the object that was read.
    """

    owner: Owner
    generation: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    paused: bool = False
    config: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The facts of the cluster around one model.

    ``nodes`` are those of its plan and its pods by name, without those that lack GPUs or do not
    exist; ``gone`` are those of its pods that the API server does not have. ``free`` is how many
    GPUs other models and pods leave on each planned node, None if pods cannot be listed. ``unread``
    are watched namespaces of which something was never read.
    ``reserved``: the GPUs of its plan of record are kept for it. ``scheduling_api`` is the version
    of the API by which its scheduler is told of groups, empty if it names no scheduler;
    ``scheduler_problem`` is why that cannot be told. ``most_moving`` is how many of its groups may
    be down on purpose, given all models (None: any number). ``domain`` is the cluster's DNS domain.
    ``allowance`` is its namespace's; ``promised`` are pods of the namespace's other models that are
    still to be made. ``limits`` are the operator's for its namespace, in which ``older`` models
    exist, ``waiting`` others wait for GPUs, and others keep ``gpus``.
    """

    nodes: Mapping[str, NodeFacts | NodeExclusion] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
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
        """Return the nodes of these pods whose kubelet does not answer or cannot run pods."""
        names = {member.node for member in observed.members if member.node}
        return frozenset(
            # A node without a Node object is gone, not silent: another fault with another patience.
            name
            for name in names
            if (node := self.nodes.get(name)) and not node.ready
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """A config to read from the hub, its Job (None: there is none), and its pod's output.

    ``problem`` is why the config or the Job's state cannot be read.
    """

    fetch: HubFetch
    job: KubernetesObject | None = None
    left: str = ""
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question for the planner: how to carry out a choice on a plan of record, with the groups
    that leave their nodes.

    ``held`` are the present nodes of groups: of all if no plan of record says so or an earlier plan
    is to be ``restored``, else of those below the partition, which may be elsewhere than it says.
    ``worst`` are the numbers of the groups in the order in which they go if fewer are wanted.
    Nothing is planned on ``lost`` nodes: they do not give pods back, or are late. ``same_pods``:
    the spec asks groups for no other pods than they have by the plan of record. ``beside`` (group,
    generation) asks for a surge of one group instead. ``serving`` is how many groups there are
    while any serves, of which no new plan may end one for want of room. ``most`` is how many groups
    the namespace's quotas admit (None: all). ``quotas`` are what the namespace leaves; a plan
    beyond them is made only if there is none within.
    """

    # Not compared: it is the same throughout a reconcile, and a record of 1,000 groups is costly to
    # hash.
    on: PlanRecord | None = field(compare=False)
    choice: PlanChoice = PlanChoice.KEEP
    leaving: frozenset[int] = frozenset()
    held: tuple[Held, ...] = ()
    restored: Plan | None = field(default=None, compare=False)
    worst: tuple[int, ...] = ()
    lost: frozenset[str] = frozenset()
    same_pods: bool = False
    beside: tuple[int, int] | None = None
    serving: int = 0
    most: int | None = None
    quotas: tuple[GpuQuota, ...] = ()

    @property
    def only_compares(self) -> bool:
        """Return whether nothing is deployed by the answer, so that it keeps no GPUs."""
        return self.choice is PlanChoice.COMPARE

    @property
    def is_refuge(self) -> bool:
        """Return whether a group that is down goes elsewhere, beside what is left of it."""
        return self.beside is not None and bool(self.leaving)

    @property
    def goes_first(self) -> bool:
        """Return whether a broken group waits for the answer: it waits behind no other model."""
        return self.choice is PlanChoice.REHOUSE or self.is_refuge

    @property
    def vacated(self) -> frozenset[str]:
        """Return the nodes that groups leave because they are lost or unfit."""
        if not self.goes_first or self.on is None:
            return frozenset()
        groups = self.on.plan.groups
        return frozenset(node for index in self.leaving for node in groups[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A write that was not carried out; ``passes``: the API server may take it a little later.

    ``code`` is the HTTP status (0: no answer), ``reason`` the API server's word, ``message`` its
    sentence. ``problem`` is our own explanation, if we have a better one.
    """

    write: Write
    code: int
    reason: str
    message: str
    passes: bool
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The writes that were carried out, and those that were refused; ``found`` are those of the
    first that met what they were to make.
    """

    written: tuple[Write, ...] = ()
    refused: tuple[Refusal, ...] = ()
    found: tuple[Write, ...] = ()

    @property
    def changed(self) -> bool:
        """Return whether something was written; a dry run of a pod only asks."""
        wrote = (write for write in self.written if not isinstance(write, DryRunPod))
        return any(write not in self.found for write in wrote)

    @property
    def refusal(self) -> Refusal | None:
        """Return the first refusal of something that was to be written, or None."""
        to_write = (item for item in self.refused if not isinstance(item.write, DryRunPod))
        return next(to_write, None)

    def then(self, later: "Outcome") -> "Outcome":
        """Return the results of both."""
        return Outcome(
            written=(*self.written, *later.written),
            refused=(*self.refused, *later.refused),
            found=(*self.found, *later.found),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that one reconcile has read, the planner's answers, and the results of its writes.

    ``subject`` is the resolved spec, or the problems for the user to correct. ``record`` is the
    plan of record that is believed, or why it cannot be read; ``serial`` is the newest one's.
    ``refused`` is why the stored record is not believed, or was not signed by us; ``distrusted``
    the same as it was last found, and when. ``keys`` sign plans of record. ``observed`` are the
    present objects, or why they cannot be read. ``cluster`` is None until every cache is full.
    ``since`` is when each passing fact was first seen. ``contested`` are objects that somebody
    keeps undoing and that are not to be repaired yet. ``kept_out`` are the
    API server's objections to the pods of StatefulSets, by uid, as last asked. ``fetching`` is the
    state of the Job that reads the model's config, if nobody has given one. ``certain``: objects
    were read from the API server, not from caches, as they must be before anything is ended.
    ``answers`` are the planner's in this reconcile, or why it has none. ``recorded`` are the plans
    of record written in this reconcile, with their results. ``course`` says whether the spec itself
    is run. If they were asked for, ``former`` is the revision to restore, and ``told`` the
    resource's request, word for word. ``outcome`` is that of all other writes.
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
    contested: Mapping[ObjectKey, Contest] = field(default_factory=dict)
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
        """Return the number of groups that concern a reconcile: existing, planned or wanted,
        whichever is the most.
        """
        there = len(self.observed.sets) if isinstance(self.observed, Observed) else 0
        wanted = self.subject.intent.replicas if isinstance(self.subject, Subject) else None
        records = (
            self.record,
            *(answer.record for answer in self.answers.values() if isinstance(answer, Replanned)),
        )
        # The shell goes by it: a reconcile of more than 16 groups is worked out on a thread (ADR
        # 6).
        return max(
            there,
            wanted or 0,
            *(len(record.plan.groups) for record in records if isinstance(record, PlanRecord)),
            0,
        )

    def answered(self, ask: Ask, answer: Replanned | Problem) -> "Snapshot":
        """Return the snapshot with the planner's answer, or why there is none."""
        return replace(self, answers={**self.answers, ask: answer})

    def beside(self, gpus: int) -> "Snapshot":
        """Return the snapshot with the GPUs that the namespace's other models keep by now."""
        if self.cluster is None:
            return self
        return replace(self, cluster=replace(self.cluster, gpus=gpus))

    def put_down(self, record: PlanRecord, outcome: Outcome) -> "Snapshot":
        """Return the snapshot after a plan of record has been written."""
        return replace(self, recorded=(*self.recorded, (record, outcome)))

    def done(self, outcome: Outcome) -> "Snapshot":
        """Return the snapshot after everything else has been written."""
        return replace(self, outcome=outcome)
