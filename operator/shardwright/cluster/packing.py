"""JSON that is kept for long and seldom looked at.

Objects of one sort that we have rendered differ in little, so the others are compressed against the
first one.

Nothing packed leaves this process: the form may change with every release.
"""

import json
import zlib
from typing import Any, Final, NamedTuple

LEVEL: Final = 1
"""How hard zlib tries. Basis: measured without a dictionary, the plan of record and the scripts of
a model, 27 kB, took 10 kB and 0.2 ms; assumed to be right with one, too.
"""

DICTIONARY_BYTES_MAX: Final = 32_768
"""How much of a text can be referred to. Source: RFC 1951, the window of DEFLATE."""

_first: dict[str, bytes] = {}
"""The end of the first text of each sort: what is packed refers to it, so it stays."""


class Packed(NamedTuple):
    """A compressed text, and the dictionary that it was compressed against."""

    content: bytes
    dictionary: bytes


def plain(value: object) -> bytes:
    """Return a JSON value as text without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def packed(text: bytes, sort: str) -> Packed:
    """Compress a JSON text; :func:`unpacked` reads it.

    Args:
        text: The text to compress.
        sort: Kind of the text. Texts of one kind share a dictionary, which is kept for the life of
            the process, so there must be few kinds.
    """
    # The end of it: DEFLATE refers most cheaply to the nearest text.
    dictionary = _first.setdefault(sort, text[-DICTIONARY_BYTES_MAX:])
    packer = zlib.compressobj(LEVEL, zdict=dictionary)
    return Packed(packer.compress(text) + packer.flush(), dictionary)


def unpacked(kept: Packed) -> Any:
    """Return the value of a text that was packed, a new one each time."""
    return json.loads(
        zlib.decompressobj(zdict=kept.dictionary).decompress(kept.content)
    )
