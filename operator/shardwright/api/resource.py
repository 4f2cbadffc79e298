"""The ShardedModel from a manifest or the API server; the same values are refused as by the schema.

``parse_manifest`` is strict (the API server with ``--validate=strict``); ``read_stored`` drops
unknown fields, because a newer version may have stored them.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from shardwright.api.free_form import size_problems
from shardwright.api.parts import DNS_SUBDOMAIN
from shardwright.api.rules import broken_rules
from shardwright.api.spec import Spec
from shardwright.api.violations import explain, repeated_keys, without_nulls
from shardwright.errors import InputError

OF_NO_USE_HERE: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "labels",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
    }
)
"""Fields of ``metadata`` that every object may have and nothing here depends on. Source:
ObjectMeta, Kubernetes API.
"""


class Metadata(BaseModel):
    """The fields of ``metadata`` that the operator needs; the API server checks the rest."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="ignore", frozen=True
    )

    name: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    namespace: Annotated[str, StringConstraints(min_length=1, max_length=63)] = "default"
    uid: str = ""
    generation: int = 0


class ShardedModel(BaseModel):
    """One resource: its metadata and its spec. Status is output only and is never read."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True
    )

    api_version: Literal["shardwright.io/v1alpha1"]
    kind: Literal["ShardedModel"]
    metadata: Metadata
    spec: Spec
    status: dict[str, Any] | None = Field(default=None, exclude=True, repr=False)


def parse_manifest(manifest: Mapping[str, Any]) -> ShardedModel:
    """Return the resource in a manifest.

    Raises:
        InputError: one problem per violation, each with its path.
    """
    return _read(manifest, extra="forbid")


def read_stored(stored: Mapping[str, Any]) -> ShardedModel:
    """Return the resource held by the API server, without unknown fields.

    Raises:
        InputError: it was stored under other rules and breaks today's.
    """
    return _read(stored, extra="ignore")


def _read(raw: Mapping[str, Any], *, extra: Literal["forbid", "ignore"]) -> ShardedModel:
    plain = _without_what_is_of_no_use(without_nulls(raw))
    try:
        resource = ShardedModel.model_validate_json(json.dumps(plain), extra=extra, by_name=False)
    except ValidationError as error:
        raise InputError(explain(error, _schema())) from None
    problems = (
        *repeated_keys(resource.spec, "spec"),
        *size_problems(plain.get("spec")),
        *broken_rules(resource.spec),
    )
    if problems:
        raise InputError(problems)
    return resource


def _schema() -> Mapping[str, Any]:
    from shardwright.api.schema import manifest_schema  # noqa: PLC0415 - costs more than a plan; only a refusal needs it

    return manifest_schema()


def _without_what_is_of_no_use(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = plain.get("metadata")
    if not isinstance(metadata, Mapping):
        return plain
    return {
        **plain,
        "metadata": {name: value for name, value in metadata.items() if name not in OF_NO_USE_HERE},
    }
