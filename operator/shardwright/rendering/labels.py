"""Labels, metadata and selectors of rendered objects; none says how a pod is doing."""

from collections.abc import Mapping
from typing import Any, Final

from shardwright.hardware.facts import GROUP_LABEL, MODEL_LABEL
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner

MODEL: Final = MODEL_LABEL
GROUP: Final = GROUP_LABEL
MODEL_ANNOTATION: Final = "shardwright.io/model-name"
"""The resource's own name, on every pod: label values hold 63 characters, names up to 253."""

POD_INDEX: Final = "apps.kubernetes.io/pod-index"
"""Set by the StatefulSet controller (Kubernetes 1.28 and newer); the rank of the pod's node in its
group.
"""

VERSION_LABEL: Final = "app.kubernetes.io/version"
"""Label of all objects of ours but the plan of record: the version of the engine."""

MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "shardwright")
"""The label by which all objects of ours are watched: name and value."""

API_VERSION: Final = "shardwright.io/v1alpha1"
KIND: Final = "ShardedModel"


def model_selector(base: str) -> dict[str, str]:
    """Return the selector of all pods of a resource."""
    return {MODEL: base}


def leader_selector(base: str) -> dict[str, str]:
    """Return the selector of the pods that serve: the first of each group."""
    return {MODEL: base, POD_INDEX: "0"}


def group_selector(base: str, group: str) -> dict[str, str]:
    """Return the selector of a group's pods."""
    return {MODEL: base, GROUP: group}


def common_labels(base: str, engine: str, version: str) -> dict[str, str]:
    """Return the labels of every object and pod: Kubernetes' recommended ones and our own."""
    return {
        "app.kubernetes.io/component": "engine",
        "app.kubernetes.io/instance": base,
        MANAGED_BY[0]: MANAGED_BY[1],
        "app.kubernetes.io/name": engine,
        VERSION_LABEL: version,
        **model_selector(base),
    }


def is_managed(live: KubernetesObject) -> bool:
    """Return whether an object has the label by which ours are watched."""
    name, value = MANAGED_BY
    return (live["metadata"].get("labels") or {}).get(name) == value


def owner_reference(owner: Owner) -> dict[str, Any]:
    """Return the reference by which a ShardedModel controls an object."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned_metadata(
    name: str, owner: Owner, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return an object's metadata with its labels and its controller reference."""
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(labels),
        "annotations": dict(annotations),
        "ownerReferences": [owner_reference(owner)],
    }
