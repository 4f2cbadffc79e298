"""Plan to bundle: which Kubernetes objects run it. Same plan, same bytes.

The objects around the pods: ConfigMap, Services, disruption budget, StatefulSets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwright.engines.registry import ENGINES
from shardwright.errors import InputError
from shardwright.hardware.devices import ClaimedDevices
from shardwright.hardware.provisioning import is_provisioned_later
from shardwright.planning.report import Plan
from shardwright.rendering import (
    autoscaler,
    group_token,
    names,
    network_policies,
    pod_resources,
    ray,
    router_pods,
    ssh,
    volumes,
)
from shardwright.rendering.bundle import (
    ASKED_HASH,
    OWN_HASH,
    PLAN_HASH,
    TEMPLATE_HASH,
    Bundle,
    KubernetesObject,
    asked_hash,
    plan_hash,
    template_hash,
    with_content_hash,
)
from shardwright.rendering.deployment import Autoscaling, BarePods, Deployment
from shardwright.rendering.gang_scheduling import STATEFUL_SET, adapt
from shardwright.rendering.guards import guards_for, guards_in
from shardwright.rendering.labels import (
    GROUP,
    common_labels,
    group_selector,
    leader_selector,
    model_selector,
    owned_metadata,
)
from shardwright.rendering.place import (
    bare_pods,
    node_affinity,
    node_terms,
    placed,
    pods_hash,
    pods_of,
)
from shardwright.rendering.pod import start_budget
from shardwright.rendering.scripts import HTTP_PORT

START_BUDGET: Final = "shardwright.io/start-up-budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInputs:
    """What a resource's objects are rendered from; ``plan_hash`` is the plan's, nodes included."""

    plan: Plan
    deployment: Deployment
    pods: BarePods
    plan_hash: str

    @property
    def base(self) -> str:
        """Return the base of all object names."""
        return self.deployment.base

    def metadata(
        self, name: str, *, group: int | None = None, **annotations: str
    ) -> dict[str, Any]:
        """Return an object's metadata; ``group`` adds the group's label."""
        labels = common_labels(
            self.base, ENGINES[self.deployment.engine].label, self.deployment.engine_version
        )
        if group is not None:
            labels |= {GROUP: self.deployment.group_name(group)}
        return owned_metadata(name, self.deployment.owner, labels, annotations)


def scripts_configmap(subject: RenderInputs) -> KubernetesObject:
    """Return the ConfigMap with every rank's launch, probe and drain scripts."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        # Named by its content: another release makes another object, and running pods keep theirs
        # (ADR 3).
        "metadata": subject.metadata(subject.pods.scripts_name),
        # A mounted ConfigMap changes under its pods when it is changed.
        "immutable": True,
        "data": dict(subject.pods.scripts),
    }


def made_secret(subject: RenderInputs, name: str, kind: str) -> KubernetesObject:
    """Return a Secret without content, which the writer makes by its type and nobody rereads."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": subject.metadata(name),
        "type": kind,
        "immutable": True,
    }


def client_service(subject: RenderInputs) -> KubernetesObject:
    """Return the clients' Service: to the router, else to leaders, which alone serve HTTP."""
    name, router = subject.deployment.service, subject.deployment.router
    leads = router is not None and router.leads
    selector = router_pods.router_selector if leads else leader_selector
    return _service(subject.metadata(name), selector(subject.base), {"http": HTTP_PORT})


