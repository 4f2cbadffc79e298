"""The CustomResourceDefinition, made from the pydantic models.

Descriptions, bounds and defaults come from ``spec`` and ``published``, rules between fields from
``rules``.

A pydantic model's JSON schema as a structural one; each rewrite is one function.

The API server allows no references, no unions with null and no ``const``.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import yaml
from pydantic import BaseModel

from shardwright.api.group_version import (
    CATEGORIES,
    GROUP,
    KIND,
    PLURAL,
    SHORT_NAMES,
    SINGULAR,
    VERSION,
)
from shardwright.api.parts import Rule
from shardwright.api.published import Status
from shardwright.api.rules import RULES
from shardwright.api.spec import Spec

Schema = dict[str, Any]

INT32_MAX: Final = 2_147_483_647


def structural(model: type[BaseModel]) -> Schema:
    """Return a pydantic model's JSON schema as a structural one."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    return _rewritten(_inlined(schema, definitions))


def _inlined(schema: Schema, definitions: Mapping[str, Any]) -> Schema:
    """Replace references by their definitions; a key beside the reference wins."""
    if "$ref" in schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**definitions[schema["$ref"].rsplit("/", 1)[1]], **beside}
    return {key: _inlined_value(value, definitions) for key, value in schema.items()}


def _inlined_value(value: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inlined_value(item, definitions) for item in value]
    return _inlined(value, definitions) if isinstance(value, dict) else value


def _rewritten(schema: Schema) -> Schema:
    for rewrite in REWRITES:
        schema = rewrite(schema)
    for key, child in _children(schema):
        schema[key] = child
    return schema


def _children(schema: Schema) -> Iterator[tuple[str, Any]]:
    if "properties" in schema:
        yield (
            "properties",
            {name: _rewritten(child) for name, child in schema["properties"].items()},
        )
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield key, _rewritten(schema[key])


def _without_null(schema: Schema) -> Schema:
    # A field that may be left out is not in ``required``.
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    # More than one is a real union, as a quantity's of integer and string.
    if len(choices) != 1:
        return schema
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**choices[0], **beside}


def _without_null_default(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if not (key == "default" and value is None)}


def _enum_for_const(schema: Schema) -> Schema:
    return {
        ("enum" if key == "const" else key): ([value] if key == "const" else value)
        for key, value in schema.items()
    }


def _without_closed_properties(schema: Schema) -> Schema:
    # Pruning and strict validation do the work of ``additionalProperties`` that are no schema.
    if isinstance(schema.get("additionalProperties"), bool):
        return {key: value for key, value in schema.items() if key != "additionalProperties"}
    return schema


def _without_titles(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}


def _unwrapped_description(schema: Schema) -> Schema:
    # A docstring is wrapped for those who read the code.
    description = schema.get("description")
    if not isinstance(description, str):
        return schema
    paragraphs = (" ".join(part.split()) for part in description.split("\n\n"))
    return schema | {"description": "\n\n".join(paragraphs)}


def _integer_format(schema: Schema) -> Schema:
    if schema.get("type") != "integer":
        return schema
    return schema | {
        "format": "int32" if schema.get("maximum", INT32_MAX + 1) <= INT32_MAX else "int64"
    }


def _default_of_parts(schema: Schema) -> Schema:
    """Give an optional object the default ``{}`` if its fields have defaults, to fill them in."""
    if "properties" not in schema:
        return schema
    properties = {
        name: child | {"default": {}} if _fills_itself(name, child, schema) else child
        for name, child in schema["properties"].items()
    }
    return schema | {"properties": properties}


def _fills_itself(name: str, child: Schema, parent: Schema) -> bool:
    is_part = "properties" in child and not child.get("required") and "anyOf" not in child
    return is_part and name not in parent.get("required", ()) and "default" not in child


REWRITES: Final[tuple[Callable[[Schema], Schema], ...]] = (
    _default_of_parts,
    _without_null,
    _without_null_default,
    _enum_for_const,
    _without_closed_properties,
    _without_titles,
    _unwrapped_description,
    _integer_format,
)
"""In this order: a part whose union with null is still there is optional and gets no default."""


