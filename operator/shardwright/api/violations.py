"""The parser's refusals as problems: path in the manifest, value, limit, way out."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from shardwright.api.structural import structural
from shardwright.api.weights_source import FORMS
from shardwright.errors import InputError, Problem, hint_for, nearest

Location = Sequence[int | str]
Schema = Mapping[str, Any]
P = TypeVar("P", bound=BaseModel)

SHOWN_MAX_LENGTH: Final = 80
"""Unit: characters. Basis: assumed; a value longer than a line does not help the reader."""

_FREE_FORM: Final = ("spec", "model", "config")


def without_nulls(value: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a manifest without nulls, as the API server drops them, but with its whole config."""
    if path == _FREE_FORM:
        return value
    if isinstance(value, Mapping):
        return {
            key: without_nulls(child, (*path, str(key)))
            for key, child in value.items()
            if child is not None
        }
    if isinstance(value, list | tuple):
        return [without_nulls(child, (*path, "[]")) for child in value]
    return value


def read_part(part: type[P], content: Mapping[str, Any]) -> P:
    """Return a part of the settings; null counts as absent.

    Raises:
        InputError: every violation, with its path.
    """
    try:
        return part.model_validate(without_nulls(content), by_name=False)
    except ValidationError as error:
        raise InputError(explain(error, structural(part), "the settings")) from None


def explain(
    error: ValidationError, schema: Schema, whole: str = "this resource"
) -> tuple[Problem, ...]:
    """Return one problem per violation, sorted by path, in the words of the schema of the input,
    which is called ``whole``.
    """
    problems = {_problem(detail, schema, whole) for detail in error.errors(include_url=False)}
    return tuple(sorted(problems, key=lambda problem: (problem.path, problem.code)))


def repeated_keys(part: BaseModel, path: str) -> Iterator[Problem]:
    """Yield a problem for each repeated key of a keyed list under ``path``."""
    for name, field in type(part).model_fields.items():
        value, at = getattr(part, name), f"{path}.{field.alias}"
        if isinstance(value, BaseModel):
            yield from repeated_keys(value, at)
        elif key := _key_of(field):
            yield from _repeated_in(value or (), key, at)


def _key_of(field: FieldInfo) -> str | None:
    extra = field.json_schema_extra
    keys = extra.get("x-kubernetes-list-map-keys") if isinstance(extra, dict) else None
    return str(keys[0]) if isinstance(keys, list) else None


def _repeated_in(items: Sequence[BaseModel], key: str, path: str) -> Iterator[Problem]:
    seen = set()
    for index, item in enumerate(items):
        value = getattr(item, key)
        if value in seen:
            yield Problem(
                code="Duplicate",
                path=f"{path}[{index}]",
                what=f"{key} {_shown(value)} is there twice",
                remedy="remove one of the two",
            )
        seen.add(value)


def path_of(location: Location) -> str:
    """Return a location's path in the manifest.

    >>> path_of(("spec", "engine", "env", 0, "name"))
    'spec.engine.env[0].name'
    """
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{_readable(step)}"
        for step in location
        if step != "[key]"
    )
    return "".join(steps).removeprefix(".")


def _readable(key: str) -> str:
    shown = key if key.isprintable() else key.encode("unicode_escape").decode()
    return shown if len(shown) <= SHOWN_MAX_LENGTH else f"{shown[:SHOWN_MAX_LENGTH]}…"


def _problem(detail: ErrorDetails, root: Schema, whole: str) -> Problem:
    location, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        # An unknown field has no schema; that of its parent lists the known ones.
        return _unknown(location, _schema_at(root, location[:-1]), whole)
    schema = _schema_at(root, location)
    for prefix, make in _BY_KIND:
        if kind.startswith(prefix):
            return make(location, detail, schema)
    return _wrong_type(location, detail, schema)


