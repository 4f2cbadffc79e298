"""May the pods of a plan be made? GPUs are kept only for those that the namespace admits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.layouts.layout import GpuQuota
from shardwright.planning.report import Plan
from shardwright.reconcile.derived import Derived
from shardwright.reconcile.drift import made_for
from shardwright.reconcile.group import as_it_stands
from shardwright.reconcile.pod_inputs import as_made
from shardwright.reconcile.quotas import (
    Need,
    Pods,
    grows,
    left_of,
    need_of,
    quota_problem,
    range_problem,
)
from shardwright.reconcile.snapshot import Cluster, Snapshot
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.names import generation_of, group_names
from shardwright.rendering.place import pod_template
from shardwright.rendering.render import asked_of
from shardwright.resolving.subject import Subject


def pods_of(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> Pods | None:
    """Return the pods of a plan as quotas count them, or None if nothing is limited."""
    plan = record.plan
    cluster = snapshot.cluster or Cluster()
    if not cluster.allowance or not plan.groups or not plan.deployable or subject.intent.plan_only:
        return None
    deployment = as_made(snapshot, derived, subject, record)
    need = _need(cluster, _spec_of(plan, deployment))
    pods = len(plan.groups) * plan.nodes_per_replica
    return need, pods


def _spec_of(plan: Plan, deployment: Deployment) -> Mapping[str, Any]:
    # The pods of all groups count for the same.
    on = deployment.on(plan.resource)
    here = replace(on, groups=replace(on.groups, numbers=plan.numbers))
    spec: Mapping[str, Any] = pod_template(plan, here, 0)["spec"]
    return spec


def _need(cluster: Cluster, spec: Mapping[str, Any]) -> Need:
    return need_of(spec, cluster.allowance, cluster.priorities.default)


def too_many(cluster: Cluster) -> Problem | None:
    """Return why a new model is not even planned, its namespace being full, or None."""
    limits = cluster.limits
    if limits.models is not None and cluster.older >= limits.models:
        return _limited(
            "models",
            limits.models,
            f"{cluster.older} older ones are there",
            "delete one that is not needed",
        )
    if limits.waiting is not None and cluster.waiting >= limits.waiting:
        return _limited(
            "waiting",
            limits.waiting,
            f"{cluster.waiting} others wait for GPUs",
            "wait, or delete one of those",
        )
    return None


def _limited(name: str, limit: int, gap: str, remedy: str) -> Problem:
    return Problem(
        code="QuotaExceeded",
        what=f"policy.namespaceLimits.{name}",
        limit=f"of the operator allows this namespace {limit}",
        gap=gap,
        remedy=f"{remedy}, or have the limit raised in the chart",
    )


def _most_gpus(snapshot: Snapshot, derived: Derived, plan: Plan) -> int | None:
    # None: any number, as the plan needs no more than the one that runs.
    before = derived.record
    runs = derived.observed.sets_of(snapshot.resource.owner.uid)
    if before and runs and _gpus(plan) <= _gpus(before.plan):
        return None
    return (snapshot.cluster or Cluster()).limits.gpus


def _too_many_gpus(cluster: Cluster, plan: Plan, most: int | None) -> Problem | None:
    gpus = _gpus(plan)
    if most is None or cluster.gpus + gpus <= most:
        return None
    gap = (
        f"others keep {cluster.gpus}, and the plan needs "
        f"{gpus}: {cluster.gpus + gpus - most} too many"
    )
    return _limited("gpus", most, gap, "ask for fewer replicas or GPUs")


def _gpus(plan: Plan) -> int:
    return len(plan.groups) * plan.nodes_per_replica * plan.gpus_per_node


def not_admitted(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord | None
) -> Problem | None:
    """Return why the pods of a plan to be started are not admitted, or None.

    A plan that counts for no more than its predecessor is always admitted: a quota's usage lags
    behind pods that end. Groups with an unchanged request keep their pods.
    """
    cluster = snapshot.cluster or Cluster()
    if record is None or not record.plan.deployable or subject.intent.plan_only:
        return None
    if problem := _too_many_gpus(cluster, record.plan, _most_gpus(snapshot, derived, record.plan)):
        return problem
    if not cluster.allowance or not record.plan.groups:
        return None
    lives = derived.observed.sets_of(snapshot.resource.owner.uid)
    deployment = as_made(snapshot, derived, subject, record)
    return _not_allowed(derived, cluster, lives, record.plan, deployment)


def _not_allowed(
    derived: Derived,
    cluster: Cluster,
    lives: Mapping[str, KubernetesObject],
    plan: Plan,
    deployment: Deployment,
) -> Problem | None:
    # Compared with the StatefulSets' pods: next to the old plan under the new spec, a change of
    # memory alone would look like none (ADR 13).
    same = tuple(_as_asked(lives, plan, deployment))
    spec = _spec_of(plan, deployment)
    need = _need(cluster, spec)
    made = (len(plan.groups) - len(same)) * plan.nodes_per_replica
    before = _pods(cluster, lives.values())
    kept = _pods(cluster, (lives[name] for name in same))
    more = grows(((need, made), *kept), before)
    problem = None
    # LimitRanges have admitted a need before that pods have already.
    if made and (more or need not in [had for had, _ in before]):
        problem = range_problem(spec, cluster.allowance)
    # A plan that counts for no more than the running pods is always admitted: a quota's usage lags
    # behind pods that end (ADR 13).
    if problem or not more:
        return problem
    return quota_problem(
        cluster.allowance,
        (need, made),
        _there(derived, cluster, lives.values()),
        cluster.promised,
        kept,
    )


def gpu_quotas(snapshot: Snapshot, derived: Derived, subject: Subject) -> tuple[GpuQuota, ...]:
    """Return the GPUs that quotas and the operator's limit leave a model, its own included."""
    cluster = snapshot.cluster or Cluster()
    if subject.intent.plan_only:
        return ()
    most, found = cluster.limits.gpus, list[GpuQuota]()
    if most is not None:
        left = most - cluster.gpus
        found.append(GpuQuota(name="policy.namespaceLimits.gpus", resource="", gpus=left))
    if cluster.allowance:
        lives = derived.observed.sets_of(snapshot.resource.owner.uid)
        named = subject.deployment.pods.priority_class or cluster.priorities.default
        own = _there(derived, cluster, lives.values())
        found += left_of(cluster.allowance, named, own, cluster.promised)
    return tuple(_at_least(quota, derived.record) for quota in found)


