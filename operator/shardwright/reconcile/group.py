"""What is wanted of a group, what is there, and by which rules of the user does it live? ``groups``
decides its steps.

Which rules does the user set for the life of the groups? They are not judged here: the API's own
rules have refused impossible ones.

Which nodes have died with pods on them, and which groups go on under their next generation?

A StatefulSet never replaces a pod that is still there, and the pod of a dead node stays until the
node comes back or its Node object goes. So the group goes on under the name of its next generation,
on other nodes; nothing is deleted by force.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from shardwright.planning.report import Plan
from shardwright.reconcile.annotations import (
    HELD_BACK,
    UNSCHEDULABLE_SECONDS,
    GroupAnnotations,
    RestartsBefore,
    read_annotations,
)
from shardwright.reconcile.drift import (
    asks_the_same,
    drifted_fields,
    made_anew,
    own_hash,
    pending_fields,
    template_hash,
)
from shardwright.reconcile.members import GroupState, Member, Wait
from shardwright.reconcile.observed import STATEFUL_SET, KeptOut, Observed, controller_uid
from shardwright.reconcile.writes import Why
from shardwright.rendering.bundle import KubernetesObject, of_kind
from shardwright.rendering.guards import Guard, guards_in
from shardwright.rendering.names import GENERATION_MAX, generation_name, generation_of, group_names
from shardwright.resolving.intent import Intent, RestartPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRules:
    """The user's rules of a group's life; ``restart_asked`` is the restart annotation's value, or
    empty.

    ``keeps_templates``: pods stay if the request is the same and only another release would render
    them differently. ``restores``: pods of another release are restored, and a group with other
    pods that does not serve gets them at once. ``min_ready_seconds`` is how long a group must be
    ready to count as available, ``progress_deadline_seconds`` how long it may take to become ready
    on its nodes (None: unknown). Groups numbered below ``partition`` keep their pods. ``rejected``:
    a group did not come up with the wanted state, and is gone. ``rolls_back``: a spec that groups
    do not come up with is rolled back. ``revision`` tells the wanted state from all earlier ones
    (empty: unknown). ``new_pods``: groups of one pod, too, restart with new pods.
    """

    restart: RestartPolicy = field(default_factory=RestartPolicy)
    max_unavailable: int = 1
    max_surge: int = 0
    restart_asked: str = ""
    keeps_templates: bool = True
    restores: bool = False
    min_ready_seconds: int = 0
    progress_deadline_seconds: int | None = None
    partition: int = 0
    rejected: bool = False
    rolls_back: bool = False
    revision: str = ""
    new_pods: bool = False


# No slots: cached_property keeps its value in the instance's __dict__.
@dataclass(frozen=True, kw_only=True)
class Group:
    """A group's rendered and live StatefulSet, and its pods in rank order.

    ``former`` is the live StatefulSet of the generation before, with its pods, during a surge.
    ``as_it_is``: the wanted form is unknown, so ``rendered`` is the live one with all its pods.
    ``kept_out`` says that the API server refuses its pods (at zero: in this reconcile),
    ``short_since`` since when some are missing. ``crowded_out``: others leave it too few GPUs on
    its nodes. ``nodes_in_provisioning`` is its wait for nodes. ``ready_since`` is since when all
    its pods are ready, ``starting_since`` since when all have nodes and it has not come up.
    ``hold`` is why it keeps its pods although others are wanted.
    """

    rendered: KubernetesObject
    live: KubernetesObject | None
    members: Sequence[Member]
    rules: LifeRules = field(default_factory=LifeRules)
    former: KubernetesObject | None = None
    former_members: Sequence[Member] = ()
    as_it_is: bool = False
    kept_out: KeptOut | None = None
    short_since: datetime | None = None
    crowded_out: bool = False
    nodes_in_provisioning: Wait | None = None
    ready_since: datetime | None = None
    starting_since: datetime | None = None
    hold: Wait | None = None

    @property
    def name(self) -> str:
        """Return the name of the StatefulSet."""
        return str(self.rendered["metadata"]["name"])

    @property
    def size(self) -> int:
        """Return the number of pods of the running group."""
        return int(self.rendered["spec"]["replicas"])

    @property
    def in_place(self) -> bool:
        """Return whether the kubelet restarts it: one pod, which nobody knows by its address."""
        return self.size == 1 and not self.rules.new_pods

    @cached_property
    def remembered(self) -> GroupAnnotations:
        """Return the memory of the group, or of its former generation."""
        # Failures are inherited, so that a broken image does not start at once under a new name.
        return read_annotations(self.live or self.former or {})

    @property
    def complete(self) -> bool:
        """Return whether all its pods are ready together, whatever their revision or number.

        Pods whose StatefulSet is at zero or gone count as gone, whether they have begun to end or
        not.
        """
        live = self.live or {"metadata": {}, "spec": {}}
        standing = (
            0 if "deletionTimestamp" in live["metadata"] else live["spec"].get("replicas") or 0
        )
        return standing > 0 and all_ready(self.members, standing)

    def available_at(self, now: datetime) -> datetime | None:
        """Return when it will be available, or None if it is not ready or need not wait."""
        seconds = self.rules.min_ready_seconds
        return (
            # Readiness first seen now counts from now: earlier times are another process's clock
            # (ADR 8).
            (self.ready_since or now) + timedelta(seconds=seconds)
            if seconds and self.complete
            else None
        )

    def available(self, now: datetime) -> bool:
        """Return whether it has been ready for as long as the user asks."""
        until = self.available_at(now)
        return self.complete and (until is None or now >= until)

    def late(self, now: datetime) -> bool:
        """Return whether it has exceeded its progress deadline on its nodes."""
        seconds, since = self.rules.progress_deadline_seconds, self.starting_since
        return (
            seconds is not None and since is not None and now >= since + timedelta(seconds=seconds)
        )

    @property
    def restarts_since(self) -> int:
        """Return the restarts in place of a group of one pod since it last served well."""
        before = self.remembered.restarts_before
        return sum(
            # The kubelet counts for the pod's whole life; restarts under an earlier spec do not
            # matter (ADR 25).
            pod.restarts - (before.count if before and before.uid == pod.uid else 0)
            for pod in self.members
        )

    def forgets_restarts_at(self) -> datetime | None:
        """Return when its restarts are forgotten, having served long enough, or None."""
        # Where no container restarts in place, incidents count.
        if not self.in_place or not (
            self.complete and self.ready_since and self.restarts_since > 0
        ):
            return None
        return self.ready_since + timedelta(seconds=self.rules.restart.stable_seconds)

    def restarts_before(self, now: datetime) -> RestartsBefore | None:
        """Return the restarts that no longer count: those before the last change of the spec, or
        before the group served for long enough.
        """
        before, revision, pod = (
            self.remembered.restarts_before,
            self.rules.revision,
            next(iter(self.members), None),
        )
        if (
            not self.in_place
            or self.as_it_is
            or not revision
            or pod is None
            or (before is None and not pod.restarts)
        ):
            return before
        stable = (at := self.forgets_restarts_at()) is not None and now >= at
        if before and before.revision == revision and not stable:
            return before
        return RestartsBefore(revision=revision, uid=pod.uid, count=pod.restarts)

    @property
    def served_by(self) -> str | None:
        """Return the former generation that serves in place of this one, or None.

        If it fails meanwhile, the kubelet and the launcher bring its ranks together again.
        """
        return (
            str(self.former["metadata"]["name"])
            if self.former and self.former["spec"].get("replicas")
            else None
        )

    @property
    def former_serves(self) -> bool:
        """Return whether all pods of the former generation are ready."""
        # One at zero has no pod that is not ready, and serves nobody all the same.
        return (
            self.former is not None
            and self.served_by is not None
            and all_ready(self.former_members, self.former["spec"]["replicas"])
        )

    @property
    def asked(self) -> bool:
        """Return whether somebody asks for a restart that it has not had."""
        return self.rules.restart_asked not in ("", self.remembered.restarted_for)

    @property
    def outdated(self) -> bool:
        """Return whether any of its pods is of another template than the rendered one."""
        wanted = template_hash(self.rendered)
        # By our hash on the pods: the StatefulSet's updateRevision changes with every write of the
        # template, even one that restarts nothing.
        return any(member.template_hash != wanted for member in self.members)

    @property
    def is_made_anew(self) -> bool:
        """Return whether its StatefulSet cannot become the rendered one but needs a next one."""
        return (
            self.live is not None
            and not self.as_it_is
            and bool(made_anew(self.rendered, self.live))
        )

    @property
    def asks_the_same(self) -> bool:
        """Return whether its pods were made for the present request."""
        return asks_the_same(self.rendered, self.live or self.former or {})

    @property
    def template_waits(self) -> bool:
        """Return whether a template difference can wait for the next restart."""
        keeps = self.rules.keeps_templates and (self.complete or not self.rules.restores)
        return self.asks_the_same and (keeps or self._differs_by_what_waits_alone)

    @property
    def _differs_by_what_waits_alone(self) -> bool:
        # LimitRanges and the pull policy do not restart a group.
        hashes = {member.own_hash for member in self.members} or {own_hash(self.live or {})}
        return hashes == {own_hash(self.rendered)}

    @property
    def must_roll(self) -> bool:
        """Return whether its pods must be replaced; pods are never compared with updateRevision."""
        # Nothing is wanted of it that it could differ from.
        if self.as_it_is:
            return False
        if self.is_made_anew:
            return True
        if self.members:
            return self.outdated and not (self.template_waits and not self._restarts_in_place)
        return template_hash(self.live or {}) != template_hash(self.rendered)

    @property
    def of_another_release(self) -> bool:
        """Return whether another release rendered its pods; else they only have another LimitRange
        or pull policy.
        """
        return not self._differs_by_what_waits_alone

    @property
    def _restarts_in_place(self) -> bool:
        # Its kubelet would restart it as it was, without the fixes since.
        return (
            self.in_place
            and not self.complete
            and any(member.failure and not member.node_gone for member in self.members)
        )

    @property
    def pending(self) -> tuple[str, ...]:
        """Return the pod fields that a restart would change although the request is the same."""
        # At zero its next pods are of the template that is there: what still ends says nothing.
        stands = self.live is not None and bool(self.live["spec"].get("replicas"))
        if not (stands and self.outdated and self.asks_the_same):
            return ()
        changed = template_hash(self.live or {}) != template_hash(self.rendered)
        drift = drifted_fields(self.rendered, self.live) if changed else ()
        return pending_fields(drift, self.remembered.pending)

    @property
    def unguarded(self) -> frozenset[Guard]:
        """Return the guards that its pods lack, and get when they restart."""
        wanted = guards_in(self.rendered["spec"]["template"]["metadata"]["labels"])
        return frozenset(
            guard for guard in wanted if any(guard not in one.guards for one in self.members)
        )


def serving_on(observed: Observed, name: str) -> tuple[str, ...]:
    """Return the nodes of a group all of whose pods are ready, by rank; none if it does not
    serve.
    """
    live = observed.objects.get((STATEFUL_SET, name))
    members = observed.members_of(name)
    if live is None or not all_ready(members, live["spec"].get("replicas") or 0):
        return ()
    return tuple(member.node or "" for member in members)


def as_it_stands(live: KubernetesObject, size: int) -> dict[str, Any]:
    """Return a live StatefulSet with all pods that it has, had or, if unknown, ``size``."""
    pods = live["spec"].get("replicas") or read_annotations(live).size or size
    return {**live, "spec": {**live["spec"], "replicas": pods}}


def all_ready(members: Sequence[Member], count: int) -> bool:
    """Return whether there are exactly ``count`` pods, all ready."""
    # A pod too many is of an earlier size, and its group is not one NCCL world.
    return len(members) == count and all(member.ready and not member.deleting for member in members)


RESTART: Final = "shardwright.io/restart"
"""Annotation of a ShardedModel: a new value restarts its groups, one after another."""

ROLLBACK_TO: Final = "shardwright.io/rollback-to"
"""Annotation of a ShardedModel: the number of a revision to roll back to, or ``spec`` to have
the spec tried again. What follows an ``@`` tells one request from the same one made earlier.
"""

READ_ANNOTATIONS: Final = (RESTART, ROLLBACK_TO)
"""All annotations of a ShardedModel that are read."""

_TOKEN_LENGTH: Final = 64


def life_rules(intent: Intent, annotations: Mapping[str, str]) -> LifeRules:
    """Return the rules of life of a resource's groups."""
    return LifeRules(
        restart=intent.restart,
        max_unavailable=intent.max_unavailable,
        # In a queue, a surge would wait for the quota that its former generation holds.
        max_surge=0 if intent.scheduler == "Kueue" else intent.max_surge,
        keeps_templates=intent.keeps_templates,
        min_ready_seconds=intent.min_ready_seconds,
        progress_deadline_seconds=intent.progress_deadline_seconds,
        partition=intent.partition,
        rolls_back=intent.rolls_back,
        new_pods=intent.new_pods,
        # Cut, because the value is kept in an annotation of each StatefulSet and compared as kept.
        restart_asked=annotations.get(RESTART, "")[:_TOKEN_LENGTH],
    )


