"""JSON as it arrives: a LIST's items, a watch's events one by one, never a whole document.

Whatever one object is like, the next is read. A value nested more deeply than anything in
Kubernetes (anybody may write such managed fields) is cut there; one that is too long, or holds a
number Python does not take, is skipped as :class:`Unreadable`. Only a break of the document itself
is an error.
"""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.api.free_form import DEPTH_MAX

LONGEST_OBJECT: Final = 16 * 2**20
"""Characters of one object that are kept. Basis: assumed, ten times the 1.5 MiB that etcd takes of
one in a request.
"""

DEEPEST: Final = DEPTH_MAX + 6
"""Levels kept of a document deeper than Python decodes. Basis: the deepest field that may hold
anything is on the sixth level of a watch event. One level more than admitted is kept, so that a cut
value is seen to be too deep.
"""

# Characters that are gathered before the next item is decoded: a piece of one is decoded in vain.
PIECE: Final = 2**16
HEAD: Final = 4096  # characters in which a name is looked for

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SEGMENT: Final = re.compile(
    r'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+(?:([{\[])|([}\]])|"|\Z)', re.DOTALL
)
_NAME: Final = re.compile(r'"metadata":\{"name":"([^"\\]*)"(?:[^{}]*?"namespace":"([^"\\]*)")?')


class BrokenError(Exception):
    """The answer is not the JSON that was asked for, or ends in the middle."""


class SilentError(BrokenError):
    """Nothing arrives for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A skipped object, with ``namespace`` and ``name`` as far as its beginning shows them."""

    why: str
    namespace: str = ""
    name: str = ""


class JsonText:
    """JSON text as it arrives, from which values are taken."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        # A chunk may end within a character, and one broken character must cost no LIST.
        self._utf8 = getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """Return the next character that is not space, without taking it."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            self._gather(1)

    def take(self, wanted: str) -> str:
        """Return the next character, which must be one of ``wanted``."""
        character = self.next()
        if character not in wanted:
            raise BrokenError(
                f"{self._text[self._at : self._at + 40]!a} where one of {' '.join(wanted)} belongs"
            )
        self._at += 1
        return character

    def value(self) -> Any:
        """Return one value, which something must follow; a cut-off one is tried with more text."""
        self.next()
        while True:
            have = len(self._text) - self._at
            if have > LONGEST_OBJECT:
                return self._shallow(f"is longer than {LONGEST_OBJECT} characters")
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                end = len(self._text)
            # After JSONDecodeError, which is a ValueError: of a number that has too many digits.
            except (ValueError, RecursionError) as error:
                return self._shallow(str(error))
            # A number that ends where the text ends may go on in the next piece.
            if end < len(self._text):
                self._at = end
                return value
            self._gather(max(2 * have, PIECE))

    def end(self) -> None:
        """Take the rest: a response read to its end frees its connection."""
        # Without reading the last chunk the connection cannot be kept, and each page would shake
        # hands anew.
        for _ in self._chunks:
            pass

    def _gather(self, least: int) -> None:
        parts, size = [self._text[self._at :]], len(self._text) - self._at
        before = size
        # Doubled by the callers: decoding again after each piece would take quadratic time for a
        # long object.
        while size < least and (chunk := next(self._chunks, b"")):
            parts.append(self._utf8.decode(chunk))
            size += len(parts[-1])
        if size == before:
            raise BrokenError("the answer ends in the middle")
        self._text, self._at = "".join(parts), 0

    def _shallow(self, why: str) -> Any:
        """Return one value cut where it is too deep, or why it cannot be read."""
        head = self._text[self._at : self._at + HEAD]
        kept: list[str] = []
        size = 0
        # Taken to its end even where it is not kept: the next item begins after it.
        for segment in self._segments():
            size += len(segment)
            if size <= LONGEST_OBJECT:
                kept.append(segment)
        try:
            return json.loads("".join(kept)) if size <= LONGEST_OBJECT else _unreadable(head, why)
        except ValueError:
            return _unreadable(head, why)

    def _segments(self) -> Iterator[str]:
        """Yield one value up to each bracket; parts that are too deep become null."""
        depth = 0
        while True:
            # By a regular expression with possessive quantifiers: Python's decoder recurses and
            # ends at a thousand levels, and a loop over characters would be slow.
            for found in _SEGMENT.finditer(self._text, self._at):
                if not found.lastindex:  # cut off, maybe in a string
                    break
                self._at = found.end()
                if found.lastindex == 1:
                    depth += 1
                    if depth <= DEEPEST + 1:
                        yield found[0] if depth <= DEEPEST else f"{found[0][:-1]}null"
                    continue
                if depth <= DEEPEST:
                    yield found[0]
                depth -= 1
                if not depth:
                    return
            have = len(self._text) - self._at
            if have > LONGEST_OBJECT:
                raise BrokenError(f"a text is longer than {LONGEST_OBJECT} characters")
            self._gather(max(2 * have, PIECE))


