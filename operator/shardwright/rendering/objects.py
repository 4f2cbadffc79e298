"""The objects around the pods: ConfigMap, Services, disruption budget, StatefulSets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.engines.engine import ENGINES
from shardwright.hardware.devices import ClaimedDevices
from shardwright.planning.report import Plan
from shardwright.rendering import cache, gpu_claims, names, ray
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import BarePods, Deployment, NetworkRules
from shardwright.rendering.hashing import ASKED_HASH, PLAN_HASH, TEMPLATE_HASH, asked_hash
from shardwright.rendering.labels import (
    GROUP,
    common_labels,
    group_selector,
    leader_selector,
    model_selector,
    owned_metadata,
)
from shardwright.rendering.network_policy import policy_spec
from shardwright.rendering.place import placed
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
    """Return the Service that clients use; only leaders serve HTTP."""
    name = names.client_service(subject.base)
    return _service(subject.metadata(name), leader_selector(subject.base), {"http": HTTP_PORT})


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

    ``ready_pods`` are in groups that have been Ready; with one at most there is no budget.
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


def network_policy(subject: RenderInputs, rules: NetworkRules) -> KubernetesObject:
    """Return the NetworkPolicy over all pods of a resource."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": subject.metadata(names.network_policy(subject.base)),
        "spec": policy_spec(subject.base, rules, HTTP_PORT),
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
        "metadata": subject.metadata(gpu_claims.template_name(claimed, gpus, name), group=group),
        "spec": {"spec": gpu_claims.claim_spec(claimed, gpus)},
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
            **cache.claim_fields(subject.pods.claims),
        },
    }
