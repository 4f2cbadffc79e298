"""Looks into rendered bundles."""

import shlex
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
    """Return the environment of a group's engine, ``launch.sh`` included: name to value or to the
    source of the value.
    """
    told = {
        item["name"]: item.get("value", item.get("valueFrom"))
        for item in engine_of(bundle, group)["env"]
    }
    files = of_kind(bundle.objects, "ConfigMap")[0]["data"]
    set_there = exported(files["environment.sh"])
    # No variable of the pod is one that the script would set to something else.
    assert not told.keys() & set_there.keys()
    return told | set_there


def exported(script: str) -> dict[str, str]:
    """Return what a script of ours exports, by name."""
    lines = (line for line in script.splitlines() if line.startswith("export "))
    words = (shlex.split(line)[1].partition("=") for line in lines)
    return {name: value for name, _, value in words}


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