def groups_wanted(intent: Intent, plan: Plan | None) -> int:
    """Return how many groups shall run; none of a plan that is only shown."""
    return 0 if intent.plan_only else intent.wants(plan)


LOST_SECONDS: Final = 60
"""How long after its grace a pod of a node that is not ready is given up. Basis: assumed;
source: a kubelet that comes back ends its pods within seconds.
"""


HANGING_SECONDS: Final = 240
"""The same on a node that answers. Basis: assumed; a stuck unmount or a GPU process that cannot be
killed rarely ends after minutes, and what ends late by itself mostly has.
"""


def lost_nodes(members: Iterable[Member], silent: Collection[str], now: datetime) -> frozenset[str]:
    """Return the nodes with pods that should be gone: silent nodes soon, others later."""
    return frozenset(
        member.node
        for member in members
        if member.node
        and overdue(
            # A kubelet that answers may still be ending the pod: a stuck unmount takes minutes, so
            # it gets four times as long.
            member,
            now,
            LOST_SECONDS if member.node in silent else HANGING_SECONDS,
        )
    )


def given_up_at(members: Iterable[Member], now: datetime) -> datetime | None:
    """Return when to check overdue pods again, as no event says that one is given up."""
    waits = [member.gone_by for member in members if member.node and member.gone_by]
    times = (
        by + timedelta(seconds=seconds)
        for by in waits
        # Which of the two counts is known only then: a node may fall silent in between.
        for seconds in (LOST_SECONDS, HANGING_SECONDS)
    )
    return min((time for time in times if time > now), default=None)


