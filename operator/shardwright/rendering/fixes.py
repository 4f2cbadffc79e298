"""Faults that a group's restart also fixes, by its pods' fields or its engine's version.

``data/fixes.json`` has them, each with its source; a release adds its certain fixes there.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from shardwright.engines.versions import is_newer

_FILE: Final = "data/fixes.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A fix: its ``id`` (of a CVE, an advisory, or ours), a line, and a link.

    It comes with a change of ``fields`` of pods (without the template's own path), or with
    ``version`` of ``engine``.
    """

    id: str
    what: str
    source: str
    fields: tuple[str, ...] = ()
    engine: str = ""
    version: str = ""


@cache
def known_fixes() -> tuple[Fix, ...]:
    """Return all fixes this release knows of, those of pods first."""
    found = json.loads(
        resources.files("shardwright.rendering").joinpath(_FILE).read_text(encoding="utf-8")
    )
    of_pods = (Fix(**{**row, "fields": tuple(row["fields"])}) for row in found["pods"])
    return (*of_pods, *(Fix(**row) for row in found["engines"]))


def fixes_of_pods(fields: Collection[str]) -> tuple[Fix, ...]:
    """Return the fixes that come with a change of these fields of pods."""
    return tuple(fix for fix in known_fixes() if not set(fix.fields).isdisjoint(fields))


def fixes_of_engine(engine: str, old: str, new: str) -> tuple[Fix, ...]:
    """Return the fixes between two versions of an engine (``major.minor.patch``).

    >>> [fix.id for fix in fixes_of_engine("vLLM", "0.31.0", "0.33.0")]
    ['CVE-2026-115911', 'PYSEC-2026-4349']
    >>> (
    ...     fixes_of_engine("vLLM", "0.32.0", "0.33.0"),
    ...     fixes_of_engine("TensorRT-LLM", "0.1.0", "1.2.0"),
    ... )
    ((), ())
    """
    found = (fix for fix in known_fixes() if fix.engine == engine)
    return tuple(
        fix for fix in found if is_newer(fix.version, old) and not is_newer(fix.version, new)
    )
