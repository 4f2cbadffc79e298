"""Which keys does an option take whose value is an object, and values of which types?

Keys are named by their path in the object, as ``kv_cache_config.dtype``, and spelled as the engine
has them.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from shardwright.engines.parser_values import invalid
from shardwright.engines.policy import Tables
from shardwright.errors import Problem

KeyKind = str | list[str | None]
"""Types with a bar between them (``int|none``, ``list[int]``), or the values that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of all objects of an engine's version, each with its kind, by path."""

    engine: str
    kinds: Mapping[str, KeyKind]

    def inside(self, path: str) -> tuple[str, ...]:
        """Return the names of the keys right inside an object; none if it is not listed.

        >>> keys = Keys(engine="TensorRT-LLM 1.2", kinds={"a.b": "int", "a.c.d": "str", "e": "int"})
        >>> keys.inside("a"), keys.inside("e")
        (('b', 'c'), ())
        """
        start = f"{path}."
        inner = (key.removeprefix(start) for key in self.kinds if key.startswith(start))
        return tuple(dict.fromkeys(key.partition(".")[0] for key in inner))


_NONE: Final = Keys(engine="", kinds=MappingProxyType({}))


def key_table(version: str, tables: Tables) -> Keys:
    """Return the keys of a version's objects; none for engines and versions without a table."""
    listed = tables.listed(version)
    return _read(tables, listed) if listed and tables.keyed else _NONE


@cache
def _read(tables: Tables, version: str) -> Keys:
    file = resources.files("shardwright.engines").joinpath(
        f"{tables.folder}/data/keys-{version}.json"
    )
    kinds: dict[str, KeyKind] = json.loads(file.read_text(encoding="utf-8"))["keys"]
    return Keys(engine=f"{tables.engine} {version.rpartition('.')[0]}", kinds=kinds)


def as_object(value: object) -> object:
    """Return an object that is written as JSON text, and every other value as it is.

    >>> as_object('{"a": 1}'), as_object("text")
    ({'a': 1}, 'text')
    """
    try:
        found = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict) else value


def leaves(path: str, value: object, keys: Keys) -> Iterator[tuple[str, object]]:
    """Return what an object sets: each listed key that it has, with its value, by path."""
    if not keys.inside(path):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(f"{path}.{name}", inner, keys)


def key_problems(path: str, value: object, keys: Keys) -> Iterator[Problem]:
    """Return each key that an object does not have, and each value of a wrong type, by path."""
    inside = keys.inside(path)
    if not inside:
        yield from _wrong_value(path, value, keys.kinds[path])
    elif not isinstance(value, Mapping):
        yield invalid(path, value, f"an object with keys of {', '.join(inside)}")
    else:
        for name, inner in value.items():
            key = f"{path}.{name}"
            yield from (
                key_problems(key, inner, keys) if name in inside else (_unknown(key, inside, keys),)
            )


def _unknown(path: str, inside: tuple[str, ...], keys: Keys) -> Problem:
    owner, _, name = path.rpartition(".")
    close = get_close_matches(name.replace("-", "_"), inside, n=3)
    return Problem(
        code="EngineArgumentUnknown",
        path=path,
        what=f"{name!r:.60}",
        limit=f"is no key of {owner} in {keys.engine}",
        remedy=f"did you mean {' or '.join(close)}?"
        if close
        else f"its keys are {', '.join(inside)}",
    )


def _wrong_value(path: str, value: object, kind: KeyKind) -> Iterator[Problem]:
    if isinstance(kind, list):
        if value not in kind:
            yield invalid(path, value, f"one of {', '.join(map(_shown, kind))}")
    elif not any(_is(value, each) for each in kind.split("|")):
        # Null first, so that it does not read as what a list may hold.
        kinds = sorted(kind.split("|"), key=lambda each: each != "none")
        yield invalid(path, value, " or ".join(map(_in_words, kinds)))


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _is_whole(value: object) -> bool:
    return _is_number(value) and float(str(value)).is_integer()


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


_TYPES: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = MappingProxyType(
    {
        "auto": (lambda value: value == "auto", "auto"),
        "bool": (lambda value: isinstance(value, bool), "true or false"),
        "float": (_is_number, "a number"),
        "int": (_is_whole, "a whole number"),
        "none": (lambda value: value is None, "null"),
        "object": (lambda value: isinstance(value, Mapping), "an object"),
        "str": (lambda value: isinstance(value, str), "text"),
    }
)
"""By type: whether a value is one, and what it is called. Numbers may be text, as for pydantic."""

_LIST: Final = "list["


def _is(value: object, kind: str) -> bool:
    if not kind.startswith(_LIST):
        return _TYPES[kind][0](value)
    inner = kind.removeprefix(_LIST).removesuffix("]")
    return isinstance(value, list | tuple) and all(_is(each, inner) for each in value)


def _in_words(kind: str) -> str:
    if not kind.startswith(_LIST):
        return _TYPES[kind][1]
    inner = kind.removeprefix(_LIST).removesuffix("]")
    return f"a list, each {_in_words(inner)}"