def peers_service(subject: RenderInputs, group: int) -> KubernetesObject:
    """Return a group's headless Service: ranks must find each other long before any is ready."""
    name = subject.deployment.group_name(group)
    meta = subject.metadata(names.peers_service(name), group=group)
    item = _service(
        meta,
        group_selector(subject.base, name),
        dict([ray.peer_port(subject.plan, subject.deployment)]),
    )
    # DNS hides pods that are not ready, and here none gets ready before all have met.
    item["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return item


def _service(
    meta: Mapping[str, Any], selector: Mapping[str, str], ports: Mapping[str, int]
) -> dict[str, Any]:
    listed = [
        {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
        for name, port in ports.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": "ClusterIP", "selector": dict(selector), "ports": listed},
    }


def disruption_budgets(subject: RenderInputs, ready_pods: int) -> Iterator[KubernetesObject]:
    """Yield the budget over all ranks: drains always go on, and never take two groups at once.

    ``ready_pods`` are those that may be ready together; with one at most there is no budget.
    """
    # A budget that allows everything costs: Kubernetes writes its status with each pod that comes.
    least = ready_pods - 1
    if least <= 0:
        return
    yield {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": subject.metadata(names.client_service(subject.base)),
        "spec": {
            # A group ends with its first pod that is evicted: then more than one pod is missing,
            # and nobody may evict one of another group until this one is Ready again.
            "minAvailable": least,
            "selector": {"matchLabels": model_selector(subject.base)},
            # A pod that serves nobody must not hold up a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _network_policy(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> KubernetesObject:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**kind, "metadata": metadata, "spec": spec}


def scaled_object(subject: RenderInputs, scaling: Autoscaling) -> KubernetesObject:
    """Return the ScaledObject by which KEDA chooses the number of groups."""
    deployment = subject.deployment
    gauges, routed = ENGINES[deployment.engine].in_flight, deployment.router is not None
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": subject.metadata(names.client_service(subject.base)),
        "spec": autoscaler.scaled_spec(deployment.owner, scaling, gauges, routed=routed),
    }


def compute_domain(subject: RenderInputs, group: int) -> KubernetesObject:
    """Return the ComputeDomain that opens the NVLink domain of its nodes to a group's pods."""
    name = subject.deployment.group_name(group)
    channel = {
        "allocationMode": "Single",
        "resourceClaimTemplate": {"name": names.channel_template(name)},
    }
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": subject.metadata(name, group=group),
        "spec": {"numNodes": 0, "channel": channel},
    }


def claim_template(subject: RenderInputs, group: int, claimed: ClaimedDevices) -> KubernetesObject:
    """Return the template of the claims by which a group's pods get their GPUs."""
    name, gpus = subject.deployment.group_name(group), subject.plan.gpus_per_node
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": subject.metadata(pod_resources.template_name(claimed, gpus, name), group=group),
        "spec": {"spec": pod_resources.claim_spec(claimed, gpus)},
    }


def asked_of(plan: Plan, deployment: Deployment, group: int) -> str:
    """Return the hash of the request for a group's pods, empty if nobody asks.

    A group that had sought nodes keeps it once it has found them.
    """
    if not deployment.groups.asked:
        return ""
    sought = deployment.sought_by(group)
    nodes = ("sought", str(sought.number)) if sought else plan.groups[group]
    return asked_hash(deployment.groups.asked, plan, (*nodes, deployment.cluster.cluster_domain))


def statefulset(subject: RenderInputs, group: int) -> KubernetesObject:
    """Return a group's StatefulSet: one pod per planned node, replaced only by the operator."""
    plan, deployment = subject.plan, subject.deployment
    template = placed(subject.pods.template, plan, deployment, group)
    name = deployment.group_name(group)
    budget = start_budget(plan, deployment)
    annotations = {
        PLAN_HASH: subject.plan_hash,
        TEMPLATE_HASH: template["metadata"]["labels"][TEMPLATE_HASH],
        START_BUDGET: budget.basis,
        **({ASKED_HASH: asked} if (asked := asked_of(plan, deployment, group)) else {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": subject.metadata(name, group=group, **annotations),
        "spec": {
            "replicas": plan.nodes_per_replica,
            # Also of one pod, which has no such Service: no later plan can change this field.
            "serviceName": names.peers_service(name),
            # Ranks wait for each other before any is Ready: one by one, the first would never be.
            "podManagementPolicy": "Parallel",
            # A new template restarts nothing: when pods go is for the operator to say (ADR 15).
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": group_selector(subject.base, name)},
            "template": template,
            **volumes.claim_fields(subject.pods.claims),
        },
    }


_CONTAINERS: Final = ("containers", "initContainers")


def render(plan: Plan, deployment: Deployment, *, ready_pods: int | None = None) -> Bundle:
    """Return all objects of one ShardedModel, in the order of creation.

    Args:
        plan: the chosen plan; one StatefulSet is rendered per tuple of ``plan.groups``.
        deployment: the user's wishes for running it, already checked.
        ready_pods: pods that may be ready together, for the disruption budget (None: all).

    Raises:
        InputError: the plan can be shown but not run.
    """
    if plan.undeployable:
        raise InputError([plan.undeployable])
    pods = pods_of(plan, deployment)
    subject = RenderInputs(plan=plan, deployment=deployment, pods=pods, plan_hash=plan_hash(plan))
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

    None if this release makes the same or cannot place them, if the plan cuts the model in another
    way, or if they lack a guard that this release has: then this release makes them.
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
        if not guards_for(deployment) <= guards_in(kept.template["metadata"]["labels"]):
            return None
        render(one, replace(on, groups=groups))
    except InputError:
        return kept  # deploying tells why
    # Another release may have given its pods a form of which these parts cannot be read.
    except (AttributeError, LookupError, TypeError):
        return None
    return kept


def _objects(subject: RenderInputs, ready_pods: int) -> Iterator[KubernetesObject]:
    # Mounted objects, and the names by which pods find each other, are there before the pods.
    plan, groups = subject.plan, range(len(subject.plan.groups))
    yield scripts_configmap(subject)
    if rules := subject.deployment.cluster.network_rules:
        of_model = network_policies.of_model(subject.deployment, rules)
        yield _network_policy(subject.metadata(names.network_policy(subject.base)), of_model)
    yield from _routing(subject)
    yield client_service(subject)
    if plan.nodes_per_replica > 1:
        yield from (peers_service(subject, group) for group in groups)
    yield from disruption_budgets(subject, ready_pods)
    if subject.deployment.autoscaling:
        yield scaled_object(subject, subject.deployment.autoscaling)
    if plan.compute_domain:
        yield from (compute_domain(subject, group) for group in groups)
    if claimed := plan.claimed:
        yield from (claim_template(subject, group, claimed) for group in groups)
    yield from (statefulset(subject, group) for group in groups)


def _routing(subject: RenderInputs) -> Iterator[KubernetesObject]:
    deployment = subject.deployment
    if deployment.picker:
        yield router_pods.inference_pool(deployment, deployment.picker)
    if deployment.router is None:
        return
    yield router_pods.scripts_of(deployment)
    if rules := deployment.cluster.network_rules:
        named = router_pods.metadata_of(deployment, names.router_policy(deployment.base))
        yield _network_policy(named, network_policies.of_router(deployment, rules))
    yield router_pods.router(subject.plan, deployment, deployment.router)


def _keys(subject: RenderInputs) -> Iterator[KubernetesObject]:
    if group_token.joins(subject.plan):
        yield made_secret(
            subject, group_token.secret_name(subject.deployment), group_token.SECRET_TYPE
        )
    if ssh.joins(subject.plan, subject.deployment):
        yield made_secret(subject, ssh.secret_name(subject.deployment), ssh.SECRET_TYPE)


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
    return replace(bundle, objects=tuple(_on_nodes(item, bound) for item in bundle.objects))


def _on_nodes(item: KubernetesObject, bound: Mapping[str, tuple[str, ...]]) -> Mapping[str, Any]:
    nodes = bound.get(item["metadata"]["name"]) if item["kind"] == STATEFUL_SET else None
    if nodes is None:
        return item
    template = item["spec"]["template"]
    affinity = {**template["spec"]["affinity"], "nodeAffinity": node_affinity(node_terms(nodes))}
    # The label with the hash stays as it is, so that nothing rolls (ADR 14).
    pinned = {**template, "spec": {**template["spec"], "affinity": affinity}}
    return with_content_hash({**item, "spec": {**item["spec"], "template": pinned}})