PRINTER_COLUMNS: Final = (
    ("Ready", "string", ".status.ready", 0, "Groups that are ready, of those that are wanted."),
    (
        "Reason",
        "string",
        '.status.conditions[?(@.type=="Ready")].reason',
        0,
        "Why it is, or is not, ready.",
    ),
    ("Model", "string", ".spec.model.id", 1, "Model that is served."),
    (
        "Layout",
        "string",
        ".status.layout",
        0,
        "Degrees of one replica: tensor (TP), pipeline (PP), data (DP), expert (EP).",
    ),
    ("GPUs", "integer", ".status.plan.gpus", 0, "GPUs of all replicas."),
    ("Pool", "string", ".status.plan.pool", 1, "Pool of nodes that it is planned on."),
    (
        "Tok/s",
        "integer",
        ".status.plan.predicted.outputTokensPerSecond",
        1,
        "Output tokens a second of all replicas, as predicted.",
    ),
    ("Endpoint", "string", ".status.endpoint", 1, "Its URL inside the cluster."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since it was made."),
)
SELECTABLE_FIELDS: Final = (".spec.model.id", ".spec.mode", ".status.plan.pool", ".status.layout")
"""Fields that ``kubectl get --field-selector`` takes: who serves this model, and which plans are in
a pool.
"""
HEADER: Final = "# Generated by `shardwright crd` from operator/shardwright/api; change it there.\n"


def crd() -> Schema:
    """Return the CustomResourceDefinition as the API server takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": list(SHORT_NAMES),
                "categories": list(CATEGORIES),
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def crd_yaml() -> str:
    """Return the CustomResourceDefinition as the YAML in ``crds/``."""
    return HEADER + yaml.safe_dump(crd(), sort_keys=False, width=110, allow_unicode=True)


@cache
def spec_schema() -> Schema:
    """Return the structural schema of ``spec``, with its rules."""
    schema = structural(Spec)
    for rule in RULES:
        at = _schema_at(schema, rule.path)
        at.setdefault("x-kubernetes-validations", []).append(_validation(rule))
    return schema


NOT_OBSERVED: Final = -1
"""The observed generation of a resource that the operator has not reconciled: that of no spec."""


@cache
def status_schema() -> Schema:
    """Return the structural schema of ``status``.

    A resource that nobody has reconciled says so by default: without a status, `kubectl wait`, Flux
    and all that judge by kstatus take it for done.
    """
    return structural(Status) | {"default": {"observedGeneration": NOT_OBSERVED}}


def manifest_schema() -> Schema:
    """Return the schema of a whole manifest, as far as its parser's problems refer to it."""
    return {
        "properties": {
            "apiVersion": {},
            "kind": {},
            "metadata": {},
            "spec": spec_schema(),
            "status": {},
        }
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {
                "name": name,
                "type": kind,
                "jsonPath": path,
                "priority": priority,
                "description": description,
            }
            for name, kind, path, priority, description in PRINTER_COLUMNS
        ],
        "selectableFields": [{"jsonPath": path} for path in SELECTABLE_FIELDS],
    }


def _root() -> Schema:
    return {
        "type": "object",
        "description": "A large language model that is cut over GPUs and served.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": f"Version of this resource: {GROUP}/{VERSION}.",
            },
            "kind": {"type": "string", "description": f"Kind of this resource: {KIND}."},
            "metadata": {
                "type": "object"
            },  # the API server has its own schema for it and allows no word more
            "spec": spec_schema(),
            "status": status_schema(),
        },
    }


def _validation(rule: Rule) -> Schema:
    validation = {"rule": rule.cel, "message": rule.message}
    if rule.field:
        validation["fieldPath"] = rule.field
    return validation


def _schema_at(schema: Schema, path: str) -> Schema:
    for step in path.split(".")[1:]:
        schema = schema["properties"][step.removesuffix("[]")]
        schema = schema["items"] if step.endswith("[]") else schema
    return schema
