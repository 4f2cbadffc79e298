"""Faults that a newer version of an engine fixes.

``data/fixes.json`` has them, each with its source. A release with a fix adds it there; a fix that
is not certain is not in it.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from shardwright.engines.versions import is_newer

_FILE: Final = "data/fixes.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Something that ``version`` of ``engine`` fixes: its ``id`` (of a CVE or an advisory), a line,
    and a link to more.
    """

    id: str
    what: str
    source: str
    engine: str
    version: str


@cache
def known_fixes() -> tuple[Fix, ...]:
    """Return all fixes that this release knows of."""
    found = json.loads(
        resources.files("shardwright.rendering").joinpath(_FILE).read_text(encoding="utf-8")
    )
    return tuple(Fix(**row) for row in found["engines"])


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
