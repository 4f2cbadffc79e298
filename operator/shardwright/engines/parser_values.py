"""The values that an engine's parser makes of texts, by the names of its conversions, and the
problem of a value that it does not take.
"""

import json
import math
import re
from typing import Final

from shardwright.errors import Problem

COUNTED_MAX: Final = 2**53
"""The largest number that a plan counts with. Basis: floats have every whole number up to it."""

COUNTED: Final = f"a whole number from 1 to {COUNTED_MAX:,}"
"""The numbers that a plan counts with, in words."""

WORDS: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
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

COMPUTED_IN: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
"""PyTorch's names of the types to compute in; ``auto`` is the config's."""

STATE_BITS: Final = {"bfloat16": 16, "float16": 16, "float32": 32}
"""Bits by the name of the type of recurrent states; ``auto`` is the config's."""


def convert(kind: str, text: str) -> object:
    """Return a text's value by the parser's conversion that ``kind`` names.

    Raises:
        ValueError: It has none.
    """
    if kind == "int":
        return int(text)
    if kind == "float":
        return _finite(float(text))
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
    if suffix.islower():
        return int(_finite(float(number) * factor))
    return int(number) * factor


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("no number of JSON")
    return number


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


_SHOWN: Final = 60  # characters of a value in a message


def invalid(
    path: str, value: object, wanted: str, *, said: str = "", remedy: str = "correct the value"
) -> Problem:
    """Return the problem of a value that is not what is ``wanted``; ``said`` is what it is set
    with, the path if it is empty.

    >>> invalid("seed", [1], "a whole number", said="--seed").sentence()
    'seed: --seed [1] must be a whole number; correct the value'
    """
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return Problem(
        code="EngineArgumentInvalid",
        path=path,
        what=f"{said or path} {shown}",
        limit=f"must be {wanted}",
        remedy=remedy,
    )
