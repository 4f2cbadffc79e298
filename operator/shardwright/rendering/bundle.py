"""The Kubernetes objects of a plan, as made by ``render``.

Hashes of rendered objects: equal for equal content, whatever the order of its keys.

Words and variables of a container, as the kubelet takes them, without a shell's quoting.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from shardwright.planning.report import Plan

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


CONTENT_HASH: Final = "shardwright.io/content-hash"
PLAN_HASH: Final = "shardwright.io/plan-hash"
TEMPLATE_HASH: Final = "shardwright.io/template-hash"
OWN_HASH: Final = "shardwright.io/own-template-hash"
"""Label of pods whose template LimitRanges have changed: what :data:`TEMPLATE_HASH` would be
without them.
"""

ASKED_HASH: Final = "shardwright.io/asked-hash"
"""Annotation of a StatefulSet: hash of the request for its pods, whatever a release makes of that.
"""

_SAID_OR_ABSENT: Final = frozenset(
    {
        "claimed",
        "disk_bytes",
        "drain_seconds",
        "draft_tokens",
        "gpu_price",
        "host_cache",
        "mig_profile",
        "numbers",
        "replica_rate",
        "replica_requests",
        "uncounted",
    }
)
"""Fields of a plan that hashes leave out where they say nothing. Each new field is one, or all
plans of record would have another hash.
"""

# The whole hash has 64 digits, one more than the value of a label may have.
_LABEL_DIGITS: Final = 16


def digest(content: object) -> str:
    """Return the SHA-256 of plain data as canonical JSON; a dataclass counts as its fields."""
    return hashlib.sha256(_CANONICAL.encode(content).encode()).hexdigest()


def _fields(value: Any) -> dict[str, Any]:
    # ``asdict`` would copy all that is in them as well, at four times the cost (measured).
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    for name in _SAID_OR_ABSENT.intersection(found):
        if not found[name]:
            del found[name]
    return found


_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields
)


def content_hash(item: KubernetesObject) -> str:
    """Return the hash of an object's content without the annotation for it."""
    metadata = dict(item["metadata"])
    metadata["annotations"] = {
        k: v for k, v in metadata.get("annotations", {}).items() if k != CONTENT_HASH
    }
    return digest({**item, "metadata": metadata})


def with_content_hash(item: KubernetesObject) -> dict[str, Any]:
    """Return the object with its content hash in an annotation."""
    metadata = dict(item["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), CONTENT_HASH: content_hash(item)}
    return {**item, "metadata": metadata}


def plan_hash(plan: Plan) -> str:
    """Return the hash of a plan, predictions and reasons included."""
    return digest(plan)[:_LABEL_DIGITS]


def asked_hash(asked: str, plan: Plan, where: tuple[object, ...]) -> str:
    """Return the hash of a request for pods: spec (``asked``), plan's cut, and ``where``.

    Only the cut counts, and what the plan of record keeps: a release that renders other pods for it
    gives the same hash.
    """
    layout = plan.layout
    degrees = [
        layout.tensor,
        layout.pipeline,
        layout.expert,
        layout.attention_data,
        layout.context,
        layout.partition,
    ]
    pods = [
        plan.nodes_per_replica,
        plan.gpus_per_node,
        plan.resource,
        plan.architecture,
        plan.rdma,
        plan.compute_domain,
    ]
    limits = [
        plan.max_model_len,
        plan.max_sequences,
        plan.max_batched_tokens,
        plan.memory_utilization,
        plan.kv_tokens,
    ]
    found = (plan.host_cache, plan.claimed, plan.draft_tokens)
    # Left out where they say nothing: one that comes new restarts no group (ADR 15).
    beside = [each for each in found if each]
    return digest([asked, degrees, pods, limits, where, *beside])[:_LABEL_DIGITS]


def template_hash(template: Mapping[str, Any]) -> str:
    """Return the hash of a pod template, short enough for a label by which revisions compare."""
    return digest(template)[:_LABEL_DIGITS]


HUB_TOKEN_VARIABLE: Final = "HF_TOKEN"  # noqa: S105 - the name of a variable


def literal(text: str) -> str:
    """Return text escaped for the kubelet, which expands ``$(NAME)`` and halves ``$$``.

    >>> literal("$(HF_TOKEN) costs $5")
    '$$(HF_TOKEN) costs $$5'
    """
    return text.replace("$", "$$")