def unsettled_groups(
    groups: Sequence[Sequence[str]],
    base: str,
    standing: Iterable[GroupState],
    numbers: Sequence[int] = (),
) -> frozenset[int]:
    """Return the planned groups that need a place now: absent, restarting, or with unbound pods."""
    roots = group_names(base, numbers or range(len(groups)))
    pods = {root: len(nodes) for root, nodes in zip(roots, groups, strict=True)}
    settled = {
        root
        for state in standing
        if state.settled(pods.get(root := generation_of(state.name)[0], 0))
    }
    return frozenset(index for index, root in enumerate(roots) if root not in settled)


def generations(
    groups: Mapping[str, Sequence[str]],
    observed: Observed,
    owner_uid: str,
    lost: Collection[str],
    least: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return the generation under which each planned group is to exist.

    It is the existing one, or the next if that one is at zero, only pods on lost nodes are left of
    it, and the group is planned elsewhere by now; never less than the record's (``least``). It is
    the one before where that serves again on the very nodes that are planned.
    ``groups`` are their nodes by name without generation.
    """
    floors = (*least, *(0 for _ in groups))
    return tuple(
        _chosen(root, nodes, _generation(root, nodes, observed, owner_uid, lost), floor, observed)
        # A record may have more or fewer generations than there are groups.
        for (root, nodes), floor in zip(groups.items(), floors, strict=False)
    )


def _chosen(root: str, nodes: Sequence[str], found: int, floor: int, observed: Observed) -> int:
    # The record names the former generation, which has come back before its refuge was up.
    former, latest = (generation_name(root, number) for number in (found - 1, found))
    came_back = floor == found - 1 and serving_on(observed, former) == tuple(nodes)
    return floor if came_back and not serving_on(observed, latest) else max(found, floor)


def following_generations(
    rendered: Iterable[KubernetesObject], numbers: Sequence[int], observed: Observed
) -> tuple[int, ...]:
    """Return each group's generation, the next one if an empty StatefulSet must give way."""
    sets = of_kind(rendered, STATEFUL_SET)
    return tuple(
        number + 1
        # At the last number the name would no longer fit the revision label of a StatefulSet (52
        # characters, ADR 3).
        if number < GENERATION_MAX and _gives_way(content, observed)
        else number
        for content, number in zip(sets, numbers, strict=True)
    )


def _gives_way(rendered: KubernetesObject, observed: Observed) -> bool:
    # It gives way if it is ours and was stopped for a change: one that failed may be held, and is
    # to start again as it was.
    name = rendered["metadata"]["name"]
    live = observed.objects.get((STATEFUL_SET, name))
    # With a pod left, the next generation would meet it on the GPUs of its own place.
    if live is None or live["spec"].get("replicas") != 0 or observed.members_of(name):
        return False
    ours = controller_uid(live) == controller_uid(rendered)
    why = read_annotations(live).stopped_for
    return ours and (
        why == HELD_BACK or (why in {"", Why.ROLLOUT} and bool(made_anew(rendered, live)))
    )


def former_generations(
    root: str, generation: int, observed: Observed, owner_uid: str, now: datetime
) -> frozenset[str]:
    """Return a group's earlier generations with a StatefulSet, or pods that can end."""
    numbers = observed.generations.get(root, {})
    earlier = {
        generation_name(root, number): uid for number, uid in numbers.items() if number < generation
    }
    return frozenset(
        name
        for name, uid in earlier.items()
        # Pods without a StatefulSet of ours count too while they can end: they hold GPUs that the
        # next group needs.
        if uid == owner_uid or not all(overdue(member, now) for member in observed.members_of(name))
    )


def _generation(
    root: str, nodes: Sequence[str], observed: Observed, owner_uid: str, lost: Collection[str]
) -> int:
    numbers = observed.generations.get(root, {})
    latest = max(
        # None: that generation has only pods, and their StatefulSet may have been ours.
        (number for number, uid in numbers.items() if uid in (None, owner_uid)),
        default=0,
    )
    current = generation_name(root, latest)
    left = observed.members_of(current)
    # All of them: one pod that ends by itself is waited for, and a group never has pods of two
    # generations without need.
    stuck = bool(left) and all(member.deleting and member.node in lost for member in left)
    live = observed.objects.get((STATEFUL_SET, current))
    stopped = live is None or live["spec"].get("replicas") == 0
    moves = (
        stuck
        and stopped
        # Moved first: a next generation planned on the lost node would hang there as the last one
        # does.
        and not set(nodes).intersection(lost)
        and latest < GENERATION_MAX
    )
    return latest + 1 if moves else latest


def overdue(member: Member, now: datetime, seconds: float = LOST_SECONDS) -> bool:
    """Return whether a pod should have been gone for so long that nobody waits for it any more."""
    return member.gone_by is not None and now >= member.gone_by + timedelta(seconds=seconds)


def finds_no_place(group: Group, now: datetime) -> bool:
    """Return whether the pods of a surge have waited long enough for places.

    The planner knows GPUs only: a quota, CPU, memory or a volume may say no. Pods missing because
    the group restarts do not count.
    """
    if group.live is None or not group.live["spec"].get("replicas"):
        return False
    waiting = [member.unschedulable_since for member in group.members if member.unschedulable_since]
    # A group that has been up had its place: missing pods are those of a restart.
    first_start = group.remembered.stopped_at is None and not group.remembered.members
    if group.short_since and first_start and len(group.members) < group.size:
        waiting.append(group.short_since)
    return any(now >= since + timedelta(seconds=UNSCHEDULABLE_SECONDS) for since in waiting)