def _at_least(quota: GpuQuota, record: PlanRecord | None) -> GpuQuota:
    # A plan that counts for no more than the one that runs is always admitted.
    counts = record is not None and record.plan.deployable and quota.counts(record.plan.resource)
    own = _gpus(record.plan) if record and counts else 0
    return replace(quota, gpus=max(quota.gpus, own, 0))


def outgrown(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> Problem | None:
    """Return why admission refuses the new pods of a running plan, or None if it does not, or the
    first of them have come.
    """
    if not (snapshot.cluster or Cluster()).allowance:
        return None
    # The first group has the new pods, so the quota admits them; used counts lag, and a second
    # judgement could stop the rollout halfway.
    if runs_as_asked(snapshot, derived, subject, record):
        return None
    return not_admitted(snapshot, derived, subject, record)


def runs_as_asked(
    snapshot: Snapshot, derived: Derived, subject: Subject, record: PlanRecord
) -> bool:
    """Return whether a group has the pods that a plan and the spec of now ask for."""
    lives = derived.observed.sets_of(snapshot.resource.owner.uid)
    return any(_as_asked(lives, record.plan, as_made(snapshot, derived, subject, record)))


def _as_asked(
    lives: Mapping[str, KubernetesObject], plan: Plan, deployment: Deployment
) -> Iterator[str]:
    # Of each group the latest.
    latest = {}
    for name in sorted(lives, key=generation_of):
        root, _ = generation_of(name)
        latest[root] = name
    roots = group_names(deployment.base, plan.group_numbers)
    for index, root in enumerate(roots):
        if root not in latest:
            continue
        name = latest[root]
        if made_for(lives[name], asked_of(plan, deployment, index)):
            yield name


def _pods(cluster: Cluster, lives: Iterable[KubernetesObject]) -> tuple[Pods, ...]:
    # Those that they have, or had before they were stopped.
    found = []
    for live in lives:
        whole = as_it_stands(live, 0)["spec"]
        need = _need(cluster, whole["template"]["spec"])
        found.append((need, whole["replicas"]))
    return tuple(found)


def _there(
    derived: Derived, cluster: Cluster, lives: Iterable[KubernetesObject]
) -> tuple[Pods, ...]:
    there = Counter(member.set_uid for member in derived.observed.members)
    found = []
    for live in lives:
        need = _need(cluster, live["spec"]["template"]["spec"])
        found.append((need, there[live["metadata"]["uid"]]))
    return tuple(found)
