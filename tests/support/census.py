"""What objects remember: every place below them where a text has a word in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

_MANY = (list, tuple, deque, AbstractSet)


def places_of(word: str, roots: Mapping[str, Any], but: Iterable[object] = ()) -> list[str]:
    """Return the paths below these objects of all texts with this word in them, each object looked
    at once.

    ``but`` are objects that are not looked into. A place in a container that has many goes by the
    container.
    """
    known = {id(item) for item in but}
    waiting = deque(roots.items())
    found: dict[str, None] = {}
    while waiting:
        path, item = waiting.popleft()
        if isinstance(item, str):
            if word in item:
                found.setdefault(path)
        elif id(item) not in known:
            known.add(id(item))
            waiting.extend(_below(path, item))
    return list(found)


def _below(path: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Mapping):
        yield from ((path, key) for key in item)
        yield from ((path, value) for value in item.values())
    elif isinstance(item, _MANY):
        yield from ((path, value) for value in item)
    elif type(item).__module__.partition(".")[0] in {"shardwright", "tests", "prometheus_client"}:
        names = {
            *getattr(item, "__dict__", ()),
            *(name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())),
        }
        yield from (
            (f"{path}.{name}", getattr(item, name)) for name in sorted(names) if hasattr(item, name)
        )
