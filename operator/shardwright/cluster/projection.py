"""A cache of what matters of many objects, fed by watches and set right by LISTs.

A watch that missed a deletion would keep a ghost for ever, and a LIST that is older than an event would
undo it: so a LIST replaces everything except what events touched while it ran.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Projection(Generic[K, V]):
    """Values by key; ``synced`` is False until the first LIST is complete."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._touched: set[K] | None = None
        self.synced = False

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._values))

    def get(self, key: K) -> V | None:
        """Return a value, or None where there is none."""
        return self._values.get(key)

    def values(self) -> tuple[V, ...]:
        """Return all values."""
        return tuple(self._values.values())

    def set(self, key: K, value: V | None) -> bool:
        """Take over what an event says (None: it is gone) and return whether that changed anything."""
        if self._touched is not None:
            self._touched.add(key)
        changed = self._values.get(key) != value
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        return changed

    def begin_list(self) -> None:
        """Note from here on what events touch."""
        self._touched = set()

    def finish_list(self, listed: Mapping[K, V]) -> frozenset[K]:
        """Replace everything by a complete LIST, but not what was touched meanwhile; return what changed."""
        touched, self._touched = self._touched or set(), None
        keys = (self._values.keys() | listed.keys()) - touched
        changed = frozenset(key for key in keys if self._values.get(key) != listed.get(key))
        kept = {key: value for key, value in self._values.items() if key in touched}
        self._values = {key: value for key, value in listed.items() if key not in touched} | kept
        self.synced = True
        return changed
