"""Objects as the readers see them, and changes as they hand them over."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from shardwright.cluster.handover import Change, Key
from shardwright.cluster.resources import SERVICES, STATEFUL_SETS
from shardwright.cluster.sources import project_child, project_config_map, project_node, project_pod

_versions = count(1000)


def owned(
    name: str, owner: str = "", uid: str = "", *, namespace: str = "models", version: int = 0
) -> dict[str, Any]:
    """Return the metadata of an object that the ShardedModel `owner` controls, or nobody."""
    reference = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "name": owner,
        "uid": f"uid-of-{owner}",
    }
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-of-{name}",
        "resourceVersion": str(version or next(_versions)),
        "ownerReferences": [{**reference, "controller": True}] if owner else [],
    }


def a_set(name: str, owner: str = "llama", *, replicas: int = 2, **options: Any) -> dict[str, Any]:
    metadata = owned(name, owner, **options)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": {},
    }


def a_service(name: str, owner: str = "llama", **options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned(name, owner, **options),
        "spec": {},
    }


def a_config_map(name: str, owner: str = "", **options: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned(name, owner, **options)}


def a_pod(
    name: str,
    *,
    model: str = "",
    set_name: str = "",
    set_uid: str = "",
    node: str = "",
    gpus: int = 0,
    ready: bool = True,
    namespace: str = "models",
    uid: str = "",
    **metadata: Any,
) -> dict[str, Any]:
    """Return a pod that holds GPUs, carries the label of a model, or is controlled by a
    StatefulSet.
    """
    labels = (
        {"shardwright.io/model": model, "shardwright.io/group": set_name or model} if model else {}
    )
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": set_name,
        "uid": set_uid or f"uid-of-{set_name}",
    }
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-of-{name}",
            "resourceVersion": str(next(_versions)),
            "labels": labels,
            "ownerReferences": [{**reference, "controller": True}] if set_name else [],
            **metadata,
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [
                {
                    "name": "main",
                    "resources": {"requests": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
                }
            ],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def key_of(content: Mapping[str, Any]) -> Key:
    return content["metadata"].get("namespace", ""), content["metadata"]["name"]


def nodes(*items: dict[str, Any], gone: tuple[str, ...] = ()) -> dict[Key, Change[Any]]:
    return {key_of(item): Change(project_node(item), 0) for item in items} | {
        ("", name): Change(None, 0) for name in gone
    }


def pods(*items: dict[str, Any], gone: tuple[Key, ...] = ()) -> dict[Key, Change[Any]]:
    return {key_of(item): Change(project_pod(item), 0) for item in items} | {
        key: Change(None, 0) for key in gone
    }


def children(*items: dict[str, Any]) -> dict[Key, Change[Any]]:
    resources = {"StatefulSet": STATEFUL_SETS, "Service": SERVICES}
    projected = {key_of(item): project_child(resources[item["kind"]], item) for item in items}
    return {key: Change(child, child.version) for key, child in projected.items()}


def config_maps(*items: dict[str, Any]) -> dict[Key, Change[Any]]:
    return {
        key_of(item): Change(facts := project_config_map(item), int(facts.version))
        for item in items
    }
