"""The Kubernetes objects of a plan, as made by ``render``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KubernetesObject = Mapping[str, Any]
"""One object as the API server takes it: apiVersion, kind, metadata, and the kind's own fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """All objects of one ShardedModel, in the order of creation.

    Each carries the annotation ``shardwright.io/content-hash``: the SHA-256 of its rendered content
    without that annotation. ``keys`` are Secrets filled once, when they are created, and then known
    to the kubelet alone.
    """

    objects: tuple[KubernetesObject, ...]
    keys: tuple[KubernetesObject, ...] = ()


def of_kind(objects: Iterable[KubernetesObject], kind: str) -> tuple[KubernetesObject, ...]:
    """Return the objects of one kind, in order."""
    return tuple(item for item in objects if item["kind"] == kind)
