"""Documents of YAML as ``kubectl`` prints it, made from the events of a parser in one pass.

Takes no anchors, tags, keys that are collections, or keys that are there twice: whoever reads them
takes the text to a reader that knows all of YAML, and that says in words whatever is wrong.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import yaml

BETWEEN_CALLS: Final = 1 << 14
"""Events between two calls that say how far the reader is. Basis: measured; 20 ms of CPU."""

_NO_KEY: Final = object()


class NotPlainError(ValueError):
    """The text has something that only the other reader takes, or refuses."""


def plain_documents(
    next_event: Callable[[], yaml.Event],
    scalar: Callable[[str], Any],
    deepest: int,
    tell: Callable[[int], None],
) -> list[Any]:
    """Return the documents of a stream of events.

    Args:
        next_event: returns the next event.
        scalar: returns the value of a word without quotes.
        deepest: how many collections may be inside one another.
        tell: takes the place in the text, from time to time.

    Raises:
        NotPlainError: it is not plain.
    """
    reader = _Reader(scalar, deepest)
    taken = 0
    while True:
        event = next_event()
        taken += 1
        if not taken % BETWEEN_CALLS and event.start_mark:
            tell(event.start_mark.index)
        take = _TAKEN.get(type(event))
        if take is not None:
            take(reader, event)
        elif isinstance(event, yaml.AliasEvent):
            raise NotPlainError
        elif isinstance(event, yaml.StreamEndEvent):
            return reader.documents


class _Reader:
    """The collections that are open; the innermost takes the next value."""

    def __init__(
        self,
        scalar: Callable[[str], Any],
        deepest: int,
    ) -> None:
        self.documents: list[Any] = []
        self._into: Any = self.documents
        self._key: Any = _NO_KEY
        self._open: list[Any] = []
        self._deepest = deepest
        self._scalar = scalar
        self._values: dict[str, Any] = {}
        self._keys: dict[str, str] = {}

    def take_scalar(self, event: yaml.ScalarEvent) -> None:
        """Take a word: a key where one is due, else a value."""
        if event.anchor is not None or event.tag is not None:
            raise NotPlainError
        text = event.value
        plain = event.implicit[0]
        into = self._into
        if type(into) is list:
            into.append(self._value(text) if plain else text)
        elif self._key is _NO_KEY:
            key = self._name(text) if plain else text
            if key in into:
                raise NotPlainError
            self._key = key
        else:
            into[self._key] = self._value(text) if plain else text
            self._key = _NO_KEY

    def take_list(self, event: yaml.SequenceStartEvent) -> None:
        """Begin a list."""
        self._begin([], event)

    def take_mapping(self, event: yaml.MappingStartEvent) -> None:
        """Begin a mapping."""
        self._begin({}, event)

    def take_end(self, _event: yaml.CollectionEndEvent) -> None:
        """End the innermost collection."""
        self._into = self._open.pop()

    def _begin(
        self,
        new: Any,
        event: yaml.CollectionStartEvent,
    ) -> None:
        into = self._into
        if event.anchor is not None or event.tag is not None:
            raise NotPlainError
        if type(into) is list:
            into.append(new)
        elif self._key is _NO_KEY:
            raise NotPlainError
        else:
            into[self._key] = new
            self._key = _NO_KEY
        self._open.append(into)
        if len(self._open) > self._deepest:
            raise NotPlainError
        self._into = new

    def _value(self, text: str) -> Any:
        """Return the value of a word; most words of a cluster are there many times."""
        if text not in self._values:
            self._values[text] = self._scalar(text)
        return self._values[text]

    def _name(self, text: str) -> str:
        if text not in self._keys:
            value = self._value(text)
            self._keys[text] = value if isinstance(value, str) else json.dumps(value)
        return self._keys[text]


_TAKEN: Final[dict[type, Callable[[_Reader, Any], None]]] = {
    yaml.ScalarEvent: _Reader.take_scalar,
    yaml.SequenceStartEvent: _Reader.take_list,
    yaml.MappingStartEvent: _Reader.take_mapping,
    yaml.SequenceEndEvent: _Reader.take_end,
    yaml.MappingEndEvent: _Reader.take_end,
}
