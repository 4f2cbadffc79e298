"""May the pods of a plan be made? GPUs are kept for those alone that the namespace lets in."""

from collections import Counter
from dataclasses import replace

from shardwright.api.record import PlanRecord
from shardwright.api.settings import NAMESPACE_LIMITS
from shardwright.errors import Problem
from shardwright.planning.report import Plan
from shardwright.reconcile.known import Known
from shardwright.reconcile.observed import STATEFUL_SET, controller_uid
from shardwright.reconcile.quotas import (
    Pods,
    ceilings,
    grows,
    need_of,
    quota_problem,
    range_problem,
)
from shardwright.reconcile.seen import Cluster, Seen
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.pod import pod_template
from shardwright.resolving.subject import Subject


def pods_of(cluster: Cluster, subject: Subject, plan: Plan) -> Pods | None:
    """Return the pods of a plan as quotas count them, None where it has none or nothing is
    limited.
    """
    if (
        not cluster.allowance
        or not plan.groups
        or not plan.deployable
        or subject.intent.plan_only
    ):
        return None
    spec = pod_template(plan, bounded(subject.deployment, cluster), 0)["spec"]
    return need_of(spec, cluster.allowance, cluster.priorities.default), len(
        plan.groups
    ) * plan.nodes_per_replica


def bounded(deployment: Deployment, cluster: Cluster) -> Deployment:
    """Return the deployment with what its namespace says of the limits of containers."""
    return replace(deployment, ceilings=ceilings(cluster.allowance))


def too_many(cluster: Cluster) -> Problem | None:
    """Return why a model is not even planned that is new, None where it is: its namespace has as
    many as it may.
    """
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
        what=f"{NAMESPACE_LIMITS}.{name}",
        limit=f"of the operator allows this namespace {limit}",
        gap=gap,
        remedy=f"{remedy}, or have the limit raised in the chart",
    )


def _most_gpus(seen: Seen, known: Known, plan: Plan) -> int | None:
    """Return the number of GPUs that the namespace may keep with a plan. None means any number: the
    plan needs no more than the one that runs.
    """
    before = (
        known.record.plan if known.record and _own(seen, known) is not None else None
    )
    return (
        None
        if before and _gpus(plan) <= _gpus(before)
        else (seen.cluster or Cluster()).limits.gpus
    )


def _too_many_gpus(cluster: Cluster, plan: Plan, most: int | None) -> Problem | None:
    """Return why a plan may not keep its GPUs, None where it may."""
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


def barred(
    seen: Seen, known: Known, subject: Subject, record: PlanRecord | None
) -> Problem | None:
    """Return why the pods of a plan are not let in that is to be started, None where they are, or
    are there already.

    What counts for no more than the plan that runs is never barred: it takes the place of what it
    replaces, and what a quota says is used lags behind pods that end.
    """
    cluster = seen.cluster or Cluster()
    if record is None or not record.plan.deployable or subject.intent.plan_only:
        return None
    own, before = _own(seen, known), known.record
    if problem := _too_many_gpus(
        cluster, record.plan, _most_gpus(seen, known, record.plan)
    ):
        return problem
    wanted = pods_of(cluster, subject, record.plan)
    if wanted is None:
        return None
    had = pods_of(cluster, subject, before.plan) if before and own is not None else None
    if own is not None and had and not grows(wanted, had):
        return None
    problem = range_problem(
        pod_template(record.plan, bounded(subject.deployment, cluster), 0)["spec"],
        cluster.allowance,
    )
    return problem or quota_problem(
        cluster.allowance, wanted, own or (), cluster.promised
    )


def _own(seen: Seen, known: Known) -> tuple[Pods, ...] | None:
    """Return the pods of a model that there are, None where it has not even a StatefulSet."""
    cluster, uid = seen.cluster or Cluster(), seen.resource.owner.uid
    there = Counter(member.set_uid for member in known.observed.members)
    lives = [
        live
        for (kind, _), live in known.observed.objects.items()
        if kind == STATEFUL_SET and controller_uid(live) == uid
    ]
    if not lives:
        return None
    default = cluster.priorities.default
    return tuple(
        (
            need_of(live["spec"]["template"]["spec"], cluster.allowance, default),
            there[live["metadata"]["uid"]],
        )
        for live in lives
    )
