"""The fields of a spec that may hold anything, of a size and depth no API server bounds."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardwright.errors import Problem

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

USUALLY_SMALL: Final = ("spec.engine.args", "spec.engine.env")
"""Fields of which the API server bounds the entries, and that are small in nearly all specs."""

SMALL_BYTES: Final = 4096
"""Unit: bytes of JSON, up to which such a field counts as small. Basis: chosen; what engines are
given is a quarter of it.
"""


def has_free_form(spec: object) -> bool:
    """Return whether a spec has anything in a field that may hold anything, or lacks what was too
    large to be kept.
    """
    held = any(_at(spec, path) is not None for path in FREE_FORM)
    return held or any(_at(spec, path) in ({}, []) for path in USUALLY_SMALL)


def without_free_form(spec: Any) -> Any:
    """Return a spec with nothing in each field that may hold anything, nor in one that is not as
    small as usual.

    >>> without_free_form({"model": {"id": "a", "config": {"b": 1}}, "replicas": 2})
    {'model': {'id': 'a', 'config': {}}, 'replicas': 2}
    >>> without_free_form({"engine": {"args": {"a": "b" * SMALL_BYTES}, "env": [{"name": "C"}]}})
    {'engine': {'args': {}, 'env': [{'name': 'C'}]}}
    """
    large = (path for path in USUALLY_SMALL if _size(_at(spec, path)) > SMALL_BYTES)
    for path in (*FREE_FORM, *large):
        spec = _emptied(spec, path.split(".")[1:])
    return spec


def _size(value: object) -> int:
    return len(json.dumps(value)) if value else 0


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
        return [] if isinstance(value, list) else {}
    if not isinstance(value, Mapping) or value.get(steps[0]) is None:
        return value
    return {**value, steps[0]: _emptied(value[steps[0]], steps[1:])}
