"""A pod's cache for downloads: thrown away with it, or on a claim filled by an init container.

Weights on a user's claim are in ``sources``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardwright.rendering.deployment import Deployment, HubCommit

CACHE_DIR: Final = "/cache"
HUB_DIR: Final = f"{CACHE_DIR}/huggingface"

INIT_CPU: Final = "1"
INIT_MEMORY: Final = "1Gi"
"""What a download asks for; assumed: files go to disk in pieces. The pod asks for the greater of
this and its engine's.
"""


def own_dir(deployment: Deployment) -> str:
    """Return the folder of a pod's own files: a claim may be shared, and pods' names are stable."""
    return CACHE_DIR if deployment.weights.cache is None else f"{CACHE_DIR}/pods/$(POD_NAME)"


def volume(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the cache as a volume of the pod; the StatefulSet adds a claim of its own."""
    if deployment.weights.cache is None:
        return [{"name": "cache", "emptyDir": {}}]
    # The StatefulSet controller itself adds the volume of a claim template.
    if deployment.weights.cache.claim is None:
        return []
    return [
        {"name": "cache", "persistentVolumeClaim": {"claimName": deployment.weights.cache.claim}}
    ]


def claim_templates(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the templates of every pod's claims."""
    if deployment.weights.cache is None or deployment.weights.cache.storage is None:
        return []
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": deployment.weights.cache.storage}},
    }
    if deployment.weights.cache.storage_class is not None:
        spec["storageClassName"] = deployment.weights.cache.storage_class
    return [{"metadata": {"name": "cache"}, "spec": spec}]


def claim_fields(claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a StatefulSet's fields for claims that outlive group restarts, not the model."""
    if not claims:
        return {}
    return {
        "volumeClaimTemplates": list(claims),
        "persistentVolumeClaimRetentionPolicy": {
            # The API's default would keep the claims, beyond the life of the model.
            "whenDeleted": "Delete",
            # A restart ends all pods before it creates any, and must find the downloads again.
            "whenScaled": "Retain",
        },
    }


def downloads(deployment: Deployment) -> bool:
    """Return whether the engine itself downloads, as nothing is there before."""
    return deployment.weights.from_hub and deployment.weights.cache is None


def downloads_draft(deployment: Deployment) -> bool:
    """Return whether a draft model is downloaded to the node's disk."""
    return (
        isinstance(deployment.drafting.draft_model, HubCommit) and deployment.weights.cache is None
    )
