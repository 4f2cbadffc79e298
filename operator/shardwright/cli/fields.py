"""The fields of one JSON object, each within its bounds; faults are collected, with their paths.

A field that nobody asks for is not looked at.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from shardwright.errors import Problem

_MOST: Final = 10**7  # tokens, requests, GPUs: more is a mistake


class CaseReader:
    """Reads the fields of one case; every problem has the path of its field."""

    def __init__(
        self, values: Mapping[str, Any], path: str, problems: list[Problem]
    ) -> None:
        self.values, self._path, self.problems = values, path, problems

    def section(self, name: str) -> "CaseReader":
        """Return a part of the case; empty, with a problem, if it is missing."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            self.refuse(name, "must be an object")
            value = {}
        return CaseReader(value, f"{self._path}{name}.", self.problems)

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
                path=f"{self._path}{name}",
                what=f"{shown:.60}",
                limit=limit,
            )
        )
