"""In which values do two objects differ?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A changed field; ``before`` is its value in the cluster, None stands for a missing one."""

    path: str
    before: Any
    after: Any


def changed_values(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    """Yield the values at and below a path that differ between two objects."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from changed_values(before.get(name), after.get(name), f"{path}.{name}")
    else:
        yield FieldChange(path=path, before=before, after=after)
