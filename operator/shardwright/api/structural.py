"""A pydantic model's JSON schema as a structural one; each rewrite is one function.

The API server allows no references, no unions with null and no ``const``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

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
