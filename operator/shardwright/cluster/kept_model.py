"""The kept part of a ShardedModel: what has a schema, without parts that may have any size.

Inline configs, labels and managed fields may be 1.5 MB, thirty times as much as Python values. So
an inline config is read to be resolved, and then forgotten.
"""

from collections.abc import Mapping
from typing import Any, Final

from shardwright.api.free_form import without_free_form
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.reconcile.life_rules import READ_ANNOTATIONS
from shardwright.rendering.bundle import KubernetesObject

METADATA: Final = (
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
"""Fields that are kept, each of which the API server bounds."""

ANNOTATION_MAX_LENGTH: Final = 256
"""Unit: characters of each annotation that is read. Basis: assumed, four times what of it counts.
"""


def project_model(content: KubernetesObject) -> dict[str, Any]:
    """Return the kept part of a ShardedModel, with the kind that items of a LIST lack."""
    return {
        "apiVersion": SHARDED_MODELS.api_version,
        "kind": SHARDED_MODELS.kind,
        "metadata": kept_metadata(content["metadata"]),
        "spec": without_free_form(content.get("spec") or {}),
        "status": content.get("status") or {},
    }


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kept part of a ShardedModel's metadata."""
    kept = {field: metadata[field] for field in METADATA if field in metadata}
    written = metadata.get("annotations") or {}
    asked = {
        name: written[name][:ANNOTATION_MAX_LENGTH] for name in READ_ANNOTATIONS if name in written
    }
    return {**kept, "annotations": asked} if asked else kept
