"""Many to one: the entries of a key, in the order they came."""

from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Index(Generic[A, B]):
    """Many to one: which ``B`` belong to an ``A``, in the order they came."""

    def __init__(self) -> None:
        # A dict and no set: it keeps the order, and so a reconcile finds the same order each time.
        self._sets: dict[A, dict[B, None]] = {}

    def get(self, key: A) -> tuple[B, ...]:
        """Return all values of a key."""
        return tuple(self._sets.get(key, ()))

    def move(self, item: B, before: A | None, now: A | None) -> None:
        """Move an item to another key; None: no key."""
        if before == now:
            return
        if before is not None:
            items = self._sets[before]
            del items[item]
            # Empty ones go: namespaces and models come and go for as long as the process runs.
            if not items:
                del self._sets[before]
        if now is not None:
            self._sets.setdefault(now, {})[item] = None
