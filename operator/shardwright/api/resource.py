"""The ShardedModel from a manifest or the API server; the same values are refused as by the schema.

``parse_manifest`` is strict (the API server with ``--validate=strict``); ``read_stored`` drops
unknown fields, because a newer version may have stored them.

The fields of a spec that may hold anything, of a size and depth no API server bounds.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from shardwright.api.parts import DNS_SUBDOMAIN
from shardwright.api.rules import broken_rules
from shardwright.api.spec import Spec
from shardwright.api.violations import explain, repeated_keys, without_nulls
from shardwright.errors import InputError, Problem

CONFIG_MAX_BYTES: Final = 262_144
"""Unit: bytes of JSON. Basis: assumed; the largest config in the catalogue has 60 KB. The API
server cannot bound an object without a schema, so the operator and the CLI do.
"""

DEPTH_MAX: Final = 64
"""Levels of nesting of a spec. Basis: assumed; what has a schema has ten, a config may have 32. The
API server takes 10,000.
"""

FREE_FORM: Final = ("spec.model.config", "spec.engine.speculation.head.config")
"""Fields that may hold anything."""


def has_free_form(spec: object) -> bool:
    """Return whether a spec has anything in such a field."""
    return any(_at(spec, path) is not None for path in FREE_FORM)


def without_free_form(spec: Any) -> Any:
    """Return a spec with an empty object in each such field.

    >>> without_free_form({"model": {"id": "a", "config": {"b": 1}}, "replicas": 2})
    {'model': {'id': 'a', 'config': {}}, 'replicas': 2}
    """
    for path in FREE_FORM:
        spec = _emptied(spec, path.split(".")[1:])
    return spec


def free_form_problems(spec: object) -> tuple[Problem, ...]:
    """Return why the fields' contents are not passed on; depth comes first, for safety."""
    deep = nesting_problem(spec)
    return (deep,) if deep else size_problems(spec)


def nesting_problem(spec: object) -> Problem | None:
    """Return the problem of a spec that is nested too deeply, None if it is not."""
    if not _is_deep(spec):
        return None
    path = next((path for path in FREE_FORM if _is_deep(_at(spec, path))), "spec")
    return Problem(
        code="TooDeep",
        path=path,
        what=f"more than {DEPTH_MAX} levels of nesting",
        limit=f"must be at most {DEPTH_MAX}",
        remedy="leave out what is not architecture",
    )


def size_problems(spec: object) -> tuple[Problem, ...]:
    """Return which of these fields are larger than what is read."""
    sizes = {path: len(json.dumps(_at(spec, path))) for path in FREE_FORM}
    return tuple(_too_large(path, size) for path, size in sizes.items() if size > CONFIG_MAX_BYTES)


def _too_large(path: str, size: int) -> Problem:
    elsewhere = ", or use spec.model.configMapRef" if path == "spec.model.config" else ""
    return Problem(
        code="ConfigTooLarge",
        path=path,
        what=f"{size:,} bytes of JSON",
        limit=f"must be at most {CONFIG_MAX_BYTES:,}",
        gap=f"{size - CONFIG_MAX_BYTES:,} too many",
        remedy=f"leave out what is not architecture{elsewhere}",
    )


def _is_deep(value: object) -> bool:
    # Without recursion, which such a value would exhaust.
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [child for parent in level if parent for child in _containers(parent)]
        if not level:
            return False
    return True


def _containers(value: object) -> Iterator[object]:
    children = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    )
    return (child for child in children if isinstance(child, Mapping | list))


def _at(spec: object, path: str) -> object:
    for step in path.split(".")[1:]:
        spec = spec.get(step) if isinstance(spec, Mapping) else None
    return spec


def _emptied(value: Any, steps: list[str]) -> Any:
    if not steps:
        return {}
    if not isinstance(value, Mapping) or value.get(steps[0]) is None:
        return value
    return {**value, steps[0]: _emptied(value[steps[0]], steps[1:])}


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
