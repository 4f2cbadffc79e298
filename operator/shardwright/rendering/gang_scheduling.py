"""Telling a scheduler that a group's pods belong together.

An integration replaces a bundle's StatefulSet by its scheduler's group object and the StatefulSet
whose pods name it. Nodes stay the plan's: the plan says where, the scheduler makes it all or
nothing, a queue says when.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwright.rendering.bundle import (
    CONTENT_HASH,
    TEMPLATE_HASH,
    Bundle,
    digest,
    template_hash,
    with_content_hash,
)
from shardwright.rendering.deployment import Scheduling

STATEFUL_SET: Final = "StatefulSet"

COSCHEDULER: Final = "scheduler-plugins-scheduler"
"""Name of the scheduler in the Helm chart of scheduler-plugins."""

COSCHEDULING_SECONDS: Final = 60
"""How long placed pods wait for the rest of their group; assumed, as in the examples of
scheduler-plugins.
"""

_COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""Label by which pods name their PodGroup to scheduler-plugins."""

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
QUEUE: Final = "shardwright.io/queue"

ALPHA_GROUPS: Final = "scheduling.k8s.io/v1alpha2"
"""API of PodGroups in Kubernetes 1.36. Source: CHANGELOG-1.37: 1.37 has dropped it, and all its
objects must be gone before.
"""

_FIXED_DIGITS: Final = 8

Stateful = Mapping[str, Any]
Objects = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerIntegration:
    """How to tell one scheduler.

    ``apis`` are usable versions of its API, the best first; ``plural`` is their resource.
    ``creates``: the operator makes objects of that resource, so it needs the rights to. ``install``
    is how that API is installed.
    """

    apis: tuple[str, ...]
    plural: str
    creates: bool
    install: str
    adapt: Callable[[Stateful, Scheduling], Objects]


def adapt(bundle: Bundle, scheduling: Scheduling | None) -> Bundle:
    """Return the bundle with its groups told to their scheduler, if any."""
    if scheduling is None:
        return bundle
    one = SCHEDULER_INTEGRATIONS[scheduling.integration].adapt
    groups = (
        one(item, scheduling) if item["kind"] == STATEFUL_SET else (item,)
        for item in bundle.objects
    )
    return replace(
        bundle,
        # Anew, for an integration changes objects that have their hash already.
        objects=tuple(with_content_hash(item) for group in groups for item in group),
    )


def _native(group: Stateful, scheduling: Scheduling) -> Objects:
    """Return a group for kube-scheduler; a PodGroup's name holds the immutable size.

    With ``v1beta1`` also how it may be disrupted (one preempted pod ends the group anyway)
    and its priority, which must be its pods', or none is scheduled (Kubernetes 1.37, #139920).
    """
    name = f"{group['metadata']['name']}-{group['spec']['replicas']}"
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": group["spec"]["replicas"]}}}
    if scheduling.api_version != ALPHA_GROUPS:
        # The pods' own: with another one none of them is scheduled (Kubernetes 1.37, #139920).
        priority = group["spec"]["template"]["spec"].get("priorityClassName")
        fixed = {
            "disruptionMode": {"all": {}},
            **({"priorityClassName": priority} if priority else {}),
        }
        spec, name = {**spec, **fixed}, f"{name}-{digest(fixed)[:_FIXED_DIGITS]}"
    return _pod_group(group, scheduling, name, spec), _with_pods(
        group, spec={"schedulingGroup": {"podGroupName": name}}
    )


def _coscheduling(group: Stateful, scheduling: Scheduling) -> Objects:
    name = group["metadata"]["name"]
    spec = {"minMember": group["spec"]["replicas"], "scheduleTimeoutSeconds": COSCHEDULING_SECONDS}
    labels = {_COSCHEDULING_GROUP: name}
    pods = _with_pods(
        group, labels=labels, spec={"schedulerName": scheduling.scheduler_name or COSCHEDULER}
    )
    return _pod_group(group, scheduling, name, spec), pods


def _kueue(group: Stateful, scheduling: Scheduling) -> Objects:
    # Kueue makes a group of a labelled StatefulSet; our annotation has another queue restart the
    # pods.
    pods = _with_pods(group, annotations={QUEUE: scheduling.queue}, spec={})
    metadata = {
        **pods["metadata"],
        # On the StatefulSet: Kueue's webhook makes one pod group of it, with all its replicas.
        "labels": {**pods["metadata"]["labels"], KUEUE_QUEUE: scheduling.queue},
    }
    return ({**pods, "metadata": metadata},)


def pod_group_of(template: Mapping[str, Any]) -> str:
    """Return the name of the PodGroup of a template's pods, empty for none.

    >>> pod_group_of({"spec": {"schedulingGroup": {"podGroupName": "llama-0-2"}}})
    'llama-0-2'
    >>> pod_group_of({"spec": {}})
    ''
    """
    metadata = template.get("metadata") or {}
    pod = template.get("spec") or {}
    return str(
        (pod.get("schedulingGroup") or {}).get("podGroupName")
        or (metadata.get("labels") or {}).get(_COSCHEDULING_GROUP)
        or ""
    )


def _pod_group(
    group: Stateful, scheduling: Scheduling, name: str, spec: Mapping[str, Any]
) -> dict[str, Any]:
    own = {
        key: value
        for key, value in group["metadata"].items()
        if key in ("namespace", "labels", "ownerReferences")
    }
    return {
        "apiVersion": scheduling.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, **own, "annotations": {}},
        "spec": dict(spec),
    }


def _with_pods(
    group: Stateful,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the StatefulSet with more in its pods and a new hash: a change restarts them."""
    template = group["spec"]["template"]
    old = template["metadata"]
    # A hash is never part of its own input.
    bare = {key: value for key, value in old["labels"].items() if key != TEMPLATE_HASH}
    metadata = {
        **old,
        "labels": {**bare, **(labels or {})},
        "annotations": {**old["annotations"], **(annotations or {})},
    }
    changed = {**template, "metadata": metadata, "spec": {**template["spec"], **spec}}
    digest = template_hash(changed)
    changed["metadata"] = {**metadata, "labels": {**metadata["labels"], TEMPLATE_HASH: digest}}
    kept = {
        key: value for key, value in group["metadata"]["annotations"].items() if key != CONTENT_HASH
    }
    own = {**group["metadata"], "annotations": {**kept, TEMPLATE_HASH: digest}}
    return {**group, "metadata": own, "spec": {**group["spec"], "template": changed}}


SCHEDULER_INTEGRATIONS: Final[Mapping[str, SchedulerIntegration]] = {
    "Native": SchedulerIntegration(
        apis=("scheduling.k8s.io/v1beta1", ALPHA_GROUPS),
        plural="podgroups",
        creates=True,
        install="serve it: --runtime-config and feature gate GenericWorkload (in Kubernetes 1.36 "
        "GangScheduling, too)",
        adapt=_native,
    ),
    "Kueue": SchedulerIntegration(
        apis=("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
        plural="localqueues",
        creates=False,
        install="install Kueue",
        adapt=_kueue,
    ),
    "Coscheduling": SchedulerIntegration(
        apis=("scheduling.x-k8s.io/v1alpha1",),
        plural="podgroups",
        creates=True,
        install="install scheduler-plugins",
        adapt=_coscheduling,
    ),
}
"""By the word of ``spec.placement.scheduler``; ``None`` has none."""
