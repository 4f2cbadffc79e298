"""Bare pods at their place: nodes, a group's number, names of made Secrets, the namespace's limits.

Pods of this release and those kept in a revision are placed alike.

A model's pods in any place: as this release makes them, and as a revision kept them.

They are the same in every place, so that two releases can be told apart by them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from shardwright.hardware.provisioning import HOSTNAME, PoolTerm
from shardwright.planning.report import Plan
from shardwright.rendering import group_token, pod_resources, ssh, volumes
from shardwright.rendering.bundle import TEMPLATE_HASH, digest, template_hash
from shardwright.rendering.deployment import BarePods, Deployment
from shardwright.rendering.labels import group_selector
from shardwright.rendering.names import LEADER_VARIABLE, peers_service
from shardwright.rendering.pod import bare_template, scripts_name, scripts_of

_DIGITS: Final = 16


def pods_of(plan: Plan, deployment: Deployment) -> BarePods:
    """Return the pods a plan runs with: the restored ones, else this release's."""
    return deployment.groups.kept or bare_pods(plan, deployment)


def bare_pods(plan: Plan, deployment: Deployment) -> BarePods:
    """Return this release's pods of a plan."""
    on = deployment.on(plan.resource)
    return BarePods(
        template=bare_template(plan, on),
        scripts_name=scripts_name(plan, on),
        scripts=scripts_of(plan, on),
        claims=volumes.claim_templates(on),
    )


def pods_hash(pods: BarePods) -> str:
    """Return a hash that differs if two releases make other pods of the same spec and plan.

    The scripts' name follows from their text.
    """
    return digest([pods.template, pods.scripts_name, pods.claims])[:_DIGITS]


def pods_text(pods: BarePods) -> dict[str, Any]:
    """Return pods as plain data for :func:`pods_from`."""
    return {field.name: getattr(pods, field.name) for field in fields(pods)}


def pods_from(said: Mapping[str, Any]) -> BarePods | None:
    """Return the pods written by :func:`pods_text`, None for another form."""
    known = {field.name for field in fields(BarePods)}
    # A later release may keep more. Pods are not made again from a part of their record.
    return BarePods(**said) if said.keys() == known else None


SOUGHT: Final = "shardwright.io/nodes-sought"
"""How often a group has asked for nodes that were to come: a pod that asked before is of another
template.
"""


def pod_template(plan: Plan, deployment: Deployment, group: int) -> dict[str, Any]:
    """Return a group's template, labelled with the hash of its content."""
    return placed(pods_of(plan, deployment).template, plan, deployment, group)


def placed(
    bare: Mapping[str, Any], plan: Plan, deployment: Deployment, group: int
) -> dict[str, Any]:
    """Return a bare template as a group's, labelled with the hash of its content."""
    labels = {
        **bare["metadata"]["labels"],
        **group_selector(deployment.base, deployment.group_name(group)),
    }
    annotations = dict(bare["metadata"]["annotations"])
    if sought := deployment.sought_by(group):
        # A group that asks for nodes again must roll: the number makes its template another one
        # (ADR 14).
        annotations[SOUGHT] = str(sought.number)
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": _spec(bare["spec"], plan, deployment, group),
    }
    # Last, for a hash is never part of its own input.
    labels = {**labels, TEMPLATE_HASH: template_hash(template)}
    return {**template, "metadata": {**template["metadata"], "labels": labels}}


def _spec(
    bare: Mapping[str, Any], plan: Plan, deployment: Deployment, group: int
) -> dict[str, Any]:
    name = deployment.group_name(group)
    secrets = {
        group_token.VOLUME: group_token.secret_name(deployment),
        ssh.VOLUME: ssh.secret_name(deployment),
    }
    spec = {
        "affinity": _affinity(plan, deployment, group),
        **bare,
        "volumes": [_of_secret(volume, secrets) for volume in bare["volumes"]],
    }
    for kind in {"containers", "initContainers"} & bare.keys():
        spec[kind] = _containers(bare, kind, deployment, name)
    if "resourceClaims" in bare:
        claims = pod_resources.templates_of(plan, name)
        spec["resourceClaims"] = [
            {**claim, "resourceClaimTemplateName": claims[claim["name"]]}
            for claim in bare["resourceClaims"]
        ]
    return spec


def _containers(
    bare: Mapping[str, Any], kind: str, deployment: Deployment, name: str
) -> list[dict[str, Any]]:
    # A name and not an address: a pod has another address after each restart.
    peers = f"{peers_service(name)}.{deployment.owner.namespace}.svc"
    leader = f"{name}-0.{peers}.{deployment.cluster.cluster_domain}"
    engine = bare["containers"][0]["resources"]["requests"]
    return [
        {
            **container,
            "imagePullPolicy": deployment.pods.marks.pull_policy,
            "env": [_of_leader(item, leader) for item in container["env"]],
            "resources": pod_resources.admitted(container["resources"], engine, deployment),
        }
        for container in bare[kind]
    ]


def _of_secret(volume: Mapping[str, Any], secrets: Mapping[str, str]) -> Mapping[str, Any]:
    secret = secrets.get(volume["name"])
    if secret is None:
        return volume
    return {**volume, "secret": {"secretName": secret, **volume["secret"]}}


def _of_leader(variable: Mapping[str, Any], leader: str) -> Mapping[str, Any]:
    return {**variable, "value": leader} if variable["name"] == LEADER_VARIABLE else variable


def _affinity(plan: Plan, deployment: Deployment, group: int) -> dict[str, Any]:
    # Exactly the planned nodes, or any like those that were to come, and never two ranks on one
    # node.
    sought = deployment.sought_by(group)
    asked = [_pool_term(term, plan.architecture) for term in sought.terms] if sought else []
    # Each pod gets all nodes of its group: a StatefulSet has one template, which cannot say where
    # one rank goes.
    named = node_terms(sought.named if sought else plan.groups[group])
    affinity: dict[str, Any] = {"nodeAffinity": node_affinity([*named, *asked])}
    # The terms let each rank onto each node of the group. Only this keeps two of them apart.
    if plan.nodes_per_replica > 1:
        selector = group_selector(deployment.base, deployment.group_name(group))
        apart = {
            "labelSelector": {"matchLabels": selector},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return affinity


def node_affinity(terms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the affinity for nodes that match one of these terms."""
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def node_terms(nodes: Iterable[str]) -> list[dict[str, Any]]:
    """Return the terms of these nodes, one each, as a name term takes one value."""
    return [
        {
            # The name of the Node, not its label kubernetes.io/hostname, which may be another
            # (Kubernetes docs, "Node Labels Populated By The Kubelet"). The API takes one value
            # here; several terms are alternatives.
            "matchFields": [_one_of("metadata.name", node)]
        }
        for node in nodes
    ]


def _pool_term(term: PoolTerm, architecture: str) -> dict[str, Any]:
    # No matchFields: Karpenter ignores a pod whose required terms have any (ADR 14).
    labels = {"kubernetes.io/arch": architecture, **dict(term.labels)}
    apart = (
        [{"key": HOSTNAME, "operator": "NotIn", "values": list(term.apart_from)}]
        if term.apart_from
        else []
    )
    return {
        "matchExpressions": [
            *(_one_of(key, value) for key, value in sorted(labels.items())),
            *apart,
        ]
    }


def _one_of(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
