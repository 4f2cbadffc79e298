"""Wrong values for every field, derived from the CRD's own schema: no bound can be forgotten."""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from shardwright.api.schema import spec_schema
from tests.support.builders_resource import Manifest, complete_specs

Steps = tuple[str | int, ...]
Schema = dict[str, Any]

WRONG_TYPES: dict[str, Any] = {
    "integer": "seven",
    "number": "seven",
    "string": 7,
    "boolean": "yes",
    "object": "text",
    "array": "text",
}
UNFIT = ("!", "-", "\x00", "", " ")


@dataclass(frozen=True, slots=True)
class Case:
    """A spec that breaks one bound, and the path that both verdicts must name."""

    name: str
    spec: Manifest
    path: str

    def __str__(self) -> str:
        return self.name


def fields() -> Iterator[tuple[Steps, Schema]]:
    """Yield every field of the spec with its schema; of lists and maps the first entry."""
    yield from _walk((), spec_schema())


def violations() -> Iterator[Case]:
    """Yield one case for every type, bound, enum, pattern, required field and keyed list of the
    spec.
    """
    for steps, schema in fields():
        for what, value in _wrong_values(schema, value_at(_spec_with(steps), steps)):
            at = (*steps, 1) if what == "duplicate" else steps
            yield Case(
                f"{_dotted(steps)}:{what}", with_value(_spec_with(steps), steps, value), _dotted(at)
            )
        for name in schema.get("required", ()):
            yield _without(steps, name)


def unknown_fields() -> Iterator[Case]:
    """Yield one case for every object of the spec: a field that it does not have."""
    for steps, schema in fields():
        if "properties" in schema:
            yield _case(f"{_dotted(steps)}:unknown", (*steps, "bogusField"), 1, within=steps)


def boundary_values() -> Iterator[Case]:
    """Yield the smallest and the largest value of every integer: both are allowed."""
    for steps, schema in fields():
        if schema.get("type") == "integer" and "enum" not in schema:
            yield _case(f"{_dotted(steps)}:smallest", steps, schema["minimum"])
            yield _case(f"{_dotted(steps)}:largest", steps, schema["maximum"])


def nulls() -> Iterator[Case]:
    """Yield every field set to null."""
    for steps, _ in fields():
        if steps:
            yield _case(f"{_dotted(steps)}:null", steps, None)


def value_at(spec: Manifest, steps: Steps) -> Any:
    value: Any = spec
    for step in steps:
        value = value[step]
    return value


def with_value(spec: Manifest, steps: Steps, value: Any) -> Manifest:
    changed = copy.deepcopy(spec)
    if not steps:
        return value  # type: ignore[no-any-return]  # the root itself is replaced by something wrong
    value_at(changed, steps[:-1])[steps[-1]] = value
    return changed


def _walk(steps: Steps, schema: Schema) -> Iterator[tuple[Steps, Schema]]:
    yield steps, schema
    for name, child in schema.get("properties", {}).items():
        yield from _walk((*steps, name), child)
    if "items" in schema:
        yield from _walk((*steps, 0), schema["items"])
    if "additionalProperties" in schema:
        first = next(iter(value_at(_spec_with(steps), steps)))
        yield from _walk((*steps, first), schema["additionalProperties"])


@cache
def _complete() -> tuple[Manifest, ...]:
    """Return the complete specs, to be read: who changes one copies it."""
    return tuple(complete_specs())


def _spec_with(steps: Steps) -> Manifest:
    for spec in _complete():
        try:
            value_at(spec, steps)
        except (KeyError, IndexError):
            continue
        return spec
    raise AssertionError(f"no complete spec has {_dotted(steps)}: add it to the builder")


def _case(name: str, steps: Steps, value: Any, within: Steps | None = None) -> Case:
    spec = _spec_with(steps if within is None else within)
    return Case(name, with_value(spec, steps, value), _dotted(steps))


def _without(steps: Steps, name: str) -> Case:
    spec = copy.deepcopy(_spec_with((*steps, name)))
    del value_at(spec, steps)[name]
    return Case(f"{_dotted((*steps, name))}:required", spec, _dotted((*steps, name)))


def _wrong_values(schema: Schema, good: Any) -> Iterator[tuple[str, Any]]:
    if "type" in schema:
        yield "type", WRONG_TYPES[schema["type"]]
    if schema.get("x-kubernetes-int-or-string"):
        yield from (("fraction", 1.5), ("truth", True), ("list", ["1"]))
    if "enum" in schema:
        yield ("enum", max(schema["enum"]) + 1 if schema.get("type") == "integer" else "Bogus")
    if "minimum" in schema:
        yield "minimum", schema["minimum"] - 1
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + 1
    yield from _wrong_sizes(schema, good)


def _wrong_sizes(schema: Schema, good: Any) -> Iterator[tuple[str, Any]]:
    if "maxLength" in schema:
        yield "maxLength", "a" * (schema["maxLength"] + 1)
    if "pattern" in schema:
        yield (
            "pattern",
            next(text for text in UNFIT if not re.search(schema["pattern"], text, re.ASCII)),
        )
    if schema.get("maxItems"):
        item = good[0] if isinstance(good, list) else good
        yield ("maxItems", [_renamed(item, index) for index in range(schema["maxItems"] + 1)])
    if schema.get("maxProperties"):
        value = next(iter(good.values())) if isinstance(good, dict) else good
        yield (
            "maxProperties",
            {f"key-{index}": value for index in range(schema["maxProperties"] + 1)},
        )
    if schema.get("x-kubernetes-list-type") == "map":
        yield "duplicate", [good[0], good[0]]


def _renamed(item: Any, index: int) -> Any:
    return (
        item | {"name": f"{item['name']}{index}"}
        if isinstance(item, dict) and "name" in item
        else item
    )


def _dotted(steps: Steps) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
