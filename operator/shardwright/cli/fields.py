"""The fields of one JSON object, each within its bounds; faults are collected, with their paths.

A field that is not known is a fault: a misspelt one would be answered as if it were not there.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardwright.errors import Problem, hint_for

_MOST: Final = 10**7  # tokens, requests, GPUs: more is a mistake


class CaseReader:
    """Reads the fields of one case; every problem has the path of its field."""

    def __init__(
        self,
        values: Mapping[str, Any],
        path: str,
        problems: list[Problem],
        known: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Take an object and what its fields are: ``known`` has the names by the path of the
        object; an object whose path is not in it may hold anything.
        """
        self.values, self._path, self.problems = values, path, problems
        self._known = known
        if path in known:
            self.problems += _unknown(values, path, known[path])

    def section(self, name: str) -> "CaseReader":
        """Return a part of the case; empty, with a problem, if it is missing."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            self.refuse(name, "must be an object")
            value = {}
        return CaseReader(value, self._at(name), self.problems, self._known)

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def number(
        self, name: str, *, default: float | None = None, least: float = 1
    ) -> float:
        """Return a finite number of at least ``least``."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        number = (
            value
            if isinstance(value, int | float) and not isinstance(value, bool)
            else math.nan
        )
        if not least <= number <= _MOST:
            self.refuse(name, f"must be a number from {least:g} to {_MOST:,}")
            return default or least
        return number

    def degree(self, name: str) -> int:
        """Return a whole number of at least 1, 1 if it is missing."""
        value = self.number(name, default=1)
        if value != int(value):
            self.refuse(name, "must be a whole number")
        return int(value)

    def choice(
        self,
        name: str,
        allowed: tuple[str, ...] | Mapping[str, str],
        *,
        default: str | None = None,
    ) -> str:
        """Return a string that is one of ``allowed``."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in allowed:
            self.refuse(name, f"must be one of {', '.join(allowed)}")
            return default or next(iter(allowed))
        return value

    def text(self, name: str) -> str | None:
        """Return a string or None."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "must be a string or null")
            return None
        return value

    def has(self, name: str) -> bool:
        """Return whether a field is there and not null."""
        return self.values.get(name) is not None

    def refuse(self, name: str, limit: str) -> None:
        """Note that a field is wrong."""
        shown = json.dumps(self.values[name]) if name in self.values else "missing,"
        self.problems.append(
            Problem(
                code="CaseInvalid",
                path=self._at(name),
                what=f"{shown:.60}",
                limit=limit,
            )
        )


def _unknown(
    values: Mapping[str, Any], path: str, known: tuple[str, ...]
) -> Iterator[Problem]:
    for name in values:
        if name not in known:
            problem = Problem(
                code="CaseInvalid",
                path=f"{name if name.isidentifier() else ascii(name):.60}",
                what="is not a field",
                remedy=hint_for(name, known),
            )
            yield problem.under(path) if path else problem
