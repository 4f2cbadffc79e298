"""Plan to bundle: which Kubernetes objects run it. Same plan, same bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from shardwright.errors import InputError
from shardwright.hardware.provisioning import is_provisioned_later
from shardwright.planning.report import Plan
from shardwright.rendering import group_token, objects, ssh
from shardwright.rendering.bare import bare_pods, pods_hash, pods_of
from shardwright.rendering.bundle import Bundle, KubernetesObject
from shardwright.rendering.deployment import BarePods, Deployment
from shardwright.rendering.gang_scheduling import STATEFUL_SET, adapt
from shardwright.rendering.hashing import (
    OWN_HASH,
    TEMPLATE_HASH,
    asked_hash,
    plan_hash,
    template_hash,
    with_content_hash,
)
from shardwright.rendering.place import node_affinity, node_terms

_CONTAINERS: Final = ("containers", "initContainers")


def render(plan: Plan, deployment: Deployment, *, ready_pods: int | None = None) -> Bundle:
    """Return all objects of one ShardedModel, in the order of creation.

    Args:
        plan: the chosen plan; one StatefulSet is rendered per tuple of ``plan.groups``.
        deployment: the user's wishes for running it, already checked.
        ready_pods: pods of the groups that have been Ready at some time, for the disruption budget
            (None: all).

    Raises:
        InputError: the plan can be shown but not run.
    """
    if plan.undeployable:
        raise InputError([plan.undeployable])
    pods = pods_of(plan, deployment)
    subject = objects.RenderInputs(
        plan=plan, deployment=deployment, pods=pods, plan_hash=plan_hash(plan)
    )
    ready = len(plan.groups) * plan.nodes_per_replica if ready_pods is None else ready_pods
    bundle = Bundle(
        objects=tuple(map(with_content_hash, _objects(subject, ready))), keys=tuple(_keys(subject))
    )
    # Before marks and pins: an integration hashes the template anew, and that hash must have
    # neither.
    bundle = adapt(bundle, deployment.cluster.scheduling)
    return _pinned(_marked(bundle, pods.template), plan, deployment)


def restored(kept: BarePods, then: Plan, plan: Plan, deployment: Deployment) -> BarePods | None:
    """Return the pods that a revision has kept, for a plan by now; ``then`` is the plan that they
    were made for.

    None if this release makes the same or cannot place them, or if the plan cuts the model in
    another way.
    """
    if asked_hash("", then, ()) != asked_hash("", plan, ()) or (
        pods_hash(kept) == pods_hash(bare_pods(plan, deployment))
    ):
        return None
    on = deployment.on(plan.resource)
    # One group tells for all: they are placed alike.
    one = replace(plan, groups=plan.groups[:1], numbers=plan.numbers[:1])
    groups = replace(on.groups, numbers=one.numbers, kept=kept)
    try:
        render(one, replace(on, groups=groups))
    except InputError:
        return kept  # deploying tells why
    # Another release may have given its pods a form of which these parts cannot be read.
    except (AttributeError, LookupError, TypeError):
        return None
    return kept


def _objects(subject: objects.RenderInputs, ready_pods: int) -> Iterator[KubernetesObject]:
    # Mounted objects, and the names by which pods find each other, are there before the pods.
    plan, groups = subject.plan, range(len(subject.plan.groups))
    yield objects.scripts_configmap(subject)
    if rules := subject.deployment.cluster.network_rules:
        yield objects.network_policy(subject, rules)
    yield objects.client_service(subject)
    if plan.nodes_per_replica > 1:
        yield from (objects.peers_service(subject, group) for group in groups)
    yield from objects.disruption_budgets(subject, ready_pods)
    if plan.compute_domain:
        yield from (objects.compute_domain(subject, group) for group in groups)
    if claimed := plan.claimed:
        yield from (objects.claim_template(subject, group, claimed) for group in groups)
    yield from (objects.statefulset(subject, group) for group in groups)


def _keys(subject: objects.RenderInputs) -> Iterator[KubernetesObject]:
    if group_token.joins(subject.plan):
        yield objects.made_secret(
            subject, group_token.secret_name(subject.deployment), group_token.SECRET_TYPE
        )
    if ssh.joins(subject.plan, subject.deployment):
        yield objects.made_secret(subject, ssh.secret_name(subject.deployment), ssh.SECRET_TYPE)


def _marked(bundle: Bundle, bare: Mapping[str, Any]) -> Bundle:
    """Return the bundle whose pods name their template without LimitRanges and pull policy.

    Neither is worth a restart, so they name it only if it differs.
    """
    own = _of_next_start(bare)
    return replace(
        bundle,
        objects=tuple(
            _saying(item, own) if item["kind"] == STATEFUL_SET else item for item in bundle.objects
        ),
    )


def _of_next_start(template: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields that wait for the next start, by container: resources and pull policy."""
    return {
        item["name"]: {
            name: item[name] for name in ("resources", "imagePullPolicy") if name in item
        }
        for kind in _CONTAINERS
        for item in template["spec"].get(kind, ())
    }


def _saying(item: KubernetesObject, own: Mapping[str, Mapping[str, Any]]) -> KubernetesObject:
    template = item["spec"]["template"]
    if _of_next_start(template) == own:
        return item
    labels = {
        name: value
        for name, value in template["metadata"]["labels"].items()
        if name != TEMPLATE_HASH
    }
    changed = {
        kind: [{**container, **own[container["name"]]} for container in template["spec"][kind]]
        for kind in _CONTAINERS
        if kind in template["spec"]
    }
    bare = {
        **template,
        "metadata": {**template["metadata"], "labels": labels},
        "spec": {**template["spec"], **changed},
    }
    # The label is no part of the template that it is the hash of.
    said = {**template["metadata"]["labels"], OWN_HASH: template_hash(bare)}
    marked = {**template, "metadata": {**template["metadata"], "labels": said}}
    return with_content_hash({**item, "spec": {**item["spec"], "template": marked}})


def _pinned(bundle: Bundle, plan: Plan, deployment: Deployment) -> Bundle:
    """Return the bundle with groups that have found all their sought nodes pinned to exactly these.

    Their template's hash stays that of seeking pods: these run, and only pods to come are pinned.
    """
    # A group with one node still to come goes on asking for all: its pods have one template.
    bound = {
        deployment.group_name(index): nodes
        for index, nodes in enumerate(plan.groups)
        if deployment.sought_by(index) and not any(map(is_provisioned_later, nodes))
    }
    return replace(
        bundle, objects=tuple(_on_nodes(item, bound, plan.architecture) for item in bundle.objects)
    )


def _on_nodes(
    item: KubernetesObject, bound: Mapping[str, tuple[str, ...]], architecture: str
) -> Mapping[str, Any]:
    nodes = bound.get(item["metadata"]["name"]) if item["kind"] == STATEFUL_SET else None
    if nodes is None:
        return item
    template = item["spec"]["template"]
    affinity = {
        **template["spec"]["affinity"],
        "nodeAffinity": node_affinity(node_terms(nodes, architecture)),
    }
    # The label with the hash stays as it is, so that nothing rolls (ADR 14).
    pinned = {**template, "spec": {**template["spec"], "affinity": affinity}}
    return with_content_hash({**item, "spec": {**item["spec"], "template": pinned}})
