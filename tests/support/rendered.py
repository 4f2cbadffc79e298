"""Looks into rendered bundles."""

from collections.abc import Mapping
from typing import Any

from shardwright.rendering.bundle import Bundle, KubernetesObject, of_kind


def by_name(bundle: Bundle) -> dict[tuple[str, str], KubernetesObject]:
    """Return the objects by kind and name; two of the same name would be lost, so they are
    counted.
    """
    named = {(item["kind"], item["metadata"]["name"]): item for item in bundle.objects}
    assert len(named) == len(bundle.objects)
    return named


def pod_of(bundle: Bundle, group: int = 0) -> Mapping[str, Any]:
    """Return the pod spec of a group."""
    spec: Mapping[str, Any] = of_kind(bundle.objects, "StatefulSet")[group]["spec"]["template"][
        "spec"
    ]
    return spec


def engine_of(bundle: Bundle, group: int = 0) -> Mapping[str, Any]:
    """Return the engine container of a group."""
    (container,) = pod_of(bundle, group)["containers"]
    found: Mapping[str, Any] = container
    return found


def environment_of(bundle: Bundle, group: int = 0) -> dict[str, Any]:
    """Return the environment of a group's engine: name to value or to the source of the value."""
    return {
        item["name"]: item.get("value", item.get("valueFrom"))
        for item in engine_of(bundle, group)["env"]
    }


def shape(value: Any) -> Any:
    """Return the structure of plain data: the same keys, every scalar replaced by its type."""
    if isinstance(value, Mapping):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shape(item) for item in value]
    return type(value).__name__


def scalars(value: Any) -> list[str]:
    """Return every string in plain data, keys included."""
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in (str(key), *scalars(item))]
    if isinstance(value, list | tuple):
        return [text for item in value for text in scalars(item)]
    return [value] if isinstance(value, str) else []