def _missing(location: Location, _detail: ErrorDetails, schema: Schema) -> Problem:
    meaning = str(schema.get("description", "")).rstrip(".")
    return Problem(
        code="MissingField",
        path=path_of(location),
        what="is not set",
        limit="and has no default",
        remedy=f"set it: {meaning}" if meaning else "set it",
    )


def _unknown(location: Location, parent: Schema, whole: str) -> Problem:
    known = sorted(parent.get("properties", {}))
    return Problem(
        code="UnknownField",
        path=path_of(location),
        what=f"is not a field of {whole}",
        remedy=hint_for(str(location[-1]), known),
    )


def _not_allowed(location: Location, detail: ErrorDetails, schema: Schema) -> Problem:
    allowed = [str(item) for item in schema.get("enum", ())]
    limit = (
        f"must be {_either(allowed)}"
        if allowed
        else f"must be {detail.get('ctx', {}).get('expected', '')}"
    )
    found = detail["input"]
    near = nearest(str(found), allowed)
    several = f"did you mean {near}?" if near else "write one of them"
    if isinstance(found, bool) and (meant := _word_read_as(found, allowed)):
        several = f"YAML reads this word as a truth value: put it in quotes, {json.dumps(meant)}"
    return Problem(
        code="NotAllowed",
        path=path_of(location),
        what=_shown(detail["input"]),
        limit=limit,
        remedy=several if len(allowed) > 1 else "write that",
    )


def _word_read_as(found: bool, allowed: Sequence[str]) -> str | None:  # noqa: FBT001 - the value
    return next((word for word in allowed if word.lower() in _READ_AS[found]), None)


def _out_of_range(location: Location, detail: ErrorDetails, schema: Schema) -> Problem:
    low, high, value = schema["minimum"], schema["maximum"], detail["input"]
    whole = schema.get("type") == "integer"
    above, below = ("too many", "too few") if whole else ("too much", "too little")
    gap = ""
    if _is_readable(value):
        gap = (
            f"{_figure(value - high)} {above}"
            if value > high
            else f"{_figure(low - value)} {below}"
        )
    return Problem(
        code="OutOfRange",
        path=path_of(location),
        what=_figure(value),
        limit=f"must be from {low:,} to {high:,}",
        gap=gap,
        remedy=f"set it to {high if value > high else low:,} or "
        f"{'less' if value > high else 'more'}",
    )


LONGEST_FIGURE_BITS: Final = 64
"""The longest whole number that is written out. Unit: bits. Basis: chosen; no field takes a longer
one, and Python makes no float of one of 1,024.
"""


