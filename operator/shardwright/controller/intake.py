"""Events to keys: which models must be looked at because something has changed. Called on the main loop only."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardwright.cluster.resources import NODES, PODS, SHARDED_MODELS, Resource
from shardwright.controller.queue import Key
from shardwright.controller.view import View, base_key
from shardwright.rendering.labels import KIND


class Intake:
    """Takes events over into the view and adds what they concern."""

    def __init__(self, view: View, add: Callable[[Key], None]) -> None:
        self._view = view
        self._add = add

    def on_event(self, resource: Resource, content: Mapping[str, Any], gone: bool) -> None:  # noqa: FBT001  a fact
        """Take over one event of a watch."""
        for key in self._concerned(resource, content, gone=gone):
            self._add(key)

    def _concerned(self, resource: Resource, content: Mapping[str, Any], *, gone: bool) -> Iterable[Key]:
        if resource is NODES:
            return self._view.node_changed(content, gone=gone)
        if resource is SHARDED_MODELS:
            key = content["metadata"]["namespace"], content["metadata"]["name"]
            self._view.models[base_key(key)] = key
            return (key,)
        if resource is PODS:
            return [*self._view.pod_changed(content, gone=gone), *self._view.models_of_pod(content["metadata"])]
        return owner_of(content["metadata"])

    def on_config_map(self, metadata: Mapping[str, Any] | None) -> None:
        """Take over an event of the ConfigMap watch (None: any may have changed)."""
        for key in self._reading(metadata):
            self._add(key)

    def _reading(self, metadata: Mapping[str, Any] | None) -> Iterable[Key]:
        if metadata is None:
            return [key for key, wants in self._view.interests.items() if wants.config_map]
        readers = self._view.reading((metadata["namespace"], metadata["name"]))
        return [*readers, *owner_of(metadata)]


def owner_of(metadata: Mapping[str, Any]) -> tuple[Key, ...]:
    """Return the ShardedModel that owns an object, by its owner reference: labels may have been removed."""
    owners = metadata.get("ownerReferences") or ()
    return tuple((metadata["namespace"], owner["name"]) for owner in owners if owner["kind"] == KIND)
