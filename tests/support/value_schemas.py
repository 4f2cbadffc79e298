"""JSON schemas of values of the chart that are parts of our resources and settings: for checkers
that know nothing of Kubernetes, and no CEL, so no rules between fields.
"""

from collections.abc import Iterator
from typing import Any, Final

from shardwright.api.network_policy import Egress, NetworkPolicies
from shardwright.api.node_settings import AUTOSCALED_POOLS, GPUS, DescribedPools, StatedGpus
from shardwright.api.schema import spec_schema
from shardwright.api.spec import OF_ONE_MODEL
from shardwright.api.structural import Schema, structural


def defaults_schema() -> Schema:
    """Return the JSON schema of the administrator's defaults: that of ``spec.engine`` and
    ``spec.pod``, nothing required.
    """
    parts = {name: _plain(spec_schema()["properties"][name]) for name in ("engine", "pod")}
    for name in OF_ONE_MODEL:
        del parts["engine"]["properties"][name]
    return {"type": "object", "additionalProperties": False, "properties": parts}


def gpus_schema() -> Schema:
    """Return the JSON schema of the GPUs that an administrator states."""
    return _plain(structural(StatedGpus)["properties"][GPUS])


def pools_schema() -> Schema:
    """Return the JSON schema of the pools of nodes that an administrator describes."""
    return _plain(structural(DescribedPools)["properties"][AUTOSCALED_POOLS])


def peers_schema() -> Schema:
    """Return the JSON schema of a list of those who may reach the pods of models."""
    return _plain(structural(NetworkPolicies)["properties"]["clients"])


def egress_schema() -> Schema:
    """Return the JSON schema of a list of the destinations that the pods of models may reach."""
    return _plain(structural(Egress)["properties"]["rules"])


def _plain(schema: Schema) -> Schema:
    """Return a structural schema for a checker that knows nothing of Kubernetes: unknown fields are
    refused here.
    """
    kept = {
        key: value
        for key, value in schema.items()
        if not key.startswith("x-kubernetes") and key not in _OF_THE_SERVER
    }
    return (
        kept
        | dict(_children_of(kept))
        | ({"additionalProperties": False} if "properties" in kept else {})
    )


_OF_THE_SERVER: Final = frozenset({"default", "description", "format"})


def _children_of(schema: Schema) -> Iterator[tuple[str, Any]]:
    if "properties" in schema:
        yield ("properties", {name: _plain(child) for name, child in schema["properties"].items()})
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield key, _plain(schema[key])