def _figure(value: float) -> str:
    """Return a number as it is typed: a whole one without a point.

    >>> _figure(65536), _figure(0.5), _figure(3.0), _figure(-1e-7), _figure(10**400)
    ('65,536', '0.5', '3', '-1e-07', 'a very large number')
    """
    if value != value:  # noqa: PLR0124 - it alone differs from itself
        return "NaN"
    if not _is_readable(value):
        return "a very large number"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def _is_readable(value: float) -> bool:
    """Return whether a number is one to write out, and to reckon with as a float."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value.bit_length() <= LONGEST_FIGURE_BITS


def _bad_format(location: Location, detail: ErrorDetails, schema: Schema) -> Problem:
    pattern = schema.get("pattern", detail.get("ctx", {}).get("pattern", ""))
    if pattern in FORMS:
        return Problem(
            code="BadFormat",
            path=path_of(location),
            what=_shown(detail["input"]),
            limit=f"must be {FORMS[pattern]}",
            remedy="write one of these forms",
        )
    return Problem(
        code="BadFormat",
        path=path_of(location),
        what=_shown(detail["input"]),
        limit=f"must match {pattern}",
        remedy=str(schema.get("description", "correct it")).rstrip("."),
    )


def _too_long(location: Location, detail: ErrorDetails, _schema: Schema) -> Problem:
    most = detail["ctx"]["max_length"]
    unit = "characters" if isinstance(detail["input"], str) else "entries"
    return Problem(
        code="TooLong",
        path=path_of(location),
        what=f"{len(detail['input']):,} {unit}",
        limit=f"must be at most {most:,}",
        gap=f"{len(detail['input']) - most:,} too many",
        remedy="shorten it",
    )


def _wrong_value(location: Location, detail: ErrorDetails, _schema: Schema) -> Problem:
    limit = detail["msg"].removeprefix("Value error, ")
    return Problem(
        code="WrongType",
        path=path_of(location),
        what=_shown(detail["input"]),
        limit=limit,
        remedy="correct it",
    )


def _wrong_type(location: Location, detail: ErrorDetails, schema: Schema) -> Problem:
    found = detail["input"]
    if _is_beyond(found, schema):
        return _out_of_range(location, detail, schema)
    # The schema of the resource leaves metadata to Kubernetes, where a name is a string.
    kind = schema.get("type") or detail["type"].removesuffix("_type")
    if kind in _OBJECTS:
        kind = "object"
    wanted = _TYPES.get(kind, "a string or an integer")
    return Problem(
        code="WrongType",
        path=path_of(location),
        what=_shown(found),
        limit=f"must be {wanted}",
        remedy=_quotes(found, kind) or f"write {wanted}",
    )


def _is_beyond(found: object, schema: Schema) -> bool:
    """Return whether a value is a number beyond its bounds, as NaN always is."""
    return (
        isinstance(found, int | float)
        and not isinstance(found, bool)
        and "minimum" in schema
        and not schema["minimum"] <= found <= schema["maximum"]
    )


def _quotes(found: object, kind: str) -> str:
    """Return what to do about a value's quotes, empty if they are not the fault.

    >>> _quotes(8, "string"), _quotes("8", "integer"), _quotes([], "string")
    ('put it in quotes', 'remove the quotes', '')
    """
    meant = _UNQUOTED.get(kind)
    if isinstance(found, str):
        return "remove the quotes" if meant and meant.fullmatch(found) else ""
    if kind != "string" or not isinstance(found, int | float):
        return ""
    if not isinstance(found, bool):
        return "put it in quotes"
    *words, last = _READ_AS[found]
    return (
        f"YAML reads {', '.join(words)} and {last} as {last}: put the word in quotes, as in "
        f"{json.dumps(words[0])}"
    )


def _schema_at(schema: Schema, location: Location) -> Schema:
    for step in location:
        schema = _child(schema, step)
    return schema


def _child(schema: Schema, step: int | str) -> Schema:
    if isinstance(step, int):
        child = schema.get("items", {})
    else:
        child = schema.get("properties", {}).get(step, schema.get("additionalProperties", {}))
    return child if isinstance(child, Mapping) else {}


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= SHOWN_MAX_LENGTH else f"{text[:SHOWN_MAX_LENGTH]}…"


_TYPES: Final = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
}

_OBJECTS: Final = frozenset({"dict", "model", "model_attributes", "dataclass"})
"""Types of pydantic that are objects of Kubernetes."""

_READ_AS: Final = {True: ("yes", "y", "on", "true"), False: ("no", "n", "off", "false")}
"""Words that YAML 1.1 reads as a truth value, as kubectl does, in any case."""

_UNQUOTED: Final = {
    "integer": re.compile(r"[+-]?[0-9]+", re.ASCII),
    "number": re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII),
    "boolean": re.compile(r"true|false"),
}
"""Texts that the type would take without their quotes."""

_BY_KIND: Final[tuple[tuple[str, Callable[[Location, ErrorDetails, Schema], Problem]], ...]] = (
    ("missing", _missing),
    ("literal_error", _not_allowed),
    ("enum", _not_allowed),
    ("greater_than", _out_of_range),
    ("less_than", _out_of_range),
    ("string_pattern", _bad_format),
    ("string_too_long", _too_long),
    ("too_long", _too_long),
    ("value_error", _wrong_value),
)
"""Prefix of pydantic's error type → how it is said."""
