"""Plan to bundle: which Kubernetes objects run it. Same plan, same bytes."""

from typing import Any

from shardwright.errors import InputError
from shardwright.planning.report import Plan
from shardwright.rendering import objects, ssh
from shardwright.rendering.bundle import Bundle
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.hashing import plan_hash, with_content_hash
from shardwright.rendering.scheduling import adapt


def render(plan: Plan, deployment: Deployment, *, ready_pods: int | None = None) -> Bundle:
    """Return all objects of one ShardedModel, in the order in which they are created.

    Args:
        plan: the chosen plan; one StatefulSet is rendered per tuple of ``plan.groups``.
        deployment: what the user said about running it, already checked.
        ready_pods: pods of the groups that have been Ready at some time, for the disruption budget (None: all).

    Raises:
        InputError: the plan can be shown but not run.
    """
    if plan.undeployable:
        raise InputError([plan.undeployable])
    subject = objects.Subject(plan=plan, deployment=deployment, plan_hash=plan_hash(plan))
    groups = range(len(plan.groups))
    ready = len(plan.groups) * plan.nodes_per_replica if ready_pods is None else ready_pods
    items: list[dict[str, Any]] = [
        objects.scripts_configmap(subject),
        objects.client_service(subject),
        *(objects.peers_service(subject, group) for group in groups),
        objects.disruption_budget(subject, ready),
        *(objects.compute_domain(subject, group) for group in groups if plan.compute_domain),
        *(objects.statefulset(subject, group) for group in groups),
    ]
    keys = (objects.ssh_key(subject),) if ssh.joins(plan, deployment) else ()
    return adapt(Bundle(objects=tuple(with_content_hash(item) for item in items), keys=keys), deployment.scheduling)
