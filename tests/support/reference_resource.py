"""The reference page of the resource, made from the schema, the rules and the conditions."""

from collections.abc import Iterator
from typing import Any

from shardwright.api.conditions import ConditionType, Reason
from shardwright.api.group_version import API_VERSION, CATEGORIES, KIND, SHORT_NAMES
from shardwright.api.rules import RULES
from shardwright.api.schema import spec_schema, status_schema

Schema = dict[str, Any]
Rows = Iterator[tuple[str, ...]]

_FIELDS = ("field", "type", "default", "bounds", "meaning")
_SIZES = (("maxLength", "characters"), ("maxItems", "entries"), ("maxProperties", "entries"))


def lines() -> Iterator[str]:
    """Yield the lines of ``docs/reference/shardedmodel.md``."""
    yield from (f"# {KIND}", "")
    yield f"`{API_VERSION}`, short name `{SHORT_NAMES[0]}`, category `{CATEGORIES[0]}`."
    yield ""
    yield "Generated from `operator/shardwright/api`; `kubectl explain smodel` says the same."
    yield from _table("spec", _FIELDS, _rows(spec_schema(), ""))
    yield from ("", "## Rules between fields", "")
    yield "Checked by the API server, and by `shardwright` before anything is sent."
    rules = ((f"`{rule.code}`", f"`{rule.path}`", rule.message) for rule in RULES)
    yield from _table("", ("code", "where", "rule"), rules)
    yield from _table("status", _FIELDS, _rows(status_schema(), ""))
    conditions = ((f"`{word}`", word.meaning) for word in ConditionType)
    yield from _table("Conditions", ("condition", "True means"), conditions)
    reasons = ((f"`{word}`", word.meaning) for word in Reason)
    yield from _table("Reasons", ("reason", "meaning"), reasons)


def _table(heading: str, head: tuple[str, ...], rows: Rows) -> Iterator[str]:
    yield from ("", f"## {heading}", "") if heading else ("",)
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


def _rows(schema: Schema, path: str) -> Rows:
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        at = f"{path}.{name}".removeprefix(".")
        default = "required" if name in required else _default(child.get("default"))
        yield f"`{at}`", _type(child), default, _bounds(child), child["description"]
        items = child.get("items")
        yield from _rows(items or child, f"{at}[]" if items else at)


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in schema:
        return f"list of {_type(schema['items'])}s"
    return "map" if "additionalProperties" in schema else str(schema["type"])


def _default(value: Any) -> str:
    if value in (None, "", {}, []):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _bounds(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("type") in ("integer", "number"):
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    found = (f"at most {schema[key]:,} {unit}" for key, unit in _SIZES if key in schema)
    return next(found, "")
