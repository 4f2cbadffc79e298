"""The reference page of the resource, made from the schema, the rules and the words of the
conditions.

Nothing on it is written by hand.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from shardwright.api.conditions import ConditionType, Reason, Word
from shardwright.api.names import API_VERSION, CATEGORIES, KIND, SHORT_NAMES
from shardwright.api.rules import RULES
from shardwright.api.schema import spec_schema, status_schema

Schema = dict[str, Any]


def reference() -> str:
    """Return the page ``docs/reference/shardedmodel.md``."""
    parts = (
        f"# {KIND}",
        f"`{API_VERSION}`, short name `{SHORT_NAMES[0]}`, category `{CATEGORIES[0]}`.",
        "Generated from `operator/shardwright/api`; `kubectl explain smodel` says the same.",
        "## spec",
        *_table(
            ("field", "type", "default", "bounds", "meaning"), _rows(spec_schema(), "")
        ),
        "## Rules between fields",
        "Checked by the API server, and by `shardwright` before anything is sent.",
        *_table(
            ("code", "where", "rule"),
            ((f"`{rule.code}`", f"`{rule.path}`", rule.message) for rule in RULES),
        ),
        "## status",
        *_table(
            ("field", "type", "default", "bounds", "meaning"),
            _rows(status_schema(), ""),
        ),
        "## Conditions",
        *_table(("condition", "True means"), _words(ConditionType)),
        "## Reasons",
        *_table(("reason", "meaning"), _words(Reason)),
    )
    return "\n\n".join(parts).replace("|\n\n|", "|\n|") + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


def _words(words: type[Word]) -> Iterator[tuple[str, str]]:
    return ((f"`{word}`", word.meaning) for word in words)


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        at = f"{path}.{name}".removeprefix(".")
        yield (
            f"`{at}`",
            _type(child),
            _default(child, required=name in required),
            _bounds(child),
            child["description"],
        )
        yield from _rows(
            child.get("items", child), f"{at}[]" if "items" in child else at
        )


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in schema:
        return f"list of {_type(schema['items'])}s"
    if "additionalProperties" in schema:
        return "map"
    return str(schema["type"])


def _default(schema: Schema, *, required: bool) -> str:
    if required:
        return "required"
    default = schema.get("default")
    return (
        ""
        if default in (None, "", {}, [])
        else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    )


def _bounds(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("type") in ("integer", "number"):
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    sizes = (
        ("maxLength", "characters"),
        ("maxItems", "entries"),
        ("maxProperties", "entries"),
    )
    return next(
        (f"at most {schema[key]:,} {unit}" for key, unit in sizes if key in schema), ""
    )
