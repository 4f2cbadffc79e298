"""The values that an engine's parser makes of texts, by the names of its conversions."""

import json
import re
from typing import Final

WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "human_readable_int": "a whole number, also as 8k or 1M",
    "parse_dataclass": "an object, or its JSON text",
    "union_dict_and_str": "an object, or text",
}
"""What a conversion takes, in words."""

_SUFFIXES: Final = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}
_READABLE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgGtT])", re.ASCII)
_QUOTED: Final = re.compile(r'("(?:[^"\\]|\\.)*")')
_WITHIN_JSON: Final = re.compile(rf"\b{_READABLE.pattern}\b", re.ASCII)
_OBJECT: Final = re.compile(r"\s*{.*}\s*", re.DOTALL)
JSON_VALUES: Final = frozenset({"loads", "_parse_type"})
JSON_OBJECTS: Final = frozenset({"parse_dataclass", "union_dict_and_str"})
"""The parser's conversions of JSON: of any value, and of objects alone. Source: vLLM 0.33
``engine/arg_utils.py``, ``utils/argparse_utils.py``.
"""


def convert(kind: str, text: str) -> object:
    """Return a text's value by the parser's conversion that ``kind`` names.

    Raises:
        ValueError: It has none.
    """
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "human_readable_int":
        return readable_int(text)
    if kind in JSON_OBJECTS:
        return _object(kind, text)
    return json.loads(text) if kind in JSON_VALUES else text


def readable_int(text: str) -> int:
    """Return a whole number, also with a suffix; binary suffixes take no decimals."""
    found = _READABLE.fullmatch(text.strip())
    if found is None:
        return int(text)
    number, suffix = found.groups()
    factor = _SUFFIXES[suffix]
    return int(float(number) * factor) if suffix.islower() else int(number) * factor


def _object(kind: str, text: str) -> object:
    if kind == "union_dict_and_str":
        return json.loads(text) if _OBJECT.fullmatch(text) else text
    parts = _QUOTED.split(text)
    # Numbers with suffixes count outside quoted texts alone.
    parts[::2] = [
        _WITHIN_JSON.sub(lambda found: str(readable_int(found[0])), part) for part in parts[::2]
    ]
    found: object = json.loads("".join(parts))
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004 - a value, as the parser has it
    return found