class ListDocument:
    """A LIST as it arrives; ``fields`` are those beside the items, complete after the last item."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._text = JsonText(chunks)
        self.fields: dict[str, Any] = {}

    def items(self) -> Iterator[Any]:
        """Yield each item, decoded or :class:`Unreadable`.

        Raises:
            BrokenError: this is no LIST, or it ends in the middle.
        """
        text = self._text
        text.take("{")
        while True:
            key = text.value()
            text.take(":")
            if key == "items" and text.next() == "[":
                yield from self._array()
            else:
                # Also fields after the items: the API server writes metadata before them, and JSON
                # has no order.
                self.fields[str(key)] = text.value()
            if text.take(",}") == "}":
                text.end()
                return

    def _array(self) -> Iterator[Any]:
        text = self._text
        text.take("[")
        if text.next() == "]":
            text.take("]")
            return
        while True:
            yield text.value()
            if text.take(",]") == "]":
                return


class Lines:
    """The lines of a watch as they arrive; one longer than an object may be is dropped."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def end(self) -> None:
        """End the text.

        Raises:
            BrokenError: the last line is not complete.
        """
        if self._size:
            raise BrokenError("it ends in the middle of an event")

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Yield each line that this completes, decoded or :class:`Unreadable`.

        Raises:
            BrokenError: a line is no JSON.
        """
        # By bytes: a chunk may end within a character, and no byte of another character is a line
        # feed in UTF-8.
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self._keep(line)
            size, parts = self._size, self._parts
            self._parts, self._size = [], 0
            if size:
                yield _line(parts, size)
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if part and (self._size <= LONGEST_OBJECT or not self._parts):
            self._parts.append(part)
        elif part:
            del self._parts[1:]  # its beginning holds its name


def document(text: bytes) -> Any:
    """Return the value of a JSON text, cut where it is nested too deeply, or :class:`Unreadable`.

    Raises:
        BrokenError: it is no JSON.
    """
    try:
        return json.loads(text.decode(errors="replace"))
    except json.JSONDecodeError as error:
        raise BrokenError(f"{text[:40].decode(errors='replace')!a} is no JSON: {error}") from error
    except (ValueError, RecursionError):
        return JsonText(iter([text, b"\n"])).value()


def _line(parts: Iterable[bytes], size: int) -> Any:
    line = b"".join(parts)
    if size > LONGEST_OBJECT:
        return _unreadable(
            line[:HEAD].decode(errors="replace"), f"is longer than {LONGEST_OBJECT} bytes"
        )
    return document(line)


def _unreadable(head: str, why: str) -> Unreadable:
    found = _NAME.search(head)
    name, namespace = found.groups(default="") if found else ("", "")
    return Unreadable(why=why, namespace=namespace, name=name)


def metadata_of(content: object) -> Mapping[str, Any]:
    """Return the metadata of a possible object, empty if it is none."""
    metadata = content.get("metadata") if isinstance(content, dict) else None
    return metadata if isinstance(metadata, dict) else {}
