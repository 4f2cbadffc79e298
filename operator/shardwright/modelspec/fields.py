"""Is each field of a config there, of the right type and within bounds? All problems are collected.

A wrong value is refused and read as a harmless one, so nothing behind it raises.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from shardwright.errors import Problem

#: Bounds that no real model comes near, so that a hostile config costs no more than a real one.
LAYERS: Final = (1, 1024)
HEADS: Final = (1, 4096)
HEAD_DIM: Final = (1, 8192)
WIDTH: Final = (1, 1 << 20)
VOCABULARY: Final = (1, 1 << 24)
EXPERTS: Final = (1, 8192)
CONTEXT: Final = (1, 1 << 30)
KERNEL: Final = (1, 64)
STREAMS: Final = (1, 64)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Bounds = tuple[int, int]
_T = TypeVar("_T")

_LONGEST_SHOWN: Final = 60
_LONGEST_INTEGER_BITS: Final = 64


class Fields:
    """A config that is being read; ``problems`` grows, and reading goes on with a harmless value.

    ``spelled`` has the config's own names of some fields, for the paths of problems.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        path: str = "",
        problems: list[Problem] | None = None,
        spelled: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.values = values
        self.path = path
        self.spelled = spelled
        self.problems: list[Problem] = [] if problems is None else problems

    def integer(self, name: str, bounds: Bounds, *, default: int | None = None) -> int:
        """Return a whole number within bounds; without a default it must be there."""
        value = self.values.get(name)
        if value is None:
            return self._missing(name, bounds) if default is None else default
        # True is an int to Python.
        if isinstance(value, bool) or not isinstance(value, int):
            return self._refuse(name, _shown(value), "must be a whole number", bounds[0])
        if not bounds[0] <= value <= bounds[1]:
            return self._refuse(
                name, _shown(value), f"must be {bounds[0]} to {bounds[1]}", bounds[0]
            )
        return value

    def optional_integer(self, name: str, bounds: Bounds) -> int | None:
        """Return a whole number within bounds, or None if the field is missing or null."""
        return None if self.values.get(name) is None else self.integer(name, bounds)

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false; without the field, the default."""
        value = self.values.get(name)
        if value is None:
            return default
        return (
            value
            if isinstance(value, bool)
            else self._refuse(name, _shown(value), "must be true or false", default)
        )

    def string(self, name: str) -> str | None:
        """Return a text, or None if the field is missing or null."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        return self._refuse(name, _shown(value), "must be a text", None)

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, empty if the field is missing or null."""
        return tuple(item for item in self._list(name, str, "texts") if isinstance(item, str))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, empty if the field is missing or null."""
        return tuple(
            item for item in self._list(name, int, "whole numbers") if isinstance(item, int)
        )

    def section(self, name: str) -> "Fields | None":
        """Return the object under a field, or None if the field is missing or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            return self._refuse(name, _shown(value), "must be an object", None)
        return Fields(value, f"{self.path}{name}.", self.problems)

    def sections(self, name: str) -> "tuple[Fields, ...]":
        """Return a list of objects, empty if the field is missing or null."""
        items = self._list(name, Mapping, "objects")
        return tuple(
            Fields(item, f"{self.path}{name}[{index}].", self.problems)
            for index, item in enumerate(items)
            if isinstance(item, Mapping)
        )

    def refuse(self, name: str, what: str, limit: str = "", remedy: str = "") -> None:
        """Note a problem of one field."""
        path = f"{self.path}{self.spelled.get(name, name)}"
        self.problems.append(
            Problem(code="ConfigInvalid", what=what, limit=limit, remedy=remedy, path=path)
        )

    def _missing(self, name: str, bounds: Bounds) -> int:
        self.refuse(name, "missing", remedy=f"give a whole number, {bounds[0]} to {bounds[1]}")
        return bounds[0]

    def _refuse(self, name: str, what: str, limit: str, instead: _T) -> _T:
        self.refuse(name, what, limit)
        return instead

    def _list(self, name: str, item: type[object], noun: str) -> list[object]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or any(
            # True is an int to Python.
            isinstance(entry, bool) or not isinstance(entry, item)
            for entry in value
        ):
            return self._refuse(name, _shown(value), f"must be a list of {noun}", [])
        return list(value)


def _shown(value: object) -> str:
    # Python refuses to print an int of more than 4,300 digits.
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER_BITS:
        return "a very large number"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
